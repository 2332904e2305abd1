"""Calls of compiled functions: which arguments fit, the errors for others, and lifetimes."""

import collections
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
from aot_support import Compiles

import filterjit
from filterjit import MismatchError, filter_jit
from support.nodes import Point
from support.statics import Value
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
    assert isinstance(first, filterjit.Compiled)


def mismatch(compiled: Any, *args: Any, **kwargs: Any) -> list[str]:
    with pytest.raises(MismatchError) as raised:
        compiled(*args, **kwargs)
    head, *lines, last = str(raised.value).splitlines()
    assert "was compiled for other arguments" in head and "call the function itself" in last
    return [line.strip() for line in lines]


def says(where: str, was: str, now: str) -> str:
    return f"`{where}`: compiled for {was}, called with {now}"


STATICS = [
    (4, "the int 4"), (3.0, "the float 3.0"), (True, "True"), (None, "None"),
    ("3", "the str '3'"), (X, "an array"), ([3], "a list of 1 item"), ((), "an empty tuple"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "words"), STATICS, ids=[words for _, words in STATICS])
def test_other_statics(first: Any, value: Any, words: str) -> None:
    (line,) = mismatch(first, X, tree(), value, name="a")
    assert line.startswith(says("n", "the int 3", words))


def test_nan_and_zeros_differ() -> None:
    compiled = compile_for(lambda x, n: x, X, 0.0)
    assert compiled(X, 0.0) is not None
    (line,) = mismatch(compiled, X, -0.0)
    assert "0.0" in line and "-0.0" in line
    assert compile_for(lambda x, n: x, X, float("nan"))(X, float("nan")) is not None


def test_inside_of_trees(first: Any) -> None:
    def lines(**changes: Any) -> list[str]:
        return mismatch(first, X, tree(**changes), 3, name="a")

    assert lines(layer=Layer(X, rate=0.7)) == [
        says("tree['layer'].rate", "the float 0.5", "the float 0.7")
    ]
    (line,) = lines(layer=Layer(X, activation=jnp.tanh))
    assert line.startswith("`tree['layer'].activation`: ") and "tanh" in line
    assert lines(layer=Layer(2.0)) == [
        says("tree['layer'].weight", "an array float32[3]", "the float 2.0")
    ]
    assert lines(point=Point(X, 2)) == [says("tree['point'].y", "the int 1", "the int 2")]
    (line,) = lines(point=(X, 1))
    assert line.startswith("`tree['point']`: ") and "Point" in line and "a tuple of 2" in line
    (line,) = lines(list=(X, "s", None))
    assert line == says("tree['list']", "a list of 3 items", "a tuple of 3 items")
    (line,) = lines(list=[X, "s"])
    assert line.startswith("`tree['list']`: ")
    (line,) = lines(list=[X, "s", X])
    assert line.startswith(says("tree['list'][2]", "None", "an array"))


def test_other_keys(first: Any) -> None:
    (line,) = mismatch(first, X, tree(more=1), 3, name="a")
    assert "tree" in line and "more" in line
    (line,) = mismatch(first, X, {"layer": Layer(X)}, 3, name="a")
    assert "tree" in line
    ordered = collections.OrderedDict(tree())
    (line,) = mismatch(first, X, ordered, 3, name="a")
    assert "OrderedDict" in line


def test_several_at_once(first: Any) -> None:
    lines = mismatch(first, X, tree(point=Point(X, 2)), 4, name="b")
    assert len(lines) == 3 and ["point" in lines[0], "`n`" in lines[1]] == [True, True]
    many = [0] * 50
    lines = mismatch(compile_for(lambda x, y: x, X, many), X, [1] * 50)
    assert "more differences" in lines[-1] and len(lines) < 20


def test_defaults_are_not_filled_in(first: Any) -> None:
    (line,) = mismatch(first, X, tree(), name="a")
    assert line == "`n`: compiled for the int 3, called without it"
    (line,) = mismatch(compile_for(lambda x, n=3: x * n, X), X, 3)
    assert line == "`n`: compiled without it, called with the int 3"
    (line,) = mismatch(first, X, tree(), 3, name="a", other=1)
    assert line == "`more`: compiled without it, called with a dict"


