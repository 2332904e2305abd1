"""One sentence on dispatch: its share of the time of a program, and what to do about it."""

from typing import Any

from ._causes import PLACE_ONCE
from ._report_output import show_seconds
from ._words import count

_STAGES = ("tracing", "lowering", "compiling")
_MUCH = 0.05  # of the time of the program
_MANY_ARRAYS = 8


def advise(report: dict[str, Any], seconds: float, equinox: bool) -> str:
    """Returns the line at the end of ``filterjit run --report``.

    Arguments:
        report: of `Report.as_dict`, with timed calls.
        seconds: that the program ran.
        equinox: whether the program uses Equinox, whose `filter_jit` has been replaced.
    """
    functions = [f for f in report["functions"] if f["calls"]]
    if not functions:
        return f"No jitted function was called in {show_seconds(seconds)}."
    dispatch = sum(f["dispatch"] or 0.0 for f in functions)
    share = min(1.0, dispatch / seconds) if seconds > 0 else 0.0
    return (
        f"Dispatch of {count(sum(f['hits'] for f in functions), 'hit')} took {show_seconds(dispatch)}, "
        f"{_percent(share)} of the {show_seconds(seconds)} of the run. "
        f"{_advice(functions, dispatch, seconds, equinox)}"
    )


def _advice(functions: list[dict[str, Any]], dispatch: float, seconds: float, equinox: bool) -> str:
    retraced = max(functions, key=_seconds_of_retraces)
    lost = _seconds_of_retraces(retraced)
    if lost >= max(dispatch, _MUCH * seconds):
        if retraced.get("unplaced"):
            return (
                f"Compiling again cost more: {retraced['name']} was compiled "
                f"{retraced['compiles']:,} times, about {show_seconds(lost)} too much, since some "
                f"calls passed arrays that were not placed on devices. {PLACE_ONCE}"
            )
        return (
            f"Retraces cost more: {retraced['name']} was traced {retraced['traces']:,} times, "
            f"about {show_seconds(lost)} too much; `run --explain` tells why."
        )
    if dispatch < _MUCH * seconds:
        if equinox:
            return "`filterjit.install()` in the program keeps it so without `run`."
        return "There is little to gain."
    heaviest = max(functions, key=lambda f: f["dispatch"] or 0.0)
    each = 1e6 * (heaviest["dispatch"] or 0.0) / max(1, heaviest["hits"])
    variant = max(heaviest["variants"], key=lambda v: v["hits"], default=None)
    arrays = 0 if variant is None else len(variant["arrays"])
    most = f"Most is of {heaviest['name']}, {each:.1f} us a hit"
    if arrays >= _MANY_ARRAYS:
        return (
            f"{most} with {arrays:,} arrays: give those that are the same in every call once, "
            "with `freeze` or `partial`, and `pack` a state that it returns."
        )
    return f"{most}: do more in one call, with jax.lax.scan for example."


def _seconds_of_retraces(f: dict[str, Any]) -> float:
    """Returns the cost of all traces but one, as if all had cost the same; of all compilations but
    one, if its arrays were placed in some calls only."""
    times: int = max(f["traces"], f["compiles"] if f.get("unplaced") else 0)
    if times < 2:
        return 0.0
    cost: float = sum(f[stage] or 0.0 for stage in _STAGES)
    return cost * (times - 1) / times


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.0995 else f"{share:.1%}"
