"""`forbid_compile`: makes each trace or compilation an error.

A function of filterjit is refused before its trace, with the explanation of the miss (`_retraces`).
For all other programs, and for existing traces, a listener raises when JAX announces that it's
about to compile. Hits check nothing.
"""

import contextlib
import contextvars
import logging
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

import jax

from .._base._checks import one_of
from .._base._later import LazyModule
from .._base._package import public
from .._call._events import users_line
from .._compat import _jax_compat
from . import _records
from ._recorder import call_under_way, recorder
from ._wording import file_and_line

if TYPE_CHECKING:
    from . import _explain, _table
    from ._causes import Explanation
else:
    _explain, _table = LazyModule("_observe._explain"), LazyModule("_observe._table")

logger = logging.getLogger("filterjit")

_REMEDY = (
    "`filterjit.forbid_compile()` forbids it: make such a call before, or inside of "
    "`filterjit.allow_compile()`."
)

_OF_OPERATION = (
    "`filterjit.forbid_compile()` forbids it: move it into a jitted function, or use NumPy there."
)

_forbids: list["_Forbid"] = []  # the active ones; the last one decides

# The thread's or task's contexts of `allow_compile`. Leaving one removes only that one.
_here: contextvars.ContextVar[tuple[object, ...]]
_here = contextvars.ContextVar("filterjit_compile", default=())


@public
class ForbiddenCompileError(RuntimeError):
    """A call would trace or compile, which `forbid_compile` forbids. The text says why.

    Programs and arguments are unchanged. You can repeat the call where compiling is allowed.
    """


def of_callback(exception: BaseException | str) -> BaseException | str:
    """Returns the ForbiddenCompileError of a program's callback, found in the text of JAX's
    exception. Returns other exceptions unchanged."""
    if not isinstance(exception, (jax.errors.JaxRuntimeError, ValueError)):
        return exception
    _, found, text = str(exception).partition("ForbiddenCompileError: ")
    error = ForbiddenCompileError(text.rstrip())
    error.__cause__ = exception
    return error if found else exception


class _Forbid:
    def __init__(self, action: Literal["raise", "log"]) -> None:
        self.action = action
        self.logged: set[Any] = set()

    def end(self) -> None:
        with contextlib.suppress(ValueError):  # already ended
            _forbids.remove(self)


@public
def forbid_compile(action: Literal["raise", "log"] = "raise") -> contextlib.ExitStack:
    """Forbids compiling in the whole process from now on. Servers call it once they are warm.

    In each thread, a call that would trace or compile raises an error instead.

    - A function of `filter_jit`, `jit` or `nnx.jit` raises it before the trace, with the text of
      `explain`: which argument, which part, what to do. Compiling it ahead of time raises too.
    - If its trace exists and only the program is missing, for example because an array is on
      a different device, the call raises before it compiles.
    - For other functions, such as a ``jax.jit``, or a ``jnp.add`` with a new shape, the error has
      their name. JAX traces and lowers them first, but doesn't compile them.

    Arguments:
        action: "raise" raises `ForbiddenCompileError`. "log" compiles, and logs the same text to
            the logger ``"filterjit"`` at level WARNING, once per cause.

    Returns:
        An ``ExitStack``. Use it as a context manager or ``close`` it to end the prohibition, which
        otherwise lasts until the process ends. If several are active, the last one decides.

    Raises:
        ValueError: if `action` isn't "raise" or "log".

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> f = filterjit.filter_jit(lambda x: x + 1)
        >>> x, y = jnp.ones(3), jnp.ones(4)
        >>> _ = f(x)
        >>> with filterjit.forbid_compile():
        ...     _ = f(x)
        ...     with filterjit.allow_compile():
        ...         _ = f(y)
    """
    one_of("forbid_compile(action=...)", action, ("raise", "log"))
    recorder.listen()
    found, forbid = contextlib.ExitStack(), _Forbid(action)
    found.callback(forbid.end)
    _forbids.append(forbid)
    return found


@public
@contextlib.contextmanager
def allow_compile() -> Iterator[None]:
    """Returns a context in which this thread or asyncio task may compile despite
    `forbid_compile`, for example to load new weights or a second model.

    The threads of `warm_up_all` can compile too, but not other threads started in the context.
    """
    mine = object()
    try:
        _here.set((*_here.get(), mine))
        yield
    finally:
        _here.set(tuple([one for one in _here.get() if one is not mine]))


def refuse(explain: Callable[[], tuple[Any, ...]], own: int = 0) -> None:
    """Called before this thread traces or compiles. Raises or logs if that's forbidden.

    `explain` returns a text, its cause, to be logged once, and the remedy unless it is `_REMEDY`.
    `own` is the number of traces that have begun for it.
    """
    forbid = next(iter(_forbids[-1:]), None)  # in one step: another thread can end it
    if forbid is None or _here.get():
        return
    if forbid.action == "log" and recorder.depth() > own:
        return  # part of a call that is logged
    with allow_compile():  # the text might need programs
        text, cause, *remedy = explain()
    if forbid.action == "raise":
        text = re.sub(": compiles( again)?", ": would compile", text, count=1)
        raise ForbiddenCompileError("\n  -> ".join([text, *(remedy or [_REMEDY])]))
    if cause not in forbid.logged:
        forbid.logged.add(cause)
        logger.warning("%s", text)


def _before(is_trace: bool, name: str) -> None:
    if not is_trace:
        refuse(lambda: _explain_program(name))


recorder.guard = _before


def _explain_program(name: str) -> tuple[Any, ...]:
    """Returns the text and cause, for `refuse`, of a program that JAX is about to compile."""
    if _jax_compat.operation_under_way():
        where = file_and_line(*users_line())
        text = f"`{name}` ({where}): compiles: it is an operation outside of a jitted function"
        return text, (name, where), _OF_OPERATION
    record, variant, arrays = call_under_way()
    cache = None if record is None else record.cache()
    if cache is None or variant is None:
        return f"`{name}`: compiles: JAX has no program of it for these arguments", name
    now, of_variant = _records.TraceRecord.of(arrays, placed=True), _records.record_of(variant)
    structure, earlier = variant.structure, of_variant.traces
    return text_of(
        _explain.explain_trace(cache, None, variant, structure, now, earlier), of_variant
    )


def text_of(explanation: "Explanation", record: "_records.VariantRecord") -> tuple[str, Any]:
    """Returns the text and cause, for `refuse`, of a call that compiles."""
    name, text = explanation.name, str(explanation)
    if explanation.hit:  # JAX has dropped the program
        text = f"{name}: compiles: {_table.TITLES['not compiled']}"
    return text, (name, explanation.kinds)
