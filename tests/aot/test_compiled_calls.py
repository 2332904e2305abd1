"""Calls of compiled functions: which arguments fit, the errors for others, and lifetimes."""

import copy
import gc
import inspect
import pickle
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import filterjit
from filterjit import MismatchError, filter_jit
from support.nodes import Point
from support.threads import at_once

X = jnp.arange(3.0)


class Layer(eqx.Module):
    weight: Any
    rate: float = eqx.field(static=True, default=0.5)
    activation: Any = jax.nn.relu

    def __call__(self, x: Any) -> Any:
        return self.activation(x * self.weight) * self.rate


def compile_for(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return filter_jit(function).lower(*args, **kwargs).compile()


@pytest.fixture(scope="module")
def first() -> Any:
    """Compiled for ``f(x, tree, n=3, *, name="a")``."""

    def f(x: Any, tree: Any, n: Any = 1, *, name: Any = "", **more: Any) -> Any:
        return x * 2, tree, n, name

    tree = {"layer": Layer(X), "point": Point(X, 1), "list": [X, "s", None]}
    return filter_jit(f).lower(X, tree, 3, name="a").compile()


def tree(**changes: Any) -> dict[str, Any]:
    return {"layer": Layer(X), "point": Point(X, 1), "list": [X, "s", None], **changes}


def test_arguments_that_it_was_compiled_for(first: Any) -> None:
    out = first(X + 1, tree(layer=Layer(X * 3)), 3, name="a")
    np.testing.assert_array_equal(out[0], (X + 1) * 2)
    np.testing.assert_array_equal(out[1]["layer"].weight, X * 3)
    assert out[2:] == (3, "a") and type(out[1]["point"]) is Point
    assert first(name="a", tree=tree(), n=3, x=np.asarray(X))[3] == "a"
    assert isinstance(first, filterjit.types.Compiled)


def mismatch(compiled: Any, *args: Any, **kwargs: Any) -> list[str]:
    with pytest.raises(MismatchError) as raised:
        compiled(*args, **kwargs)
    head, *lines, last = str(raised.value).splitlines()
    assert "was compiled for other arguments" in head and "call the function itself" in last
    return [line.strip() for line in lines]


def says(where: str, was: str, now: str) -> str:
    return f"`{where}`: compiled for {was}, called with {now}"


def _of_tree(where: str, was: str, now: str) -> str:
    return says(f"tree{where}", was, now)


# Changes of the arguments (X, tree(), 3, name="a"), and what the error begins with.
OTHERS: list[tuple[dict[str, Any], str]] = [
    ({"n": X}, says("n", "the int 3", "an array")),
    ({"other": 1}, "`more`: compiled without it, called with a dict"),
    ({"tree": tree(layer=Layer(X, rate=0.7))}, _of_tree("['layer'].rate", "the float 0.5", "the")),
    ({"tree": tree(layer=Layer(2.0))}, _of_tree("['layer'].weight", "an array float32[3]", "the")),
    ({"tree": tree(point=(X, 1))}, "`tree['point']`: "),
    ({"tree": tree(list=[X, "s", X])}, _of_tree("['list'][2]", "None", "an array")),
    ({"tree": tree(more=1)}, "`tree`: "),
    ({"x": jnp.ones((3, 1))}, says("x", "float32[3]", "float32[3,1]")),
    ({"x": np.ones(3, bool)}, says("x", "float32[3]", "bool[3]")),
    ({"x": jax.random.split(jax.random.key(0), 3)}, says("x", "float32[3]", "key<fry>[3]")),
]  # fmt: skip


@pytest.mark.parametrize(("change", "words"), OTHERS, ids=[words for _, words in OTHERS])
def test_other_arguments(first: Any, change: dict[str, Any], words: str) -> None:
    given = {"x": X, "tree": tree(), "n": 3, "name": "a", **change}
    (line,) = mismatch(first, **given)
    assert line.startswith(words)


def test_several_at_once(first: Any) -> None:
    lines = mismatch(first, X, tree(point=Point(X, 2)), 4, name="b")
    assert len(lines) == 3 and ["point" in lines[0], "`n`" in lines[1]] == [True, True]
    other = tree(layer=Layer(jnp.ones(2)), list=[jnp.ones(5), "s", None])
    assert len(mismatch(first, X, other, 3, name="a")) == 2


def test_arguments_that_do_not_fit_the_signature(first: Any) -> None:
    for args, kwargs, text in [
        ((X,), {}, "missing 1 required positional argument: 'tree'"),
        ((X, {}, 1, 2), {}, "positional arguments but 4"),
        ((X, {}), {"x": X}, "multiple values for argument 'x'"),
    ]:
        with pytest.raises(TypeError, match=text):
            first(*args, **kwargs)


# ---- arrays ----


def test_wider_numpy_arrays_are_narrowed_as_by_jax() -> None:
    of_jax = jax.jit(lambda x: x + 1).lower(X).compile()
    of_filterjit = compile_for(lambda x: x + 1, X)
    for x in (np.ones(3), np.ones(3, np.float32), np.ones(3, np.int64)):
        try:
            expected = of_jax(x)
        except TypeError:
            assert len(mismatch(of_filterjit, x)) == 1
        else:
            np.testing.assert_array_equal(of_filterjit(x), expected)


def test_deleted_arrays() -> None:
    compiled = compile_for(lambda x, y: x + y, X, X)
    gone = X + 1
    gone.delete()
    with pytest.raises(RuntimeError, match="deleted") as raised:
        compiled(X, gone)
    assert "argument y" in "".join(raised.value.__notes__)


@pytest.mark.parametrize("donate", ["all", "all-except-first", "warn", "warn-except-first"])
def test_donation(donate: Any) -> None:
    f = filter_jit(lambda x, y: (x + 1, y + 1), donate=donate)
    compiled = f.lower(X, X).compile()
    (x, y), _ = compiled.args_info
    assert (x.donated, y.donated) == (not donate.endswith("first"), True)
    one, two = X + 1, X + 2
    compiled(one, two)
    assert (one.is_deleted(), two.is_deleted()) == (x.donated, True)
    with pytest.raises((RuntimeError, ValueError), match=r"deleted|donated"):
        compiled(X + 1, two)


def test_useless_donation_warns_if_requested() -> None:
    for donate, count in [("all", 0), ("warn", 1)]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            f = filter_jit(lambda x: x.sum(), donate=donate)  # type: ignore[call-overload]
            f.lower(X).compile()
        assert sum("donated" in str(w.message) for w in caught) == count


# ---- transformations, errors while the program runs ----


def test_under_a_transformation() -> None:
    """A compiled program cannot be transformed: JAX raises, and filterjit passes the error on."""
    compiled = compile_for(lambda x: x * 2, X)
    for transform in (jax.vmap, filter_jit):
        with pytest.raises(TypeError, match=r"transformation|Tracer|compiled for"):
            transform(compiled)(X)  # type: ignore[operator]
    np.testing.assert_array_equal(jax.jit(lambda y: y + compiled(X))(X), X * 3)


def test_error_if(caplog: pytest.LogCaptureFixture) -> None:
    compiled = compile_for(lambda x: eqx.error_if(x, x[0] > 1, "too large"), X)
    np.testing.assert_array_equal(compiled(X), X)
    for _ in range(2):
        with pytest.raises(eqx.EquinoxRuntimeError, match="too large"):
            compiled(X + 5)
    assert caplog.records == []
    np.testing.assert_array_equal(compiled(X), X)


def test_callbacks_that_raise() -> None:
    def check(x: Any) -> Any:
        if x[0] > 1:
            raise ValueError("from the callback")
        return x

    spec = jax.ShapeDtypeStruct((3,), jnp.float32)
    compiled = compile_for(lambda x: jax.pure_callback(check, spec, x), X)
    np.testing.assert_array_equal(compiled(X), X)
    with pytest.raises(Exception, match="from the callback"):
        compiled(X + 5)
    np.testing.assert_array_equal(compiled(X), X)


# ---- functions of every kind ----


def test_a_function_that_holds_arrays() -> None:
    layer = Layer(X)
    f = filter_jit(layer)
    compiled = f.lower(X).compile()
    np.testing.assert_array_equal(compiled(X), layer(X))
    np.testing.assert_array_equal(compiled(x=X), layer(X))
    (line,) = mismatch(compiled, jnp.ones(4))
    assert line == says("x", "float32[3]", "float32[4]") and repr(compiled) == "<Compiled of Layer>"
    other = filter_jit(Layer(X + 1))  # the same program; the compiled one has its own arrays
    np.testing.assert_array_equal(other(X), Layer(X + 1)(X))
    np.testing.assert_array_equal(compiled(X), layer(X))


def test_a_function_of_specs_cannot_be_called(tmp_path: Path) -> None:
    """A function with a spec in it has no array to compute with; the error names the spec."""
    compiled = filter_jit(Layer(jax.ShapeDtypeStruct((3,), jnp.float32))).lower(X).compile()
    (line,) = mismatch(compiled, X)
    assert line.startswith(says("the function.weight", "float32[3]", "a ShapeDtypeStruct"))
    with pytest.raises(ValueError, match="ShapeDtypeStruct"):
        compiled.save(tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("functions", "fits"), [("identity", False), ("structure", True)])
def test_recreated_functions(functions: Any, fits: bool) -> None:
    make = lambda: lambda x: x * 2
    f = filter_jit(lambda g, x: g(x), functions=functions)
    compiled = f.lower(make(), X).compile()
    if fits:
        np.testing.assert_array_equal(compiled(make(), X), X * 2)
        (line,) = mismatch(compiled, lambda x: x * 3, X)
    else:
        (line,) = mismatch(compiled, make(), X)
    assert line.startswith("`g`")


# ---- the object ----


def test_attributes(first: Any) -> None:
    assert repr(first) == "<Compiled of first.<locals>.f>"
    assert {"save", "as_text", "args_info", "in_tree"} <= set(dir(first))
    with pytest.raises(AttributeError, match="no_such"):
        _ = first.no_such
    with pytest.raises(AttributeError):
        first.compiled = None
    for name in ("__call__", "__class__", "__doc__", "__dir__"):
        assert getattr(first, name) is not None
    assert callable(first) and weakref.ref(first)() is first
    assert hash(first) == hash(first) and jax.tree.leaves(first) == [first]
    assert str(inspect.signature(first)) == (
        "(x: Any, tree: Any, n: Any = 1, *, name: Any = '', **more: Any) -> Any"
    )


def test_copies_and_pickles(first: Any) -> None:
    """It cannot be pickled, like ``jax.stages.Compiled``."""
    for work in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            work(first)


# ---- lifetimes ----


def test_it_outlives_the_function() -> None:
    function = lambda x, n: x * n
    f = filter_jit(function)
    compiled = f.lower(X, 3).compile()
    f.clear_cache()
    del f, function
    gc.collect()
    np.testing.assert_array_equal(compiled(X, 3), X * 3)
    assert compiled.args_info[0][1] == 3


def test_everything_is_freed() -> None:
    class Static:
        pass

    static = Static()
    function = lambda x, s: x * 2
    f = filter_jit(function)
    traced = f.trace(X, static)
    lowered = traced.lower()
    compiled = lowered.compile()
    compiled(X, static)
    refs = [weakref.ref(x) for x in (static, compiled, compiled.compiled, f, function)]
    del static, f, function, traced, lowered, compiled
    gc.collect()
    assert [ref() for ref in refs] == [None] * len(refs)


def test_threads_call_one() -> None:
    compiled = compile_for(lambda x, n: {"x": x * n}, X, 3)

    def work(i: int) -> Any:
        for _ in range(100):
            out = compiled(X + i, 3)["x"]
            with pytest.raises(MismatchError):
                compiled(X, i + 10)
        return np.asarray(out)

    for i, out in enumerate(at_once(8, work)):
        np.testing.assert_array_equal(out, (X + i) * 3)


def test_arrays_that_it_was_lowered_for_are_not_kept() -> None:
    f = filterjit.filter_jit(lambda x, n: x * n)
    x = jnp.arange(3.0) + 1
    traced = f.trace(x, 2)
    lowered = traced.lower()
    compiled = lowered.compile()
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None
    assert compiled(jnp.ones(3), 2).tolist() == [2, 2, 2]


# ---- reports ----


def row_of(name: str) -> dict[str, Any]:
    (row,) = [
        row for row in filterjit.report().as_dict()["functions"] if row["name"].endswith(name)
    ]
    return row


def named_for_the_report(x: Any, n: int) -> Any:
    return x * n


def loaded_for_the_report(x: Any) -> Any:
    return x * 2


def test_a_report_counts_calls_and_mismatches() -> None:
    compiled = filter_jit(named_for_the_report).lower(X, 3).compile()
    for _ in range(40):
        compiled(X, 3)
    for other in (4, 3.0):
        with pytest.raises(MismatchError):
            compiled(X, other)
    row = row_of("named_for_the_report (compiled)")
    assert (row["calls"], row["hits"], row["traces"]) == (42, 40, 0)
    assert "n=3" in row["variants"][0]["arguments"] and row["decorator"] == "compiled"
    if jax.__version_info__ >= (0, 12):  # older ones have no direct calls of compiled functions
        assert row["direct"] > 10


def test_a_report_has_what_symbolic_dimensions_compile(tmp_path: Path) -> None:
    pytest.importorskip("flatbuffers")
    (n,) = jax.export.symbolic_shape("n")
    spec = jax.ShapeDtypeStruct((n,), jnp.float32)
    filter_jit(loaded_for_the_report).lower(spec).save(tmp_path / "f.jit")
    loaded = filterjit.load(tmp_path / "f.jit")
    for size in (1, 2, 3, 2, 1):
        loaded(jnp.ones(size))
    row = row_of("loaded_for_the_report (loaded)")
    assert (row["calls"], row["hits"], row["compiles"]) == (5, 5, 3) and row["compiling"] > 0
