"""Each allocation of the core may fail: allocations.py makes each fail once."""

import re
from pathlib import Path

import pytest
from catalogue import ONLY_REPEATED, OPERATIONS
from process_support import run_python

pytest.importorskip("_testcapi", reason="this interpreter has no _testcapi.set_nomemory")

SCRIPT = Path(__file__).with_name("allocations.py")
NAMES = [name for name in OPERATIONS if name not in ONLY_REPEATED]
PARTS = 6


@pytest.mark.usefixtures("testing")
@pytest.mark.parametrize(
    "part", [0, *(pytest.param(i, marks=pytest.mark.thorough) for i in range(1, PARTS))]
)
def test_every_allocation_may_fail(part: int) -> None:
    """The last line of stderr names the allocation at which the process has crashed."""
    done = run_python(str(SCRIPT), *NAMES[part::PARTS], timeout=500)
    wrong = [line for line in done.stdout.splitlines() if not line.endswith("raised")]
    assert done.returncode == 0, "\n".join([*wrong, done.stderr[-2000:]])
    total = re.search(r"(\d+) allocations failed, (\d+) raised; 0 went wrong$", done.stdout)
    assert total is not None
    assert int(total[1]) > 100 and int(total[2]) > 0.8 * int(total[1])
