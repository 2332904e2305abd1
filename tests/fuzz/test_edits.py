"""Some edits of programs in a program cache; ``python tests/fuzz/long.py --edits 2000`` makes many."""

import json
import os
from pathlib import Path

import pytest

from support.processes import environment, run

SCRIPT = Path(__file__).with_name("fuzz_edits.py")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="each program is started in a forked process")
@pytest.mark.parametrize("seed", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_edits(seed: int, tmp_path: Path) -> None:
    done = run(SCRIPT, str(seed), "20", tmp_path, timeout=300, env=environment())
    counts = json.loads(done.stdout.splitlines()[-1])
    assert sum(counts.values()) == 20, done.stdout
    assert counts["right"] > 0 and counts["loud"] > 0, done.stdout
