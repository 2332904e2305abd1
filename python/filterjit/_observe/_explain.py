"""Explains a call: compares it with the function's compiled programs and their traces."""

import contextlib
import dataclasses
import inspect
import operator
import re
from collections.abc import Sequence
from typing import Any

import jax

from .. import _core
from .._base._errors import add_path, array_paths, format_path, is_deleted
from .._base._unwrap import innermost, is_function
from .._call._miss import FunctionHooks
from .._call._programs import has_programs, programs_of
from .._trees._nodes import root_of
from .._trees._registry import registry
from . import _records, _table
from ._causes import WHOLE_FUNCTION, Cause, Explanation, cause_of
from ._compare import Comparison, Differences, compare_programs, compare_traces
from ._placement import compare_placements
from ._records import TraceRecord, functions
from ._wording import describe, list_first, place_of

_MOST_PROGRAMS = 16  # to compare with a call
_MOST_SHAPES = 8  # to list for an argument


def explain(
    f: _core.FilterJit, fun: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Explanation:
    """Explains why a call of `f`, which jits `fun`, is a hit or not. Traces and runs nothing."""
    try:
        variant, structure, arrays = f._find(*args, **kwargs)
    except Exception as e:
        raise add_path(e) from None
    cache, _ = f._parts()
    paths = array_paths(cache.function, structure)
    deleted = [path for path, x in zip(paths, arrays, strict=True) if is_deleted(x)]
    if deleted:
        causes = [cause_of(_table.DELETED, format_path(path)) for path in deleted]
        return Explanation(_name_of(cache), False, tuple(causes))
    hooks = f._hooks
    if isinstance(hooks, FunctionHooks) and (reason := hooks.reason_to_hand_over(structure)):
        return Explanation(_name_of(cache), False, (cause_of(_table.HANDED_OVER, now=reason),))
    earlier = [] if variant is None else _records.record_of(variant).traces
    is_traced = any(isinstance(x, jax.core.Tracer) for x in arrays)
    now = TraceRecord.of(arrays, placed=not is_traced)
    if variant and not is_traced and (specs := programs_of(variant).specs_of_arrays(arrays)):
        now.forget_placements(specs)
    return explain_trace(cache, fun, variant, structure, now, earlier)


def explain_trace(
    cache: _core.Cache,
    fun: Any,
    variant: _core.Variant | None,
    structure: _core.Structure,
    now: TraceRecord,
    earlier: Sequence[TraceRecord],
) -> Explanation:
    """Explains why a call isn't a hit. `variant` has its structure, if any, and `earlier` are that
    variant's traces. `now` has the dependencies of a new trace; placements of None aren't compared.
    """
    name = _name_of(cache)
    others = [
        v
        for v in cache.variants()
        if v is not variant and v.num_traces > 0 and _records.record_of(v).traces
    ]
    # Prefer the latest of the closest.
    others.sort(key=lambda v: max(t.number for t in _records.record_of(v).traces), reverse=True)
    if not earlier and not others:
        return Explanation(name, False, tuple(explain_first_trace(cache, fun)))
    if not earlier and (cause := evicted(cache, structure, now)):
        return Explanation(name, False, (cause,))
    found = [
        Differences(compare_traces(cache, structure, trace, now)) for trace in reversed(earlier)
    ]
    best = min(found, key=_distance, default=None)
    number = len(earlier)
    if best is None or best.distance > (1, 0):
        programs = [
            (i, other.structure, trace)
            for other in others
            for i, trace in enumerate(reversed(_records.record_of(other).traces))
        ]
        programs.sort(key=lambda program: program[0])
        number += len(programs)
        found += [
            compare_programs(cache, was, trace, structure, now)
            for _, was, trace in programs[:_MOST_PROGRAMS]
        ]
        best = min(found, key=_distance)
    causes, more = _with_all_shapes(best.causes, [x.causes for x in found]), best.more
    if not causes and now.placements is not None and variant is not None:
        paths = array_paths(cache.function, structure)
        record = _records.record_of(variant)
        placed = [
            compare_placements(paths, trace.placements, now.placements)
            for trace in (*earlier, *record.compiled)
            if trace.placements is not None and not compare_traces(cache, structure, trace, now)
        ]
        causes = min(placed, key=len, default=[])
        if not (placed or record.warmed or has_programs(variant)):
            causes = [cause_of(_table.NOT_COMPILED)]
    return Explanation(name, not causes, _by_name(causes, cache, fun), number, _more=more)


def _by_name(causes: Sequence[Cause], cache: _core.Cache, fun: Any) -> tuple[Cause, ...]:
    """Renames ``args[1]`` of a `functools.wraps` wrapper to the parameter of the function in it."""
    signature, known = cache.signature, {}
    if signature.varargs >= 0 and hasattr(fun, "__wrapped__"):
        with contextlib.suppress(TypeError, ValueError):
            inner = list(inspect.signature(fun).parameters)
            args, first = signature.names[signature.varargs], signature.varargs
            known = {f"{args}[{i}]": name for i, name in enumerate(inner[first:])}
    renamed = [(re.match(r"\w+\[\d+\]", cause.path), cause) for cause in causes]
    return tuple(
        [
            dataclasses.replace(cause, path=known[at[0]] + cause.path[at.end() :])
            if at and at[0] in known
            else cause
            for at, cause in renamed
        ]
    )


_distance = operator.attrgetter("distance")


def _with_all_shapes(best: Sequence[Cause], found: Sequence[Sequence[Cause]]) -> list[Cause]:
    """Returns the closest program's causes, with the shapes of programs with the same ones."""
    places = [(cause.kind, cause.path, cause.remedy) for cause in best]
    alike = [causes for causes in found if [(c.kind, c.path, c.remedy) for c in causes] == places]
    return [
        dataclasses.replace(cause, was=_shapes_in_words({causes[i].was for causes in alike}))
        if cause.kind == "shape"
        else cause
        for i, cause in enumerate(best)
    ]


def _shapes_in_words(avals: set[str]) -> str:
    """Describes avals, as in ``float32[1|4,16]`` if one dimension differs."""
    texts = sorted(avals, key=lambda text: (len(text), text))
    rows = [re.split(r"[\[,\]]", text) for text in texts]
    if len({len(row) for row in rows}) == 1:
        columns = [list(dict.fromkeys(column)) for column in zip(*rows, strict=True)]
        if sum(len(column) > 1 for column in columns) == 1:
            first, *shape, last = [list_first(column, _MOST_SHAPES, "|") for column in columns]
            return f"{first}[{','.join(shape)}]{last}"
    return list_first(texts, _MOST_SHAPES, " or ")


def evicted(cache: _core.Cache, structure: _core.Structure, now: TraceRecord) -> Cause | None:
    """Returns the cause of a call without a variant if the full cache dropped its program."""
    if len(cache.variants()) < cache.maxsize or not cache.record.signatures.has(structure, now):
        return None
    return cause_of(_table.EVICTED, maxsize=f"{cache.maxsize:,}")


def _name_of(cache: _core.Cache) -> str:
    return f"`{cache.attributes.get('__qualname__') or cache.record.label}`"


def _was_traced(cache: _core.Cache) -> bool:
    """True if a trace of the function has completed."""
    return bool(cache.record.cost.traces > 0)


def explain_first_trace(cache: _core.Cache, fun: Any) -> list[Cause]:
    """Explains why a function has no traced variant to compare with."""
    if _was_traced(cache):
        return [cause_of(_table.CLEARED)]
    alike = functions.of_code(fun)
    others = [other for other in alike if other is not cache and _was_traced(other)]
    for other in others:
        options = str(other.hooks.settings), str(cache.hooks.settings)
        if other.function == cache.function and options[0] != options[1]:
            return [cause_of(_table.OPTIONS, "", *options)]
    causes = _compare_functions(cache, fun, others)
    if causes is None and is_function(fun) and cache.record.key in functions.traced:
        # The functions that the same code created before are gone.
        now = "a new function with the same code"
        again = _jitted_again(describe(fun), now, fun)
        is_needless = _records.held_by(fun)[0] == functions.traced[cache.record.key][0]
        causes = [dataclasses.replace(again, _is_needless=is_needless)]
    return causes or [cause_of(_table.FIRST)]


def _compare_functions(
    cache: _core.Cache, fun: Any, others: Sequence[_core.Cache]
) -> list[Cause] | None:
    """Returns the differences from the closest function with the same code, or None."""
    comparisons = [  # by the registry that classifies functions
        (
            Comparison(registry, other.function, cache.function, [WHOLE_FUNCTION]).differences,
            other.function,
        )
        for other in others[:_MOST_PROGRAMS]
    ]
    if not comparisons:
        return None
    closest, was = min(comparisons, key=lambda pair: pair[0].distance)
    is_same = innermost(root_of(was).detail) is innermost(fun)  # only the wrapper is recreated
    again = "the same function, wrapped or jitted again"
    return [
        dataclasses.replace(
            _jitted_again(cause.was, again if is_same else cause.now, fun),
            _is_needless=is_same or cause._is_needless,
        )
        if (cause.kind, cause.path) == ("recreated", WHOLE_FUNCTION)
        else cause
        for cause in closest.causes
    ]


def _jitted_again(was: str, now: str, fun: Any) -> Cause:
    return cause_of(_table.FUNCTION, WHOLE_FUNCTION, was, now, place=place_of(fun))
