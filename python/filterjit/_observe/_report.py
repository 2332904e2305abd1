"""Reports: where the time of jitted functions went, from the records of the functions."""

import dataclasses
import sys
import types
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from .. import _core
from .._base._checks import check_bool
from .._base._errors import array_paths
from .._base._package import is_installed, public, public_type
from .._compat import _jax_compat
from . import _again, _handed_over, _records
from ._causes import PLACE_ONCE
from ._forbid import without_compiling
from ._function_records import FunctionRecord, definition_of, dispatch_seconds, functions
from ._jaxpr import Program
from ._labels import labels_of
from ._placement import HOST, recorded_moves, unplaced
from ._recorder import recorder
from ._records import Cost, TraceRecord
from ._report_output import Report
from ._wording import STAGES, add_up, list_first, show_bytes, total


@public_type
class CacheInfo(NamedTuple):
    """The counters of one jitted function.

    Attributes:
        hits: calls that a program ran and that traced nothing; none under ``jax.disable_jit()``.
        misses: all other calls, except those that failed before they were looked up, since their
            arguments do not fit the parameters or have a static leaf that cannot be hashed.
        variants: static structures with compiled programs.
        maxsize: the maximum of `variants`.
        bytes: the size of the executables; None if JAX does not tell it.
    """

    hits: int
    misses: int
    variants: int
    maxsize: int
    bytes: int | None


def cache_info(cache: _core.Cache) -> CacheInfo:
    variants = cache.variants()
    cache.record.refresh()
    calls, hits = cache.record.calls, cache.record.hits
    size = add_up(map(_bytes_of, variants))
    return CacheInfo(hits, max(0, calls - hits), len(variants), cache.maxsize, size)


@public
def time_calls(on: bool = True) -> None:
    """Turns the timing of calls for reports on or off.

    Each hit is timed until it returns, which takes less than a microsecond a call. The first
    execution of each program is timed too: the call waits for its end.

    Arguments:
        on: whether calls are timed from now on.
    """
    check_bool("time_calls(on=...)", on)
    functions.time_calls(on)


@public
def report() -> Report:
    """Returns a report of where the time of all jitted functions went."""
    rows = [_function_row(total, caches) for total, caches in functions.groups()]
    for row in rows:
        row["internal"] = _is_internal(row["name"], row["file"], row["line"])
    return Report(rows, functions.timed, _cost_columns(recorder.other_programs))


def report_of(cache: _core.Cache) -> Report:
    """Returns a report of where the time of one jitted function went."""
    cache.record.refresh()
    return Report([_function_row(cache.record, [cache])], functions.timed)


def _is_internal(name: str, file: str | None, line: int | None) -> bool:
    """Whether the module of a function, an installed one, has jitted it, and no public module has what
    came of that."""
    if file is None or not is_installed(file):
        return False
    parts = name.split(".")
    found = [sys.modules.get(".".join(parts[:i])) for i in range(1, len(parts))]
    modules = [vars(module) for module in found if module is not None]
    jitted = {
        key: x
        for key, x in (modules[-1] if modules else {}).items()
        if not isinstance(x, types.FunctionType)
        and hasattr(x, "__wrapped__")
        and definition_of(x) == (file, line)
    }
    private = [part.startswith("_") for part in (*parts, "_")].index(True)
    return bool(jitted) and not any(
        module.get(key) is x for module in modules[:private] for key, x in jitted.items()
    )


# ---- the size of executables ----


def _bytes_of(variant: _core.Variant) -> int | None:
    """Returns the size of a variant's executables: of their code, or of their serialized form on
    devices that do not tell the size of the code (the CPU).

    JAX's caches hold the executables; the stages below find them there, in a context in which JAX
    raises instead of compiling. None if JAX has dropped them, or is too old to tell whether it
    would compile.
    """
    record = _records.record_of(variant)
    key = len(record.traces), record.cost.compiles
    if record.cached_size[0] != key:
        sizes = [_bytes_of_trace(variant, trace) for trace in record.traces]
        if record.executable is not None:
            sizes.append(_bytes_of_executable(record.executable))
        record.cached_size = key, add_up(sizes)
    return record.cached_size[1]


def _bytes_of_trace(variant: _core.Variant, trace: TraceRecord) -> int | None:
    placements = trace.placements or (None,) * len(trace.avals)
    avals = [
        _jax_compat.spec_of(aval, placed[0] if placed is not None and placed[1] else None)
        for aval, placed in zip(trace.avals, placements, strict=True)
    ]

    def find() -> Any:
        with without_compiling():
            return variant.call.trace(*avals).lower().compile().runtime_executable()

    return _bytes_of_executable(find)


def _bytes_of_executable(executable: Callable[[], Any]) -> int | None:
    try:
        found = executable()
        return found.size_of_generated_code_in_bytes() or len(found.serialize())
    except Exception:
        return None


