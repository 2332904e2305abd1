"""`forbid_compile`: from some moment on, what would be traced or compiled is an error.

A function that filterjit jits is refused before its trace, with the explanation of the miss
(`_retraces`). JAX tells its listeners before it compiles, and one that raises ends the call: so a
program is refused whose trace is there, or is not filterjit's. A hit asks nothing.
"""

import contextlib
import contextvars
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal

import jax

from .._base._checks import Entered, one_of
from .._base._later import later
from .._base._package import public
from . import _records
from ._recorder import call_under_way, recorder

if TYPE_CHECKING:
    from . import _explain
    from ._causes import Explanation
else:
    _explain = later("_observe._explain")

logger = logging.getLogger("filterjit")

_REMEDY = (
    "`filterjit.forbid_compile()` forbids it: make such a call before, or inside of "
    "`filterjit.allow_compile()`."
)

_forbids: list["_Forbid"] = []  # those that hold, of which the last one says what is done

# The contexts of `allow_compile` that this thread or task is in: whoever leaves takes out their own.
_here: contextvars.ContextVar[tuple[object, ...]]
_here = contextvars.ContextVar("filterjit_compile", default=())


@public
class ForbiddenCompileError(RuntimeError):
    """A call would trace or compile, which `forbid_compile` forbids. The text says why it would.

    Programs and arguments are as they were: the call can be made again where compiling is allowed.
    """


def of_callback(exception: BaseException | str) -> BaseException | str:
    """Returns the ForbiddenCompileError that a callback of a program has raised, of which JAX's exception has
    the text; any other exception as it is."""
    if not isinstance(exception, (jax.errors.JaxRuntimeError, ValueError)):
        return exception
    _, found, text = str(exception).partition("ForbiddenCompileError: ")
    error = ForbiddenCompileError(text.rstrip())
    error.__cause__ = exception
    return error if found else exception


class _Forbid:
    def __init__(self, action: Literal["raise", "log"]) -> None:
        self.action = action
        self.told: set[Any] = set()

    def end(self) -> None:
        with contextlib.suppress(ValueError):  # it has ended
            _forbids.remove(self)


@public
def forbid_compile(action: Literal["raise", "log"] = "raise") -> contextlib.ExitStack:
    """Forbids compiling in the whole process, from now on: a server calls it once it is warm.

    A call that would trace or compile raises instead, in each thread, before the user's function
    runs, and its text is that of `explain`: which argument, which part of it, what to do. So it is for
    the functions of `filter_jit`, `jit` and `nnx.jit`, for a call of these that would compile a program
    again since an array is in another place, and for what compiles them ahead of time. What is not
    filterjit's, such as a ``jax.jit`` or ``jnp.add`` for a new shape, is refused by its name when JAX
    has traced and lowered it, and begins to compile.

    Arguments:
        action: "raise" raises `ForbiddenCompileError`; "log" compiles, and logs the same text to the
            logger ``"filterjit"`` with level WARNING, once a cause.

    Returns:
        What ends it when it is left, as a context manager, or by its ``close``. Otherwise it holds to
        the end of the process. Of several that hold, the last one says what is done.

    Raises:
        ValueError: `action` is another word.

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
def allow_compile() -> AbstractContextManager[None]:
    """Returns a context in which this thread, or this task of asyncio, may compile, whatever
    `forbid_compile` forbids: to load new weights, or another model.

    Threads that are started inside of it are not in it, but for those of `warm_up_all`.
    """
    return Entered("filterjit.allow_compile", _allowing())


@contextlib.contextmanager
def _allowing() -> Iterator[None]:
    mine = object()
    try:
        _here.set((*_here.get(), mine))
        yield
    finally:
        _here.set(tuple([one for one in _here.get() if one is not mine]))


def refuse(explain: Callable[[], tuple[str, Any]], own: int = 0) -> None:
    """Raises that this thread is about to trace or compile, or logs it, if that is forbidden.

    Arguments:
        explain: returns a text that says why, and the cause, of which each is logged once.
        own: the number of traces that have begun for it.
    """
    forbid = next(iter(_forbids[-1:]), None)  # another thread may end it
    if forbid is None or _here.get():
        return
    if forbid.action == "log" and recorder.depth() > own:
        return  # what it is a part of is logged
    with _allowing():  # what is looked at for the text
        text, cause = explain()
    if forbid.action == "raise":
        text = re.sub(": compiles( again)?", ": would compile", text, count=1)
        raise ForbiddenCompileError(f"{text}\n  -> {_REMEDY}")
    if cause not in forbid.told:
        forbid.told.add(cause)
        logger.warning("%s", text)


def _before(is_trace: bool, name: str) -> None:
    if not is_trace:
        refuse(lambda: _explain_program(name))


recorder.guard = _before


def _explain_program(name: str) -> tuple[str, Any]:
    """Returns what `refuse` asks of a program that JAX is about to compile."""
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
    """Returns what `refuse` asks, of a call of which something is to be compiled, and its variant's
    record."""
    name, text = explanation.name, str(explanation)
    if explanation.hit:  # it was traced, and not compiled, or for another device
        text = f"{name}: compiles, for arguments with the shapes and statics of an earlier trace"
    return text, (name, explanation.kinds)
