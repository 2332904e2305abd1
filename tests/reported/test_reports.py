"""What people asked of reports: each row has a program, or the figures of one, and what is said."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import filterjit
from filterjit import filter_jit
from filterjit._call import _direct
from filterjit._observe._report_output import Report, advise
from support.processes import run

has_direct_calls = pytest.mark.skipif(
    _direct._context is None, reason="JAX lacks the names that direct calls need"
)


@pytest.fixture(autouse=True)
def timed() -> Iterator[None]:
    filterjit.switches.time_calls = True
    yield
    filterjit.switches.time_calls = False


def row_of(f: Any) -> dict[str, Any]:
    (row,) = f.report().as_dict()["functions"]
    return row


def svd(x: jax.Array) -> jax.Array:
    return jnp.linalg.svd(x)[1]


def checked(x: jax.Array) -> jax.Array:
    def check(y: np.ndarray) -> np.ndarray:
        return y

    return jax.pure_callback(check, x, x)


@has_direct_calls
def test_the_program_is_not_dispatch() -> None:
    f, x = filter_jit(svd), jnp.ones((120, 120))
    for _ in range(40):
        jax.block_until_ready(f(x))
    row = row_of(f)
    assert row["program"] > 0 and row["waiting"] == 0
    assert {"dispatch", "program"} <= set(str(f.report()).split()) and "waiting" not in str(
        f.report()
    )
    filterjit.switches.time_calls = False
    f(x)
    assert row_of(f)["program"] == row["program"]


def test_waiting_is_not_dispatch() -> None:
    f, x = filter_jit(checked), jnp.ones(3)
    for _ in range(3):
        f(x)
    row = row_of(f)
    assert row["waiting"] > 0 and row["dispatch"] is row["program"] is None
    assert "waiting" in str(f.report())


def test_a_program_that_only_jax_jit_runs_is_part_of_dispatch() -> None:
    f, x = filter_jit(lambda x: svd(x)), jnp.ones((10, 10))
    for _ in range(5):  # none of them is direct
        f(x)
    assert row_of(f)["program"] is None and row_of(f)["dispatch"] > 0


def loop(steps: int, **figures: Any) -> dict[str, Any]:
    """The figures of a loop, each of whose steps needs 10 us of dispatch and 30 us in the program."""
    row = {
        "name": "train.step",
        "decorator": "filter_jit",
        "calls": steps,
        "hits": steps,
        "traces": 1,
    }
    row |= {"functions": 1, "tracing": 0.5, "compiling": 4.0, "cause": None, "waiting": 0.0}
    return row | {"dispatch": 10e-6 * steps, "program": 30e-6 * steps} | figures


def said(*functions: dict[str, Any], since_first: float, jax: bool = False, **others: int) -> str:
    report = Report(list(functions), True, {"tracing": 0.0, "compiling": 0.0} | others)
    return advise(report, since_first, explained=False, jax=jax)


SAID: dict[str, tuple[str, list[str]]] = {
    # The loop takes 50 us a step; before it, it is compiled for 4.5 s.
    **{
        f"{n} steps": (
            said(loop(n), since_first=4.5 + 50e-6 * n),
            ["20.0% of the time", "train.step, 10.0 us a hit: do more"],
        )
        for n in (400, 20_000)
    },
    "a long program": (said(loop(400, program=4.0), since_first=9.0), ["0.1% of the time"]),
    "a program of a device": (said(loop(400), since_first=9.0), ["0.1% of the time"]),
    "jax.jit, not replaced": (said(since_first=0.0, compiles=3), ["of `jax.jit`, pass `--jax`."]),
    "nothing to replace": (said(since_first=0.0, compiles=3, jax=True), ["No jitted function"]),
}


@pytest.mark.parametrize("name", SAID)
def test_what_is_said_of_dispatch(name: str) -> None:
    text, parts = SAID[name]
    assert all(part in text for part in parts), text
    assert ("pass `--jax`" in text) == (name == "jax.jit, not replaced")


@pytest.mark.parametrize(
    ("options", "words"), [((), "pass `--jax`"), (("--jax",), "Dispatch of 4 hits")]
)
def test_a_program_of_jax_alone(options: tuple[str, ...], words: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import jax\nf = jax.jit(lambda x: x + 1)\nfor i in range(5): f(1.0)\n"
    )
    done = run(
        "-m", "filterjit", "run", *options, "--report", "train.py", cwd=tmp_path, timeout=120
    )
    assert words in done.stderr


@has_direct_calls
def test_advice_on_arrays_of_numpy_says_which() -> None:
    f = filter_jit(lambda *xs: sum(xs))
    for _ in range(150):
        f(*map(np.float32, range(8)))
    (text,) = {*row_of(f)["passed_on"]} - {"such calls had not been made often enough"}
    assert "make those that never change JAX arrays, once" in text
