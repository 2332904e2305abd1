"""Calls of compiled functions, as they are compiled and loaded from files of both kinds: which arguments
fit, the errors for others, and lifetimes.
"""

import contextlib
import copy
import gc
import inspect
import pickle
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aot_zoo
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from aot_support import equal, saved
from aot_zoo import VALUES, layer, nodes, use

import filterjit
from filterjit import MismatchError, filter_jit
from support.comparison import comparable
from support.nodes import Point

X = jnp.arange(3.0)
SPEC = jax.ShapeDtypeStruct((3,), jnp.float32)
Make = Callable[..., Any]


KINDS = ("compiled", "executable", "portable")


def through(path: Path, kind: str, function: Any, *args: Any, **kwargs: Any) -> Any:
    """Compiles a function for arguments. Returns what is compiled, or what is loaded of it."""
    f = function if hasattr(function, "compile") else filter_jit(function)
    if kind == "compiled":
        return f.compile(*args, **kwargs)
    saved(path / "file", kind, f, *args, **kwargs)
    with filterjit.forbid_compile() if kind == "executable" else contextlib.nullcontext():
        return filterjit.load(path / "file")


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make(kind: str, tmp_path: Path) -> Make:
    """Compiles a function for arguments, and loads it from a file, or not."""
    return lambda *args, **kwargs: through(tmp_path, kind, *args, **kwargs)


