"""Donation, by mode and by names of parameters: which arrays are given away, and the warnings where
no result can take them."""

import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import pytest

import filterjit
from filterjit import filter_jit
from support.comparison import Jit, on_both
from support.nnx import needs_this_flax

MODES = ["all", "all-except-first", "warn", "warn-except-first", "none"]
UNUSABLE = "Some donated buffers were not usable"


class Layer(eqx.Module):
    w: Any
    scale: Any = 2

    def __call__(self, x: Any) -> Any:
        return self.w * x * self.scale, self.w + 1

    def step(self, x: Any, *, y: Any = 0.0) -> Any:
        return Layer(self.w + x, self.scale), x * 2 + y


def array(value: float = 1.0, size: int = 4) -> jax.Array:
    return jnp.full((size,), float(value))


def deleted(*trees: Any) -> list[bool]:
    """Returns which of the arrays in the trees are deleted, in order."""
    return [x.is_deleted() for x in jtu.tree_leaves(trees) if isinstance(x, jax.Array)]


def plus_one(tree: Any) -> Any:
    """Returns an output for each buffer."""
    return jtu.tree_map(lambda x: x + 1, tree)


def three(x: Any, y: Any, z: Any = 0.0) -> Any:
    return plus_one((x, y, z))


def doubled(state: Any, model: Any = None, *rest: Any, cache: Any = None, **more: Any) -> Any:
    return jax.tree.map(
        lambda x: x * 2 if eqx.is_array(x) else x, (state, model, rest, cache, more)
    )


