"""Donation: which buffers are given away, and the warnings where they were not usable."""

import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import pytest

import filterjit
from support.comparison import Jit, Traces, on_both
from support.donation import array, deleted

MODES = ["all", "all-except-first", "warn", "warn-except-first", "none"]
UNUSABLE = "Some donated buffers were not usable"


class Layer(eqx.Module):
    w: Any
    scale: Any = 2

    def __call__(self, x: Any) -> Any:
        return self.w * x * self.scale, self.w + 1

    def step(self, x: Any, *, y: Any = 0.0) -> Any:
        return Layer(self.w + x, self.scale), x * 2 + y


class PlainLayer:
    def __init__(self, w: Any) -> None:
        self.w = w

    def step(self, x: Any, y: Any) -> Any:
        return x + self.w, y * 2


def three(x: Any, y: Any, z: Any = 0.0) -> Any:
    """Returns an output for each buffer."""
    return jtu.tree_map(lambda a: a + 1, (x, y, z))


def varargs(*args: Any) -> Any:
    return jtu.tree_map(lambda a: a + 1, args)


def keywords(*, a: Any, b: Any) -> Any:
    return a + 1, b + 2


def kwargs_only(**kwargs: Any) -> Any:
    return jtu.tree_map(lambda a: a + 1, kwargs)


def nothing() -> Any:
    return jnp.zeros(4)


