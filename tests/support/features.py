"""Helpers of tests that run features of JAX and Equinox inside and outside of a jit."""

import ast
import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from filterjit._trees import _registry

from .comparison import runtime_message

X = jnp.arange(3.0)


def printed(run: Callable[[], Any]) -> str:
    """Returns the text that is printed while `run` runs, that of callbacks included."""
    with contextlib.redirect_stdout(io.StringIO()) as text:
        run()
        jax.effects_barrier()
    return text.getvalue()


def fails(run: Callable[[], Any]) -> tuple[str, str]:
    """Runs `run`, which ends with an error of ``error_if``. Returns the name of its type, and its
    message."""
    with pytest.raises(RuntimeError) as info:
        run()
    return type(info.value).__name__, runtime_message(info.value)


def attributes(x: Any) -> list[str]:
    """Returns the names of the attributes that are set, without those that hold Equinox's mark of
    a missing field."""
    found = getattr(x, "__dict__", {})
    return sorted(n for n, v in found.items() if type(v).__name__ != "_Missing")


def kind(x: Any) -> str:
    """Returns the kind of node that the C core takes `x` for."""
    return _registry.registry.kind(x)


def names_used(function: str, *modules: Any) -> list[tuple[str, ...]]:
    """Returns the arguments of all calls of a function that looks up private names of a library, in
    the order of modules; calls with the rows of a table are left out."""
    trees = [ast.parse(Path(module.__file__).read_text()) for module in modules]
    calls = [x for tree in trees for x in ast.walk(tree) if isinstance(x, ast.Call)]
    found = [x for x in calls if ast.unparse(x.func) == function]
    found = [x for x in found if not any(isinstance(arg, ast.Starred) for arg in x.args)]
    return list(dict.fromkeys(tuple(ast.literal_eval(arg) for arg in x.args) for x in found))


def positive(x: Any) -> Any:
    return eqx.error_if(x, x < 0, "x must be positive")


class Guard(eqx.Module):
    low: Any

    def __call__(self, x: Any) -> Any:
        return eqx.branched_error_if(x, x < self.low, (x < -5).astype(int), ["low", "very low"])

    def method(self, x: Any) -> Any:
        return self(x) + 1
