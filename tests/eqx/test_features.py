"""Features of JAX and Equinox inside a jitted function: what it returns, prints, and is called."""

import functools
import logging
import re
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from support.comparison import Jit, on_both
from support.features import Guard, X, positive
from support.trees import ONE, TWO

NAMED: dict[str, Callable[[], Any]] = {
    "function": lambda: positive,
    "lambda": lambda: lambda x: x + 1,
    "partial": lambda: functools.partial(jnp.add, 1.0),
    "Module": lambda: Guard(ONE),
    "method": lambda: Guard(ONE).method,
    "filter_grad": lambda: eqx.filter_grad(lambda x: x**2),
    "nested": lambda: eqx.filter_jit(positive),
}


@pytest.mark.parametrize("name", NAMED)
@on_both
def test_name_of_the_program(jit: Jit, name: str) -> Any:
    """Profiles, dumps and logs show the program's name."""
    f = jit(NAMED[name]())
    lowered = f.lower(TWO)
    (found,) = re.findall(r"module @(\w+)", lowered.as_text())
    (compiled,) = re.findall(r"HloModule (\w+)", lowered.compile().compiled.as_text())
    assert found.startswith("jit_")
    return found, compiled


@on_both
def test_explain_cache_misses(jit: Jit, caplog: pytest.LogCaptureFixture) -> Any:
    @jit
    def some_function(x: Any, n: Any) -> Any:
        return x + 1

    caplog.clear()
    with jax.explain_cache_misses(True), caplog.at_level(logging.WARNING):
        for x, n in ((X, 1), (X[:2], 1), (X, "n"), (X, 1)):
            some_function(x, n)
    told = [r.getMessage() for r in caplog.records if r.name.startswith("jax")]
    assert any("some_function" in message for message in told)
