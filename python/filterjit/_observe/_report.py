"""Computes reports of jitted functions from their records."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from .. import _core
from .._base._errors import array_paths, format_path
from .._base._package import public, public_type
from .._call._direct import arrange
from .._call._programs import calls_of
from .._call._programs import count as count_programs
from . import _retraces
from ._labels import Program, labels_of
from ._placement import compare_placements
from ._recorder import recorder
from ._records import Cost, FunctionRecord, Times, functions, record_of
from ._report_output import COSTS, TIMES, Report, total

_OFTEN = 100  # calls that deserve a remark
_LARGE = 1000  # equations that do

# Why a call isn't direct, by the names in csrc/call/direct_argument.h.
_REASONS = {
    "off": "direct calls are turned off",
    "waiting": "such calls had not been made often enough",
    "profiler": "a profiler was running",
    "configuration": "JAX's configuration differed from earlier calls",
    "type": "an argument had a different type than in earlier calls, or wasn't an array",
    "aval": "an array's shape, dtype or weak type differed from earlier calls",
    "sharding": "an array's devices or sharding differed from earlier calls",
    "layout": "an array's layout in memory differed from earlier calls, or it was deleted",
    "deleted": "an array was deleted",
    "failed": "the executable refused the arguments",
}


@public_type
class CacheInfo(NamedTuple):
    """The counters of one jitted function.

    Attributes:
        hits: calls that ran a program and traced nothing; none under ``jax.disable_jit()``.
        misses: all other calls, except those that failed early, with arguments that don't fit the
            parameters or have an unhashable static leaf.
        variants: static structures with compiled programs.
        maxsize: the maximum of `variants`.
        programs: compiled programs for all shapes, dtypes and placements, as ``_cache_size`` of
            ``jax.jit`` counts them: NumPy arrays count as another placement.
    """

    hits: int
    misses: int
    variants: int
    maxsize: int
    programs: int


def cache_info(cache: _core.Cache) -> CacheInfo:
    variants, calls, hits = len(cache.variants()), cache.calls, cache.hits
    programs = count_programs(cache)
    return CacheInfo(hits, max(0, calls - hits), variants, cache.maxsize, programs)


@public
def report() -> Report:
    """Returns a report of the time that all jitted functions took."""
    rows = [_function_row(whole, caches) for whole, caches in functions.groups()]
    others = _cost_columns(recorder.other_programs)
    with functions.lock:
        lines = sorted([*recorder.operations.items()], key=lambda x: x[1].compiling, reverse=True)
    others["operations"] = [
        {"file": file, "line": line, "compiles": cost.compiles, "compiling": cost.compiling}
        for (file, line), cost in lines
    ]
    return Report(rows, functions.timed, others)


def report_of(cache: _core.Cache) -> Report:
    cache.record.refresh()
    return Report([_function_row(cache.record, [cache])], functions.timed)


def _cost_columns(cost: Cost) -> dict[str, Any]:
    return {name: getattr(cost, name) for name in COSTS}


def _times(counted: Mapping[str, int], cost: Cost, waits: bool = False) -> dict[str, float | None]:
    """Returns the seconds of timed hits in dispatch, program and waiting; None if not measured."""
    times = Times(**counted)
    if not (times.hits or functions.timed):
        return dict.fromkeys(TIMES)
    # A program that can raise might run in JAX's part of the call.
    dispatch = None if waits else times.dispatch
    return {
        "dispatch": dispatch and max(0.0, dispatch - cost.in_hits),
        "program": None if waits else times.program,
        "waiting": times.waited * 1e-9,
    }


def _variant_row(variant: _core.Variant, cache: _core.Cache) -> dict[str, Any]:
    record = record_of(variant)
    return {
        "arguments": repr(variant.structure).removeprefix("Structure(").removesuffix(")"),
        "shapes": _shape_rows(variant, cache),
        "hits": variant.hits,
        "direct": _counts(variant)["direct"],
        **_times(variant._times, record.cost, record.waits),
        **_cost_columns(record.cost),
    }


def _programs(variant: _core.Variant, cache: _core.Cache) -> list[Program]:
    """Returns the variant's structure with the avals of each of its traces."""
    own = cache.function.num_leaves
    return [(variant.structure, trace.avals[own:]) for trace in record_of(variant).traces]


def _shape_rows(variant: _core.Variant, cache: _core.Cache) -> list[dict[str, Any]]:
    """Returns a row for each trace of a variant: one for each combination of shapes and dtypes."""
    traces = record_of(variant).traces
    rows = [
        {"label": label, "arrays": [*map(str, trace.avals)], **_cost_columns(trace.cost)}
        for label, trace in zip(labels_of(_programs(variant, cache)), traces, strict=True)
    ]
    return sorted(rows, key=total, reverse=True)


