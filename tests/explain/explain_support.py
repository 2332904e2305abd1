"""Helpers of the tests of reports and explanations."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import filterjit
from filterjit import filter_jit

X = jnp.ones(3)

# Versions of JAX before 0.7.1 tell neither the names of the programs that they compile nor when
# they begin.
tells_names = hasattr(jax.monitoring, "register_scalar_listener")
needs_names = pytest.mark.skipif(not tells_names, reason="this JAX does not name its programs")


def jitted(**options: Any) -> tuple[Any, list[None]]:
    """A function of two arguments, and a list that grows with each of its traces."""
    traces: list[None] = []

    @filter_jit(**options)
    def f(a: Any, b: Any = None) -> Any:
        traces.append(None)
        return a

    return f, traces


def row_of(f: Any) -> dict[str, Any]:
    """The row of a function in its report."""
    (row,) = f.report().as_dict()["functions"]
    return row


def build_seconds(row: dict[str, Any]) -> float:
    return row["tracing"] + row["lowering"] + row["compiling"]


def environment(**more: str) -> dict[str, str]:
    """The environment of a child process, without variables that force a terminal's behaviour."""
    forcing = ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "FILTERJIT_PROGRESS", "COLUMNS")
    package = str(Path(filterjit.__file__).parent.parent)
    inherited = {k: v for k, v in os.environ.items() if k not in forcing}
    return inherited | {"PYTHONPATH": package, "JAX_PLATFORMS": "cpu", "TERM": "xterm"} | more


def run_python(*args: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs Python with these arguments; the text of a program may be indented."""
    return subprocess.run(
        [sys.executable, *map(textwrap.dedent, args)],
        cwd=cwd,
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=240,
    )
