"""Options of JAX that are set around calls."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest

from support.comparison import Jit, Traces, check, comparable, first_line, on_both
from support.features import MINUS, X
from support.trees import ONE, TWO


@on_both
def test_disable_jit(jit: Jit) -> Any:
    """The function runs in each call, on the arrays themselves."""
    traces = Traces()

    @jit
    def f(tree: Any, name: str) -> Any:
        traces.tick()
        return {"out": jtu.tree_map(jnp.sin, tree), "name": name}, float(tree["a"].sum()) > 0

    with jax.disable_jit():
        results = [f({"a": X, "b": [ONE]}, "name") for _ in range(3)]
        grad = jax.grad(lambda x: jit(lambda y: (y**2, "static"))(x)[0])(2.0)
    return results, traces.count, grad


@on_both
def test_debug_nans(jit: Jit) -> Any:
    f = jit(lambda x: (jnp.log(x), "static"))
    with jax.debug_nans(True):
        good = f(ONE)
        with pytest.raises(FloatingPointError) as info:
            f(MINUS)
    return good, first_line(info.value), f(ONE)


@on_both
def test_checking_leaks(jit: Jit) -> Any:
    leaked: list[Any] = []
    with jax.checking_leaks():
        good = jit(lambda x: x + 1)(ONE)
        with pytest.raises(Exception, match="Leaked") as info:
            jit(lambda x: (leaked.append(x), x)[1])(ONE)
    return good, type(info.value).__name__


@on_both
def test_enable_x64(jit: Jit) -> Any:
    f = jit(lambda x: (x * 2, jnp.zeros(()), 1.5))
    before = f(np.ones(2))
    with jax.enable_x64(True):
        inside = f(np.ones(2))
    return before, inside, f(np.ones(2))


@on_both
def test_default_matmul_precision(jit: Jit) -> Any:
    traces = Traces()
    f = jit(traces.counting(lambda x: x @ x))
    f(X)
    with jax.default_matmul_precision("highest"):
        f(X)
    f(X)
    return traces.count


@on_both
def test_transfer_guard(jit: Jit) -> Any:
    f = jit(lambda x: x + 1)
    with jax.transfer_guard("disallow"):
        out = f(ONE)
        with pytest.raises(Exception, match=r"[Dd]isallowed") as info:
            f(np.ones(2))
    return out, type(info.value).__name__


def test_no_tracer_is_left_behind() -> None:
    """A call without options, after all tests with options."""
    assert comparable(check(lambda jit: jit(lambda x: x + 1)(ONE))) == comparable(TWO)
