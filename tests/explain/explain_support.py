"""Helpers of the tests of reports and explanations."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from filterjit import filter_jit

X = jnp.ones(3)

# Versions of JAX before 0.7.1 report neither the names of the programs that they compile nor when a
# compilation begins.
tells_names = hasattr(jax.monitoring, "register_scalar_listener")
needs_names = pytest.mark.skipif(not tells_names, reason="this JAX does not name its programs")


def jitted(**options: Any) -> tuple[Any, list[None]]:
    """Returns a function of two arguments, and a list that grows with each of its traces."""
    traces: list[None] = []

    @filter_jit(**options)
    def f(a: Any, b: Any = None) -> Any:
        traces.append(None)
        return a

    return f, traces


def row_of(f: Any) -> dict[str, Any]:
    """Returns the row of a function in its report."""
    (row,) = f.report().as_dict()["functions"]
    return row


def build_seconds(row: dict[str, Any]) -> float:
    return row["tracing"] + row["lowering"] + row["compiling"]
