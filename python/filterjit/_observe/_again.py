"""What most compilations of a function have in common, such as a Python number that changes in each
call, in a sentence.

What each has in common with the one before it is counted when it is made (`_misses`).
"""

from collections.abc import Sequence

from .. import _core
from ._causes import Cause, in_order
from ._records import FunctionRecord
from ._table import JIT_ONCE, TITLES, of_number
from ._wording import list_first

_MANY = 10  # traces that are worth a sentence
_SELDOM = 10  # calls of a program: one that is called more often has paid for its trace
_SHARE = 0.9  # of the comparisons have the cause
_MOST_CAUSES = 3


def main_cause(whole: FunctionRecord, cache: _core.Cache | None) -> str | None:
    """Returns a sentence on what most traces of functions of one place have in common, and what helps;
    None if there is no such thing, or if their traces are few for their calls.

    Arguments:
        whole: the sum of their records.
        cache: of one of them, if one exists.
    """
    traces = whole.cost.traces
    if traces < _MANY or whole.calls > _SELDOM * traces:
        return None
    begin = f"{whole.name} was traced {traces:,} times"
    if whole.functions >= _SHARE * traces:
        return f"{begin}: it was defined or jitted {whole.functions:,} times. {JIT_ONCE}"
    misses = whole.misses
    if misses.compared < _MANY - 1:
        return None
    enough = _SHARE * misses.compared
    found = [misses.latest[key] for key, n in misses.counts.copy().items() if n >= enough]
    return sentence(begin, found, cache) if found else None


def sentence(begin: str, causes: Sequence[Cause], cache: _core.Cache | None) -> str:
    """Returns a sentence on causes that many compilations have in common, and what helps.

    Arguments:
        begin: how it begins: with what was compiled, and how many times.
        cache: of the function, if it is known.
    """
    found = in_order(causes)
    first = found[0]
    if first.kind == "function":
        return f"{begin}: it was defined or jitted again each time. {JIT_ONCE}"
    alike = [cause for cause in found if cause.kind == first.kind]
    places = list_first([cause.place for cause in alike], _MOST_CAUSES, " and ")
    example = f", such as {first.was} and {first.now}" if first.was else ""
    if numbers := [cause._number for cause in alike if cause._number is not None]:
        remedy = of_number(cache, numbers)
    else:
        remedy = " ".join(dict.fromkeys(c.remedy for c in alike[:_MOST_CAUSES] if c.remedy))
    begin += f" because of {places}" if first.path else ""
    said = f"{begin}: {TITLES[first.kind]}{example}. {remedy}"
    return said.strip()
