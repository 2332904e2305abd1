"""The sentence on dispatch at the end of ``filterjit run --report``."""

from typing import Any

import pytest

from filterjit._observe._advice import advise


def function(name: str = "m.f", **figures: Any) -> dict[str, Any]:
    row = dict.fromkeys(("tracing", "lowering", "compiling", "dispatch"), 0.0)
    return {"name": name, "calls": 1, "hits": 0, "traces": 1, "variants": [], **row, **figures}


def advice(*functions: dict[str, Any], seconds: float = 10.0, equinox: bool = False) -> str:
    return advise({"functions": list(functions)}, seconds, equinox)


def test_nothing_was_called() -> None:
    assert advice() == advice(function(calls=0)) == "No jitted function was called in 10.00 s."


def test_share() -> None:
    fast = function(hits=1000, dispatch=0.002)
    assert advice(fast, fast, seconds=0.5).startswith(
        "Dispatch of 2,000 hits took 4.0 ms, 0.8% of the 500.0 ms of the run. "
    )
    assert "100% of the 0.0 ms" in advice(fast, seconds=1e-9)
    assert "took 0.0 ms, 0.0% of" in advice(function(dispatch=None), seconds=0.0)


@pytest.mark.parametrize(
    ("functions", "equinox", "expected"),
    [
        ([function(dispatch=0.1)], False, "There is little to gain."),
        ([function(dispatch=0.1)], True, "`filterjit.install()` in the program"),
        # 2 s for the first trace of each are needed.
        ([function(compiling=2.0), function("m.g", compiling=9.0)], False, "little to gain"),
        (
            [function(compiling=2.0), function("m.g", traces=3, compiling=2.0, tracing=1.0)],
            True,
            "Retraces cost more: m.g was traced 3 times, about 2.00 s too much; "
            "`run --explain` tells why.",
        ),
        (
            [function(traces=1, compiles=2, compiling=4.0, unplaced=["model.w"])],
            True,
            "Compiling again cost more: m.f was compiled 2 times, about 2.00 s too much, since some "
            "calls passed arrays that were not placed on devices. Place a model once, before the "
            "first call: `filterjit.place(...)`.",
        ),
        # More time than retraces take.
        (
            [function(traces=3, compiling=3.0, hits=100_000, dispatch=5.0)],
            False,
            "Most is of m.f, 50.0 us a hit: do more in one call, with jax.lax.scan for example.",
        ),
        (
            [
                function(hits=1, dispatch=1.0),
                function(
                    "m.g",
                    hits=200_000,
                    dispatch=4.0,
                    variants=[
                        {"hits": 3, "arrays": ["float32[3]"]},
                        {"hits": 9, "arrays": ["float32[3]"] * 40},
                    ],
                ),
            ],
            True,
            "Most is of m.g, 20.0 us a hit with 40 arrays: give those that are the same in every "
            "call once, with `freeze` or `partial`, and `pack` a state that it returns.",
        ),
    ],
)
def test_what_to_do(functions: list[dict[str, Any]], equinox: bool, expected: str) -> None:
    text = advice(*functions, equinox=equinox)
    assert expected in text and "\n" not in text
