"""What the tests share that run features of JAX and Equinox inside and outside of a jit."""

import contextlib
import io
import re
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from parity.support import runtime_message

MINUS = jnp.array(-1.0)
X = jnp.arange(3.0)


def printed(run: Callable[[], Any]) -> str:
    """What is printed while `run` runs, callbacks' included."""
    with contextlib.redirect_stdout(io.StringIO()) as text:
        run()
        jax.effects_barrier()
    return text.getvalue()


def fails(run: Callable[[], Any]) -> Any:
    """The error of ``error_if`` that `run` ends with: its type, message, and where it points."""
    with pytest.raises(RuntimeError) as info:
        run()
    names = re.findall(r"in (\w+)$", str(info.value), re.M)
    # JAX's and pytest's own frames are around; ours is that of `flat`.
    return type(info.value).__name__, runtime_message(info.value), "positive" in names, info.value


def positive(x: Any) -> Any:
    return eqx.error_if(x, x < 0, "x must be positive")


class Guard(eqx.Module):
    low: Any

    def __call__(self, x: Any) -> Any:
        return eqx.branched_error_if(x, x < self.low, (x < -5).astype(int), ["low", "very low"])

    def method(self, x: Any) -> Any:
        return self(x) + 1


class Pair(eqx.Module):
    a: Any
    b: Any
