"""One sentence on dispatch: its share of the time of a program, and what to do about it."""

from typing import Any

from . import _handed_over
from ._causes import PLACE_ONCE
from ._wording import count, show_seconds

_MUCH = 0.05  # of the time of the program
_MANY_ARRAYS = 8


RUN_EXPLAIN = "`run --explain` tells why"


def advise(
    report: dict[str, Any],
    seconds: float,
    install: str,
    reasons: str = RUN_EXPLAIN,
) -> str:
    """Returns the line below the report of ``filterjit run``, above which the report tells the cause of
    most retraces.

    Arguments:
        report: of `Report.as_dict`, with timed calls.
        seconds: that the program ran.
        install: the call that has replaced what the program uses, ``install()`` or
            ``install(jax=True)``; an empty text if the program uses nothing of it.
        reasons: where the reasons of retraces are told, in words.
    """
    functions = [f for f in report["functions"] if f["calls"]]
    handed = _handed_over.summary(report["functions"])
    if functions:
        dispatch = sum(f["dispatch"] or 0.0 for f in functions)
        share = min(1.0, dispatch / seconds) if seconds > 0 else 0.0
        said = (
            f"Dispatch of {count(sum(map(_timed_hits, functions)), 'hit')} took "
            f"{show_seconds(dispatch)}, {_percent(share)} of the {show_seconds(seconds)} of the run. "
        )
        retraced = _retraced(functions, dispatch, seconds, reasons)
        found = [text for text in (retraced, handed) if text]
        return said + (" ".join(found) or _advice(functions, dispatch, seconds, install))
    if handed:
        return handed
    others = report["others"] or {}
    if others.get("compiles"):
        return (
            f"filterjit jitted no function in {show_seconds(seconds)}: JAX compiled "
            f"{count(others['compiles'], 'program')} of functions and single operations that "
            "`run` leaves as they are."
        )
    return f"No jitted function was called in {show_seconds(seconds)}."


def _retraced(
    functions: list[dict[str, Any]], dispatch: float, seconds: float, reasons: str
) -> str:
    """Returns a sentence on the function that took most time to be compiled again; an empty text if
    that is little."""
    retraced = max(functions, key=lambda f: f["again"])
    lost = retraced["again"]
    if lost < max(dispatch, _MUCH * seconds):
        return ""
    if retraced["unplaced"]:
        return (
            f"Compiling again took {show_seconds(lost)}: {retraced['name']} was compiled "
            f"{retraced['compiles']:,} times, since some calls passed arrays that were not "
            f"placed on devices. {PLACE_ONCE}"
        )
    if retraced.get("cause"):
        reasons = "the cause stands above"
    return (
        f"Retraces took {show_seconds(lost)}: {retraced['name']} was traced "
        f"{retraced['traces']:,} times; {reasons}."
    )


def _advice(functions: list[dict[str, Any]], dispatch: float, seconds: float, install: str) -> str:
    if dispatch < _MUCH * seconds:
        if install:
            return f"`filterjit.{install}` in the program keeps it so without `run`."
        return "There is little more to gain."
    heaviest = max(functions, key=lambda f: f["dispatch"] or 0.0)
    each = 1e6 * (heaviest["dispatch"] or 0.0) / max(1, _timed_hits(heaviest))
    variant = max(heaviest["variants"], key=lambda v: v["hits"], default=None)
    arrays = 0 if variant is None else len(variant["arrays"])
    most = f"Most is of {heaviest['name']}, {each:.1f} us a hit"
    if arrays >= _MANY_ARRAYS and heaviest["decorator"] == "filter_jit":
        return (
            f"{most} with {arrays:,} arrays: give those that are the same in every call once, "
            "with `freeze` or `partial`."
        )
    return f"{most}: do more in one call, with jax.lax.scan for example."


def _timed_hits(f: dict[str, Any]) -> int:
    """Returns how many hits of a function did not wait for the device."""
    waited = sum(int(v["hits"]) for v in f["variants"] if v["dispatch"] is None)
    return int(f["hits"]) - waited


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.0995 else f"{share:.1%}"