def _times_of_function(
    whole: FunctionRecord, found: list[tuple[_core.Variant, _core.Cache, dict[str, Any]]]
) -> dict[str, float | None]:
    """Sums the times of all variants, including dropped ones."""
    variants = [variant for variant, _, _ in found]
    dropped = Counter(whole.counters[2])
    for variant in variants:
        dropped -= Counter(variant._times)
    in_hits = whole.cost.in_hits - sum(record_of(v).cost.in_hits for v in variants)
    rows = [row for _, _, row in found]
    if dropped["hits"] or not rows:
        rows.append(_times(dropped, Cost(in_hits=in_hits)))
    return {
        name: sum(seconds)
        if (seconds := [row[name] for row in rows if row[name] is not None])
        else None
        for name in TIMES
    }


def _remarks(variant: _core.Variant, cache: _core.Cache) -> list[str]:
    """Returns remarks on a variant: the size of its program, and why it recompiled."""
    record = record_of(variant)
    remarks = []
    if record.equations >= _LARGE:
        remarks.append(
            f"has {record.equations:,} equations, which take long to compile. If a Python loop made "
            "them, jax.lax.scan or fori_loop would keep one copy."
        )
    for now in record.compiled[-1:]:
        paths = array_paths(variant.function, variant.structure)
        was = next((t for t in record.traces if t.placements and t.avals == now.avals), now)
        if causes := compare_placements(paths, was.placements or (), now.placements or ()):
            begin = f"was compiled again, {record.cost.compiles:,} times in all,"
            remarks.append(_retraces.sentence(begin, causes, cache))
    return remarks


def _counts(variant: _core.Variant) -> Counter[str]:
    """Counts calls by way, such as "direct"."""
    found = (Counter(getattr(call, "counts", {})) for call in calls_of(variant))
    return sum(found, Counter[str]())


def _why_no_plan(variant: _core.Variant) -> str | None:
    """Returns why a program can't have direct calls, or None."""
    found = (getattr(call, "why_no_plan", None) for call in calls_of(variant))
    return next((text for text in found if text is not None), None)


def _passed_on(variant: _core.Variant) -> Counter[str]:
    """Counts the calls that went through ``jax.jit``, by reason."""
    counts, why = _counts(variant), _why_no_plan(variant)
    reasons = Counter({_REASONS[way]: n for way, n in counts.items() if way != "direct"})
    if why is not None and not counts["direct"] and "waiting" in counts:
        paths = array_paths(variant.function, variant.structure)  # to replace array numbers
        if variant._programs is not None:
            paths = [*arrange(paths, variant._programs.order)]
        reason = re.sub(r"#(\d+)", lambda found: format_path(paths[int(found[1])]), why)
        reasons[reason] = reasons.pop(_REASONS["waiting"])
    return reasons


def _function_row(whole: FunctionRecord, caches: list[_core.Cache]) -> dict[str, Any]:
    """Returns a row for the functions with one name and place, `whole` in total."""
    found = [(v, cache, _variant_row(v, cache)) for cache in caches for v in cache.variants()]
    found.sort(key=lambda one: total(one[2]), reverse=True)
    programs = [_programs(v, cache) for v, cache, _ in found]
    labels = labels_of(
        [
            of_variant[0] if len(of_variant) == 1 else (v.structure, ())
            for (v, _, _), of_variant in zip(found, programs, strict=True)
        ]
    )
    variants = [{"label": label, **row} for label, (_, _, row) in zip(labels, found, strict=True)]
    remarks = list(dict.fromkeys(text for v, cache, _ in found for text in _remarks(v, cache)))
    remarks += [whole.captured] if whole.captured else []
    passed_on = sum((_passed_on(variant) for variant, _, _ in found), Counter[str]())
    direct = sum(v["direct"] for v in variants)
    upstream = "flax.nnx.jit" if whole.decorator == "nnx.jit" else "jax.jit"
    for reason, n in whole.handed_over.most_common():
        remarks.append(f"{n:,} of its calls fell back to {upstream}: {reason}.")
    for reason, n in passed_on.most_common(1):
        if n >= max(_OFTEN, direct + 1) and reason not in (_REASONS["waiting"], _REASONS["off"]):
            remarks.append(f"{n:,} of its calls fell back to jax.jit: {reason}.")
    file, line = whole.place or (None, None)
    return {
        "name": whole.name,
        "decorator": whole.decorator,
        "file": file,
        "line": line,
        "functions": whole.functions,
        "calls": whole.calls,
        "hits": whole.hits,
        "direct": direct,
        "passed_on": dict(passed_on),
        "handed_over": dict(whole.handed_over),
        **_times_of_function(whole, found),
        **_cost_columns(whole.cost),
        "cause": _retraces.main_cause(whole, next(iter(caches), None)),
        "variants": variants,
        "remarks": remarks,
    }
