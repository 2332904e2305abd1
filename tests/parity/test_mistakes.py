"""Mistakes that people make in their first hour: each raises one error that names the argument and the
path in it, shows what was wrong, and says what to do.

A mistake is written as a program writes it. The words that follow it are those of the message, in
order; ``...`` stands for any others. Options that are misspelt are in tests/test_options.py.
"""

import contextlib
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import PartitionSpec as P  # noqa: F401 (mistakes name what is imported here)

import filterjit
from filterjit import Filter, ShardingRules, filter_jit, load, partition, place  # noqa: F401
from support.comparison import Jit

X = jnp.ones(2)
MODEL = eqx.nn.Linear(2, 2, key=jax.random.key(0))
MESH = jax.make_mesh((1,), ("data",))
SPEC = jax.ShapeDtypeStruct((2,), jnp.float32)


def step(model: Any, x: Any, n: int = 1) -> Any:
    return model(x) * n


class Plain:
    """It is no pytree."""

    def __init__(self, w: Any) -> None:
        self.w = 2 * w


f = filter_jit(step)
structure, groups = filterjit.partition_dict(MODEL)
compiled = f.lower(MODEL, X).compile()
donating = filter_jit(lambda x: x + 1, donate="all")
count = nnx.Variable(jnp.zeros(2))

FILTER = "A filter is a function of a leaf, a bool, a dtype, a type of arrays, a path pattern"
BOOL, PATH = "must be a bool, not", "must be the path of a file, not"

