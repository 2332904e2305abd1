"""Mistakes that people make in their first hour: each raises one error that names the argument and the
path in it, shows what was wrong, and says what to do.

A mistake is written as a program writes it. The words that follow it are those of the message, in
order; ``...`` stands for any others. Those in tests/messages.md are run by tests/test_pages.py, and
options that are misspelt, or no bool, by tests/test_options.py. Programs that need more than an
expression are in PROGRAMS, each with a pattern of what it says.
"""

import dataclasses
import functools
import importlib
import re
import types  # noqa: F401
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import filterjit
from filterjit import Filter, filter_jit, lax, load, partition  # noqa: F401
from filterjit._base._errors import leaves_within
from filterjit._compat import _executable_compat
from filterjit._observe import _plain_objects
from filterjit.sharding import ShardingRules, place  # noqa: F401
from support.comparison import Jit
from support.versions import auto_mesh

X = jnp.ones(2)
MODEL = eqx.nn.Linear(2, 2, key=jax.random.key(0))
MLP = eqx.nn.MLP(2, 2, 4, 1, key=jax.random.key(0))
MESH = auto_mesh("data")


def step(model: Any, x: Any, n: int = 1) -> Any:
    return model(x) * n


f = filter_jit(step)
compiled = f.lower(MODEL, X).compile()

FILTER = "A filter is a function of a leaf, a bool, a dtype, a type of arrays, a path pattern"
PATH = "must be the path of a file, not"

