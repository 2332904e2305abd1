"""Some edits of saved programs; ``python tests/fuzz/long.py --edits 2000`` makes many."""

import json
import os
from pathlib import Path

import pytest

from support.processes import environment, run

SCRIPT = Path(__file__).with_name("fuzz_edits.py")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="each edit is loaded in a forked process")
@pytest.mark.parametrize("cache", [[], ["--cache"]], ids=["saved", "cached"])
@pytest.mark.parametrize("seed", [1, pytest.param(7, marks=pytest.mark.slow)])
def test_edits(seed: int, cache: list[str], tmp_path: Path) -> None:
    done = run(SCRIPT, str(seed), "8", tmp_path, *cache, timeout=300, env=environment())
    counts = json.loads(done.stdout.splitlines()[-1])
    assert counts["edits"] == 8 == counts.get("refused", 0) + counts.get("same", 0), done.stdout
    assert counts["refused"] > 0
