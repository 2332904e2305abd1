"""The one cause of most retraces of a function, such as a Python number that changes in each call.

It is found when a report is made, by comparing each program of the function with the one traced
before it.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from .. import _core
from .._base._errors import array_paths
from . import _records
from ._causes import TITLES, Cause, in_order
from ._compare import compare_traces, comparison_of
from ._function_records import FunctionRecord
from ._records import TraceRecord
from ._remedies import of_number

_MANY = 10  # traces that are worth a sentence
_SELDOM = 10  # calls of a program: one that is called more often has paid for its trace
_MOST = 50  # programs of one function are compared
_SHARE = 0.9  # of the comparisons have the cause
_MOST_CAUSES = 3

JIT_ONCE = "Jit it once, outside the loop, and pass what changes as an argument."


def main_cause(records: Sequence[FunctionRecord], whole: FunctionRecord) -> str | None:
    """Returns a sentence on what most traces of a function have in common, and what helps; None if
    there is no such thing, or if its traces are few for its calls.

    Arguments:
        records: of the functions of one name and place.
        whole: their total.
    """
    traces = whole.cost.traces
    if traces < _MANY or whole.calls > _SELDOM * traces:
        return None
    begin = f"{whole.name} was traced {traces:,} times"
    if whole.functions >= _SHARE * traces:
        return f"{begin}: it was defined or jitted {whole.functions:,} times. {JIT_ONCE}"
    caches = [cache for record in records if (cache := record.cache()) is not None]
    parameters: dict[str, str] = {}
    pairs = [causes for cache in caches for causes in _comparisons(cache, parameters)]
    if len(pairs) < _MANY - 1:
        return None
    counts = Counter((cause.kind, cause.path) for causes in pairs for cause in causes)
    latest = {(cause.kind, cause.path): cause for causes in pairs for cause in causes}
    found = in_order([latest[key] for key, n in counts.items() if n >= _SHARE * len(pairs)])
    if not found:
        return None
    first = found[0]
    alike = [cause for cause in found if cause.kind == first.kind]
    places = " and ".join(cause.place for cause in alike[:_MOST_CAUSES])
    more = f" and {len(alike) - _MOST_CAUSES} more" if len(alike) > _MOST_CAUSES else ""
    example = f", such as {first.was} and {first.now}" if first.was else ""
    if all(cause.path in parameters for cause in alike):
        remedy = of_number(caches[0], {parameters[cause.path] for cause in alike})
    else:
        remedy = " ".join(dict.fromkeys(c.remedy for c in alike[:_MOST_CAUSES] if c.remedy))
    said = f"{begin} because of {places}{more}: {TITLES[first.kind]}{example}. {remedy}"
    return said.strip()


def _comparisons(cache: _core.Cache, parameters: dict[str, str]) -> Iterator[list[Cause]]:
    """Yields in what programs of a function differ, each from the one traced before it; adds to
    `parameters` those of the numbers among the differences, by their paths."""
    before: tuple[_core.Variant, TraceRecord] | None = None
    traced = [
        (variant, trace)
        for variant in cache.variants()
        for trace in _records.record_of(variant).traces
        if not trace.on_purpose
    ]
    traced.sort(key=lambda pair: pair[1].number)
    for variant, trace in traced[:_MOST]:
        if before is not None and before[0] is variant:
            paths = array_paths(variant.function, variant.structure)
            yield compare_traces(paths, before[1], trace)
        elif before is not None:
            was, now = before[0].structure, variant.structure
            avals = before[1].avals, trace.avals
            registry, first_array = cache.hooks.registry, cache.function.num_leaves
            comparison = comparison_of(registry, was, now, first_array, *avals, cache)
            parameters.update(comparison.parameters)
            yield comparison.causes_in_order()
        before = variant, trace
