"""Each allocation of the core fails once: ``python allocations.py NAME``; all without a name.

Each scenario makes what it needs and returns a call and a check of its result. The call is made
with its first allocation failing, then with its second, until none is left to fail; each time it
must raise MemoryError or succeed, leave nothing behind, and be right the next time.

It is a program of its own: nothing else allocates in its process, and it may crash. CPython itself
leaks where an allocation fails in `list(tuple)`, for a closure's cell or for `*args`, loses an
exception where one fails for its text, and 3.12 crashes where one fails for a function. So the
little Python that runs here does without these.
"""

from __future__ import annotations

import _testcapi
import gc
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import allocations_calls
import allocations_trees
from allocations_support import SHARED, Make

# Trees first: more allocations fail in the calls after them.
SCENARIOS = {**allocations_trees.SCENARIOS, **allocations_calls.SCENARIOS}
MOST = 3000  # allocations in a scenario
PROBES = 200  # allocations after the call, of which one fails if none did in the call

# CPython remembers by which names types were asked for attributes.
forget_names = getattr(sys, "_clear_internal_caches", None) or sys._clear_type_cache
# What CPython says where it loses the exception that a Python function raises.
LOST = ("error return without exception set",)
# Two sets are compared by way of a list of a tuple, which CPython 3.11 leaks. 3.13 leaks the
# attributes of an instance that dies with its dict, if that has no memory for a copy of them.
LEAKED = {"match_sets", "hit_careful_sets"}
if sys.version_info >= (3, 13):
    LEAKED |= {"parts_slotted", "partition_slotted", "bound_methods"}
NAMES = ["blocks", *(f"references to {x!r}"[:60] for x in SHARED)]


def references() -> list[int]:
    return [sys.getrefcount(x) for x in SHARED]


def attempt(make: Make, n: int | None) -> tuple[bool, bool]:
    """Calls with the n-th allocation failing; whether it did, and whether that raised."""
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


def leaked(make: Make, n: int) -> list[str]:
    """What grows each time. What fills up once (free lists, say) does not."""
    growth: dict[str, int] = {}
    for times in (2, 4, 8, 8):
        forget_names()
        gc.collect()
        before = references()
        blocks = sys.getallocatedblocks()
        for _ in range(times):
            attempt(make, n)
        forget_names()
        gc.collect()
        blocks = sys.getallocatedblocks() - blocks
        changes = [blocks, *(b - a for a, b in zip(before, references(), strict=True))]
        growth = {k: by // times for k, by in zip(NAMES, changes, strict=True) if by >= times}
        if not growth:
            break
    return [f"{what} by {by}" for what, by in growth.items()]


def run(name: str) -> tuple[int, int, list[str]]:
    """How many allocations failed, how many of them raised, and what went wrong."""
    make = SCENARIOS[name]
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
                wrong += [f"{name}, allocation {n}: left {what}" for what in leaked(make, n)]
        except BaseException as e:
            if (n >= 0 and str(e) in LOST) or str(e).startswith("<function "):
                continue
            cause = f" from {e.__cause__!r}" if e.__cause__ else ""
            where = e.__traceback__
            while where is not None and where.tb_next is not None:
                where = where.tb_next
            line = where.tb_lineno if where else 0
            file = Path(where.tb_frame.f_code.co_filename).name if where else ""
            wrong.append(f"{name}, allocation {n}: {e!r}{cause}, {file}:{line}")
            if n < 0:
                return 0, 0, wrong
    return MOST, raises, [*wrong, f"{name}: more than {MOST} allocations"]


def main(names: list[str]) -> int:
    total = [0, 0, 0]
    for name in names or SCENARIOS:
        failed, raises, wrong = run(name)
        print(f"{name}: {failed} failed, {raises} raised", *wrong, sep="\n    ", flush=True)
        total = [total[0] + failed, total[1] + raises, total[2] + len(wrong)]
    print(f"{total[0]} allocations failed, {total[1]} raised; {total[2]} went wrong")
    return 1 if total[2] else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
