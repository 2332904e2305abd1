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


def row_with(variants: list[dict[str, Any]], **figures: Any) -> dict[str, Any]:
    return function(hits=200_000, dispatch=4.0, variants=variants, **figures)


LITTLE = function(dispatch=0.1)
FAST = function(hits=1000, dispatch=0.002)
LOST = function("m.g", traces=3, compiling=9.0, again=2.0)
OF_MANY_ARRAYS = [
    {"hits": 3, "dispatch": 0.1, "arrays": ["float32[3]"]},
    {"hits": 9, "dispatch": 0.1, "arrays": ["float32[3]"] * 40},
]
WAITED = [{"hits": 3, "dispatch": None, "arrays": []}, {"hits": 2, "dispatch": 0.1}]
HANDED = function(
    calls=0, handed_over={"a static attribute is a tracer": 7, "other": 2}, decorator="nnx.jit"
)
SAID_OF_HANDED = (
    "flax.nnx.jit made 9 calls of m.f: a static attribute is a tracer. Make it a Variable."
)
TOLD = "the explanations above tell why"

# The functions of the report, the seconds of the run, more arguments, and what is said.
ADVICE: list[tuple[list[dict[str, Any]], float, tuple[str, ...], str]] = [
    ([], 10.0, ("",), "No jitted function was called in 10.00 s."),
    ([function(calls=0)], 10.0, ("",), "No jitted function was called in 10.00 s."),
    ([FAST, FAST], 0.5, ("",),
        "Dispatch of 2,000 hits took 4.0 ms, 0.8% of the 500.0 ms of the run. There is little more"),
    ([FAST], 1e-9, ("",), "100% of the 0.0 ms"),
    ([function(dispatch=None)], 0.0, ("",), "took 0.0 ms, 0.0% of"),
    # Hits that waited are not counted.
    ([function(hits=5, dispatch=0.1, variants=WAITED)], 10.0, ("",),
        "Dispatch of 2 hits took 100.0 ms, 1.0% of"),
    ([LITTLE], 10.0, ("install()",), "`filterjit.install()` in the program keeps it so without"),
    ([LITTLE], 10.0, ("install(jax=True)",), "`filterjit.install(jax=True)` in the program"),
    # 2 s for the first trace of each are needed.
    ([function(compiling=2.0), function("m.g", compiling=9.0)], 10.0, ("",), "little more to gain"),
    ([function(compiling=2.0), LOST], 10.0, ("install()",),
        "Retraces took 2.00 s: m.g was traced 3 times; `run --explain` tells why."),
    ([LOST], 10.0, ("", TOLD), f"m.g was traced 3 times; {TOLD}."),
    ([function(traces=50, compiling=9.0, again=2.0, cause="m.f was traced for `lr`.")], 10.0, ("",),
        "Retraces took 2.00 s: m.f was traced 50 times; the cause stands above."),
    ([function(traces=1, compiles=2, compiling=4.0, again=2.0, unplaced=["model.w"])], 10.0, ("",),
        "Compiling again took 2.00 s: m.f was compiled 2 times, since some calls passed arrays "
        "that were not placed on devices. Place them the same way on every call, what stays the "
        "same once: `filterjit.place(...)`."),
    # More time than retraces take.
    ([function(traces=3, compiling=3.0, again=2.0, hits=100_000, dispatch=5.0)], 10.0, ("",),
        "Most is of m.f, 50.0 us a hit: do more in one call, with jax.lax.scan for example."),
    ([function(hits=1, dispatch=1.0), row_with(OF_MANY_ARRAYS)], 10.0, ("",),
        "Most is of m.f, 20.0 us a hit with 40 arrays: give those that are the same in every "
        "call once, with `freeze` or `partial`."),
    # `nnx.jit` is not told to freeze.
    ([row_with(OF_MANY_ARRAYS, decorator="nnx.jit")], 10.0, ("",),
        "20.0 us a hit: do more in one call, with jax.lax.scan for example."),
    ([HANDED], 10.0, ("",), SAID_OF_HANDED),
    ([function(hits=3, dispatch=0.1), HANDED], 10.0, ("",), f"of the run. {SAID_OF_HANDED}"),
    ([LOST, HANDED], 10.0, ("",), f"m.g was traced 3 times; `run --explain` tells why. {SAID_OF_HANDED}"),
]  # fmt: skip


@pytest.mark.parametrize(("functions", "seconds", "more", "expected"), ADVICE)
def test_what_is_said(
    functions: list[dict[str, Any]], seconds: float, more: tuple[str, ...], expected: str
) -> None:
    text = advise({"functions": functions, "others": None}, seconds, *more)
    assert expected in text and "\n" not in text


def test_a_program_of_jax_jit_alone() -> None:
    report: dict[str, Any] = {"functions": [], "others": {"compiles": 12}}
    assert advise(report, 2.0, "") == (
        "filterjit jitted no function in 2.00 s: JAX compiled 12 programs of functions and single "
        "operations that `run` leaves as they are."
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
