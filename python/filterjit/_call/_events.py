"""The events that the core sends to listening rooms.

A listener overrides methods of `Listener`. A hit calls none of them. Only the methods called before
the user's function has run can raise; the call then raises the same exception.
"""

import contextlib
import dataclasses
import os
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from .. import _core
from .._base import _rooms
from .._base._package import PACKAGE, is_installed
from .._compat import _jax_compat

_jax_compat.hide_from_tracebacks(__file__)


@dataclasses.dataclass(eq=False)
class Trace:
    """One trace of a variant. `cache` is None if it was collected meanwhile. `fun` is the user's
    function, and `arguments` has tracers for its parameters; from `calls` on. `record` is for the
    listener's use."""

    cache: _core.Cache | None
    variant: _core.Variant
    arrays: tuple[Any, ...]
    hooks: Any
    fun: Any = None
    arguments: Sequence[Any] = ()
    record: Any = None


class Listener:
    """The base class of listeners; ignores all events."""

    def created(
        self,
        cache: _core.Cache,
        label: str,
        fun: Any,
        name: str = "",
        f: _core.FilterJit | None = None,
    ) -> None:
        """`f` created a cache for a function. JAX knows its programs as `label`. `fun` can be None.
        `name` is for reports, and defaults to the function's own."""

    def cleared(self, cache: _core.Cache) -> None:
        """A function's programs were dropped."""

    def tracing(self, trace: Trace) -> contextlib.AbstractContextManager[None]:
        """Returns a context for the whole trace. Can raise."""
        return contextlib.nullcontext()

    def ahead_of_time(self, cache: _core.Cache, variant: _core.Variant) -> None:
        """JAX is going to trace, lower or compile outside calls, until the current Running ends."""

    def calls(self, trace: Trace) -> None:
        """A trace is about to call the user's function. Can raise."""

    def watches(self, trace: Trace) -> Callable[[Any], None] | None:
        """The user's function is about to run. Returns a function to call with its result."""

    def ran(self, variant: _core.Variant, arrays: Sequence[Any]) -> None:
        """A call ran a program for the first time."""

    def inspected(self, variant: _core.Variant, arrays: Sequence[Any], contents: Any) -> None:
        """A new program's jaxpr is available, as `_trace.Contents`."""

    def handed_over(self, cache: _core.Cache, counts: Counter[str]) -> None:
        """A call went to ``jax.jit`` or ``nnx.jit``. `counts` has these calls by reason."""

    def error_of(self, error: BaseException | str) -> BaseException | str:
        """Returns the error to raise for a failed call, or the reason to pass it to upstream."""
        return error


_listeners: dict[str, Listener] = {}
_others = dict(_rooms.LISTENERS)  # not imported yet


def listeners() -> list[Listener]:
    """Returns the listeners, importing each once its library is imported. Skips removed rooms."""
    for module, library in list(_others.items()):
        if library not in sys.modules:
            continue
        try:
            # Waits while another thread imports the module. In that thread, it can be half
            # imported.
            found = getattr(_rooms.import_room(module, "to listen"), "listener", None)
        except ImportError:
            _others.pop(module, None)
            continue
        if found is not None:
            _listeners.setdefault(module, found)
            _others.pop(module, None)
    return [_listeners[module] for module in _rooms.LISTENERS if module in _listeners]


def notify(event: str, *arguments: Any) -> None:
    for one in listeners():
        getattr(one, event)(*arguments)


def error_of(error: BaseException | str) -> BaseException | str:
    """Passes the error of a failed call through all listeners."""
    for one in listeners():
        error = one.error_of(error)
    return error


def call_watched(function: Callable[[], Any], trace: Trace) -> Any:
    """Calls `function` between the listeners' `watches` and the functions that these return."""
    __tracebackhide__ = True
    ends = [end for one in listeners() if (end := one.watches(trace)) is not None]
    out = function()
    for end in ends:
        end(out)
    return out


@contextlib.contextmanager
def tracing(trace: Trace) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for one in listeners():
            stack.enter_context(one.tracing(trace))
        yield


def name_of(cache: _core.Cache) -> str:
    """Returns a function's name, with its place if a listener recorded it."""
    record, attributes = cache.record, cache.attributes
    name = f"{attributes.get('__module__', '?')}.{attributes.get('__qualname__', '?')}"
    return str(getattr(record, "name_and_place", name))


# ---- the user's line, for warnings ----

_FILTERJIT_AND_JAX = (PACKAGE + os.sep, os.path.dirname(jax.__file__) + os.sep)


def stack_level() -> int:
    """Returns the `stacklevel` of the innermost frame outside filterjit, JAX and Equinox."""
    level, frame = 1, sys._getframe(1)
    equinox = getattr(sys.modules.get("equinox"), "__file__", None)  # the caller in a filter_vmap
    inner = _FILTERJIT_AND_JAX + ((os.path.dirname(equinox) + os.sep,) if equinox else ())
    while frame.f_back is not None and frame.f_code.co_filename.startswith(inner):
        level, frame = level + 1, frame.f_back
    return level


def users_line() -> tuple[str, int]:
    """Returns the user's file and line, or else those of a library that isn't filterjit or JAX."""
    frame: types.FrameType | None = sys._getframe(stack_level() - 1)
    first = frame
    while frame is not None and is_installed(frame.f_code.co_filename):
        frame = frame.f_back
    found = frame or first
    assert found is not None
    return found.f_code.co_filename, found.f_lineno
