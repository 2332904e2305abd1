"""Runs Python in another process, which can import the support modules of tests/core."""

import os
import subprocess
import sys
from pathlib import Path

_HERE = str(Path(__file__).parent)


def run_python(*arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """Runs the interpreter with these arguments, such as a script or ``-c`` and code."""
    path = os.environ.get("PYTHONPATH")
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-W", "error", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": _HERE if path is None else _HERE + os.pathsep + path,
            "PYTHONUTF8": "1",
        },
    )


def output_of(*arguments: str) -> str:
    """What the interpreter prints.  Fails if its exit status is not 0."""
    done = run_python(*arguments)
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout}{done.stderr[-2000:]}"
    return done.stdout
