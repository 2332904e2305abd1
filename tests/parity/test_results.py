"""Results of jitted functions: trees of every kind, with and without arrays."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu
import pytest

from support.comparison import Jit, Traces, comparable, on_both
from support.modules import Module
from support.trees import ARRAY, TREES, identity

ONE = jnp.array(1.0)


@pytest.mark.parametrize("name", TREES)
@on_both
def test_any_tree_is_returned(jit: Jit, traces: Traces, name: str) -> Any:
    """Returns a captured tree and a recreated one. Two calls share no containers."""

    make = TREES[name]

    value = make()
    f = jit(traces.counting(lambda x: value))
    first, second = f(ONE), f(ONE)
    structures = [jtu.tree_structure(r) == jtu.tree_structure(value) for r in (first, second)]
    shared = isinstance(first, (list, dict, eqx.Module)) and first is second
    return first, second, structures, shared


def test_static_results_are_the_very_objects(jit: Jit) -> None:
    token = object()

    @jit
    def f(x: Any) -> Any:
        return x + 1, token, identity, "text"

    for _ in range(2):
        result = f(ONE)
        assert result[1] is token
        assert result[2] is identity


def test_another_structure_for_another_shape(jit: Jit, traces: Traces) -> None:
    """One variant with several traces, each with its own tree."""

    @jit
    def f(x: Any) -> Any:
        traces.tick()
        n = x.shape[0]
        if n == 1:
            return x
        if n == 2:
            return {"two": x, "n": 2}
        if n == 3:
            return None
        if n == 4:
            return Module(x, "four", [n])
        return [x] * n

    for _ in range(3):
        assert comparable(f(jnp.ones(1))) == comparable(jnp.ones(1))
        assert comparable(f(jnp.ones(4))) == comparable(Module(jnp.ones(4), "four", [4]))
        assert comparable(f(jnp.ones(2))) == comparable({"n": 2, "two": jnp.ones(2)})
        assert f(jnp.ones(3)) is None
        assert len(f(jnp.ones(7))) == 7
        assert comparable(f(jnp.ones(2, int))["two"]) == comparable(jnp.ones(2, int))
    assert traces.count == 6


@on_both
def test_shared_containers_are_separated(jit: Jit) -> Any:
    """A pytree is a tree: a list that occurs twice becomes two lists."""

    @jit
    def f(x: Any) -> Any:
        shared = [x]
        model = Module(x)
        return shared, shared, (model, model)

    a, b, (m, n) = f(ARRAY)
    found = a is b, m is n, f(ARRAY)
    assert found[:2] == (False, False)
    return found


def test_functions_made_inside(jit: Jit) -> None:
    """A closure made while tracing is a static output; each call returns the one of the trace."""

    @jit
    def f(x: Any) -> Any:
        n = x.shape[0]
        return (lambda y: y + n), x

    for _ in range(2):
        assert f(ARRAY)[0](1) == 4
        assert f(jnp.ones(5))[0](1) == 6
    assert f(ARRAY)[0] is f(ARRAY)[0]


@pytest.mark.parametrize(
    "bad",
    [{1: 1, "a": 2}, {"a": {None: 1, 0: 2}}],
    ids=["unsortable", "nested"],
)
def test_results_that_are_no_trees(jit: Jit, traces: Traces, bad: Any) -> None:
    f = jit(traces.counting(lambda x, ok: (x, None) if ok else (x, bad)))
    assert f(ONE, True)[0] == 1
    for _ in range(2):
        with pytest.raises((TypeError, ValueError), match=r"sort|compar|<"):
            f(ONE, False)
    assert f(ONE, True)[0] == 1
    assert traces.count == 3


@on_both
def test_unhashable_static_results(jit: Jit) -> Any:
    """Static leaves of a result need no hash."""

    class Unhashable:
        __hash__ = None  # type: ignore[assignment]

        def __repr__(self) -> str:
            return "Unhashable"

    value = Unhashable()
    f = jit(lambda x: (x, value, {1, 2}, bytearray(b"a")))
    first, second = f(ONE), f(ONE)
    return first, second, first[1] is second[1] is value
