"""What a program contains: its size, and captured arrays."""

import logging
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from explain_support import X, row_of

from filterjit import filter_jit
from filterjit._call import _trace


def looped(x: Any) -> Any:
    for _ in range(1000):
        x = x * 2 + jnp.cos(x)
    return x


def test_the_report_names_large_programs() -> None:
    f = filter_jit(looped)
    f(X)
    assert "has 3,000 equations" in str(f.report()) and "jax.lax.scan" in str(f.report())
    g = filter_jit(lambda x: jax.lax.fori_loop(0, 1000, lambda _, x: x * 2 + jnp.cos(x), x))
    g(X)
    assert row_of(g)["remarks"] == []


def test_nested_programs_count_once() -> None:
    @jax.jit
    def inner(x: Any) -> Any:
        return x * 2 + 1

    traced = filter_jit(lambda x: inner(inner(inner(x)))).trace(X)
    assert len(_trace.contents(traced.jaxpr).equations) == 3 + 2


def test_captured_arrays_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    big, table = jnp.ones((600, 1000)), np.ones((500, 1000), np.float32)

    @filter_jit
    def f(x: Any, n: int) -> Any:
        return x * n + big.sum() + jnp.asarray(table).sum()

    with caplog.at_level(logging.WARNING, "filterjit"):
        f(X, 1), f(X, 2), f(X, 2)
    (record,) = [r for r in caplog.records if r.name == "filterjit"]
    said = record.getMessage()
    assert "captures 2 arrays of 4.2 MiB (`big`, `table`) as constants" in said
    assert "f (test_programs.py:" in said and "Pass them as arguments" in said
    (remark,) = row_of(f)["remarks"]
    assert "4.2 MiB" in remark


def test_arguments_and_small_arrays_are_not_captured(caplog: pytest.LogCaptureFixture) -> None:
    small = jnp.ones(1000)
    model = eqx.nn.Linear(1000, 1000, key=jax.random.key(0))
    with caplog.at_level(logging.WARNING, "filterjit"):
        filter_jit(lambda x: x + small.sum())(X)
        filter_jit(model)(small)  # its arrays are arguments
        filter_jit(lambda model, x: model(x))(model, small)
    assert caplog.records == []


def test_a_bound_method_captures_its_object(caplog: pytest.LogCaptureFixture) -> None:
    model = eqx.nn.Linear(1000, 1000, key=jax.random.key(0))
    with caplog.at_level(logging.WARNING, "filterjit"):
        filter_jit(model.__call__)(jnp.ones(1000))
    (record,) = caplog.records
    assert "(`self`)" in record.getMessage() and "Jit the object itself" in record.getMessage()