MISTAKES: dict[str, tuple[Any, str]] = {
    # What a function is, and options of wrong types and values.
    "filter_jit(classmethod(step))": (TypeError, "Put `@classmethod` above `@filter_jit`"),
    "filter_jit(functools.cached_property(step))": (TypeError, "Put `@cached_property` above"),
    "filter_jit(step, donate=(0,))": (TypeError, "a tuple of names of parameters, not (0,)"),
    "filter_jit(step, donate=('modle',))(MODEL, X)": (ValueError,
        "`donate` names 'modle', which is not a parameter ... Did you mean 'model'?"),
    "filter_jit(step, traced=('m',))(MODEL, X)": (ValueError,
        "`traced` names 'm' ... these are 'model'"),
    "filter_jit(step, maxsize=True)": (ValueError, "must be a positive int, not True"),
    "filter_jit(step, same_on_all_processes=1)": (ValueError, "must be a bool or None, not 1"),
    "filter_jit(step, backend=0)": (TypeError,
        "backend=...)` must be the name of a platform or None"),
    "filter_jit(step, compiler_options='fast')": (TypeError,
        "compiler_options=...)` must be a dict"),
    "filter_jit(lambda c: 0, traced={'c': 'opt'})({'opt': {'lr': 0.1}})": (ValueError,
        "only `['opt']` ... add `.**` to the pattern"),
    "filterjit.nnx.cached_partial(3, X)": (TypeError, "must be a function, not 3"),
    # Calls, and the methods of a jitted function.
    "f(MODEL, np.array(['a']))": (TypeError,
        "(argument `x` is a NumPy array of dtype <U1, which JAX"),
    "f.save(3)": (TypeError, f"`save(path)` {PATH} 3"),
    "f.lower(MODEL, X).save('x.jit', platforms=())": (TypeError,
        "such as ('cpu', 'cuda'), not ()"),
    # Trees, filters and shardings.
    "Filter(3)": (ValueError, "`Filter(spec)` is not a filter: 3 of type `int`. " + FILTER),
    "Filter('a') & 3": (ValueError, "an operand of `and` is not a filter: 3"),
    "partition(MODEL, MODEL)": (ValueError,
        "not a filter: Array( ... a tree of arrays, such as a model"),
    "partition('**.weight', MODEL)": (ValueError, "at the root: it has a `str` ... a `Linear`"),
    "filterjit.flatten(MODEL, 3)": (ValueError, "`flatten(..., filter=...)` is not a filter: 3"),
    "ShardingRules('**.weight')": (TypeError, "or pairs of these, not '**.weight'"),
    "ShardingRules({3: P()})": (ValueError, "a key of `ShardingRules` is not a filter: 3"),
    "filter_jit(step, in_shardings={'modl': P()}, mesh=MESH)(MODEL, X)": (ValueError,
        "`in_shardings` names 'modl' ... Did you mean 'model'?"),
    "filter_jit(step, out_shardings='data')(MODEL, X)": (TypeError,
        "`the result` has arrays, and 'data'"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_error_says_what_to_do(mistake: str) -> None:
    kind, words = MISTAKES[mistake]
    variants = len(f.variants)
    with pytest.raises(kind) as info:
        eval(mistake)
    text = "\n".join([str(info.value), *getattr(info.value, "__notes__", [])])
    assert re.search(r"[\s\S]*".join(map(re.escape, words.split(" ... "))), text), text
    assert not list(Path().iterdir())
    assert len(f.variants) == variants or mistake.startswith(("f(", "f.lower("))
    assert all(len(line) < 500 for line in text.splitlines())


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
def test_a_function_that_runs_later_is_refused(kind: str) -> None:
    """By decision. In Equinox, all calls get the coroutine, or the generator, of the first one."""
    fun = RUN_LATER[kind]
    for given in (fun, functools.partial(fun)):
        with pytest.raises(TypeError, match=f"{fun.__name__} .* is {kind}, whose body does not"):
            filter_jit(given)
        with pytest.raises(TypeError, match=kind):
            filter_jit(donate="all")(given)
    with pytest.raises(TypeError, match="is an async function"):
        filter_jit(AsyncCall())


@pytest.mark.parametrize("kind", RUN_LATER)
def test_what_returns_something_that_runs_later(kind: str) -> None:
    """A decorator that is in between hides what the function is: the trace raises."""
    made: list[Any] = []
    jitted = filter_jit(lambda x: (made.append(RUN_LATER[kind](x)), made[-1])[1])
    for _ in range(2):
        with pytest.raises(
            TypeError, match=r"the function returned a .*(generator|coroutine), whose body does not"
        ):
            jitted(X)
    assert jitted.variants == []
    if kind == "an async function":
        [coroutine.close() for coroutine in made]


def test_static_objects_with_attributes_that_raise(jit: Jit) -> None:
    f = jit(lambda r, x: (r, x))
    for r in (_Raising(), _Raising()):
        assert f(r, X)[0] is r


def test_the_search_for_arrays_ends() -> None:
    assert len(list(leaves_within([[*range(10_000)], [_Record([*range(10_000)])]]))) == 100


class _Raising:
    def __getattr__(self, name: str) -> Any:
        raise ValueError(name)

    def __call__(self) -> None: ...


class _Model:
    def __init__(self) -> None:
        self.w = X

    def __call__(self, x: Any) -> Any:
        return x


class _Slots:
    __slots__ = ("w",)

    def __init__(self, w: Any = X) -> None:
        self.w = w


@dataclasses.dataclass(eq=False)
class _Record:
    w: Any = dataclasses.field(default_factory=lambda: X)

    def method(self, x: Any) -> Any:
        return x


class _Settings:
    n = 2


@dataclasses.dataclass(frozen=True, eq=False)
class _Frozen:
    w: Any = dataclasses.field(default_factory=lambda: X)


@pytest.mark.parametrize(
    ("make", "is_told"),
    [
        (_Model, True), (_Slots, True), (lambda: _Slots([_Model()]), True),
        (lambda: _Record().method, True), (_Frozen, False), (_Settings, False),
    ],
)  # fmt: skip
def test_an_object_whose_arrays_are_plain_objects_is_told_once_a_class(
    make: Any, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_plain_objects, "_warned", weakref.WeakSet())
    f = filter_jit(lambda m, x: x)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for x in [make() for _ in range(10)]:
            f(x, X)
    texts = [str(w.message) for w in told if "compiled in, and later" in str(w.message)]
    assert len(texts) == is_told
    for text in texts:
        assert text.startswith("`m` is static") and "Its `w` holds an array: make" in text
    assert ("`__eq__`" in str(f.explain(make(), X))) == (make is _Settings)


class Values:
    """An array that is static on purpose."""

    def __init__(self) -> None:
        self.values = np.ones(2)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.values

    def __eq__(self, other: object) -> bool:
        return type(other) is Values and bool((self.values == other.values).all())

    def __hash__(self) -> int:
        return 1


def messages(program: Callable[[], Any]) -> str:
    """What a program raises, with the notes, and what it warns of."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            program()
            raised = []
        except Exception as e:
            raised = [str(e), *getattr(e, "__notes__", ())]
    return "\n".join([*raised, *(str(w.message) for w in warned)])


def loaded() -> Any:
    filter_jit(step).lower(MODEL, X).save("step.jit")
    return load("step.jit")


class Trainer:
    def __init__(self) -> None:
        self.rate, self.w = 1.0, jnp.ones(2)

    @functools.partial(filterjit.jit, static_argnames="self")
    def step(self, x: Any) -> Any:
        return self.w * x

    @filterjit.jit
    def traced(self, x: Any) -> Any:
        return self.w * x


OF_NUMPY = {
    "in a dict": (lambda m: jnp.zeros(m["n"]), {"n": np.int64(3)}, r"Pass `int\(m\['n'\]\)`"),
    "a range": (lambda n: list(range(n)), np.int32(3), "Pass `int(n)`"),
    "a condition": (lambda n: 1 if n else 2, np.bool_(True), "Pass `bool(n)`"),
    "a float": (lambda n: float(n), np.float32(1), "Pass `float(n)`"),
    "bytes": (lambda n: n, np.bytes_(b"a"), "Pass `bytes(n)`"),
}


@pytest.mark.skipif(jax.__version_info__ < (0, 7), reason="this JAX names no argument")
@pytest.mark.parametrize("name", OF_NUMPY)
def test_a_numpy_scalar_whose_value_is_needed(name: str) -> None:
    fun, x, words = OF_NUMPY[name]
    pattern = words if "\\" in words else words.replace("(", r"\(").replace(")", r"\)")
    with pytest.raises(TypeError) as raised:
        filter_jit(fun)(x)
    assert any(map(re.compile(pattern).search, raised.value.__notes__))


def test_a_numpy_scalar_that_is_only_computed_with_has_no_note() -> None:
    def fun(n: Any, x: jax.Array) -> Any:
        return jnp.zeros(x.sum()) + n  # type: ignore[arg-type]

    assert "Pass `int" not in messages(lambda: filter_jit(fun)(np.int32(3), X))
    assert "Pass `int" not in messages(
        lambda: filterjit.jit(lambda n: jnp.zeros(n))(np.int32(3))  # its hint fits
    )


PROGRAMS: dict[str, tuple[Callable[[], Any], str]] = {
    "nnx.jit: a Module of Equinox": (
        lambda: filterjit.nnx.jit(lambda m: m)(MLP), "static, but does not update Variables"),
    "filter_jit(func=)": (lambda: filter_jit(func=len), "Did you mean 'fun'"),  # type: ignore[call-overload]
    "nnx.jit(donate=)": (lambda: filterjit.nnx.jit(len, donate="all"), "Use `donate_argnames`"),
    "nnx.jit(traced=)": (lambda: filterjit.nnx.jit(len, traced=("x",)), "numbers are traced"),
    "grad of a loaded program": (lambda: jax.grad(lambda x: loaded()(MODEL, x).sum())(X), "step` is a compiled program"),
    **{f"an operation with a list of numbers, {name}": (
        lambda f=f: filter_jit(f)(X, {"a": [1.0, 2.0]}),  # type: ignore[misc]
        r"unsupported operand.*argument `x\['a'\]` is a list of numbers")
        for name, f in {"left": lambda m, x: x["a"] + m, "right": lambda m, x: m - x["a"]}.items()},
    "a static self of jit": (
        lambda: Trainer().step(1.0), r"`self` is static.*later changes are not seen"),
    "a traced self of jit": (
        lambda: Trainer().traced(1.0), "later changes to an object's attributes"),
    "from filterjit import filter_grad": (
        lambda: exec("from filterjit import filter_grad"), "keep `equinox.filter_grad`"),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_messages(name: str) -> None:
    program, words = PROGRAMS[name]
    found = messages(program)
    assert re.search(words, found, re.DOTALL), found
    assert filter_jit(lambda x: x + 1)(X).tolist() == [2, 2]  # and nothing is left behind


QUIET: dict[str, Callable[[], Any]] = {
    "an array that is static on purpose": lambda: filter_jit(lambda t: t)(Values()),
    "warm_up of a static tuple": lambda: filter_jit(lambda x, s: x).warm_up(X, (3, 2)),
    "warm_up of a spec": lambda: filter_jit(lambda x: x).warm_up(
        jax.ShapeDtypeStruct((3, 2), jnp.float32)
    ),
}


@pytest.mark.parametrize("name", QUIET)
def test_programs_without_a_message(name: str) -> None:
    assert messages(QUIET[name]) == ""


def test_an_attribute_that_another_library_has() -> None:
    assert not hasattr(filterjit, "filter_grad")
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec("from filterjit import nothing")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("filterjit.filter_grad")


def test_a_warning_in_a_filter_vmap_has_the_users_line() -> None:
    held = type("Held", (_Model,), {})()
    f = filterjit.filter_jit(lambda x, h: x)
    with pytest.warns(UserWarning, match="is static") as found:
        eqx.filter_vmap(f, in_axes=(0, None))(jnp.ones(2), held)
    assert found[0].filename == __file__


# ---- what older versions of JAX lack: all else works ----

NEEDS = rf"needs JAX 0\.7\.2 or newer; this is JAX {re.escape(jax.__version__)}"


@pytest.mark.skipif(_executable_compat.can_save(), reason="executables of this JAX can be saved")
def test_save_with_an_older_jax() -> None:
    jitted = filter_jit(lambda x: x * 2)
    jitted.warm_up(X)
    with pytest.raises(RuntimeError, match=NEEDS):
        jitted.save("double.jit")
    jitted.lower(X).save("double.jit")
    assert load("double.jit")(X).tolist() == [2, 2]


@pytest.mark.skipif(
    hasattr(jax.sharding, "reshard"), reason="this JAX has meshes with Explicit axes"
)
@pytest.mark.skipif(not hasattr(jax.sharding, "AxisType"), reason="axes have no types")
def test_explicit_axes_with_an_older_jax() -> None:
    kinds = (jax.sharding.AxisType.Explicit,)
    sharding = jax.NamedSharding(jax.make_mesh((1,), ("d",), axis_types=kinds), P("d"))
    assert place(X, sharding).sharding == sharding
    with pytest.raises(RuntimeError, match=NEEDS):
        filter_jit(lambda x: place(x, sharding))(X)
