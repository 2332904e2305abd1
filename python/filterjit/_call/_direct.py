"""Direct calls: hits that run their executable without ``jax.jit`` (csrc/call/direct.c)."""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from .. import _core
from .._base._switches import tell
from .._compat import _direct_compat, _jax_compat

_AFTER = 16  # calls, after which a plan pays: making it takes as long as some calls


class _WouldTrace(Exception):
    """JAX has dropped a trace, or keeps none for the configuration."""


def before_trace() -> None:
    """Is called where a flat function is traced, which to make a plan must not do.

    JAX finds the trace of the call that was noted in its caches, unless it has dropped it, or an
    option changed that its traces depend on and its calls do not. The stack says whether a plan is
    made: unlike a flag, no interrupt leaves it in a wrong state.
    """
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _plan.__code__:
            raise _WouldTrace
        frame = frame.f_back  # type: ignore[assignment]


def _plan(source: Any, arrays: Sequence[Any]) -> tuple[Any, ...] | str:
    try:
        return _direct_compat.plan_of(source, arrays, _core.Output)
    except _WouldTrace:
        return "JAX would trace the function again"
    except Exception as e:  # a private name is not what it was
        return f"JAX's executable was not found ({type(e).__name__}: {e})"


def _forget() -> None:
    if _context is not None:
        _context.forget()


def _make_context() -> _core.DirectContext | None:
    parts = _direct_compat.context_parts()
    if parts is None or not _jax_compat.clears_with_jax(_forget):
        return None
    made = _core.DirectContext(*parts, _plan)
    made.after = int(os.environ.get("FILTERJIT_DIRECT_AFTER", _AFTER))
    return made


# What all direct calls share; None if JAX lacks a private name that they need.
_context = _make_context()


def _turn(on: bool) -> None:
    if _context is not None:
        _context.enabled = on


tell("direct", _turn)


def time_runs(on: bool) -> None:
    """Turns the timing of executables on or off."""
    if _context is not None:
        _context.timed = on


class _After:
    """Calls a ``jax.jit`` after something that is called with the arrays, and with what returns
    it."""

    def __init__(self, before: "Before", jitted: Any) -> None:
        self.before = before
        self.jitted = jitted

    def __call__(self, *arrays: Any) -> Any:
        self.before(arrays, lambda: self.jitted)
        return self.jitted(*arrays)


Before = Callable[[tuple[Any, ...], Callable[[], Any]], None]


def wrap(jitted: Any, source: Any = None, before: Before | None = None) -> Any:
    """Returns a callable that calls `jitted`, or its executable where a call is like earlier ones.

    `jitted` takes arrays and returns an Output. `source` is the ``jax.stages.Compiled`` of
    `jitted`; None for a ``jax.jit``. `before` is called with the arrays of each call that is not
    direct, and with a function that returns `jitted`.
    """
    source = jitted if source is None else source
    if before is not None:
        jitted = _After(before, jitted)
    return jitted if _context is None else _core.Direct(_context, jitted, source)


def jitted_of(call: Any) -> Any:
    """Returns the ``jax.jit`` of the `call` of a variant."""
    while isinstance(call, (_core.Direct, _After)):
        call = call.jitted
    return call
