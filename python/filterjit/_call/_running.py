"""The hooks of a call around a running program: they silence JAX's messages, and wait."""

import contextlib
import logging
import os
import sys
import threading
import warnings
from typing import Any

import jax

from .. import _core
from .._base._call_hooks import Failure
from .._base._locks import RLock
from .._compat import _jax_compat
from . import _deferred


class _SharedSetting:
    """A global setting that is on while at least one call, of any thread, needs it.

    A KeyboardInterrupt may arrive between any two lines. So `switch_on` and `switch_off` do no
    harm if they run twice, and `hold` defers the end before it begins.
    """

    def __init__(self) -> None:
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
            self.switch_on()

    def _release(self, call: tuple[int, object]) -> None:
        with self._lock:
            self._calls.discard(call)
            if not self._calls:
                self.switch_off()

    def _after_fork(self) -> None:
        # Other threads, and so their calls, do not exist in the child.
        self._calls = {call for call in self._calls if call[0] == threading.get_ident()}
        if not self._calls:
            self.switch_off()

    def switch_on(self) -> None:
        raise NotImplementedError

    def switch_off(self) -> None:
        raise NotImplementedError


class _QuietCallbacks(_SharedSetting):
    """Keeps JAX from logging a failed callback, whose error filterjit raises, as Equinox does."""

    def switch_on(self) -> None:
        logging.getLogger(_jax_compat.CALLBACK_LOGGER).addFilter(_is_not_callback_failure)

    def switch_off(self) -> None:
        logging.getLogger(_jax_compat.CALLBACK_LOGGER).removeFilter(_is_not_callback_failure)


def _is_not_callback_failure(record: logging.LogRecord) -> bool:
    return record.getMessage() != "jax.pure_callback failed"


class _QuietDonation(_SharedSetting):
    """Keeps JAX from warning that a donated buffer could not be used.

    ``warnings.catch_warnings`` would restore all filters as they were: of two threads that use it
    at once, one leaves the filters of the other behind. Where filters belong to a context
    (``sys.flags.context_aware_warnings``, as without a GIL), it is right, and the only way.
    """

    # The comment in the pattern distinguishes this filter from one that the user may have set.
    _MESSAGE = "(?#filterjit)Some donated buffers were not usable"

    def hold(self, variant: _core.Variant) -> None:
        if not getattr(sys.flags, "context_aware_warnings", False):
            return super().hold(variant)
        filters = warnings.catch_warnings()

        def leave() -> None:
            with contextlib.suppress(RuntimeError):  # it was interrupted before it had entered
                filters.__exit__(None, None, None)

        variant.defer(leave)
        filters.__enter__()
        warnings.filterwarnings("ignore", message=self._MESSAGE)

    @classmethod
    def _installed(cls) -> list[Any]:
        return [x for x in list(warnings.filters) if getattr(x[1], "pattern", "") == cls._MESSAGE]

    def switch_on(self) -> None:
        if not self._installed():
            warnings.filterwarnings("ignore", message=self._MESSAGE)

    def switch_off(self) -> None:
        for entry in self._installed():
            with contextlib.suppress(ValueError):
                warnings.filters.remove(entry)  # type: ignore[attr-defined]


_quiet_callbacks = _QuietCallbacks()
_quiet_donation = _QuietDonation()


def ignore_donation(variant: _core.Variant) -> None:
    """Silences the warning about donated buffers until the current call of `variant` is over."""
    _quiet_donation.hold(variant)


class RunningHooks:
    """The hooks around a program that can raise while it runs; see `_base._call_hooks.CallHooks`."""

    def before_raising_call(self, variant: _core.Variant, /) -> None:
        """Silences JAX's log of failed callbacks until the current call of `variant` is over."""
        _quiet_callbacks.hold(variant)

    def run_deferred(self, variant: _core.Variant, first: int, again: bool, /) -> None:
        """Runs what this thread has deferred since the call began."""
        _deferred.run(variant, first, again)

    def translate_error(self, /, *failure: Any) -> BaseException | str:
        """Returns the exception to raise in the place of that of a `Failure`, or a reason."""
        return self.translate(Failure(*failure))

    def translate(self, failure: Failure) -> BaseException | str:
        raise NotImplementedError

    def wait(self, outputs: tuple[Any, ...], /) -> None:
        """Waits until the device is done, so that a program that raises has raised."""
        for x in outputs:
            if isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer):
                x.block_until_ready()
                break
