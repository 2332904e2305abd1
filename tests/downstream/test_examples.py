"""The programs in examples/ run as they are."""

import re
from pathlib import Path

import jax
import pytest

from support.processes import environment, run

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_packed_training() -> None:
    done = run(EXAMPLES / "packed_training.py", "50", timeout=300, env=environment())
    first, times, last = done.stdout.splitlines()
    assert first.startswith("145 arrays, in 2 buffers; loss ")
    assert re.fullmatch(r"\d+ us a step, packed \d+ us", times)
    assert last == "equal to the bit: True" or jax.__version_info__ < (0, 12)


def losses(*arguments: str | Path) -> list[str]:
    """Returns what a program prints, but for its speed."""
    done = run(*arguments, timeout=300, env=environment())
    return [line for line in done.stdout.splitlines() if not line.endswith(" a second")]


@pytest.mark.parametrize("name", ["digits", "transformer", "vae"])
def test_programs_of_flax_nnx(name: str) -> None:
    """The losses are those of ``flax.nnx.jit``, to the bit."""
    pytest.importorskip("flax.nnx")
    program = EXAMPLES / f"nnx_{name}.py"
    found = losses("-m", "filterjit", "run", program)
    assert sum("loss" in line for line in found) >= 3
    assert found == losses(program)
