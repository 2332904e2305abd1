"""Reports retraces: `on_retrace`, the switch `explain`, and causes that many of them share.

Each compilation is compared with the previous one (`_records.Streaks`). If many in a row have the
same cause, such as a number, shape or lambda that changes in each call, a warning says so, once per
cause. A report names the cause that most compilations share.
"""

import logging
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax

from .. import _core
from .._base._later import LazyModule
from .._base._package import is_installed, public
from .._base._switches import switches
from .._call._events import stack_level
from .._call._settings import OnRetrace
from . import _forbid, _records
from ._recorder import recorder
from ._records import MANY, Compilation, FunctionRecord, TraceRecord, functions
from ._wording import list_first

if TYPE_CHECKING:
    from . import _causes, _compare, _explain, _table
    from ._causes import Cause, Explanation
else:
    _causes, _table = LazyModule("_observe._causes"), LazyModule("_observe._table")
    _compare = LazyModule("_observe._compare")
    _explain = LazyModule("_observe._explain")

logger = logging.getLogger("filterjit")

_WORTH = 10  # traces that deserve a sentence
_SELDOM = 10  # calls; a program called more often has paid for its trace
_SHARE = 0.9  # of the comparisons
_MOST_CAUSES = 3
_OFTEN = 4  # compilations in a row for the same causes, to explain them in one line


@public
class RetraceError(RuntimeError):
    """A retrace of a function with ``on_retrace="raise"``."""


@public
class RetraceWarning(UserWarning):
    """A function compiles again, or was compiled many times in a row for one cause.

    With ``on_retrace="warn"``, each retrace issues it. By default, it is issued once per cause that
    made a function compile many times in a row, such as a number that changes in each call.
    """


def before_trace(
    on_retrace: OnRetrace,
    cache: _core.Cache,
    fun: Any,
    variant: _core.Variant,
    trace: TraceRecord,
) -> None:
    """Logs, warns or raises if this trace is a retrace, and not ahead of time. Called before the
    user's function, with the record of the new trace.

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
    if not (switches.explain or on_retrace is not None):
        return
    explanation = explain()
    if not explanation.causes or explanation.causes[0].kind in ("first", "options"):
        return
    is_retrace = not explanation.causes[0].is_of_function
    if switches.explain or (is_retrace and on_retrace == "log"):
        logger.warning("%s", _text_to_log(explanation, cache.record))
    if not is_retrace:
        return  # a new function
    if on_retrace == "warn":
        warnings.warn(str(explanation), RetraceWarning, stacklevel=stack_level())
    elif on_retrace == "raise":
        raise RetraceError(str(explanation))
    elif callable(on_retrace):
        with jax.ensure_compile_time_eval():  # what it computes is no part of the trace
            on_retrace(explanation)


def _text_to_log(explanation: "Explanation", record: FunctionRecord) -> str:
    """Returns the explanation, cut to one line for functions of libraries, and from the fourth
    compilation in a row for the same causes on."""
    causes, n = functions.explained.get(record.key, ((), 0))
    n = n + 1 if causes == explanation.kinds else 1
    functions.explained[record.key] = explanation.kinds, n
    lines = str(explanation).splitlines()
    is_brief = n >= _OFTEN or not _is_for_user(record)
    return " ".join(map(str.strip, lines[:2])) if is_brief else "\n".join(lines)


def _tell_of_many(
    cache: _core.Cache,
    fun: Any,
    variant: _core.Variant,
    trace: TraceRecord,
    explain: Callable[[], "Explanation"],
) -> str | None:
    """Counts a compilation of `fun`, which is about to be traced. Returns a warning about many
    compilations in a row, or None."""
    record = cache.record
    now = Compilation.of(record, variant, trace)

    def compare(last: Compilation) -> Sequence["Cause"]:
        if len(_records.record_of(variant).traces) == 1:
            dropped = _explain.evicted(cache, variant.structure, trace)
            if dropped is not None:
                return (dropped,)
        was = last.variant()
        if was is None:
            return ()
        structures = was.structure, last.trace, variant.structure, trace
        return _compare.compare_programs(cache, *structures, most=MANY).causes

    found = record.streaks.add(now, compare)
    if record.cost.traces == 0:  # of this function; the same code might have earlier ones
        of_place = functions.streaks.setdefault(record.key, _records.Streaks())
        again = of_place.add(
            now, lambda _: _explain.explain_first_trace(cache, fun), _records.SHORT
        )
        if again and not functions.are_kept(fun, MANY):
            found = [*found, *again]
    if not found:
        return None
    name = cache.attributes.get("__qualname__") or record.label
    many = _records.MANY_TEXTS if all(cause.is_text for cause in found) else MANY
    begin = f"`{name}` was compiled {many} times"
    closest = {(cause.kind, cause.path): cause for cause in explain().causes}
    found = [closest.get((cause.kind, cause.path), cause) for cause in found]
    return sentence(begin, found, cache)


def _is_for_user(record: FunctionRecord) -> bool:
    """True if the user wrote the compiled function, or its caller."""
    caller = sys._getframe(stack_level() - 1).f_code.co_filename
    return record.place is None or not (is_installed(record.place[0]) and is_installed(caller))


# ---- causes that many compilations share ----


def main_cause(whole: FunctionRecord, cache: _core.Cache | None) -> str | None:
    """Describes the cause that most traces of one place's functions share, with a remedy. None if
    there is none, or if few calls trace. `whole` is the total of their records."""
    traces = whole.cost.traces
    if traces < _WORTH or whole.calls > _SELDOM * traces:
        return None
    begin = f"{whole.name} was traced {traces:,} times"
    if whole.functions >= _SHARE * traces:
        return f"{begin}: it was defined or jitted {whole.functions:,} times. {_table.JIT_ONCE}"
    streaks = whole.streaks
    if streaks.compared < _WORTH - 1:
        return None
    enough = _SHARE * streaks.compared
    found = [streaks.latest[key] for key, n in streaks.counts.copy().items() if n >= enough]
    return sentence(begin, found, cache) if found else None


def sentence(begin: str, causes: Sequence["Cause"], cache: _core.Cache | None) -> str:
    """Describes causes that many compilations share, with remedies. `begin` says what was compiled,
    and how often."""
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
