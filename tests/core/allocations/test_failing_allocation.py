"""Each allocation of the core fails once: see allocations.py, which does it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("_testcapi", reason="this interpreter has no _testcapi.set_nomemory")

SCRIPT = Path(__file__).with_name("allocations.py")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-W", "error", str(SCRIPT), *arguments],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        env={**os.environ, "PYTHONUTF8": "1"},
    )


def test_every_allocation_may_fail() -> None:
    """In one process: the last line of its stderr says where one that crashes was."""
    done = run()
    wrong = [line for line in done.stdout.splitlines() if not line.endswith("raised")]
    assert done.returncode == 0, "\n".join([*wrong, done.stderr[-2000:]])
    total = re.search(r"(\d+) allocations failed, (\d+) raised; 0 went wrong$", done.stdout)
    assert total is not None
    assert int(total[1]) > 5000 and int(total[2]) > 0.9 * int(total[1])
