"""Options of JAX that are set around calls."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import pytest

from support.comparison import Jit, Traces, on_both
from support.features import X
from support.trees import ONE


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
def test_checking_leaks(jit: Jit) -> Any:
    leaked: list[Any] = []
    with jax.checking_leaks():
        good = jit(lambda x: x + 1)(ONE)
        with pytest.raises(Exception, match="Leaked") as info:
            jit(lambda x: (leaked.append(x), x)[1])(ONE)
    return good, type(info.value).__name__
