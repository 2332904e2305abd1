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
TOLD = "the explanations above tell why"

# The functions of the report, the seconds of the run, more arguments, and what is said.
ADVICE: list[tuple[list[dict[str, Any]], float, tuple[str, ...], str]] = [
    ([], 10.0, (), "No jitted function was called in 10.00 s."),
    ([function(calls=0)], 10.0, (), "No jitted function was called in 10.00 s."),
    ([FAST, FAST], 0.5, (),
        "Dispatch of 2,000 hits took 4.0 ms, and dispatch is 0.8% of the time without tracing and "
        "compiling. There is little more"),
    ([FAST], 1e-9, (), "dispatch is 100.0% of"),
    ([function(dispatch=None)], 0.0, (), "took 0.0 ms, and dispatch is 0.0% of"),
    ([function(hits=5, dispatch=None)], 10.0, (), "Dispatch of 0 hits took"),  # they waited
    # The first trace of each is needed.
    ([function(compiling=2.0, functions=3, traces=3)], 10.0, (), "little more to gain"),
    ([function(compiling=2.0), LOST], 10.0, (),
        "compiling. m.g was traced 3 times and compiled, which took 9.00 s; `run --explain` tells why."),
    ([LOST], 10.0, (TOLD,), f"which took 9.00 s; {TOLD}."),
    ([function(traces=50, compiling=9.0, cause="m.f was traced for `lr`.")], 10.0, (),
        "m.f was traced 50 times and compiled, which took 9.00 s; the cause stands above."),
    ([function(hits=1, dispatch=1.0), function(hits=200_000, dispatch=4.0)], 10.0, (),
        "Most is of m.f, 20.0 us a hit: do more in one call, with jax.lax.scan for example."),
]  # fmt: skip


@pytest.mark.parametrize(("functions", "seconds", "more", "expected"), ADVICE)
def test_what_is_said(
    functions: list[dict[str, Any]], seconds: float, more: tuple[str, ...], expected: str
) -> None:
    text = advise(Report(functions, True), seconds, *more, since_first=seconds, jax=False)
    assert expected in text and "\n" not in text
