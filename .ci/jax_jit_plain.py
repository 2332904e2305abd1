"""A plugin of pytest: ``jax.jit`` as `filterjit.jit` in the tests of JAX; see ``jax_tests``."""

import functools
import sys
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
