"""`Running`: one call that traces, compiles, or runs a program that can raise.

Whatever lasts as long as such a call is deferred on it: settings that silence JAX, and measurements.
The hook ``run`` makes the calls of a variant that has no trace yet, or one that can raise, from
beginning to end in one frame.

Of another call, only JAX knows that it traces again. The trace begins a `Running`, and the hook
``finish`` ends it. The trace could instead raise an exception that makes C ask `run`. But JAX's
caches never store a trace whose first attempt has failed, and direct calls look for it there.
"""

import contextlib
import logging
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax

from .. import _core
from .._base._call_hooks import CallHooks, Failure
from .._base._locks import RLock
from .._compat import _jax_compat
from . import _events

_jax_compat.hide_from_tracebacks(__file__)


class Running:
    """One call of a variant; or, without a variant, a time in which nothing may be traced.

    A KeyboardInterrupt may arrive between any two lines. So `end` does no harm if it runs twice, and
    each caller calls it at the end of ``try`` and in ``except BaseException``: a ``finally`` can be
    interrupted although the call has succeeded.

    Attributes:
        variant: the variant.
        begun_by_trace: whether `finish` ends it.
        is_tracing: whether the user's function is running.
    """

    def __init__(self, variant: _core.Variant | None, begun_by_trace: bool = False) -> None:
        self.variant = variant
        self.begun_by_trace = begun_by_trace
        self.is_tracing = False
        self._ends: list[Callable[[], object]] = []

    def begin(self) -> None:
        _thread.stack.append(self)

    def defer(self, function: Callable[[], object]) -> None:
        """Calls `function` at the end, the last one first; twice if it is interrupted."""
        self._ends.append(function)

    def end(self) -> None:
        while self._ends:
            self._ends[-1]()
            del self._ends[-1]
        with contextlib.suppress(ValueError):
            _thread.stack.remove(self)


class _Thread(threading.local):
    def __init__(self) -> None:
        self.stack: list[Running] = []  # the innermost last


_thread = _Thread()


class WouldTrace(Exception):
    """Raised where nothing may be traced."""


def under_way(variant: _core.Variant) -> Running | None:
    """Returns the innermost call under way in this thread if it is one of this variant that is not
    tracing; or None.

    Raises:
        WouldTrace: if nothing may be traced.
    """
    innermost = _thread.stack[-1] if _thread.stack else None
    if innermost is not None and innermost.variant is None:
        raise WouldTrace
    is_own = innermost is not None and innermost.variant is variant and not innermost.is_tracing
    return innermost if is_own else None


def _end_begun_by_traces(variant: _core.Variant) -> None:
    """Ends the calls of a variant that its traces have begun: the inspection may trace again too."""
    while (call := under_way(variant)) is not None and call.begun_by_trace:
        call.end()


def defer(function: Callable[[], object]) -> None:
    """Calls `function` when the innermost call under way in this thread ends."""
    _thread.stack[-1].defer(function)


class _SharedSetting:
    """A global setting that is on while at least one call, of any thread, needs it.

    The functions that switch it do no harm if they run twice, and `hold` defers the end before it
    begins.
    """

    def __init__(self, switch_on: Callable[[], None], switch_off: Callable[[], None]) -> None:
        self._switch_on, self._switch_off = switch_on, switch_off
        self._lock = RLock()
        self._calls: set[tuple[int, object]] = set()  # (thread, a token for each call)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def hold(self, call: Running) -> None:
        """Keeps the setting on until the end of a call."""
        token = threading.get_ident(), object()
        call.defer(lambda: self._release(token))
        with self._lock:
            self._calls.add(token)
            self._switch_on()

    def _release(self, token: tuple[int, object]) -> None:
        with self._lock:
            self._calls.discard(token)
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


def ignore_callbacks(call: Running) -> None:
    """Keeps JAX from logging failed callbacks until the end of a call."""
    _quiet_callbacks.hold(call)


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


def ignore_donation(call: Running) -> None:
    """Keeps JAX from warning that a donated buffer could not be used, until the end of a call.

    ``warnings.catch_warnings`` would restore all filters as they were: of two threads that use it
    at once, one leaves the filters of the other behind. Where filters belong to a context
    (``sys.flags.context_aware_warnings``, as without a GIL), it is right, and the only way.
    """
    if not getattr(sys.flags, "context_aware_warnings", False):
        return _quiet_donation.hold(call)
    filters = warnings.catch_warnings()

    def leave() -> None:
        with contextlib.suppress(RuntimeError):  # it was interrupted before it had entered
            filters.__exit__(None, None, None)

    call.defer(leave)
    filters.__enter__()
    warnings.filterwarnings("ignore", message=_UNUSED)


