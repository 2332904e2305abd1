"""Repeats each operation, and calls in which each place raises or answers nonsense: nothing may
grow, neither memory nor the references to an object. ``python leaks.py [NAME ...]``
"""

from __future__ import annotations

import gc
import itertools
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

from actions import ACTIONS
from catalogue import OPERATIONS, PLACES, SHARED
from places import make_world

Step = Callable[[], Any]
ADDS = {"variants"}  # a trace to its variant, each time
WRONG = ("raises", "gives None", "gives a number", "gives tuples of tuples", "gives an object")
# Places in a `__hash__`: CPython leaks what it returns in the place of an int.
HASHES = {
    "comparing_descriptions", "hash in a static", "hash in aux data", "instance_of_a_bound_method",
}  # fmt: skip


# CPython caches the names by which attributes of types were looked up.
_forget_names = getattr(sys, "_clear_internal_caches", None) or sys._clear_type_cache
_OBJECT = 16  # bytes, of the smallest
_NAMES = ["memory", *(f"references to {x!r}"[:60] for x in SHARED)]


def _counts() -> list[int]:
    """The blocks that are allocated, or the bytes where tracemalloc is on, and references.

    There are many more blocks than references to one of the objects, so they are counted first."""
    _forget_names()
    gc.collect()
    traced = tracemalloc.is_tracing()
    memory = tracemalloc.get_traced_memory()[0] if traced else sys.getallocatedblocks()
    return [memory, *map(sys.getrefcount, SHARED)]


def growth(step: Callable[[], Any], rounds: tuple[int, ...] = (2, 4, 8, 16, 16, 16)) -> list[str]:
    """Names what grows by one object a step, or more, in each round.

    Free lists and the like, which fill up once, do not count, nor do the counts themselves, some 150
    bytes a round."""
    grown: dict[str, int] = {}
    for times in rounds:
        before = _counts()
        for _ in range(times):
            step()
        changes = [b - a for a, b in zip(before, _counts(), strict=True)]
        grown = {
            name: by // times
            for name, by in zip(_NAMES, changes, strict=True)
            if by >= times * (_OBJECT if name == "memory" and tracemalloc.is_tracing() else 1)
        }
        if not grown:
            break
    return [f"{what} by {by}" for what, by in grown.items()]


def steps_of_operations(names: list[str]) -> Iterator[tuple[str, Step]]:
    for name in names:
        make = OPERATIONS[name]

        def anew(make: Any = make) -> None:
            """Objects that are made anew show what one call leaves behind."""
            call, check = make()
            for _ in range(3):
                check(call())

        yield name, anew
        if name not in ADDS:
            call, check = make()
            # Kept objects show what each call adds to them.
            yield f"{name}, again", lambda call=call, check=check: check(call())


def steps_of_places(names: list[str]) -> Iterator[tuple[str, Step]]:
    for name, action in itertools.product(names, WRONG):
        if action == "raises" or name not in HASHES:

            def fails(name: str = name, action: str = action) -> None:
                w = make_world(name, ACTIONS[action], phase="again")
                try:
                    w.call()
                except Exception:
                    pass
                w.armed = False

            yield f"{name} {action}", fails


def main(names: list[str]) -> int:
    gc.collect()
    gc.freeze()
    tracemalloc.start()
    sys.unraisablehook = lambda details: None
    count, grown = 0, 0
    operations, places = (
        [name for name in all if not names or name in names] for all in (OPERATIONS, PLACES)
    )
    for name, step in itertools.chain(steps_of_operations(operations), steps_of_places(places)):
        count += 1
        # What was imported and cached at the first call would hide what grows.
        step()
        if found := growth(step):
            grown += 1
            print(f"{name}: grows {', '.join(found)}", flush=True)
    print(f"{count} steps were repeated; {grown} grew")
    return 1 if grown else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
