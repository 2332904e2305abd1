"""Repeats each operation, and calls in which each place raises or answers nonsense: nothing may
grow. ``python leaks.py [NAME ...]``
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
from catalogue import OPERATIONS, PLACES
from growth import growth
from places import make_world

Step = Callable[[], Any]
ADDS = {"variants"}  # a trace to its variant, each time
WRONG = ("raises", "gives None", "gives a number", "gives tuples of tuples", "gives an object")
# Places in a `__hash__`: CPython leaks what it returns in the place of an int.
HASHES = {
    "comparing_descriptions",
    "hash_of_a_static",
    "hash_of_aux",
    "instance_of_a_bound_method",
}


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
