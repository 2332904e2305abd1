"""Child processes: Python code, scripts and modules, run to their end, started and watched, or run
on a terminal.

Each run has a time limit, and a run that ends with another status than expected fails the test
and shows what the process wrote.
"""

import contextlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import filterjit

from .terminals import terminal

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
CORE = TESTS / "core"
# Variables that make programs write colours or fit their output to a terminal.
_TERMINAL = ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "CLICOLOR_FORCE", "COLUMNS",
             "FILTERJIT_PROGRESS")  # fmt: skip


def environment(paths: Sequence[str | Path] = (), /, **variables: str) -> dict[str, str]:
    """Returns this process's environment for a child, which then imports the same filterjit, the
    modules in `paths` and this package; nothing in it asks for colours. `variables` are added."""
    package = Path(filterjit.__file__).parents[1]
    found = {k: v for k, v in os.environ.items() if k not in _TERMINAL}
    path = [*map(str, paths), str(package), str(TESTS), found.get("PYTHONPATH", "")]
    found["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    return found | {"PYTHONIOENCODING": "utf-8"} | variables


def run(
    *arguments: str | Path,
    timeout: float,
    status: int | None = 0,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    stdin: str | bytes | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs Python with `arguments` to its end, and returns its status and output.

    The process must end with `status`; None accepts any. Its standard input is `stdin`, or empty.
    """
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=environment() if env is None else env,
        input=stdin.encode() if isinstance(stdin, str) else stdin or b"",
        capture_output=True,
        timeout=timeout,
        check=False,
    )
    found = subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )
    if status is not None and found.returncode != status:
        raise AssertionError(
            f"the process ended with status {found.returncode}, not {status}\n"
            f"---- standard output ----\n{found.stdout[-20_000:]}\n"
            f"---- standard error ----\n{found.stderr[-20_000:]}"
        )
    return found


def run_code(
    code: str,
    *arguments: str | Path,
    options: Sequence[str] = (),
    timeout: float = 120,
    **more: Any,
) -> subprocess.CompletedProcess[str]:
    """Runs `code`, whose indentation is removed, with `options` of the interpreter: see `run`."""
    return run(*options, "-c", textwrap.dedent(code), *arguments, timeout=timeout, **more)


def run_on_terminal(
    *arguments: str | Path, timeout: float, cwd: Path | None = None, env: dict[str, str]
) -> tuple[int, str]:
    """Runs Python with `arguments` on a terminal. Returns the exit status and the output."""
    with terminal() as opened:
        done = subprocess.run(
            [sys.executable, *map(str, arguments)],
            cwd=cwd,
            env=env,
            stdin=opened.file,
            stdout=opened.file,
            stderr=opened.file,
            timeout=timeout,
            check=False,
        )
    return done.returncode, opened.text


@contextlib.contextmanager
def started(
    *arguments: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Starts Python with `arguments`, its output in pipes, and kills it when the block ends."""
    process = subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=environment() if env is None else env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    with process:
        try:
            yield process
        finally:
            process.kill()