# What a function is, and options of wrong types and values.
JITTING: dict[str, tuple[Any, str]] = {
    "filter_jit(3)": (TypeError,
        "3 is not a callable object ... `filter_jit` takes the function itself"),
    "filter_jit('all')": (TypeError,
        "'all' is not a callable ... options by name, such as `donate="),
    "filter_jit(step(MODEL, X))": (TypeError, "Array( ... is not a callable object"),
    "filter_jit()(None)": (TypeError, "None is not a callable object"),
    "filter_jit(classmethod(step))": (TypeError, "Put `@classmethod` above `@filter_jit`"),
    "filter_jit(property(step))": (TypeError, "Put `@property` above `@filter_jit`"),
    "filter_jit(functools.cached_property(step))": (TypeError, "Put `@cached_property` above"),
    "filter_jit(max)": (ValueError, "no signature found"),
    "filter_jit(step, donate='al')": (ValueError,
        "donate=...)` ... It is 'al'. Did you mean 'all'?"),
    "filter_jit(step, donate='model')": (ValueError,
        "It is 'model'. ... names of parameters, such as ('model',)"),
    "filter_jit(step, donate=True)": (TypeError,
        "donate=...)` must be a mode ('all' ... a tuple of names of parameters ... not True."),
    "filter_jit(step, donate={'model': MODEL})(MODEL, X)": (
        ValueError,
        "a leaf of the tree of filters is not a filter ... a tree of arrays, such as a model, is none",
    ),
    "filter_jit(step, donate={'x': 3})": (ValueError,
        "`donate` of 'x' is not a filter: 3 ... " + FILTER),
    "filter_jit(step, donate=('modle',))(MODEL, X)": (ValueError,
        "`donate` names 'modle', which is not a parameter ... Did you mean 'model'?"),
    "filter_jit(step, donate={'model': 'weigth'})(MODEL, X)": (ValueError,
        "does not fit 'model': the path pattern 'weigth' matches no leaf: the tree has `weight`"),
    "filter_jit(step, traced='n')": (TypeError, "traced=...)` must be a tuple ... such as ('n',)"),
    "filter_jit(step, traced=('m',))(MODEL, X)": (ValueError,
        "`traced` names 'm' ... these are 'model'"),
    "filter_jit(step, static_argnum=2)": (TypeError, "Did you mean 'static_argnums'?"),
    "filter_jit(step, static_argnums=2)": (ValueError, "`static_argnums`: leave it out"),
    "filter_jit(step, maxsize=None)": (ValueError,
        "maxsize=...)` must be a positive int, not None"),
    "filter_jit(step, on_retrace='error')": (ValueError,
        "on_retrace=...)` must be one of 'log', 'warn'"),
    "filter_jit(step, same_on_all_processes=1)": (ValueError, "must be a bool or None, not 1"),
    "filter_jit(step, keep_unused='yes')": (ValueError,
        "keep_unused=...)` must be a bool, not 'yes'"),
    "filter_jit(step, device='cpu')": (TypeError, "device=...)` must be one of `jax.devices()`"),
    "filter_jit(step, backend=0)": (TypeError,
        "backend=...)` must be the name of a platform or None"),
    "filter_jit(step, compiler_options='fast')": (TypeError,
        "compiler_options=...)` must be a dict"),
    "filter_jit(step, mesh='data')": (TypeError,
        "mesh=...)` must be a jax.sharding.Mesh, not 'data'"),
    "filter_jit(step, in_shardings='data')": (TypeError,
        "in_shardings=...)` must be a dict from names"),
    "filterjit.jit(step, donate='all')": (TypeError, "Did you mean 'donate_argnums'?"),
    "filterjit.nnx.jit(step, maxsize=-1)": (ValueError, "`nnx.jit(..., maxsize=...)` must be"),
    "filterjit.nnx.cached_partial(3, count)": (TypeError,
        "`nnx.cached_partial(f)` must be a function"),
}  # fmt: skip
# Calls, and the methods of a jitted function.
CALLING: dict[str, tuple[Any, str]] = {
    "f(MODEL)": (TypeError, "step() missing 1 required positional argument: 'x'"),
    "f(MODEL, X, 1, 2)": (TypeError,
        "step() takes from 2 to 3 positional arguments but 4 were given"),
    "f(MODEL, X, m=3)": (TypeError, "step() got an unexpected keyword argument 'm'"),
    "f(MODEL, X, n={1})": (TypeError,
        "argument `n` is static ... {1} of type `set` ... Pass a frozenset"),
    "f({'a': [Plain(X), {1}]}, X)": (TypeError,
        "argument `model['a'][1]` is static, but it cannot be"),
    "f({1: X, 'a': X}, X)": (TypeError,
        "the dict at `model` cannot be sorted ... Use keys of one type"),
    "f(MODEL, np.array(['a']))": (TypeError,
        "(argument `x` is a NumPy array of dtype <U1, which JAX"),
    "f(MODEL, np.array([None]))": (TypeError,
        "(argument `x` is a NumPy array of dtype object, which"),
    "[donating(x) for x in 2 * [X + 0]]": ((RuntimeError, ValueError),
        "(deleted, or donated to an earlier call: ... x)"),
    "donating.partial(X)": (ValueError,
        "argument 0 of `partial` would be donated by the first call"),
    "filter_jit(Plain)(X)": (TypeError, "the class `Plain` was jitted ... `w` ... jit its methods"),
    "f.lower(MODEL)": (TypeError, "step() missing 1 required positional argument: 'x'"),
    "f.explain(MODEL)": (TypeError, "step() missing 1 required positional argument: 'x'"),
    "f.freeze(MODEL, X, 1, 2)": (TypeError, "step.freeze(): too many positional arguments"),
    "f.freeze(MODEL, modle=1)": (TypeError, "'modle'. Did you mean 'model'?"),
    "f.freeze(MODEL, SPEC)": (TypeError,
        "`x` of `freeze` has a ShapeDtypeStruct, which has no values"),
    "f.warm_up_all(MODEL)": (TypeError,
        "`warm_up_all(signatures)` must be a list of pairs (args, kwargs)"),
    "f.warm_up_all(3)": (TypeError, "such as [((x, 2), {})], not 3"),
    "f.warm_up_all([(MODEL, X)])": (TypeError,
        "signature 0 of `warm_up_all` is not a pair ... [((x, 2), {})]"),
    "f.warm_up_all(((MODEL, X), {}))": (TypeError,
        "signature 0 of `warm_up_all` is not a pair (args, kwargs)"),
    "f.warm_up_all([((MODEL, X), {})], threads=0)": (ValueError,
        "threads=...)` must be a positive int"),
    "compiled(MODEL)": (TypeError, "step() missing 1 required positional argument: 'x'"),
    "compiled(MODEL, jnp.ones(3))": (TypeError,
        "`x`: compiled for float32[2], called with float32[3]"),
    "compiled(MODEL, X, 2)": (TypeError, "`n`: compiled without it, called with the int 2"),
    "compiled(X, X)": (TypeError, "`model`: compiled for a Linear, called with"),
    "compiled.save(3)": (TypeError, f"`save(path)` {PATH} 3"),
    "compiled.save('no/such/file.jit')": (FileNotFoundError, "No such file ... 'no/such/file.jit'"),
    "compiled.save('folder')": (IsADirectoryError, "'folder'"),
    "compiled.save('x.jit', portable='yes')": (ValueError, f"portable=...)` {BOOL} 'yes'"),
    "compiled.save('x.jit', platforms=('cpu',))": (ValueError,
        "platforms=...)` is for portable files"),
    "compiled.save('x.jit', portable=True, platforms='cpu')": (TypeError,
        "platforms=...)` must be a seq"),
    "compiled.save('x.jit', portable=True, platforms=())": (TypeError,
        "such as ('cpu', 'cuda'), not ()"),
    "load(3)": (TypeError, f"`load(path)` {PATH} 3"),
    "load(compiled)": (TypeError, f"`load(path)` {PATH} <Compiled of step>"),
    "load('none.jit')": (FileNotFoundError, "'none.jit'"),
    "load('program.py')": (ValueError,
        "`program.py` was not written by filterjit's `compiled.save`"),
    "load('none.jit', devices='cpu')": (TypeError,
        "devices=...)` must be devices or a mesh, not 'cpu'"),
    "filterjit.saved_info(3)": (TypeError, f"`saved_info(path)` {PATH} 3"),
    "filterjit.report().text('a.txt')": (TypeError,
        "`text(file)` must be an open file or None, not"),
}  # fmt: skip
# Trees, filters and shardings.
TREES: dict[str, tuple[Any, str]] = {
    "Filter(3)": (ValueError, "`Filter(spec)` is not a filter: 3 of type `int`. " + FILTER),
    "Filter('a[')": (ValueError, "cannot read the path pattern 'a[' from character 2 on"),
    "Filter('head.**')(X)": (ValueError, "'head.**' cannot be called with a leaf"),
    "Filter('a') & 3": (ValueError, "an operand of `and` is not a filter: 3"),
    "partition(MODEL, MODEL)": (ValueError,
        "not a filter: Array( ... a tree of arrays, such as a model"),
    "partition(MODEL, 'weight', X)": (ValueError,
        "filter 1 of `partition` is not a filter: Array("),
    "partition(MODEL, lambda: True)": (TypeError, "(while a filter was asked about `weight`)"),
    "partition(MODEL, lambda x: None)": (TypeError,
        "returned None: ... (while a filter was asked about"),
    "partition(MODEL, True, is_leaf=3)": (TypeError,
        "`is_leaf` must be a function of a node or None"),
    "partition('**.weight', MODEL)": (ValueError, "at the root: it has a `str` ... a `Linear`"),
    "filterjit.flatten(MODEL, 3)": (ValueError, "`flatten(..., filter=...)` is not a filter: 3"),
    "filterjit.combine()": (TypeError, "there must be at least one tree"),
    "filterjit.combine(MODEL, {'a': 1})": (ValueError, "tree 2 differs from tree 1 at the root"),
    "filterjit.combine(MODEL, MODEL, strict=True)": (ValueError,
        "`weight` is in tree 1 and in tree 2"),
    "filterjit.unflatten([X], structure)": (TypeError,
        "`unflatten(structure, ...)` must be a Structure"),
    "filterjit.unflatten(structure, [X])": (ValueError, "the structure takes 2 leaves, not 1"),
    "filterjit.unflatten(structure, 3)": (TypeError, "the leaves must be a sequence, not 3"),
    "structure.combine({'weight': X})": (ValueError, "do not fit the structure; missing: ['bias']"),
    "filterjit.tree_paths(MODEL, True)": (TypeError,
        "`is_leaf` must be a function of a node or None"),
    "ShardingRules(3)": (TypeError, "`ShardingRules(rules)` must be a dict from path patterns"),
    "ShardingRules('**.weight')": (TypeError, "or pairs of these, not '**.weight'"),
    "ShardingRules({})": (ValueError, "at least one rule"),
    "ShardingRules({3: P()})": (ValueError, "a key of `ShardingRules` is not a filter: 3"),
    "ShardingRules({'weight': 'data'})": (TypeError,
        "the rule 'weight' has the value 'data', which is"),
    "ShardingRules({...: P(), 'weight': P()})": (ValueError,
        "after `...` would never be asked: make it"),
    "ShardingRules({'weight': P()}).table(MODEL)": (ValueError,
        "need a mesh: pass `mesh=`, or call it"),
    "place(MODEL, ShardingRules({'weigth': P(), ...: P()}), MESH)": (ValueError,
        "the rule 'weigth': P ... takes no array: the path pattern 'weigth' matches no leaf"),
    "place(MODEL, ShardingRules({'weight': P()}), MESH)": (ValueError,
        "no rule takes `bias`, float32[2]: add one"),
    "place(MODEL, ShardingRules({'**': filterjit.fsdp('model')}), MESH)": (ValueError,
        "the mesh has no axis 'model', it has 'data'"),
    "filterjit.fsdp(3)": (TypeError, "`fsdp(axis)` must be the name of an axis of the mesh"),
    "filterjit.fsdp('data', min_size='big')": (TypeError,
        "min_size=...)` must be a number, not 'big'"),
    "place(MODEL, 'data')": (TypeError, "'data' in its place is neither a sharding"),
    "place(MODEL, {'weight': P()}, MESH)": (ValueError, "rules by path are `ShardingRules`"),
    "place(MODEL, P('data'))": (ValueError, "no mesh to place on: pass `mesh=`"),
    "place(MODEL, P('data'), 'data')": (TypeError,
        "`mesh` must be a jax.sharding.Mesh, not 'data'"),
    "place(MODEL, P('date'), MESH)": (ValueError, "`weight`, float32[2,2], cannot have the spec"),
    "filter_jit(step, in_shardings={'modl': P()}, mesh=MESH)(MODEL, X)": (ValueError,
        "`in_shardings` names 'modl' ... Did you mean 'model'?"),
    "filter_jit(step, out_shardings='data')(MODEL, X)": (TypeError,
        "`the result` has arrays, and 'data'"),
}  # fmt: skip
MISTAKES = JITTING | CALLING | TREES


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("program.py").write_text("import filterjit\n")


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_error_says_what_to_do(mistake: str) -> None:
    kind, words = MISTAKES[mistake]
    variants, files = len(f.variants), set(Path().iterdir())
    with pytest.raises(kind) as info:
        eval(mistake)
    text = "\n".join([str(info.value), *getattr(info.value, "__notes__", [])])
    assert re.search(r"[\s\S]*".join(map(re.escape, words.split(" ... "))), text), text
    assert set(Path().iterdir()) == files
    assert len(f.variants) == variants or mistake.startswith("f(")
    assert all(len(line) < 500 for line in text.splitlines())


