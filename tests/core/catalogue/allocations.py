"""Makes each allocation of each operation fail once: ``python allocations.py [NAME ...]``.

The call of an operation is made with its first allocation failing, then with its second, until
none is left to fail. Each time it must raise MemoryError or succeed, leak nothing, and return the
right result the next time.

The operations run in a process of their own, where nothing else allocates and which may crash.
"""

from __future__ import annotations

import _testcapi
import gc
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

from catalogue import ONLY_REPEATED, OPERATIONS
from core_support import core
from leaks import growth
from operations import Operation

MOST = 3000  # allocations in an operation
PROBES = 200  # allocations after the call, of which one fails if none did in the call

# The error of CPython where it loses the exception that a Python function raises.
LOST = "error return without exception set", "returned NULL without setting an exception"
# Operations at which CPython itself leaks, where an allocation fails: the attributes of an instance
# that dies with its dict. Before 3.13, `list(tuple)` and closures leak too, so nothing is counted.
LEAKED = {
    *("parts_descriptor_module", "partition_descriptor_module", "bound_methods"),
    *("parts_Described", "partition_Described"),
}
if sys.version_info < (3, 13) or not core.reads_instance_values:
    LEAKED = set(OPERATIONS)


def attempt(make: Callable[[], Operation], n: int | None) -> tuple[bool, bool]:
    """Calls with the n-th allocation failing.  Returns whether it failed, and whether the call
    raised."""
    call, check = make()
    failed, probes = False, []
    gc.disable()
    if n is not None:
        _testcapi.set_nomemory(n, n + 1)
    try:
        found = call()
    except MemoryError:
        failed = True
    finally:
        if n is not None and not failed:
            try:
                for _ in range(PROBES):
                    probes.append(object())
            except MemoryError:
                pass
        _testcapi.remove_mem_hooks()
        gc.enable()
    if not failed:
        check(found)
    check(call())
    return failed or len(probes) == PROBES, failed


def run(name: str) -> tuple[int, int, list[str]]:
    """Returns how many allocations failed, how many of them raised, and what went wrong."""
    make = OPERATIONS[name]
    raises, wrong = 0, []
    gc.collect()
    gc.freeze()
    for n in range(-2, MOST):
        print(name, n, file=sys.stderr, flush=True)
        try:
            if n < 0:
                attempt(make, None)
                continue
            failed, did_raise = attempt(make, n)
            if not failed:
                return n, raises, wrong
            raises += did_raise
            if name not in LEAKED:
                wrong += [
                    f"{name}, allocation {n}: left {what}"
                    for what in growth(lambda n=n: attempt(make, n))
                ]
        except BaseException as e:
            if n >= 0 and str(e).endswith(LOST):
                continue
            cause = f" from {e.__cause__!r}" if e.__cause__ else ""
            (*_, where) = traceback.extract_tb(e.__traceback__)
            wrong.append(f"{name}, allocation {n}: {e!r}{cause}, {where.filename}:{where.lineno}")
            if n < 0:
                return 0, 0, wrong
    return MOST, raises, [*wrong, f"{name}: more than {MOST} allocations"]


def main(names: list[str]) -> int:
    # Whether CPython leaks the attributes of an instance depends on those that there were before.
    for make in OPERATIONS.values():
        attempt(make, None)
    total = [0, 0, 0]
    for name in names or [name for name in OPERATIONS if name not in ONLY_REPEATED]:
        failed, raises, wrong = run(name)
        print(f"{name}: {failed} failed, {raises} raised", *wrong, sep="\n    ", flush=True)
        total = [total[0] + failed, total[1] + raises, total[2] + len(wrong)]
    print(f"{total[0]} allocations failed, {total[1]} raised; {total[2]} went wrong")
    return 1 if total[2] else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
