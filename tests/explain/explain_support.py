"""Helpers of the tests of reports and explanations."""

import contextlib
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import pytest

import filterjit
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


@contextlib.contextmanager
def switched(**switches: bool) -> Iterator[None]:
    """Sets attributes of `filterjit.switches`, for a while."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in switches.items():
            patch.setattr(filterjit.switches, name, value)
        yield


def row_of(f: Any) -> dict[str, Any]:
    """Returns the row of a function in its report."""
    (row,) = f.report().as_dict()["functions"]
    return row


def build_seconds(row: dict[str, Any]) -> float:
    return row["tracing"] + row["compiling"]