# ---- the rows ----

_NOT_ON_DISK = (
    "calls back into Python, as `eqx.error_if` and `jax.debug.print` do. JAX does not store such a "
    "program in its persistent compilation cache, so each process compiles it."
)


def _cost_columns(cost: Cost) -> dict[str, Any]:
    return {name: getattr(cost, name) for name in ("traces", "compiles", "from_disk", *STAGES)}


_MOST_PATHS = 3  # more are counted, not written out
_MUCH = 1 << 20  # bytes: it is not worth a remark that each call copies fewer from the host


def _placement_row(variant: _core.Variant, remarks: list[str]) -> dict[str, Any]:
    """Returns where the arrays of a variant's calls are, and adds remarks on them."""
    record = _records.record_of(variant)
    paths = array_paths(variant.function, variant.structure)
    moves = recorded_moves(variant, paths)
    others = unplaced(paths, record)
    if others:
        times = record.cost.compiles
        shown = list_first([f"`{path}`" for path in others], _MOST_PATHS)
        remarks.append(
            f"was compiled again, {times:,} times in all, since some calls passed arrays "
            f"that were not placed on devices: {shown}. {PLACE_ONCE}"
        )
    told = [move for move in moves if move.path not in others]
    copied = sum(move.bytes for move in told)
    if copied >= _MUCH or any(move.was != HOST for move in told):
        remarks.append(
            f"copies {show_bytes(copied)} to other devices in a call like the one that was traced: "
            f"{list_first(told, _MOST_PATHS, '; ')}."
        )
    rows = [{"path": m.path, "bytes": m.bytes, "from": m.was, "to": m.to} for m in moves]
    return {"moves": rows, "unplaced": others}


def _variant_row(variant: _core.Variant, timed: bool) -> dict[str, Any]:
    record = _records.record_of(variant)
    program = record.program or Program(0)
    loop, captured = program.loop, program.captured
    remarks = [] if loop is None else [str(loop)]
    # A program that can raise is waited for, which is no dispatch.
    timed = timed and not program.callbacks
    dispatch = dispatch_seconds(variant.hit_time, record.cost) if timed else None
    placement = _placement_row(variant, remarks)
    direct, passed_on = _handed_over.direct_calls(variant)
    if program.callbacks and getattr(jax.config, "jax_compilation_cache_dir", None):
        remarks.append(_NOT_ON_DISK)
    return {
        "arguments": repr(variant.structure).removeprefix("Structure(").removesuffix(")"),
        "arrays": [str(aval) for aval in record.traces[-1].avals] if record.traces else [],
        "hits": variant.hits,
        "direct": direct,
        "passed_on": passed_on,
        "dispatch": dispatch,
        **_cost_columns(record.cost),
        "bytes": _bytes_of(variant),
        **placement,
        "equations": program.equations or None,
        "loop": None if loop is None else dataclasses.asdict(loop),
        "captured": None if captured is None else dataclasses.asdict(captured),
        "callbacks": program.callbacks,
        "remarks": remarks,
    }


def _function_row(whole: FunctionRecord, caches: list[_core.Cache]) -> dict[str, Any]:
    """Returns the row of functions of one name and place, whose records are added up in `whole`."""
    found = [
        (variant, _variant_row(variant, cache.record.timed))
        for cache in caches
        for variant in cache.variants()
    ]
    found.sort(key=lambda pair: total(pair[1]), reverse=True)
    labels = labels_of([variant for variant, _ in found])
    variants = [{"label": label, **row} for label, (_, row) in zip(labels, found, strict=True)]
    remarks = list(dict.fromkeys(text for v in variants for text in v["remarks"]))
    if whole.captured is not None:
        remarks.append(whole.captured.warning())
    passed_on = sum((Counter[str](v["passed_on"]) for v in variants), Counter[str]())
    is_timed = any(v["dispatch"] is not None for v in variants)
    file, line = whole.place or (None, None)
    row = {
        "name": whole.name,
        "file": file,
        "line": line,
        "decorator": whole.decorator,
        "functions": whole.functions,
        "calls": whole.calls,
        "hits": whole.hits,
        "direct": sum(v["direct"] for v in variants),
        "passed_on": dict(passed_on),
        "dispatch": whole.dispatch if not variants or is_timed else None,
        **_cost_columns(whole.cost),
        "cause": _again.main_cause(whole, next(iter(caches), None)),
        "again": whole.again.tracing + whole.again.lowering + whole.again.compiling,
        "bytes": add_up(v["bytes"] for v in variants),
        "unplaced": list(dict.fromkeys(path for v in variants for path in v["unplaced"])),
        "variants": variants,
        "handed_over": dict(whole.handed_over),
    }
    return {**row, "remarks": remarks + _handed_over.remarks(row)}