def test_varargs() -> None:
    compiled = compile_for(lambda *xs, **kw: xs[0] + kw["a"], X, 2, a=X)
    np.testing.assert_array_equal(compiled(X, 2, a=X), X * 2)
    (line,) = mismatch(compiled, X, 3, a=X)
    assert line.startswith(says("xs[1]", "the int 2", "the int 3"))
    assert len(mismatch(compiled, X, 2, 2, a=X)) == 1
    assert len(mismatch(compiled, X, 2, b=X)) >= 1


def test_arguments_that_do_not_fit_the_signature(first: Any) -> None:
    for args, kwargs, text in [
        ((X,), {}, "missing 1 required positional argument: 'tree'"),
        ((X, {}, 1, 2), {}, "positional arguments but 4"),
        ((X, {}), {"x": X}, "multiple values for argument 'x'"),
    ]:
        with pytest.raises(TypeError, match=text):
            first(*args, **kwargs)


# ---- arrays ----


def test_shapes_and_dtypes(first: Any) -> None:
    for x, words in [
        (jnp.ones(4), "float32[4]"),
        (jnp.ones((3, 1)), "float32[3,1]"),
        (jnp.ones(3, jnp.int32), "int32[3]"),
        (jnp.ones(3, jnp.bfloat16), "bfloat16[3]"),
        (np.ones(3, bool), "bool[3]"),
        (jax.random.split(jax.random.key(0), 3), "key<fry>[3]"),
    ]:
        assert mismatch(first, x, tree(), 3, name="a") == [says("x", "float32[3]", words)]
    other = tree(layer=Layer(jnp.ones(2)), list=[jnp.ones(5), "s", None])
    assert mismatch(first, X, other, 3, name="a") == [
        says("tree['layer'].weight", "float32[3]", "float32[2]"),
        says("tree['list'][0]", "float32[3]", "float32[5]"),
    ]


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


def test_weak_types_as_in_jax() -> None:
    """A compiled program does not check weak types."""
    weak = jnp.asarray(1.0)
    for function in (jax.jit(lambda x: x * 2), filter_jit(lambda x: x * 2)):
        assert function.lower(weak).compile()(jnp.ones(())) == 2.0
        assert function.lower(jnp.ones(())).compile()(weak) == 2.0


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


@pytest.mark.parametrize("value", [np.float32(2.0), np.ones((), np.float32)])
def test_numpy_scalars(value: Any) -> None:
    compiled = compile_for(lambda x: x * 2, jnp.ones(()))
    assert compiled(value) == value * 2


# ---- transformations, errors while the program runs ----


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: jax.grad(lambda x: f(x).sum()),
        lambda f: jax.vmap(f),
        lambda f: jax.jit(f),
        lambda f: filter_jit(f),
        lambda f: lambda x: jax.eval_shape(f, x),
    ],
    ids=["grad", "vmap", "jit", "filter_jit", "eval_shape"],
)
def test_under_a_transformation(transform: Any) -> None:
    """A compiled program cannot be transformed: JAX raises, and filterjit passes the error on."""
    x = jnp.ones((3, 3))
    for make in (jax.jit, filter_jit):
        compiled = make(lambda x: x * 2).lower(x).compile()
        with pytest.raises(TypeError, match=r"transformation|Tracer|compiled for"):
            transform(compiled)(x)
        np.testing.assert_array_equal(compiled(x), x * 2)


def test_tracers_that_do_not_reach_it() -> None:
    compiled = compile_for(lambda x: x * 2, X)
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


def test_debug_prints(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: Any) -> Any:
        jax.debug.print("it is {}", x[0])
        return x

    compile_for(f, X)(X)
    jax.effects_barrier()
    assert capsys.readouterr().out == "it is 0.0\n"


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


def test_partials() -> None:
    for partial in (eqx.Partial, jax.tree_util.Partial):
        compiled = compile_for(partial(lambda n, y, x: x * y, 2, y=X), x=X)
        np.testing.assert_array_equal(compiled(x=X), X * X)


