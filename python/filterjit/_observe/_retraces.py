"""Telling of retraces: `on_retrace`, the switch `explain`, and the cause that many in a row have in
common.

Each compilation is compared with the one before it (`_records.Misses`). If many in a row have the
same cause, such as a number, a shape or a lambda that changes in each call, a warning tells it,
once a cause. A report tells the cause that most compilations share.
"""

import logging
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax

from .. import _core
from .._base._later import later
from .._base._package import is_installed, public
from .._base._switches import switches
from .._call._events import stack_level
from .._call._settings import OnRetrace
from . import _forbid, _records
from ._recorder import recorder
from ._records import MANY, FunctionRecord, Miss, Misses, TraceRecord, functions
from ._wording import list_first

if TYPE_CHECKING:
    from . import _causes, _compare, _explain, _table
    from ._causes import Cause, Explanation
else:
    _causes, _table = later("_observe._causes"), later("_observe._table")
    _compare = later("_observe._compare")
    _explain = later("_observe._explain")

logger = logging.getLogger("filterjit")

_WORTH = 10  # traces that are worth a sentence
_SELDOM = 10  # calls: a program that is called more often has paid for its trace
_SHARE = 0.9  # share of the comparisons that have the cause
_MOST_CAUSES = 3
_WHOLE = 3  # explanations in a row with the same causes that are logged in full

_logged: dict[Any, tuple[tuple[tuple[str, str], ...], int]] = {}
"""The causes that were logged last of each function, and how many times in a row."""


@public
class RetraceError(RuntimeError):
    """A function compiles again, which ``on_retrace="raise"`` forbids."""


@public
class RetraceWarning(UserWarning):
    """A function compiles again, or was compiled many times in a row for one cause.

    With ``on_retrace="warn"``, each retrace issues it. By default it is issued once a cause, when a
    function was compiled many times in a row for it, such as a number that changes in each call.
    """


def before_trace(
    on_retrace: OnRetrace,
    cache: _core.Cache,
    fun: Any,
    variant: _core.Variant,
    trace: TraceRecord,
) -> None:
    """Logs, warns or raises if this trace is a retrace. A trace ahead of time is not a retrace.

    It is called before the user's function runs, with the record of the trace that begins.

    Raises:
        RetraceError: if `on_retrace` forbids the trace.
        ForbiddenCompileError: if `forbid_compile` does.
    """
    if jax.config.jax_disable_jit:
        return

    record = _records.record_of(variant)

    def explain() -> "Explanation":
        earlier = [t for t in record.traces if t is not trace]
        return _explain.explain_trace(cache, fun, variant, variant.structure, trace, earlier)

    _forbid.refuse(lambda: _forbid.text_of(explain(), record), own=1)
    if recorder.is_on_purpose():
        return
    text = _tell_of_many(cache, fun, variant, trace, explain)
    if text is not None and on_retrace is None and _is_for_user(cache.record):
        warnings.warn(text, RetraceWarning, stacklevel=stack_level())
    if on_retrace == "ignore":
        on_retrace = None
    if not (switches.explain or recorder.log is not None or on_retrace is not None):
        return
    explanation = explain()
    if not explanation.causes or explanation.causes[0].kind in ("first", "options"):
        return
    is_retrace = not explanation.causes[0].is_of_function
    if recorder.log is not None:
        recorder.set_reason(explanation)
    if switches.explain or (is_retrace and on_retrace == "log"):
        _log(cache.record, explanation)
    if not is_retrace:
        return  # no program of this very function is compiled
    if on_retrace == "warn":
        warnings.warn(str(explanation), RetraceWarning, stacklevel=stack_level())
    elif on_retrace == "raise":
        raise RetraceError(str(explanation))
    elif callable(on_retrace):
        on_retrace(explanation)