@pytest.fixture(scope="module")
def first(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Compiled for ``f(x, tree, n=3, *, name="a")``."""

    def f(x: Any, tree: Any, n: Any = 1, *, name: Any = "", **more: Any) -> Any:
        return x * 2, tree, n, name

    return through(tmp_path_factory.mktemp("first"), kind, f, X, tree(), 3, name="a")


def tree(**changes: Any) -> dict[str, Any]:
    return {"layer": layer(X), "point": Point(X, 1), "list": [X, "s", None], **changes}


def mismatch(compiled: Any, *args: Any, **kwargs: Any) -> list[str]:
    with pytest.raises(MismatchError) as raised:
        compiled(*args, **kwargs)
    head, *lines, last = str(raised.value).splitlines()
    assert "was compiled for other arguments" in head and "for these arguments too" in last
    return [line.strip() for line in lines]


def says(where: str, was: str, now: str) -> str:
    return f"`{where}`: compiled for {was}, called with {now}"


# Changes of the arguments (X, tree(), 3, name="a"), and what the error begins with.
OTHERS: list[tuple[dict[str, Any], str]] = [
    ({"n": X}, says("n", "the int 3", "an array")),
    ({"n": 3.0}, says("n", "the int 3", "the float 3.0")),
    ({"other": 1}, "`more`: compiled without it, called with a dict"),
    ({"tree": tree(point=Point(X, 2))}, says("tree['point'].y", "the int 1", "the int 2")),
    ({"tree": tree(layer=aot_zoo.Layer(2.0, [1, 2, 3], layer(X).options))},
     says("tree['layer'].weight", "an array float32[3]", "the")),
    ({"tree": tree(point=(X, 1))}, "`tree['point']`: "),
    ({"tree": tree(list=[X, "s", X])}, says("tree['list'][2]", "None", "an array")),
    ({"tree": tree(more=1)}, "`tree`: "),
    ({"x": jnp.ones((3, 1))}, says("x", "float32[3]", "float32[3,1]")),
    ({"x": np.ones(3, bool)}, says("x", "float32[3]", "bool[3]")),
    ({"x": jax.random.split(jax.random.key(0), 3)}, says("x", "float32[3]", "key<fry>[3]")),
]  # fmt: skip


def test_other_arguments(first: Any) -> None:
    for change, words in OTHERS:
        (line,) = mismatch(first, **{"x": X, "tree": tree(), "n": 3, "name": "a", **change})
        assert line.startswith(words)


def test_the_order_of_donated_arrays(make: Make) -> None:
    """The first argument's come before the function's own, as in Equinox."""
    w, b = X * 2, jnp.ones(5)

    def body(w: Any, b: Any, x: Any, y: Any) -> Any:
        return w * 2 + x, y, b.sum()

    fun = eqx.Partial(body, w, b)
    compiled = make(filter_jit(fun, donate="all"), SPEC, jax.ShapeDtypeStruct((2,), "int32"))
    for i in range(30):
        x, y = X + i, jnp.arange(2)
        expected = [(w * 2 + x).tolist(), y.tolist(), 5]
        assert [one.tolist() for one in compiled(x, y)] == expected
        assert x.is_deleted() and not (w.is_deleted() or b.is_deleted())
    assert mismatch(compiled, X, X) == [says("args[1]", "int32[2]", "float32[3]")]
    if hasattr(compiled, "args_info"):
        (x, y), _ = compiled.args_info
        assert (x.shape, x.donated, y.shape) == ((3,), True, (2,))


def test_several_at_once(first: Any) -> None:
    lines = mismatch(first, X, tree(point=Point(X, 2)), 4, name="b")
    assert len(lines) == 3 and ["point" in lines[0], "`n`" in lines[1]] == [True, True]
    other = tree(layer=layer(jnp.ones(2)), list=[jnp.ones(5), "s", None])
    assert len(mismatch(first, X, other, 3, name="a")) == 2


def test_arguments_that_do_not_fit_the_signature(first: Any) -> None:
    for args, kwargs, text in [
        ((X,), {}, "missing a required argument: 'tree'"),
        ((X, {}, 1, 2), {}, "too many positional arguments"),
        ((X, {}), {"x": X}, "multiple values for argument 'x'"),
    ]:
        with pytest.raises(TypeError, match=text):
            first(*args, **kwargs)


def test_attributes(first: Any, kind: str) -> None:
    name = "Compiled" if kind == "compiled" else "Loaded"
    assert isinstance(first, getattr(filterjit.types, name))
    assert repr(first) == f"<{name} of first.<locals>.f>"
    with pytest.raises(AttributeError, match="no_such"):
        _ = first.no_such
    with pytest.raises(AttributeError):
        first.compiled = None
    assert callable(first) and weakref.ref(first)() is first
    assert hash(first) == hash(first) and jax.tree.leaves(first) == [first]
    assert str(inspect.signature(first)).startswith("(x")
    for work in (pickle.dumps, copy.copy, copy.deepcopy):  # as a `jax.stages.Compiled`
        with pytest.raises(TypeError):
            work(first)
    if kind == "compiled":
        assert {"as_text", "args_info", "in_tree"} <= set(dir(first))
        assert "HloModule" in first.as_text() and not hasattr(first, "save")
    else:
        ((args, kwargs),) = first.signatures
        assert args[0] == SPEC and args[2:] == (3,) and kwargs == {"name": "a"}
        assert args[1]["layer"].sizes == [1, 2, 3]
        assert first.report().as_dict()["functions"][0]["name"].endswith("f (loaded)")


# ---- what fits ----


def every_kind(
    a: Any, /, b: Any, c: Any = 1, *rest: Any, d: Any, e: Any = None, **more: Any
) -> Any:
    return a, b, c, rest, d, e, more


def call(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return args, kwargs


TREE = {**nodes(X), "values": [x for x in VALUES if type(x) is not set], "module": layer(X)}
DTYPES = {
    "complex": jnp.ones(3, jnp.complex64) * 1j,
    "bfloat16": jnp.ones(3, jnp.bfloat16),
    "bool": jnp.ones(3, bool),
    "int8": jnp.ones((2, 0), jnp.int8),
    "key": jax.random.split(jax.random.key(1), 2),
    "rbg": jax.random.key(1, impl="rbg"),
    "unsafe rbg": jax.random.key(1, impl="unsafe_rbg"),
    "weak": jnp.asarray(2.0),
}
SPECS = {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in DTYPES.items()}
# What is compiled, and calls: the first one it is compiled for, which may have specs.
FITS: dict[str, tuple[Any, list[tuple[tuple[Any, ...], dict[str, Any]]]]] = {
    "everything": (use, [
        call(TREE, X, 3, name="b"),
        call(TREE, X + 1, 3, name="b"),
        call(name="b", tree=TREE, n=3, x=np.asarray(X)),
    ]),
    "each kind of parameter": (
        every_kind, [call(X, 2, d=X, z="s"), call(X + 1, b=2, z="s", d=X)]),
    "more than the named ones": (every_kind, [call(X, 2, 1, SPEC, "s", d=X, z=None),
                                              call(X, 2, 1, X + 1, "s", d=X, z=None)]),
    "no argument": (lambda: (3, None), [call()]),
    "not used": (lambda x, y, z: y, [call(X, X + 1, X), call(X, X + 2, X)]),
    "dtypes": (lambda t: (t, t["bool"]), [call({**SPECS, "weak": DTYPES["weak"]}), call(DTYPES)]),
}  # fmt: skip


def test_what_fits(tmp_path: Path) -> None:
    for f, calls in FITS.values():
        args, kwargs = calls[0]
        for made in [through(tmp_path, kind, f, *args, **kwargs) for kind in KINDS]:
            for xs, named in calls[1:] or calls:
                equal(made(*xs, **named), f(*xs, **named))


def test_what_does_not(make: Make) -> None:
    made = make(every_kind, X, 2, d=X, z="s")
    for args, kwargs in (call(X, 2, 1, d=X), call(X, 2, d=X), call(X, 2, 1, 4, d=X)):
        mismatch(made, *args, **kwargs)
    with pytest.raises(TypeError, match="'d'"):
        made(X, 2)
    lines = mismatch(make(lambda t: t, DTYPES), dict.fromkeys(DTYPES, jnp.ones((5, 5))))
    assert lines[6:] == [f"and {len(DTYPES) - 6} more differences"]
    assert all("called with float32[5,5]" in line for line in lines[:5])


def test_wider_numpy_arrays_are_narrowed_as_by_jax(make: Make) -> None:
    of_jax = jax.jit(lambda x: x + 1).lower(X).compile()
    made = make(lambda x: x + 1, X)
    for x in (np.ones(3), np.ones(3, np.float32), np.ones(3, np.int64)):
        try:
            expected = of_jax(x)
        except TypeError:
            assert len(mismatch(made, x)) == 1
        else:
            equal(made(x), expected)


@pytest.mark.parametrize("donate", ["all", "all-except-first", "warn", "warn-except-first"])
def test_donation(make: Make, donate: Any) -> None:
    made = make(filter_jit(lambda x, y: (x + 1, y + 1), donate=donate), X, X + 0)
    for _ in range(3):
        one, two = X + 1, X + 2
        made(one, two)
        assert (one.is_deleted(), two.is_deleted()) == (not donate.endswith("first"), True)
    with pytest.raises((RuntimeError, ValueError), match=r"deleted|donated"):
        made(X + 1, two)


def test_deleted_arrays(make: Make) -> None:
    made, gone = make(lambda x, y: x + y, X, X), X + 1
    gone.delete()
    with pytest.raises(RuntimeError, match="deleted") as raised:
        made(X, gone)
    assert "`y`" in "".join(raised.value.__notes__)


@pytest.mark.parametrize("functions", ["identity", "structure"])
def test_functions(make: Make, functions: Any) -> None:
    f = filter_jit(lambda g, x: g(x), functions=functions)
    equal(make(f, aot_zoo.scale, X)(aot_zoo.scale, X), X * 2)
    (line,) = mismatch(make(f, aot_zoo.scale, X), jnp.sin, X)
    assert line.startswith("`g`")
    again = lambda: lambda x: x * 2
    compiled = f.compile(again(), X)
    if functions == "structure":
        equal(compiled(again(), X), X * 2)
        (line,) = mismatch(compiled, lambda x: x * 3, X)
    else:
        (line,) = mismatch(compiled, again(), X)
    assert line.startswith("`g`")


def arrays_in_the_function() -> Iterator[tuple[Any, bool]]:
    """Functions that hold arrays, and whether JAX has 64 bits."""
    multiply = lambda w, x: w * x
    yield eqx.nn.MLP(3, 2, 4, 1, key=jax.random.key(0)), False
    yield eqx.Partial(lambda key, n, x: (key, x * n), jax.random.key(3), 2), False
    for dtype in ("float64", "int64", "complex128", "float32"):  # which it takes with 32 bits
        yield eqx.Partial(multiply, np.arange(3).astype(dtype)), False
    shapes = [(i, 2) for i in range(5)]
    arrays = [jnp.ones(x, dtype) for x in shapes for dtype in ("float32", "int32", "bfloat16")]
    yield eqx.Partial(lambda *xs: sum(x.sum() for x in xs), *arrays, np.ones(3)), False
    with jax.enable_x64(True):  # a file is loaded as it was saved
        wide = jnp.asarray([1 + 2**-40, 2.0, 3.0])
    yield eqx.Partial(multiply, wide), True


def test_functions_that_hold_arrays(tmp_path: Path) -> None:
    for f, is_wide in arrays_in_the_function():
        with jax.enable_x64(is_wide):
            x = jnp.ones(3)
            expected = filter_jit(f)(x)
            for made in [through(tmp_path, kind, f, x) for kind in KINDS]:
                equal(made(x), expected)
                assert len(mismatch(made, jnp.ones(4))) == 1


def test_another_function_of_the_same_program() -> None:
    """A compiled function has its own arrays."""
    compiled = filter_jit(model := layer(X)).compile(X)
    equal(filter_jit(layer(X + 1))(X), layer(X + 1)(X))
    equal(compiled(x=X), model(X))
    assert repr(compiled) == "<Compiled of Layer>"


def test_a_function_of_specs_cannot_be_called() -> None:
    (line,) = mismatch(filter_jit(layer(SPEC)).compile(X), X)
    assert line.startswith(says("the function.weight", "float32[3]", "a ShapeDtypeStruct"))


def test_under_a_transformation(make: Make) -> None:
    made = make(lambda x: x * 2, X)
    for transform in (jax.vmap, filter_jit):
        with pytest.raises(TypeError, match=r"transformation|Tracer|compiled for"):
            transform(made)(X)  # type: ignore[operator]
    equal(jax.jit(lambda y: y + made(X))(X), X * 3)


# ---- the function of `filterjit.jit`, and a closure ----


def scaled(state: Any, rate: Any, n: Any = 2, *rest: Any, k: Any = ()) -> Any:
    assert isinstance(rate, jax.core.Tracer)
    return {key: value * rate**n for key, value in state.items()}, rest, len(k)


OPTIONS: Any = {"static_argnames": ("n", "k"), "donate_argnames": "state"}


@pytest.mark.parametrize("kind", ["compiled", "executable"])
def test_plain_jit(kind: str, tmp_path: Path) -> None:
    f = filterjit.jit(scaled, **OPTIONS)
    made = through(tmp_path, kind, f, {"w": SPEC}, 0.5, 5, 1, k=("a", (1,)))
    f({"w": X + 0}, 2.0, 5, 7, k=("a", (1,)))
    assert f.cache_info().misses == 0
    for rate in (0.5, 0.25):
        state = {"w": X + 0}
        found = made(state, rate, 5, 1, k=("a", (1,)))
        expected = jax.jit(scaled, **OPTIONS)({"w": X + 0}, float(rate), 5, 1, k=("a", (1,)))
        assert comparable(found[0]) == comparable(expected[0])
        assert state["w"].is_deleted()
    for n, k in ((4, ("a", (1,))), (5, ("a", (True,))), (5, ()), (5.0, ("a", (1,)))):
        with pytest.raises(MismatchError):
            made({"w": X + 0}, 0.5, n, 1, k=k)
    with pytest.raises(MismatchError):
        made({"w": jnp.ones(4)}, 0.5, 5, 1, k=("a", (1,)))
    f = filterjit.jit(lambda *args: args[0] * args[1] + args[2], static_argnums=1)
    made = through(tmp_path, kind, f, X, 4, 0.5)
    equal(made(X, 4, 1.5), 4 * X + 1.5)
    with pytest.raises(MismatchError):
        made(X, 5, 1.5)


def test_what_jax_alone_compiles() -> None:
    f = filterjit.jit(lambda y: (y, "text"))
    error = f.warm_up_all([((X,), {})])[0]
    assert isinstance(error, ValueError) and "`jax.jit` does" in str(error)
    g = filterjit.jit(lambda y: y)
    with pytest.raises(
        ValueError, match="a leaf of the arguments is neither an array nor a number"
    ):
        g.compile({"a": "text"})
    h = filterjit.jit(lambda y, *rest: y, static_argnums=-1)
    with pytest.raises(ValueError, match="counts from the end"):
        h.compile(X, 1)
    assert g.compile(X)(X) is not None and g.cache_info().variants == 1


def test_everything_is_freed(kind: str, tmp_path: Path) -> None:
    """Arrays that it was lowered for at once, and the rest with it."""

    class Static:
        pass

    static = Static() if kind == "compiled" else 3
    function, x = lambda x, s: x * 2, X + 1
    f = filter_jit(function)
    traced = f.trace(x, static)
    lowered = traced.lower()
    compiled = lowered.compile()
    refs = [weakref.ref(x)]
    del x
    gc.collect()
    assert refs.pop()() is None
    made = compiled if kind == "compiled" else through(tmp_path, kind, f, X, static)
    f.clear_cache()
    refs = [weakref.ref(y) for y in (compiled, compiled.compiled, f, function)]
    refs += [] if static == 3 else [weakref.ref(static)]
    del f, function, traced, lowered, compiled
    gc.collect()
    if kind != "compiled":
        assert [ref() for ref in refs] == [None] * len(refs)
    equal(made(X, static), X * 2)
    refs.append(weakref.ref(made))
    del made, static
    gc.collect()
    assert [ref() for ref in refs] == [None] * len(refs)


def test_a_report_counts_calls(kind: str, make: Make) -> None:
    function = lambda x, n: x * n
    function.__qualname__ = f"of_{kind}"
    made = make(function, X, 3)
    for _ in range(40):
        made(X, 3)
    for other in (4, 3.0):
        mismatch(made, X, other)
    (row,) = (x for x in filterjit.report().as_dict()["functions"] if f"of_{kind} (" in x["name"])
    assert row["name"].endswith("(compiled)" if kind == "compiled" else "(loaded)")
    assert (row["hits"], row["traces"]) == (40, 0)
    assert "n=3" in row["variants"][0]["arguments"]
    if jax.__version_info__ >= (0, 12):  # older ones have no direct calls of compiled functions
        assert row["direct"] > 10
