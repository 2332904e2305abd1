"""The events of functions and traces, which the core tells the rooms that listen.

A listener overrides methods of `Listener`. The core calls none of them on a hit. If a method that
is called before the user's function has run raises, the call raises the same. No other method may
raise.
"""

import contextlib
import dataclasses
import os
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax

from .. import _core
from .._base import _rooms
from .._base._package import PACKAGE, is_installed
from .._compat import _jax_compat

_jax_compat.hide_from_tracebacks(__file__)


@dataclasses.dataclass(eq=False)
class Trace:
    """One trace of a variant.

    Attributes:
        cache: the cache of the function; None if it was collected meanwhile.
        variant: the variant.
        arrays: the tracers.
        hooks: of the function, see `_miss.FunctionHooks`.
        fun: the function, from `calls` on.
        record: what a listener keeps of it.
    """

    cache: _core.Cache | None
    variant: _core.Variant
    arrays: tuple[Any, ...]
    hooks: Any
    fun: Any = None
    record: Any = None


class Watched(NamedTuple):
    """Arguments of the user's function in a trace, with tracers.

    Attributes:
        cache: the cache of the function.
        hooks: of the function.
        structure: the Structure of the arguments.
        names, arguments: what the function gets.
    """

    cache: _core.Cache
    hooks: Any
    structure: _core.Structure
    names: Sequence[str]
    arguments: Sequence[Any]


class Listener:
    """Hears nothing; what listens is derived from it."""

    def made(
        self,
        cache: _core.Cache,
        label: str,
        fun: Any,
        name: str = "",
        f: _core.FilterJit | None = None,
    ) -> None:
        """A function has a new cache, which `f` made. JAX knows its programs as `label`; `fun` is
        None if it is not known; `name` is for reports, and that of the function if it is empty."""

    def cleared(self, cache: _core.Cache) -> None:
        """The programs of a function were dropped."""

    def before_trace(
        self, observed: Callable[[], tuple[Any, Any]], arrays: Sequence[Any] | None
    ) -> None:
        """JAX is about to trace a variant, for a call or ahead of time. It may raise a
        `_direct.KeptProgram`. `observed` returns the cache and the variant; `arrays` are those of
        the call, if they are known."""

    def loaded(self, cache: _core.Cache, variant: _core.Variant, arrays: Sequence[Any]) -> None:
        """A program that was kept was loaded for such arrays."""

    def not_kept(self, variant: _core.Variant, why: str) -> None:
        """A program of a variant is not kept."""

    def tracing(self, trace: Trace) -> contextlib.AbstractContextManager[None]:
        """Returns a context for a trace, from its beginning to its end. It may raise."""
        return contextlib.nullcontext()

    def ahead_of_time(self, cache: _core.Cache, variant: _core.Variant) -> None:
        """JAX will trace, lower or compile for a variant, for no call, until the
        `_running.Running` that is under way ends."""

    def calls(self, trace: Trace) -> None:
        """A trace is about to call the user's function. It may raise."""

    def watches(self, watched: Watched) -> Callable[[Any], None] | None:
        """The user's function is about to get these arguments. What is returned is called with its
        result."""

    def ran(self, variant: _core.Variant, arrays: Sequence[Any]) -> None:
        """A call has run a program for the first time."""

    def inspected(self, variant: _core.Variant, arrays: Sequence[Any], contents: Any) -> None:
        """The jaxpr of a new program is known; see `_traced.Contents`."""

    def handed_over(self, cache: _core.Cache, counts: Counter[str]) -> None:
        """Another jit has made a call; `counts` are such calls by their reasons."""

    def error_of(self, error: BaseException | str) -> BaseException | str:
        """Returns what to raise in the place of the error of a call that has failed, or the reason
        why another jit makes the call; often `error` itself."""
        return error


_listeners: dict[str, Listener] = {}
_others = dict(_rooms.LISTENERS)  # which are not imported yet


def listeners() -> list[Listener]:
    """Returns the listeners. It imports them when there is something to hear, and leaves out those
    of rooms that were taken away."""
    for module, library in list(_others.items()):
        if library not in sys.modules:
            continue
        try:
            # It waits for a thread that imports the module; in that thread, it may be half imported.
            found = getattr(_rooms.import_room(module, "to listen"), "listener", None)
        except ImportError:
            _others.pop(module, None)
            continue
        if found is not None:
            _listeners.setdefault(module, found)
            _others.pop(module, None)
    return [_listeners[module] for module in _rooms.LISTENERS if module in _listeners]


def tell(event: str, *arguments: Any) -> None:
    """Tells all listeners of an event, by the name of the method of `Listener`."""
    for one in listeners():
        getattr(one, event)(*arguments)


def error_of(error: BaseException | str) -> BaseException | str:
    """Returns what listeners make of the error of a call that has failed."""
    for one in listeners():
        error = one.error_of(error)
    return error


def call_watched(function: Callable[[], Any], watched: Watched) -> Any:
    """Returns what `function` returns, which gives `watched` to the user's function."""
    __tracebackhide__ = True
    ends = [end for one in listeners() if (end := one.watches(watched)) is not None]
    out = function()
    for end in ends:
        end(out)
    return out


@contextlib.contextmanager
def tracing(trace: Trace) -> Iterator[None]:
    """The context of all listeners for a trace."""
    with contextlib.ExitStack() as stack:
        for one in listeners():
            stack.enter_context(one.tracing(trace))
        yield


def name_of(cache: _core.Cache) -> str:
    """Returns the name of a function, with its place if a listener has told it."""
    record, attributes = cache.record, cache.attributes
    name = f"{attributes.get('__module__', '?')}.{attributes.get('__qualname__', '?')}"
    return str(getattr(record, "name_and_place", name))


# ---- the line of the program that made a call, for warnings ----

_FILTERJIT_AND_JAX = (PACKAGE + os.sep, os.path.dirname(jax.__file__) + os.sep)


def stack_level() -> int:
    """Returns the `stacklevel` that makes a warning of the caller point at the user's line: the
    innermost frame that is neither filterjit's nor JAX's."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_FILTERJIT_AND_JAX):
        level, frame = level + 1, frame.f_back
    return level


def users_line() -> tuple[str, int]:
    """Returns the file and the line of the innermost frame that is of no installed library, or else
    of the innermost that is neither filterjit's nor JAX's."""
    frame: types.FrameType | None = sys._getframe(stack_level() - 1)
    first = frame
    while frame is not None and is_installed(frame.f_code.co_filename):
        frame = frame.f_back
    found = frame or first
    assert found is not None
    return found.f_code.co_filename, found.f_lineno
