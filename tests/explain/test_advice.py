"""The last line of ``filterjit run --report``."""

from typing import Any

import pytest

from filterjit._observe._report_output import Report, advise


def function(name: str = "m.f", **figures: Any) -> dict[str, Any]:
    row = {"tracing": 0.0, "compiling": 0.0, "dispatch": 0.0, "program": None, "waiting": None}
    row |= {"cause": None, "functions": 1, "decorator": "filter_jit"}
    return {"name": name, "calls": 1, "hits": 0, "traces": 1, **row, **figures}


LOST = function("m.g", traces=3, compiling=9.0)
COMPARE = "`run --compare` tells whether filterjit pays."
EXPLAIN = " `run --explain` tells why functions were retraced."

# The functions of the report, if retraces were explained, and the advice.
ADVICE: list[tuple[list[dict[str, Any]], bool, str]] = [
    ([], False, "No jitted function was called."),
    ([function(calls=0)], False, "No jitted function was called."),
    ([function(functions=3, traces=3)], False, COMPARE),  # the first trace of each is needed
    ([function(compiling=2.0), LOST], False, COMPARE + EXPLAIN),
    ([LOST], True, COMPARE),
]


@pytest.mark.parametrize(("functions", "explained", "expected"), ADVICE)
def test_what_is_said(functions: list[dict[str, Any]], explained: bool, expected: str) -> None:
    assert advise(Report(functions, True), explained=explained, jax=False) == expected


@pytest.mark.parametrize("jax", [False, True])
def test_what_is_said_of_programs_of_jax_jit(jax: bool) -> None:
    others = {"tracing": 0.0, "compiling": 0.0, "compiles": 3}
    text = advise(Report([], True, others), explained=False, jax=jax)
    assert text.startswith("No jitted function was called.")
    assert ("of `jax.jit`, pass `--jax`." in text) == (not jax)
