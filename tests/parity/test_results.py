"""Results of jitted functions: trees of every kind, with and without arrays."""

from typing import Any

import jax.numpy as jnp

from support.comparison import Jit, Traces, comparable, on_both
from support.modules import Module
from support.trees import ARRAY, identity

ONE = jnp.array(1.0)


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