# Calls `run` with a function, and with the arguments of a call.
CASES: dict[str, Callable[[Callable[..., Any]], Any]] = {
    "three": lambda run: run(three, array(1), array(2), array(3)),
    "trees": lambda run: run(three, {"a": array(1), "b": [array(2), 3]}, (array(4), 5)),
    "by keyword": lambda run: run(three, x=array(1), y=array(2), z=array(3)),
    "first by keyword": lambda run: run(three, y=array(1), x=array(2)),
    "static first": lambda run: run(three, 1, array(2), array(3)),
    "None first": lambda run: run(lambda x, y: y + 1, None, array(2)),
    "first left out": lambda run: run(lambda x=None, y=None: y + 1, y=array(1)),
    "varargs": lambda run: run(lambda *a: plus_one(a), [array(1), array(2)], array(3)),
    "keyword-only": lambda run: run(lambda *, a, b: (a + 1, b + 2), a=array(1), b=array(2)),
    "kwargs": lambda run: run(lambda **kw: plus_one(kw), a=array(1), b=array(2)),
    "Module": lambda run: run(Layer(array(1)), array(2)),
    "method of a Module": lambda run: run(Layer(array(1)).step, array(2), y=array(3)),
    "eqx.Partial": lambda run: run(eqx.Partial(three, array(1)), array(2), array(3)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("donate", MODES)
@pytest.mark.parametrize("name", CASES)
@on_both
def test_which_arrays_are_deleted(jit: Jit, name: str, donate: str) -> Any:
    def run(fun: Any, *args: Any, **kwargs: Any) -> Any:
        results = jit(fun, donate=donate)(*args, **kwargs)
        return results, deleted(fun), deleted(args), deleted(kwargs)

    return CASES[name](run)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("donate", ["all", "warn"])
@pytest.mark.parametrize("compiled", [False, True])
@on_both
def test_the_first_argument_is_donated_before_the_function(
    jit: Jit, donate: str, compiled: bool
) -> Any:
    layer, x, found = Layer(array(3), 1), array(1), []
    f = jit(eqx.Partial(lambda layer, x, y: layer.w * 2 + x + y.sum(), layer), donate=donate)
    if compiled:
        f = f.lower(x, array(2, 5)).compile()
    for _ in range(30):
        out = f(x, array(2, 5))
        found.append((out.tolist(), deleted(layer, x)))
        x = out
    return found


# ---- warnings ----


def make_unused() -> Callable[[Any, Any], Any]:
    """Returns a new function without outputs of its arguments' size. Equinox's wrappers of one
    function share traces whether they warn or not, and JAX warns once, so each test has its own."""
    return lambda x, y: x.sum() + y.sum()


@pytest.mark.parametrize("donate", MODES)
def test_warnings(jit: Jit, ours: bool, donate: str) -> None:
    f = jit(make_unused(), donate=donate)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        before = list(warnings.filters)
        for size in (3, 3, 5, 5):  # two traces
            f(array(1, size), array(2, size))
        if ours and not donate.startswith("warn"):
            f.lower(array(1, 7), array(2, 7)).compile()
        with pytest.raises(ZeroDivisionError):
            jit(lambda x: x / (1 // 0), donate=donate)(array(1))
        assert warnings.filters == before
    texts = [str(w.message) for w in caught]
    assert len(texts) == (2 if donate.startswith("warn") else 0)
    assert all(text.startswith(UNUSABLE) for text in texts)
    assert all(w.category is UserWarning for w in caught)
    buffers = 1 if donate == "warn-except-first" else 2
    assert all(text.count("float32") == buffers for text in texts)


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
    with pytest.warns(UserWarning, match="mine"):
        warnings.warn(f"{UNUSABLE}: mine", UserWarning, stacklevel=1)


# ---- after donation ----


# Decorators that donate the first two arguments.
DONATING = [
    lambda f: filter_jit(f, donate="all"),
    lambda f: filterjit.jit(f, donate_argnums=(0, 1)),
    pytest.param(lambda f: filterjit.nnx.jit(f, donate_argnums=(0, 1)), marks=needs_this_flax),
]


@pytest.mark.parametrize("jit", [*DONATING, lambda f: filter_jit(f, donate=("b",))])
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
@pytest.mark.parametrize("jit", DONATING)
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


# ---- by names of parameters ----


@pytest.mark.parametrize("donate", [("state",), ["state"], {"state"}], ids=repr)
def test_names(donate: Any) -> None:
    f = filter_jit(doubled, donate=donate)
    for _ in range(25):
        state, model = {"a": array(), "n": 3}, [array()]
        f(state, model)
        assert deleted((state, model)) == [True, False]
        state = {"a": array(), "n": 3}
        f(model=model, state=state)
        assert deleted((state, model)) == [True, False]


@pytest.mark.parametrize(
    ("donate", "expected"),
    [
        (("rest", "cache", "other"), [False, False, True, True, True, True, False]),
        (("more",), [False, False, False, False, False, True, True]),
        (("more", "other"), [False, False, False, False, False, True, True]),
        ((), [False] * 7),
    ],
    ids=repr,
)
def test_all_kinds_of_parameters(donate: Any, expected: list[bool]) -> None:
    f = filter_jit(doubled, donate=donate)
    given = [array(i) for i in range(7)]
    state, model, one, two, cache, other, kept = given
    f(state, model, one, [two], cache={"c": cache}, other=other, kept=kept)
    assert deleted(given) == expected
    f(state := array(), model := array())  # nothing that is donated was given
    assert deleted((state, model)) == [False, False]


@pytest.mark.parametrize(
    "call", [lambda f, *a: f(*a), lambda f, *a: f.lower(*a)], ids=["call", "lower"]
)
@pytest.mark.parametrize("donate", [("b",), "warn-except-first"])
@pytest.mark.parametrize("sharded", [False, True])
def test_unused_memory_can_be_an_error(donate: Any, sharded: bool, call: Any) -> None:
    """By Python's own filter of warnings. Arrays are as they were."""
    place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    f = filter_jit(
        lambda a, b: a + b.sum(), donate=donate, out_shardings=place if sharded else None
    )
    for size in (4, 5):
        a, b = array(), array(size=size + 1)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=UNUSABLE)
            with pytest.raises(UserWarning, match=rf"float32\[{size + 1}\]"):
                call(f, a, b)
        assert deleted(a, b) == [False, False]
    with pytest.warns(UserWarning, match=UNUSABLE):
        assert f(a, b).tolist() == [size + 2] * 4
