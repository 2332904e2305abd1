"""Helpers of the tests of reports and explanations."""

from typing import Any

import jax.numpy as jnp

from filterjit import filter_jit

X = jnp.ones(3)


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
