"""Runs the tests of this folder in processes where JAX has eight devices.

JAX reads how many devices the CPU has when it starts, so tests that need several cannot run in a
process where others have run before.
"""

import os
from pathlib import Path

import jax
import pytest

from filterjit._shardings._sharded_call import ANY_TRACE
from support.processes import ROOT, environment, run

HERE = Path(__file__).parent
EIGHT = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"


@pytest.mark.parametrize("files", ["eight_[!n]*.py", "eight_nnx.py"])
def test_with_eight_devices(files: str, request: pytest.FixtureRequest) -> None:
    variables = environment(XLA_FLAGS=EIGHT)
    variables = {k: v for k, v in variables.items() if not k.startswith("PYTEST_")}
    done = run(
        "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=short",
        "-m", request.config.getoption("-m"), *sorted(HERE.glob(files)),
        timeout=500, cwd=ROOT, env=variables,
    )  # fmt: skip
    assert " passed" in done.stdout
    # With the newest JAX, all run: none is skipped for want of devices.
    assert "skipped" not in done.stdout or jax.__version_info__ < (0, 10)


def test_a_trace_that_equals_all() -> None:
    for trace in (0, 7, -1, 2**70):
        assert trace == ANY_TRACE and not trace != ANY_TRACE  # noqa: SIM202
    for no_trace in ("0", -2.0 + 1, None):
        assert no_trace != ANY_TRACE and not no_trace == ANY_TRACE  # noqa: SIM201