def test_calls_after_mistakes() -> None:
    """They find what was compiled before."""
    g = filter_jit(step)
    y = g(MODEL, X)
    for mistake in CALLING:
        if re.match(r"f[(.]", mistake):
            with contextlib.suppress(TypeError, ValueError):
                eval(mistake, globals() | {"f": g})
    misses = g.cache_info().misses
    assert g(MODEL, X).tolist() == y.tolist()
    assert g.cache_info().misses == misses


# ---- functions whose body does not run when they are called ----


async def async_function(x: Any) -> Any:
    return x


def generator(x: Any) -> Iterator[Any]:
    yield x


async def async_generator(x: Any) -> Any:
    yield x


class AsyncCall:
    async def __call__(self, x: Any) -> Any:
        return x


RUN_LATER = {
    "an async function": async_function,
    "a generator function": generator,
    "an async generator function": async_generator,
}


@pytest.mark.parametrize("kind", RUN_LATER)
@pytest.mark.parametrize("wrap", [lambda fun: fun, functools.partial], ids=["itself", "partial"])
def test_a_function_that_runs_later_is_refused(kind: str, wrap: Any) -> None:
    """By decision. In Equinox, all calls get the coroutine, or the generator, of the first one."""
    fun = RUN_LATER[kind]
    with pytest.raises(TypeError, match=f"{fun.__name__} .* is {kind}, whose body does not run"):
        filter_jit(wrap(fun))
    with pytest.raises(TypeError, match=kind):
        filter_jit(donate="all")(wrap(fun))


