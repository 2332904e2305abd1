"""The sentence on dispatch at the end of ``filterjit run --report``."""

from pathlib import Path
from typing import Any

import pytest

from filterjit._observe._advice import advise
from support import processes


def function(name: str = "m.f", **figures: Any) -> dict[str, Any]:
    row = dict.fromkeys(("tracing", "lowering", "compiling", "dispatch"), 0.0)
    row |= {"again": 0.0, "unplaced": [], "handed_over": {}, "decorator": "filter_jit"}
    return {"name": name, "calls": 1, "hits": 0, "traces": 1, "variants": [], **row, **figures}


def advice(*functions: dict[str, Any], seconds: float = 10.0, equinox: bool = False) -> str:
    install = "install()" if equinox else ""
    return advise({"functions": list(functions), "others": None}, seconds, install)


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
        ([function(dispatch=0.1)], False, "There is little more to gain."),
        ([function(dispatch=0.1)], True, "`filterjit.install()` in the program"),
        # 2 s for the first trace of each are needed.
        ([function(compiling=2.0), function("m.g", compiling=9.0)], False, "little more to gain"),
        (
            [function(compiling=2.0), function("m.g", traces=3, compiling=9.0, again=2.0)],
            True,
            "Retraces took 2.00 s: m.g was traced 3 times; `run --explain` tells why.",
        ),
        (
            [function(traces=50, compiling=9.0, again=2.0, cause="m.f was traced for `lr`.")],
            True,
            "Retraces took 2.00 s: m.f was traced 50 times; the cause stands above.",
        ),
        (
            [function(traces=1, compiles=2, compiling=4.0, again=2.0, unplaced=["model.w"])],
            True,
            "Compiling again took 2.00 s: m.f was compiled 2 times, since some calls passed arrays "
            "that were not placed on devices. Place them the same way on every call, what stays the same once: "
            "`filterjit.place(...)`.",
        ),
        # More time than retraces take.
        (
            [function(traces=3, compiling=3.0, again=2.0, hits=100_000, dispatch=5.0)],
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
                        {"hits": 3, "dispatch": 0.1, "arrays": ["float32[3]"]},
                        {"hits": 9, "dispatch": 0.1, "arrays": ["float32[3]"] * 40},
                    ],
                ),
            ],
            True,
            "Most is of m.g, 20.0 us a hit with 40 arrays: give those that are the same in every "
            "call once, with `freeze` or `partial`.",
        ),
    ],
)
def test_what_to_do(functions: list[dict[str, Any]], equinox: bool, expected: str) -> None:
    text = advice(*functions, equinox=equinox)
    assert expected in text and "\n" not in text


def test_nnx_jit_is_not_told_to_freeze() -> None:
    variants = [{"hits": 9, "dispatch": 0.1, "arrays": ["float32[3]"] * 40}]
    row = function(hits=200_000, dispatch=4.0, variants=variants, decorator="nnx.jit")
    assert advice(row).endswith(
        "20.0 us a hit: do more in one call, with jax.lax.scan for example."
    )


def test_hits_that_waited_are_not_counted() -> None:
    variants = [{"hits": 3, "dispatch": None, "arrays": []}, {"hits": 2, "dispatch": 0.1}]
    row = function(hits=5, dispatch=0.1, variants=variants)
    assert advice(row).startswith("Dispatch of 2 hits took 100.0 ms, 1.0% of")


def test_calls_that_were_handed_over() -> None:
    reasons = {"a static attribute is a tracer": 7, "other": 2}
    row = function(calls=0, handed_over=reasons, decorator="nnx.jit")
    said = "flax.nnx.jit made 9 calls of m.f: a static attribute is a tracer. Make it a Variable."
    assert advice(row) == said
    assert advice(function(hits=3, dispatch=0.1), row).endswith(said)
    lost = function("m.g", traces=3, compiling=9.0, again=2.0)
    text = advice(lost, row)
    assert "m.g was traced 3 times" in text and text.endswith(said)


def test_reasons_that_were_told_are_not_promised() -> None:
    lost = {"functions": [function(traces=3, compiling=9.0, again=2.0)], "others": None}
    text = advise(lost, 10.0, "", "the explanations above tell why")
    assert text.endswith("m.f was traced 3 times; the explanations above tell why.")


def test_a_program_of_jax_jit_alone() -> None:
    report: dict[str, Any] = {"functions": [], "others": {"compiles": 12}}
    assert advise(report, 2.0, "") == (
        "filterjit jitted no function in 2.00 s: JAX compiled 12 programs of functions and single "
        "operations that `run` leaves as they are."
    )


def test_what_keeps_it_so_without_run() -> None:
    report: dict[str, Any] = {"functions": [function(dispatch=0.1)], "others": None}
    assert "`filterjit.install(jax=True)` in the program" in advise(
        report, 9.0, "install(jax=True)"
    )


PROGRAMS = {
    "nnx": (
        "import jax, jax.numpy as jnp\n"
        "from flax import nnx\n"
        "@nnx.jit(static_argnums=1, graph=False)\n"
        "def step(x, module):\n"
        "    return x + 1\n"
        "module = nnx.Module()\n"
        "for _ in range(3):\n"
        "    step(jnp.ones(2), module)\n",
        "flax.nnx.jit made 3 calls of __main__.step: a static argument is a Variable or a Module. Pass",
    ),
    "jax": (
        "import jax, jax.numpy as jnp\njax.jit(lambda x: x + 1)(jnp.ones(2))\n",
        "filterjit jitted no function in ",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_last_line_of_run(name: str, tmp_path: Path) -> None:
    text, expected = PROGRAMS[name]
    script = tmp_path / "program.py"
    script.write_text(text)
    done = processes.run("-m", "filterjit", "run", "--report", script, timeout=240)
    assert expected in done.stderr.splitlines()[-1]