CASES: dict[str, Callable[[Callable[..., Any]], tuple[Any, ...]]] = {
    # each returns the function and the arguments that it passed
    "two": lambda run: run(three, (array(1), array(2)), {}),
    "three": lambda run: run(three, (array(1), array(2), array(3)), {}),
    "trees": lambda run: run(three, ({"a": array(1), "b": [array(2), 3]}, (array(4), 5)), {}),
    "by keyword": lambda run: run(three, (), {"x": array(1), "y": array(2), "z": array(3)}),
    "first by keyword": lambda run: run(three, (), {"y": array(1), "x": array(2)}),
    "static first": lambda run: run(three, (1, array(2), array(3)), {}),
    "None first": lambda run: run(lambda x, y: y + 1, (None, array(2)), {}),
    "empty first": lambda run: run(lambda x, y: y + 1, ((), array(2)), {}),
    "first left out": lambda run: run(lambda x=None, y=None: y + 1, (), {"y": array(1)}),
    "varargs": lambda run: run(varargs, (array(1), array(2), array(3)), {}),
    "varargs, trees": lambda run: run(varargs, ([array(1), array(2)], array(3)), {}),
    "varargs, one": lambda run: run(varargs, (array(1),), {}),
    "varargs after one": lambda run: run(lambda x, *r: (x + 1, r[0] + 1), (array(1), array(2)), {}),
    "keyword-only": lambda run: run(keywords, (), {"a": array(1), "b": array(2)}),
    "kwargs": lambda run: run(kwargs_only, (), {"a": array(1), "b": array(2)}),
    "no arguments": lambda run: run(nothing, (), {}),
    "Module": lambda run: run(Layer(array(1)), (array(2),), {}),
    "method of a Module": lambda run: run(Layer(array(1)).step, (array(2),), {"y": array(3)}),
    "plain method": lambda run: run(PlainLayer(array(1)).step, (array(2), array(3)), {}),
    "eqx.Partial": lambda run: run(eqx.Partial(three, array(1)), (array(2), array(3)), {}),
    "tree_util.Partial": lambda run: run(jtu.Partial(three, array(1)), (array(2), array(3)), {}),
    "prng key": lambda run: run(three, (jax.random.PRNGKey(0), array(1)), {}),
    "bfloat16": lambda run: run(three, (array(1).astype("bfloat16"), array(2)), {}),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("donate", MODES)
@pytest.mark.parametrize("name", CASES)
@on_both
def test_which_arrays_are_deleted(jit: Jit, name: str, donate: str) -> Any:
    """Returns a function, its arguments and keyword arguments, and the result."""

    def run(fun: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        results = jit(fun, donate=donate)(*args, **kwargs)
        holder = getattr(fun, "__self__", None)
        state = vars(holder) if isinstance(holder, PlainLayer) else fun
        return results, deleted(state), deleted(args), deleted(kwargs)

    return CASES[name](run)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("donate", MODES)
@on_both
def test_methods_decorated_in_a_class(jit: Jit, traces: Traces, donate: str) -> Any:
    """`self` is the first argument."""

    class M(eqx.Module):
        w: Any

        @jit(donate=donate)
        def step(self, x: Any, y: Any = None) -> Any:
            traces.tick()
            return M(self.w + 1), x * 2, y

    m, x, y = M(array(1)), array(2), array(3)
    result = m.step(x, y)
    first = deleted(m, x, y)
    m2, x2 = result[0], array(5)
    result2 = M.step(self=m2, x=x2)
    return first, deleted(m2, x2), result2[1]


@pytest.mark.parametrize("donate", MODES)
def test_memory_is_reused(jit: Jit, donate: str) -> None:
    y = jnp.ones(1000)
    pointer = y.unsafe_buffer_pointer()
    result = jit(lambda x, y: y + x, donate=donate)(2.0, y)
    assert (result.unsafe_buffer_pointer() == pointer) is (donate != "none")


# ---- warnings ----


def make_unused() -> Callable[[Any, Any], Any]:
    """Returns a new function without outputs of its arguments' size. Equinox's wrappers of one
    function share traces whether they warn or not, and JAX warns once, so each test has its own."""
    return lambda x, y: x.sum() + y.sum()


@pytest.mark.parametrize("donate", MODES)
def test_warnings(jit: Jit, donate: str) -> None:
    f = jit(make_unused(), donate=donate)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for size in (3, 3, 5, 5):  # two traces
            f(array(1, size), array(2, size))
    texts = [str(w.message) for w in caught]
    assert len(texts) == (2 if donate.startswith("warn") else 0)
    assert all(text.startswith(UNUSABLE) for text in texts)
    assert all(w.category is UserWarning for w in caught)
    buffers = 1 if donate == "warn-except-first" else 2
    assert all(text.count("float32") == buffers for text in texts)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("donate", MODES)
def test_warnings_as_errors(jit: Jit, donate: str) -> None:
    """With ``-W error`` the warning is an error, again for each size."""
    f = jit(make_unused(), donate=donate)
    for size in (3, 5):
        x, y = array(1, size), array(2, size)
        if donate.startswith("warn"):
            with pytest.raises(UserWarning, match=UNUSABLE):
                f(x, y)
            assert deleted(x, y) == [False, False]
        else:
            assert f(x, y) == 3 * size


@pytest.mark.parametrize("donate", ["all", "all-except-first"])
def test_the_filters_are_left_alone(jit: Jit, donate: str) -> None:
    f = jit(make_unused(), donate=donate)
    before = list(warnings.filters)
    f(array(1), array(2))
    f(array(1), array(2))
    jit(lambda x, y: (x + 1, y + 1), donate=donate).lower(array(1), array(2)).compile()
    with pytest.raises(ZeroDivisionError):
        jit(lambda x: x / (1 // 0), donate=donate)(array(1))
    assert warnings.filters == before
    with pytest.warns(UserWarning, match="mine"):
        warnings.warn(f"{UNUSABLE}: mine", UserWarning, stacklevel=1)


@pytest.mark.parametrize("donate", ["all", "all-except-first"])
def test_other_warnings_are_shown(jit: Jit, donate: str) -> None:
    @jit(donate=donate)
    def f(x: Any, y: Any) -> Any:
        warnings.warn("mine", RuntimeWarning, stacklevel=1)
        return x.sum() + y.sum()

    with pytest.warns(RuntimeWarning, match="mine") as caught:
        f(array(1), array(2))
    assert len(caught) == 1
    with pytest.raises(RuntimeWarning, match="mine"):
        f(array(1, 9), array(2, 9))


@pytest.mark.parametrize("outer", ["jit", "filter_jit", "vmap", "grad", "eval_shape", "make_jaxpr"])
@pytest.mark.parametrize("donate", ["all", "warn", "all-except-first"])
@on_both
def test_inside_of_transformations(jit: Jit, outer: str, donate: str) -> Any:
    """Donation inside a trace: the same results, warnings and deletions."""
    inner = jit(lambda x, y: (x * y).sum(), donate=donate)
    transform: dict[str, Callable[[Any], Any]] = {
        "jit": jax.jit,
        "filter_jit": jit,
        "vmap": jax.vmap,
        "grad": jax.grad,
        "eval_shape": lambda f: lambda *a: jax.eval_shape(f, *a).shape,
        "make_jaxpr": lambda f: lambda *a: len(jax.make_jaxpr(f)(*a).eqns),
    }
    before = list(warnings.filters)
    x, y = jnp.ones((2, 3)), jnp.ones((2, 3))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = transform[outer](lambda x, y: inner(x, y) + 1)(x, y)
    assert warnings.filters == before
    return result, deleted(x, y), sorted(str(w.message).split(":")[0] for w in caught)


# ---- after donation ----


def test_retrace_keeps_the_places(jit: Jit) -> None:
    """The first argument is kept for new shapes of the same static values, and for other structures."""
    f = jit(lambda x, *rest: jtu.tree_map(lambda a: a + 1, (x, rest)), donate="all-except-first")
    for size in (2, 3, 2):
        for x in (array(1, size), [array(1, size)] * 1, {"a": array(1, size), "b": array(2, size)}):
            rest = (array(3, size), [array(4, size)])
            f(x, *rest)
            assert not any(deleted(x))
            assert all(deleted(rest))


@pytest.mark.parametrize(
    "jit",
    [
        lambda f: filterjit.filter_jit(f, donate="all"),
        lambda f: filterjit.filter_jit(f, donate=("b",)),
        lambda f: filterjit.jit(f, donate_argnums=(0, 1)),
        lambda f: filterjit.nnx.jit(f, donate_argnames="a"),
    ],
)
@pytest.mark.parametrize("calls_before", [0, 30], ids=["first", "direct"])
def test_an_array_that_is_given_twice(jit: Any, calls_before: int) -> None:
    f = jit(lambda a, b, c: (a + 1, b["x"] * 2, c - 1))
    for _ in range(calls_before):
        f(jnp.ones(4), {"x": jnp.ones(4)}, jnp.ones(4))
    x = jnp.ones(4)
    with pytest.raises((RuntimeError, ValueError), match="donate") as info:  # as jax.jit raises it
        f(x, {"x": x}, jnp.ones(4))
    notes = [note for note in info.value.__notes__ if "same array" in note]
    assert len(notes) == 1 and notes[0].startswith(
        "(`a` and `b['x']` are the same array: pass a copy"
    )
    assert not x.is_deleted()
    assert f(x, {"x": jnp.ones(4)}, jnp.ones(4))[1][0] == 2


@pytest.mark.parametrize("calls_before", [1, 30], ids=["first", "direct"])
@pytest.mark.parametrize(
    "jit",
    [
        lambda f: filterjit.filter_jit(f, donate="all"),
        lambda f: filterjit.jit(f, donate_argnums=(0, 1)),
        lambda f: filterjit.nnx.jit(f, donate_argnums=(0, 1)),
    ],
)
def test_a_donated_array_that_is_used_again(jit: Any, calls_before: int) -> None:
    f = jit(lambda state, *rest: jtu.tree_map(lambda x: x * 2, (state, rest)))
    state, rest = {f"w{i}": array() for i in range(30, 67)}, array()
    for _ in range(calls_before):
        before, (state, (rest,)) = (state, rest), f(state, rest)
    with pytest.raises((RuntimeError, ValueError), match="deleted") as info:
        f(*before)
    assert (
        "(deleted, or donated to an earlier call: 37 arrays of `state`, first `state['w30']`; "
        "`rest[0]`. Use what the call returned)"
    ) in info.value.__notes__
    assert not any(deleted(f(state, rest)))