def test_a_callable_object_that_runs_later_is_refused() -> None:
    with pytest.raises(TypeError, match="is an async function"):
        filter_jit(AsyncCall())


@pytest.mark.parametrize("kind", ["a generator function", "an async generator function"])
def test_what_returns_something_that_runs_later(kind: str) -> None:
    """A decorator that is in between hides what the function is: the trace raises."""
    fun = RUN_LATER[kind]
    jitted = filter_jit(lambda x: fun(x))
    for _ in range(2):
        with pytest.raises(
            TypeError, match=r"the function returned a .*generator, whose body does not"
        ):
            jitted(X)
    assert jitted.variants == []


def test_what_returns_a_coroutine() -> None:
    made: list[Any] = []

    def fun(x: Any) -> Any:
        made.append(async_function(x))
        return made[-1]

    with pytest.raises(
        TypeError, match="the function returned a coroutine, whose body does not run"
    ):
        filter_jit(fun)(X)
    made[0].close()


@pytest.mark.parametrize("make", [filterjit.jit, jax.jit], ids=["filterjit.jit", "jax.jit"])
def test_jit_refuses_generators_as_jax_does(make: Any) -> None:
    with pytest.raises(TypeError, match="Expected a function, got a generator function"):
        make(generator)


@pytest.mark.parametrize(
    "make",
    [filterjit.jit, jax.jit, filterjit.nnx.jit, nnx.jit],
    ids=["filterjit.jit", "jax.jit", "filterjit.nnx.jit", "nnx.jit"],
)
def test_other_jits_refuse_the_result(make: Any) -> None:
    with pytest.raises(TypeError, match=r"async_generator'>.* is not a valid JAX type"):
        make(async_generator)(X)


# ---- classes and decorators in the wrong order ----


def test_static_methods(jit: Jit) -> None:
    class C:
        @staticmethod
        @jit
        def right(x: Any) -> Any:
            return x + 1

        @jit
        @staticmethod
        def wrong(x: Any) -> Any:
            return x + 1

    assert C().right(X).tolist() == C.wrong(X).tolist() == [2, 2]
    with pytest.raises(TypeError) as info:
        C().wrong(X)
    if jit is filter_jit:
        assert info.value.__notes__ == [
            "(`@staticmethod` is below the decorator that jits: put it above)"
        ]


def test_a_class_that_is_a_pytree(jit: Jit) -> None:
    @jit
    class C(eqx.Module):
        w: Any

    assert C(X).w.tolist() == [1, 1]


def test_a_class_whose_instances_hold_no_array_of_the_trace(jit: Jit) -> None:
    @jit
    class C:
        def __init__(self, n: int) -> None:
            self.n, self.values = n, np.ones(2)

    assert C(3).n == 3
