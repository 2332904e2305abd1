"""`Running`: a call that traces, compiles, or runs a program that can raise.

Settings and measurements that last for such a call register their clean-up with `Running.defer`.
The hook ``run`` begins and ends a `Running`. If JAX retraces in any other call, only the trace knows:
it begins a `Running`, and the hook ``finish`` ends it. The trace can't raise an exception to restart the call in `run`: JAX never
caches a trace that failed at first, and direct calls look it up in JAX's cache.
"""

import contextlib
import logging
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from .. import _core
from .._base._locks import RLock
from .._compat import _jax_compat

_jax_compat.hide_from_tracebacks(__file__)


class Running:
    """A call of a variant; or, if `variant` is None, a time in which tracing is forbidden.

    A KeyboardInterrupt can arrive between any two lines. Therefore `end` is idempotent, and `running`
    calls it at the end of ``try`` and in ``except BaseException``: an interrupt can hit a
    ``finally`` after the call has succeeded.

    Attributes:
        begun_by_trace: True if `finish` ends it.
        is_tracing: True while the user's function runs.
    """

    def __init__(self, variant: _core.Variant | None, begun_by_trace: bool = False) -> None:
        self.variant = variant
        self.begun_by_trace = begun_by_trace
        self.is_tracing = False
        self._ends: list[Callable[[], object]] = []

    def begin(self) -> None:
        _thread.stack.append(self)

    def defer(self, function: Callable[[], object]) -> None:
        """Calls `function` at the end, in reverse order; twice if interrupted."""
        self._ends.append(function)

    def end(self) -> None:
        while self._ends:
            self._ends[-1]()
            del self._ends[-1]
        with contextlib.suppress(ValueError):
            _thread.stack.remove(self)


@contextlib.contextmanager
def running(variant: _core.Variant | None) -> Iterator[Running]:
    """Surrounds a call with its `Running`."""
    call = Running(variant)
    try:
        call.begin()
        yield call
        call.end()
    except BaseException:
        call.end()
        raise


class _Thread(threading.local):
    def __init__(self) -> None:
        self.stack: list[Running] = []  # innermost last


_thread = _Thread()


class WouldTrace(Exception):
    """Raised by a trace when tracing is forbidden."""


def under_way(variant: _core.Variant) -> Running | None:
    """Returns the thread's innermost call if it's a call of `variant` and isn't tracing, otherwise
    None. Raises WouldTrace if tracing is forbidden."""
    innermost = _thread.stack[-1] if _thread.stack else None
    if innermost is not None and innermost.variant is None:
        raise WouldTrace
    is_own = innermost is not None and innermost.variant is variant and not innermost.is_tracing
    return innermost if is_own else None


def end_begun_by_traces(variant: _core.Variant) -> None:
    """Ends the calls that a variant's traces began: one, or more if the inspection retraced."""
    while (call := under_way(variant)) is not None and call.begun_by_trace:
        call.end()


def defer(function: Callable[[], object]) -> None:
    """Calls `function` when the thread's innermost call ends."""
    _thread.stack[-1].defer(function)


class _SharedSetting:
    """A global setting that is on while any call, in any thread, needs it. Both switches are
    idempotent, and `hold` defers switching off before it switches on."""

    def __init__(self, switch_on: Callable[[], None], switch_off: Callable[[], None]) -> None:
        self._switch_on, self._switch_off = switch_on, switch_off
        self._lock = RLock()
        self._calls: set[tuple[int, object]] = set()  # (thread, a token for each call)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def hold(self, call: Running) -> None:
        """Keeps the setting on until `call` ends."""
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
        # The other threads, and their calls, don't exist in the child.
        self._calls = {call for call in self._calls if call[0] == threading.get_ident()}
        if not self._calls:
            self._switch_off()


# JAX logs failed callbacks. filterjit raises their errors, as Equinox does.
_callback_logger = logging.getLogger(_jax_compat.CALLBACK_LOGGER)


def _is_not_callback_failure(record: logging.LogRecord) -> bool:
    return record.getMessage() != "jax.pure_callback failed"


_quiet_callbacks = _SharedSetting(
    lambda: _callback_logger.addFilter(_is_not_callback_failure),
    lambda: _callback_logger.removeFilter(_is_not_callback_failure),
)


def ignore_callbacks(call: Running) -> None:
    """Silences JAX's log of failed callbacks until `call` ends."""
    _quiet_callbacks.hold(call)


# The comment in the pattern tells this filter from the user's.
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
    """Silences JAX's warning about unusable donated buffers until `call` ends.

    ``warnings.catch_warnings`` restores all filters. If two threads use it at the same time, one
    leaves the other's filters behind. It works only if filters belong to a context
    (``sys.flags.context_aware_warnings``, the default without a GIL), and is then the only way.
    """
    if not getattr(sys.flags, "context_aware_warnings", False):
        return _quiet_donation.hold(call)
    filters = warnings.catch_warnings()

    def leave() -> None:
        with contextlib.suppress(RuntimeError):  # interrupted before entering
            filters.__exit__(None, None, None)

    call.defer(leave)
    filters.__enter__()
    warnings.filterwarnings("ignore", message=_UNUSED)
