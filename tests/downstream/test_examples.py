"""The programs in examples/ run as they are."""

import re
from pathlib import Path

import jax

from support.processes import environment, run

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_packed_training() -> None:
    done = run(EXAMPLES / "packed_training.py", "50", timeout=300, env=environment())
    first, times, last = done.stdout.splitlines()
    assert first.startswith("145 arrays, in 2 buffers; loss ")
    assert re.fullmatch(r"\d+ us a step, packed \d+ us", times)
    assert last == "equal to the bit: True" or jax.__version_info__ < (0, 12)
