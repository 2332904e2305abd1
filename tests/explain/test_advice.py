"""The sentence on dispatch at the end of ``filterjit run --report``."""

from typing import Any

import pytest

from filterjit._observe._report_output import Report, advise


def function(name: str = "m.f", **figures: Any) -> dict[str, Any]:
    row = {"tracing": 0.0, "compiling": 0.0, "dispatch": 0.0, "program": None, "waiting": None}
    row |= {"cause": None, "functions": 1, "decorator": "filter_jit"}
    return {"name": name, "calls": 1, "hits": 0, "traces": 1, **row, **figures}


FAST = function(hits=1000, dispatch=0.002)
LOST = function("m.g", traces=3, compiling=9.0)
# A loop of 50 us a step, after 4.5 s in which it was compiled.
LOOP = function("train.step", hits=400, tracing=0.5, compiling=4.0, dispatch=4e-3, program=12e-3)
DISPATCH = "of the time without tracing and compiling."

# The functions of the report, the seconds of the run, if retraces were explained, and the advice.
ADVICE: list[tuple[list[dict[str, Any]], float, bool, str]] = [
    ([], 10.0, False, "No jitted function was called."),
    ([function(calls=0)], 10.0, False, "No jitted function was called."),
    ([FAST, FAST], 0.5, False, f"Dispatch of 2,000 hits took 4.0 ms, 0.8% {DISPATCH}"),
    ([FAST], 1e-9, False, f"Dispatch of 1,000 hits took 2.0 ms, 100.0% {DISPATCH}"),
    ([function(dispatch=None)], 0.0, False, "No call was timed."),
    ([function(hits=5, dispatch=None)], 10.0, False, "No call was timed."),  # they waited
    # The first trace of each is needed.
    ([function(compiling=2.0, functions=3, traces=3)], 10.0, False, "No call was timed."),
    ([function(compiling=2.0), LOST], 10.0, False,
        "No call was timed. `run --explain` tells why functions were traced again."),
    ([LOST], 10.0, True, "No call was timed."),
    ([LOOP], 4.52, False, f"Dispatch of 400 hits took 4.0 ms, 20.0% {DISPATCH}"),
    ([LOOP], 9.0, False, f"Dispatch of 400 hits took 4.0 ms, 0.1% {DISPATCH}"),
]  # fmt: skip


@pytest.mark.parametrize(("functions", "seconds", "explained", "expected"), ADVICE)
def test_what_is_said(
    functions: list[dict[str, Any]], seconds: float, explained: bool, expected: str
) -> None:
    assert advise(Report(functions, True), seconds, explained=explained, jax=False) == expected


@pytest.mark.parametrize("jax", [False, True])
def test_what_is_said_of_programs_of_jax_jit(jax: bool) -> None:
    others = {"tracing": 0.0, "compiling": 0.0, "compiles": 3}
    text = advise(Report([], True, others), 3.0, explained=False, jax=jax)
    assert text.startswith("No jitted function was called.")
    assert ("of `jax.jit`, pass `--jax`." in text) == (not jax)
