"""Runs the tests of this folder in processes where JAX has eight devices.

JAX reads how many devices the CPU has when it starts, so tests that need several cannot run in a
process where others have run before.
"""

import os
from pathlib import Path

import jax
import pytest

from support.processes import ROOT, environment, run

HERE = Path(__file__).parent
EIGHT = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"


FILES = sorted(HERE.glob("eight_*.py"))


def with_eight_devices(file: Path, which: str) -> None:
    variables = environment(XLA_FLAGS=EIGHT)
    variables = {k: v for k, v in variables.items() if not k.startswith("PYTEST_")}
    done = run(
        "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=short", "-m", which, file,
        timeout=500, cwd=ROOT, env=variables,
    )  # fmt: skip
    assert " passed" in done.stdout
    # With the newest JAX, all run: none is skipped for want of devices.
    assert "skipped" not in done.stdout or jax.__version_info__ < (0, 10)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_with_eight_devices(file: Path) -> None:
    with_eight_devices(file, "not slow and not thorough")


@pytest.mark.slow
@pytest.mark.parametrize(
    "file", [file for file in FILES if file.stem != "eight_programs"], ids=lambda file: file.stem
)
def test_other_cases_with_eight_devices(file: Path) -> None:
    with_eight_devices(file, "slow or thorough")
