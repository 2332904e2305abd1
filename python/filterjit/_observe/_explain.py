"""The explanation of one call: why it is a hit, or why it traces or compiles again.

An explanation is made only on request: by ``f.explain``, `on_retrace`, `max_traces` or
`log_retraces`. It compares the call with the function's compiled programs and with the records of
their traces.
"""

import dataclasses
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax

from .. import _core
from .._base._errors import array_paths
from .._trees._nodes import tree_of
from . import _records
from ._causes import Cause, Explanation
from ._compare import StructureComparison, compare_placements, compare_traces
from ._placement import placement_of
from ._records import Aval, TraceRecord
from ._words import describe, source_of

_MOST_VARIANTS = 16  # that a call is compared with

# The caches of functions by code object. A function that is recreated has a new cache, which is
# found here by the code that the functions share.
_caches_by_code: weakref.WeakKeyDictionary[Any, weakref.WeakSet[_core.Cache]] = (
    weakref.WeakKeyDictionary()
)


def register(fun: Any, cache: _core.Cache) -> None:
    """Remembers, weakly, that `cache` belongs to a function with the code of `fun`."""
    code = getattr(fun, "__code__", None)
    if code is not None:
        _caches_by_code.setdefault(code, weakref.WeakSet()).add(cache)


def explain(
    f: _core.FilterJit,
    fun: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    wanted: Callable[[_core.Variant, tuple[Any, ...]], Sequence[Any]],
) -> Explanation:
    """Returns whether a call of `f` would be a hit, and if not, why. Traces and runs nothing.

    `fun` is the function at the bottom of the wrappers that `f` jits. `wanted` returns the specs
    that `in_shardings` gives to the arrays of a call.
    """
    variant, structure, arrays = f._find(*args, **kwargs)
    cache, _ = f._parts()
    earlier = [] if variant is None else _records.record_of(variant).traces
    avals = tuple(map(Aval.of, arrays))
    placements = tuple(map(_records.placement, arrays))
    explanation = explain_trace(
        cache,
        fun,
        variant,
        structure,
        avals,
        placements,
        _records.config_context(),
        earlier,
    )
    if variant is None or any(isinstance(x, jax.core.Tracer) for x in arrays):
        return explanation
    paths = array_paths(cache.function, structure)
    shardings = _records.resolve(wanted(variant, arrays))
    placement = placement_of(paths, avals, placements, shardings)
    return dataclasses.replace(explanation, **vars(placement))


def explain_trace(
    cache: _core.Cache,
    fun: Any,
    variant: _core.Variant | None,
    structure: _core.Structure,
    avals: Sequence[Aval],
    placements: Sequence[Any] | None,
    context: dict[str, Any],
    earlier: Sequence[TraceRecord],
) -> Explanation:
    """Returns why a call is not a hit.

    Arguments:
        cache, fun: of the function that is called.
        variant: of the structure, if there is one.
        structure, avals, placements, context: the structure of the arguments, their arrays, where
            these are placed (None: not compared), and the configuration of JAX.
        earlier: the earlier traces of `variant`.
    """
    name = _name_of(cache)
    others = [v for v in cache.variants() if v is not variant and v.num_traces > 0]
    if not earlier:
        if not others:
            return Explanation(name, False, (_explain_first_trace(cache, fun),))
        causes = _compare_with_closest(cache, structure, avals, others)
        return Explanation(name, False, tuple(causes), len(others))
    paths = array_paths(cache.function, structure)
    best = min(
        (compare_traces(paths, trace, avals, context) for trace in reversed(earlier)), key=len
    )
    if not best and placements is not None:
        equal = [
            trace
            for trace in earlier
            if trace.placements is not None and not compare_traces(paths, trace, avals, context)
        ]
        best = min(
            (compare_placements(paths, trace.placements or (), placements) for trace in equal),
            key=len,
            default=[],
        )
    return Explanation(name, not best, tuple(best), len(earlier))


def _name_of(cache: _core.Cache) -> str:
    name = cache.attributes.get("__qualname__")
    return f"`{name}`" if name else f"`{cache.function!r}`"


def _was_traced(cache: _core.Cache) -> bool:
    """Whether a trace of the function came to its end, before the one that may be under way."""
    return cache.record.cost.traces > 0


def _explain_first_trace(cache: _core.Cache, fun: Any) -> Cause:
    """Returns why a function has no traced variant to compare a call with."""
    if _was_traced(cache):
        remedy = (
            "The cache was cleared, or it was full (`maxsize`) and this program was the least "
            "recently used."
        )
        return Cause("cleared", "", "compiled", "no longer in the cache", remedy)
    same_code = _caches_by_code.get(getattr(fun, "__code__", None), ())
    others = [other for other in same_code if other is not cache and _was_traced(other)]
    if any(other.function == cache.function for other in others):
        remedy = (
            "Use the same options: functions jitted with different options do not share programs."
        )
        return Cause(
            "options", "", str(others[0].hooks.settings), str(cache.hooks.settings), remedy
        )
    if others:
        remedy = (
            f"Apply `filter_jit` once, outside the loop: the function of {source_of(fun)} is defined "
            "and jitted again each time."
        )
        now = "a new function with the same code"
        return Cause("function", "the function", describe(fun), now, remedy)
    return Cause("first", "", "nothing", "the first call", "")


def _compare_with_closest(
    cache: _core.Cache,
    structure: _core.Structure,
    avals: Sequence[Aval],
    variants: Sequence[_core.Variant],
) -> list[Cause]:
    """Returns the differences between a structure and the variant that is closest to it."""
    first_array = cache.function.num_leaves
    node = tree_of(structure, first_array)
    comparisons = []
    for variant in variants[:_MOST_VARIANTS]:
        traces = _records.record_of(variant).traces
        avals_was = traces[-1].avals if traces else None
        comparison = StructureComparison(cache.hooks.registry, avals_was, avals)
        comparison.compare(tree_of(variant.structure, first_array), node)
        comparisons.append(comparison)
    return min(comparisons, key=StructureComparison.distance).causes_in_order()