class RunningHooks(CallHooks):
    """The hooks of calls that are no plain hits, and of calls that fail; see `CallHooks`."""

    settings: Any

    def run(
        self,
        f: _core.FilterJit,
        variant: _core.Variant,
        arrays: tuple[Any, ...],
        failed: Exception | None,
        /,
    ) -> _core.Output | None:
        """Makes a call that traces, compiles, or runs a program that can raise."""
        __tracebackhide__ = True
        if failed is not None and not _calls_again(variant, failed, arrays):
            return None
        call = Running(variant)
        try:
            call.begin()
            self.silence(call)
            try:
                out: _core.Output = variant.call(*arrays)
            except Exception as e:
                if not _calls_again(variant, e, arrays):
                    raise
                out = variant.call(*arrays)
            self.inspect_and_wait(variant, arrays, out)
            call.end()
        except BaseException:
            call.end()
            raise
        return out

    def silence(self, call: Running) -> None:
        """Keeps JAX's own messages from appearing until the end of a call."""
        ignore_callbacks(call)
        if self.settings.donate.is_quiet:
            ignore_donation(call)

    def finish(
        self, variant: _core.Variant, arrays: tuple[Any, ...], output: _core.Output | None, /
    ) -> None:
        """Ends what a trace has begun in this call. Before, inspects and waits for a new program."""
        try:
            if output is not None:
                self.inspect_and_wait(variant, arrays, output)
            _end_begun_by_traces(variant)
        except BaseException:
            _end_begun_by_traces(variant)
            raise

    def inspect_and_wait(
        self, variant: _core.Variant, arrays: tuple[Any, ...], output: _core.Output
    ) -> None:
        """Inspects the program of a new trace. Waits for a program that can raise, so that it has
        raised."""
        if type(output) is not _core.Output or output.trace < 0:  # jax_disable_jit
            return
        may_raise = variant.may_raise(output.trace)
        if may_raise is None:
            may_raise = self.inspect(variant, arrays, output.arrays)
            if may_raise is not None:
                variant.set_may_raise(output.trace, may_raise)
        if may_raise:
            for x in output.arrays:
                if isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer):
                    start = time.perf_counter_ns()
                    x.block_until_ready()
                    output.waited = time.perf_counter_ns() - start
                    break

    def failed(
        self,
        f: _core.FilterJit,
        exception: Exception | None,
        variant: _core.Variant | None,
        arrays: tuple[Any, ...],
        given: tuple[tuple[Any, ...], dict[str, Any]] | None,
        /,
    ) -> BaseException | Callable[..., Any]:
        """Returns the exception to raise, or what makes the call instead."""
        if given is not None:
            try:
                self.raise_binding_error(f, *given)
            except Exception as e:
                exception = e
        assert exception is not None
        answer = _events.error_of(self.translate(Failure(f, exception, variant, arrays)))
        return answer if isinstance(answer, BaseException) else self.other(f, answer)

    # ---- what differs between functions ----

    def raise_binding_error(
        self, f: _core.FilterJit, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Raises the TypeError of arguments that do not fit the signature."""
        raise NotImplementedError

    def translate(self, failure: Failure) -> BaseException | str:
        """Returns the exception to raise in the place of that of the failure; or a reason why
        `other` makes the call."""
        raise NotImplementedError

    def other(self, f: _core.FilterJit, reason: str) -> Callable[..., Any]:
        """Returns what makes a call instead."""
        raise NotImplementedError

    def inspect(
        self, variant: _core.Variant, arrays: tuple[Any, ...], outputs: tuple[Any, ...]
    ) -> bool | None:
        """Returns whether the program that was just traced can raise while it runs; None if that
        cannot be known yet."""
        raise NotImplementedError


def _calls_again(variant: _core.Variant, exception: Exception, arrays: tuple[Any, ...]) -> bool:
    """Returns whether another program has to make a failed call, as one of other shardings."""
    programs = variant.programs  # None if the garbage collector has cleared it
    return programs is not None and programs.call_again(exception, arrays)
