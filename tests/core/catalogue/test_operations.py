"""Each allocation of the core may fail (allocations.py makes each fail once), and nothing grows when what
the core does is repeated (leaks.py)."""

import re
from pathlib import Path

import pytest
from catalogue import ONLY_REPEATED, OPERATIONS, PLACES
from outcome_support import run_python

HERE = Path(__file__).parent
ONCE = [name for name in OPERATIONS if name not in ONLY_REPEATED]


def parts(count: int, ordinary: int) -> list[object]:
    """The numbers of the parts in which names are tried; those after the first are thorough."""
    return [
        *range(ordinary),
        *(pytest.param(i, marks=pytest.mark.thorough) for i in range(ordinary, count)),
    ]


@pytest.mark.usefixtures("testing")
@pytest.mark.parametrize("part", parts(6, 1))
def test_every_allocation_may_fail(part: int) -> None:
    """The last line of stderr names the allocation at which the process has crashed."""
    pytest.importorskip("_testcapi", reason="this interpreter has no _testcapi.set_nomemory")
    done = run_python(str(HERE / "allocations.py"), *ONCE[part::6], timeout=500)
    wrong = [line for line in done.stdout.splitlines() if not line.endswith("raised")]
    assert done.returncode == 0, "\n".join([*wrong, done.stderr[-2000:]])
    total = re.search(r"(\d+) allocations failed, (\d+) raised; 0 went wrong$", done.stdout)
    assert total is not None
    assert int(total[1]) > 100 and int(total[2]) > 0.8 * int(total[1])


@pytest.mark.usefixtures("testing")
@pytest.mark.parametrize("part", parts(4, 2))
def test_nothing_grows(part: int) -> None:
    done = run_python(str(HERE / "leaks.py"), *[*OPERATIONS, *PLACES][part::4])
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