def test_arguments_that_are_functions() -> None:
    compiled = compile_for(lambda f, x: f(x), jnp.sin, X)
    np.testing.assert_array_equal(compiled(jnp.sin, X), jnp.sin(X))
    (line,) = mismatch(compiled, jnp.cos, X)
    assert line.startswith("`f`")


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


def test_mutable_statics() -> None:
    value = Value(1)
    compiled = compile_for(lambda x, v: x * v.value, X, value)
    np.testing.assert_array_equal(compiled(X, Value(1)), X)
    assert len(mismatch(compiled, X, Value(2))) == 1
    value.value = 2
    with pytest.raises(MismatchError):
        compiled(X, Value(2))


def test_statics_that_raise_while_they_compare() -> None:
    class Angry:
        def __eq__(self, other: object) -> bool:
            raise KeyError("do not compare me")

        def __hash__(self) -> int:
            return 1

    compiled = compile_for(lambda x, n: x, X, Angry())
    with pytest.raises((KeyError, MismatchError)):
        compiled(X, Angry())


def test_results_that_are_the_arguments() -> None:
    compiled = compile_for(lambda p: (p, None, "s", Point(p["a"], [])), {"a": X})
    out = compiled({"a": X})
    assert out[1:3] == (None, "s") and type(out[3]) is Point and out[3].y == []
    assert out[3].y is not compiled({"a": X})[3].y


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


def test_its_signature(first: Any) -> None:
    assert str(inspect.signature(first)) == (
        "(x: Any, tree: Any, n: Any = 1, *, name: Any = '', **more: Any) -> Any"
    )


def test_copies_and_pickles(first: Any) -> None:
    """It cannot be pickled, like ``jax.stages.Compiled``."""
    for work in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            work(first)


def test_it_is_a_static(compiles: Compiles) -> None:
    compiled = compile_for(lambda x: x * 2, X)
    assert jax.tree.leaves(compiled) == [compiled]
    assert hash(compiled) == hash(compiled) and compiled == compiled


def test_reports_and_explanations() -> None:
    f = filter_jit(lambda x, n: x * n)
    f.lower(X, 3).compile()
    assert f.explain(X, 3).hit
    assert not f.explain(X, 4).hit
    assert f.cache_info().misses == 0 and "lambda" in str(f.report())


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


def test_the_variant_of_a_mismatch_is_not_kept() -> None:
    class Static:
        pass

    compiled = compile_for(lambda x, s: x, X, 3)
    static = Static()
    ref = weakref.ref(static)
    with pytest.raises(MismatchError):
        compiled(X, static)
    del static
    gc.collect()
    assert ref() is None


def test_eviction_of_the_variant() -> None:
    """The function's cache may drop the variant; the compiled object keeps a cache of its own."""
    f = filter_jit(lambda x, n: x * n)
    compiled = f.lower(X, 3).compile()
    jax.clear_caches()
    filterjit.clear_caches()
    np.testing.assert_array_equal(compiled(X, 3), X * 3)
    np.testing.assert_array_equal(f(X, 3), X * 3)


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


def test_threads_lower_one() -> None:
    f = filter_jit(lambda x, n: x * n)
    for i, out in enumerate(at_once(8, lambda i: f.lower(X, i % 2).compile()(X, i % 2))):
        np.testing.assert_array_equal(out, X * (i % 2))
    assert len(f.variants) == 2


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


def test_the_words_of_a_mismatch_say_what_is_meant() -> None:
    compiled = filter_jit(lambda x, y=None: x).lower(X).compile()
    assert mismatch(compiled, X, 2) == ["`y`: compiled without it, called with the int 2"]
    both = filter_jit(lambda x, y=None: x).lower(X, 2).compile()
    assert mismatch(both, X) == ["`y`: compiled for the int 2, called without it"]
    (line,) = mismatch(compiled, [X] * 8)
    assert line == "`x`: compiled for an array float32[3], called with a list of 8 items"
