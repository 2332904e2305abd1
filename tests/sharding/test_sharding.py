"""Runs the tests of this folder, and the sessions of tests/test_pages.py that need several devices, in
processes where JAX has eight.

JAX reads how many devices the CPU has when it starts, so tests that need several cannot run in a
process where others have run before.
"""

import os
from pathlib import Path

import jax
import pytest

from support.processes import ROOT, environment, run

FILES = [
    *map(str, sorted(Path(__file__).parent.glob("eight_*.py"))),
    f"{ROOT}/tests/test_pages.py::test_a_session_with_devices",
]
FLAGS = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"


@pytest.mark.parametrize(
    "which", ["not slow and not thorough", pytest.param("slow or thorough", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("half", [0, 1])
def test_with_eight_devices(half: int, which: str) -> None:
    """Two processes run all files, so that two workers can share them."""
    variables = environment(XLA_FLAGS=FLAGS)
    variables = {k: v for k, v in variables.items() if not k.startswith("PYTEST_")}
    done = run(
        *("-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=short"),
        *("-m", which, *FILES[half::2]),
        timeout=1000,
        cwd=ROOT,
        env=variables,
    )
    assert " passed" in done.stdout
    # With the newest JAX, all run: none is skipped for want of devices.
    assert "skipped" not in done.stdout or jax.__version_info__ < (0, 12)
