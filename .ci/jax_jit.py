"""A plugin of pytest: ``jax.jit`` as `filterjit.jit` in the tests of JAX; see ``jax_tests``."""

import atexit
import functools
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import jax

import filterjit

REAL = jax.jit
MADE: list[Any] = []


@functools.wraps(REAL)
def jit(*args: Any, **options: Any) -> Any:
    caller = str(sys._getframe(1).f_globals.get("__name__"))
    if not (caller.endswith("_test") or caller == "__main__"):
        return REAL(*args, **options)
    made = filterjit.jit(*args, **options)
    if args:
        MADE.append((made.cache_info, made._hooks.handed_over))
    return made


jax.jit = jit


def pytest_terminal_summary(terminalreporter: Any) -> None:
    counts: dict[str, int] = {}
    for _, handed_over in MADE:
        for reason, count in handed_over.items():
            counts[reason] = counts.get(reason, 0) + count
    terminalreporter.write_line(f"calls of {len(MADE)} functions of filterjit.jit")
    for reason, count in sorted(counts.items()):
        terminalreporter.write_line(f"calls handed over: {reason}: {count}")


if __name__ == "__main__":  # runs the file of tests that is the first argument
    file = sys.argv[1]
    if any("worker_id" in argument for argument in sys.argv):
        del sys.argv[1]  # the first process starts the others with its own arguments
        atexit.register(pytest_terminal_summary, SimpleNamespace(write_line=print))
    module = sys.modules["__main__"] = ModuleType("__main__")
    module.__file__ = file
    with open(file, encoding="utf-8") as opened:
        exec(compile(opened.read(), file, "exec"), module.__dict__)
