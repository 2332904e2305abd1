"""The hooks around a running program: they silence JAX's messages, and wait for the program."""

import contextlib
import logging
import os
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import jax

from .. import _core
from .._base._call_hooks import Failure
from .._base._locks import RLock
from .._compat import _jax_compat
from . import _deferred, _events


class _SharedSetting:
    """A global setting that is on while at least one call, of any thread, needs it.

    A KeyboardInterrupt may arrive between any two lines. So the functions that switch it do no
    harm if they run twice, and `hold` defers the end before it begins.
    """

    def __init__(self, switch_on: Callable[[], None], switch_off: Callable[[], None]) -> None:
        self._switch_on, self._switch_off = switch_on, switch_off
        self._lock = RLock()
        self._calls: set[tuple[int, object]] = set()  # (thread, a token for each call)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def hold(self, variant: _core.Variant) -> None:
        """Keeps the setting on, until the current call of `variant` is over."""
        call = threading.get_ident(), object()
        variant.defer(lambda: self._release(call))
        with self._lock:
            self._calls.add(call)
            self._switch_on()

    def _release(self, call: tuple[int, object]) -> None:
        with self._lock:
            self._calls.discard(call)
            if not self._calls:
                self._switch_off()

    def _after_fork(self) -> None:
        # In the child, there are no other threads, and so none of their calls.
        self._calls = {call for call in self._calls if call[0] == threading.get_ident()}
        if not self._calls:
            self._switch_off()


# For a failed callback: filterjit raises its error, as Equinox does.
_callback_logger = logging.getLogger(_jax_compat.CALLBACK_LOGGER)


def _is_not_callback_failure(record: logging.LogRecord) -> bool:
    return record.getMessage() != "jax.pure_callback failed"


_quiet_callbacks = _SharedSetting(
    lambda: _callback_logger.addFilter(_is_not_callback_failure),
    lambda: _callback_logger.removeFilter(_is_not_callback_failure),
)

# The comment in the pattern distinguishes this filter from one that the user may have set.
_UNUSED = "(?#filterjit)Some donated buffers were not usable"


def _filters() -> list[Any]:
    return [x for x in list(warnings.filters) if getattr(x[1], "pattern", "") == _UNUSED]


def _ignore_unused() -> None:
    if not _filters():
        warnings.filterwarnings("ignore", message=_UNUSED)


def _tell_unused() -> None:
    for entry in _filters():
        with contextlib.suppress(ValueError):
            warnings.filters.remove(entry)  # type: ignore[attr-defined]


_quiet_donation = _SharedSetting(_ignore_unused, _tell_unused)


def ignore_donation(variant: _core.Variant) -> None:
    """Keeps JAX from warning that a donated buffer could not be used, until the current call of
    `variant` is over.

    ``warnings.catch_warnings`` would restore all filters as they were: of two threads that use it
    at once, one leaves the filters of the other behind. Where filters belong to a context
    (``sys.flags.context_aware_warnings``, as without a GIL), it is right, and the only way.
    """
    if not getattr(sys.flags, "context_aware_warnings", False):
        return _quiet_donation.hold(variant)
    filters = warnings.catch_warnings()

    def leave() -> None:
        with contextlib.suppress(RuntimeError):  # it was interrupted before it had entered
            filters.__exit__(None, None, None)

    variant.defer(leave)
    filters.__enter__()
    warnings.filterwarnings("ignore", message=_UNUSED)


class RunningHooks:
    """The hooks around a program that can raise while it runs; see
    `_base._call_hooks.CallHooks`."""

    def before_raising_call(self, variant: _core.Variant, /) -> None:
        """Silences JAX's log of failed callbacks until the current call of `variant` is over."""
        _quiet_callbacks.hold(variant)

    def run_deferred(self, variant: _core.Variant, first: int, again: bool, /) -> None:
        """Runs what this thread has deferred since the call began."""
        _deferred.run(variant, first, again)

    def translate_error(self, /, *failure: Any) -> BaseException | str:
        """Returns the exception to raise in the place of that of a `Failure`, or a reason."""
        return _events.error_of(self.translate(Failure(*failure)))

    def translate(self, failure: Failure) -> BaseException | str:
        raise NotImplementedError

    def wait(self, outputs: tuple[Any, ...], /) -> None:
        """Waits until the device is done, so that a program that raises has raised."""
        for x in outputs:
            if isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer):
                x.block_until_ready()
                break
