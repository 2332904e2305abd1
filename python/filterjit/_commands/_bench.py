"""``python -m filterjit bench``: the benchmarks of the source checkout."""

import argparse
import importlib.util
import os
import sys
from pathlib import Path

from .._base._package import PACKAGE

_PACKAGE = Path(PACKAGE).resolve()
_SCRIPT = _PACKAGE.parents[1] / "benchmarks" / "dispatch.py"


def run(options: argparse.Namespace) -> int:
    """Replaces this process by the benchmark, or returns 2 if it cannot start."""
    problem = None
    if not _SCRIPT.is_file():
        problem = f"needs a source checkout: there is no {_SCRIPT}"
    elif missing := [
        name
        for name in ("equinox", "optax", *(("matplotlib",) if options.plot else ()))
        if importlib.util.find_spec(name) is None
    ]:
        problem = f"missing {', '.join(missing)}: pip install {' '.join(missing)}"
    if problem is not None:
        print(f"bench: {problem}", file=sys.stderr)
        return 2

    arguments = ["--quick"] if options.quick else []
    if options.plot:
        arguments += ["--plot", options.plot]
    # The benchmark has to time this copy of the package.
    path = os.pathsep.join(filter(None, (str(_PACKAGE.parent), os.environ.get("PYTHONPATH"))))
    sys.stdout.flush()
    os.execve(
        sys.executable,
        [sys.executable, str(_SCRIPT), *arguments],
        {**os.environ, "PYTHONPATH": path},
    )