def _tell_of_many(
    cache: _core.Cache,
    fun: Any,
    variant: _core.Variant,
    trace: TraceRecord,
    explain: Callable[[], "Explanation"],
) -> str | None:
    """Counts a compilation of `fun`, which is about to be traced. Returns a text on many
    compilations in a row, or None."""
    record = cache.record
    now = Miss.of(record, variant, trace)

    def compare(last: Miss) -> Sequence["Cause"]:
        if len(_records.record_of(variant).traces) == 1:
            dropped = _explain.evicted(cache, variant.structure, trace)
            if dropped is not None:
                return (dropped,)
        was = last.variant()
        if was is None:
            return ()
        structures = was.structure, last.trace, variant.structure, trace
        return _compare.compare_programs(cache, *structures, most=MANY).causes

    found = record.misses.add(now, compare)
    if record.cost.traces == 0:  # of this function; the same code may have earlier ones
        of_place = functions.misses.setdefault(record.key, Misses())
        again = of_place.add(now, lambda _: _explain.explain_first_trace(cache, fun))
        if again and not functions.are_kept(fun, MANY):
            found = [*found, *again]
    if not found:
        return None
    name = cache.attributes.get("__qualname__") or record.label
    begin = f"`{name}` was compiled {MANY} times in a row"
    closest = {(cause.kind, cause.path): cause for cause in explain().causes}
    found = [closest.get((cause.kind, cause.path), cause) for cause in found]
    return sentence(begin, found, cache)


def _is_for_user(record: FunctionRecord) -> bool:
    """Whether the user wrote the function that compiles, or the code that calls it."""
    caller = sys._getframe(stack_level() - 1).f_code.co_filename
    return record.place is None or not (is_installed(record.place[0]) and is_installed(caller))


def _log(record: FunctionRecord, explanation: "Explanation") -> None:
    kinds, times = _logged.get(record.key, ((), 0))
    times = times + 1 if kinds == explanation.kinds else 1
    _logged[record.key] = explanation.kinds, times
    library = record.place is not None and is_installed(record.place[0])
    if library or times > _WHOLE:
        logger.warning("%s %s", record.name_and_place, explanation.line)
    else:
        logger.warning("%s", explanation)


# ---- what many compilations have in common ----


def main_cause(whole: FunctionRecord, cache: _core.Cache | None) -> str | None:
    """Returns a sentence on the cause that most traces of the functions of one place share, and on
    its remedy. None if there is no such cause, or if the functions have few traces for their calls.

    Arguments:
        whole: the sum of their records.
        cache: the cache of one of them, if one exists.
    """
    traces = whole.cost.traces
    if traces < _WORTH or whole.calls > _SELDOM * traces:
        return None
    begin = f"{whole.name} was traced {traces:,} times"
    if whole.functions >= _SHARE * traces:
        return f"{begin}: it was defined or jitted {whole.functions:,} times. {_table.JIT_ONCE}"
    misses = whole.misses
    if misses.compared < _WORTH - 1:
        return None
    enough = _SHARE * misses.compared
    found = [misses.latest[key] for key, n in misses.counts.copy().items() if n >= enough]
    return sentence(begin, found, cache) if found else None


def sentence(begin: str, causes: Sequence["Cause"], cache: _core.Cache | None) -> str:
    """Returns a sentence on causes that many compilations share, and on their remedies.

    Arguments:
        begin: its beginning: what was compiled, and how many times.
        cache: the cache of the function, if it is known.
    """
    found = _causes.in_order(causes)
    first = found[0]
    if first.kind == "function":
        return f"{begin}: it was defined or jitted again each time. {_table.JIT_ONCE}"
    alike = [cause for cause in found if cause.kind == first.kind]
    places = list_first([cause.place for cause in alike], _MOST_CAUSES, " and ")
    example = f", such as {first.was} and {first.now}" if first.was else ""
    if numbers := [cause._number for cause in alike if cause._number is not None]:
        remedy = _table.of_number(cache, numbers)
    else:
        remedy = " ".join(dict.fromkeys(c.remedy for c in alike[:_MOST_CAUSES] if c.remedy))
    begin += f" because of {places}" if first.path else ""
    said = f"{begin}: {_table.TITLES[first.kind]}{example}. {remedy}"
    return said.strip()
