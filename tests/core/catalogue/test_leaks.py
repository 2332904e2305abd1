"""Nothing grows when what the core does is repeated: see leaks.py."""

from pathlib import Path

import pytest
from catalogue import OPERATIONS, PLACES
from process_support import run_python

NAMES = [*OPERATIONS, *PLACES]
PARTS = 4


@pytest.mark.usefixtures("testing")
@pytest.mark.parametrize(
    "part", [0, 1, *(pytest.param(i, marks=pytest.mark.thorough) for i in range(2, PARTS))]
)
def test_nothing_grows(part: int) -> None:
    done = run_python(str(Path(__file__).with_name("leaks.py")), *NAMES[part::PARTS])
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
