"""Direct calls: hits that run their executable without ``jax.jit`` (csrc/call/direct.c)."""

import contextlib
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from .. import _core
from .._base._switches import on_switch
from .._compat import _direct_compat, _jax_compat
from . import _running

_MOST_ENTRIES = 1024  # of a function with added entries
_AFTER = 16  # calls; making a plan costs about as much as several of them


def _plan(source: Any, arrays: Sequence[Any]) -> dict[str, Any] | str:
    """Returns the plan of an entry, or the reason for having none, such as a trace that JAX has
    dropped, or a changed option that affects traces but not calls."""
    try:
        with _running.running(None):
            return _direct_compat.plan_of(source, arrays, _core.Output)
    except _running.WouldTrace:
        return "JAX would trace the function again"
    except Exception as e:  # a private name changed
        return f"JAX's executable was not found ({type(e).__name__}: {e})"


def _forget() -> None:
    if _context is not None:
        _context.forget()


def _make_context() -> _core.DirectContext | None:
    parts = _direct_compat.context_parts()
    if parts is None or not _jax_compat.clears_with_jax(_forget):
        return None
    made = _core.DirectContext(**parts, plan=_plan)
    made.after = int(os.environ.get("FILTERJIT_DIRECT_AFTER", _AFTER))
    return made


# Shared by all direct calls. None if JAX lacks a private name they need.
_context = _make_context()


def _turn(on: bool) -> None:
    if _context is not None:
        _context.enabled = on


on_switch("direct", _turn)


def are_supported() -> bool:
    return _context is not None


def time_runs(on: bool) -> None:
    if _context is not None:
        _context.timed = on


class _After:
    """Calls a ``jax.jit`` within a context made by `before`."""

    def __init__(self, before: "Before", jitted: Any) -> None:
        self.before = before
        self.jitted = jitted

    def __call__(self, *arrays: Any) -> Any:
        with self.before(arrays, lambda: self.jitted):
            return self.jitted(*arrays)


def arrange(items: Sequence[Any], order: Sequence[int]) -> tuple[Any, ...]:
    """Returns items of a call's arrays in the order of a program: `order` has the positions of its
    arrays, and is empty for the call's order."""
    return tuple([items[i] for i in order]) if order else tuple(items)


def restore(items: Sequence[Any], order: Sequence[int]) -> tuple[Any, ...]:
    """Reverses `arrange`."""
    return arrange(items, sorted(range(len(order)), key=order.__getitem__))


class Reordered:
    """Takes a call's arrays, and calls `call` with them in the program's order."""

    def __init__(self, call: Any, order: Sequence[int]) -> None:
        self.call, self._order = call, order

    def __call__(self, *arrays: Any) -> Any:
        __tracebackhide__ = True
        return self.call(*arrange(arrays, self._order))


def in_order(call: Any, order: Sequence[int]) -> Any:
    """Returns a callable that takes a call's arrays in their order, as `call` does in the
    program's."""
    return Reordered(call, order) if order else call


Before = Callable[[tuple[Any, ...], Callable[[], Any]], AbstractContextManager[None]]


def wrap(jitted: Any, source: Any = None, before: Before | None = None) -> Any:
    """Returns a callable that runs `jitted`, or directly its executable.

    `source` is the ``jax.stages.Compiled`` of `jitted`, if it isn't a ``jax.jit``. `before` returns
    a context for each call that isn't direct, given the arrays and a function that returns
    `jitted`.
    """
    source = jitted if source is None else source
    if before is not None:
        jitted = _After(before, jitted)
    return jitted if _context is None else _core.Direct(_context, jitted, source)


def with_entries(function: Any) -> Any:
    """Returns a callable that runs the program of an entry (`add_entry`), or calls `function`."""
    return function if _context is None else _core.Direct(_context, function, None)


def add_entry(call: Any, stage: Any, arrays: tuple[Any, ...]) -> None:
    """Adds an entry for such arrays to a result of `with_entries`, if its programs can run so."""
    if isinstance(call, _core.Direct) and call.num_entries < _MOST_ENTRIES:
        with contextlib.suppress(Exception):  # a deleted array, or a private name has changed
            plan = _direct_compat.plan_of(stage, arrays, _core.Output, must_pay=False)
            if isinstance(plan, dict):
                call.add(plan, arrays)


def jitted_of(call: Any) -> Any:
    """Unwraps the ``jax.jit`` in the `call` of a variant."""
    while isinstance(call, (_core.Direct, _After)):
        call = call.jitted
    return call
