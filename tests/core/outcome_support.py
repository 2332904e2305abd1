"""Functions that fail, what a call returns or raises, threads, and Python in another process."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any


def nothing() -> None:
    pass


def fail(*args: Any) -> Any:
    raise ZeroDivisionError("on purpose")


class Interrupt(BaseException):
    """As KeyboardInterrupt, it must not be swallowed."""


def interrupt(*args: Any) -> Any:
    raise Interrupt


def attempt(call: Callable[..., Any], *args: Any) -> Any:
    """Returns what the call returns, or the exception that it raises.  A SystemError is raised."""
    try:
        return call(*args)
    except SystemError:
        raise
    except Exception as e:
        return e


def raised(error: Any, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Returns the exception of the type `error` that the call raises, without its traceback.

    There may be several types."""
    try:
        call(*args, **kwargs)
    except error as e:
        return e.with_traceback(None)
    raise AssertionError(f"{call} did not raise {error}")


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


THREADS = 4


def in_threads(work: Callable[[int], Any], count: int = THREADS) -> None:
    """Calls `work` with each number in a thread of its own, all at once.  None may fail."""
    errors: list[BaseException] = []
    start = threading.Barrier(count)

    def run(number: int) -> None:
        try:
            start.wait(60)
            work(number)
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    assert errors == []
