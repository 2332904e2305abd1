"""Runs each scenario of scenarios.py in a process of its own, where nothing else allocates."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("scenarios.py")
NAMES = re.findall(r"^@scenario\ndef (\w+)", SCRIPT.read_text(), re.MULTILINE)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_grows(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-W", "error", str(SCRIPT), name],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
