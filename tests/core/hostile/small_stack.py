"""Uses deep trees, or calls within calls, on a thread with a small stack.

Usage: ``small_stack.py trees KIB DEPTH`` or ``small_stack.py calls KIB NAME``;
0 KiB stands for the main thread.
"""

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from core_support import (
    Box,
    Described,
    Hostile,
    Linear,
    Maybe,
    Slots,
    core,
    make_jit,
    make_registry,
    testing,
)
from hostile_support import ENDLESS, NESTS, nest, walks
from outcome_support import attempt

kept: list[Any] = []  # deep instances are deallocated recursively


def deep_trees(depth: int) -> Callable[[], None]:
    registry = make_registry()

    def prepare(name: str) -> tuple[Any, ...]:
        """What the main thread makes, and the thread with the small stack then uses."""
        tree = nest(NESTS[name][0], depth)
        found = attempt(core.tree_flatten, registry, tree, True, None)
        equal = attempt(core.tree_flatten, registry, tree, True, None)
        flat = attempt(core.flatten, registry, tree)
        f = make_jit(lambda x: x)
        attempt(f, tree)
        return name, tree, found, equal, flat, f

    def use(name: str, tree: Any, found: Any, equal: Any, flat: Any, f: Any) -> None:
        results = {key: attempt(call) for key, call in walks(registry, tree).items()}
        if not isinstance(found, Exception):
            leaves, structure = found
            results |= {
                "unflatten": attempt(structure.unflatten, leaves),
                "up to": attempt(structure._subtrees, tree),
                "parts": attempt(structure._skeleton, 0),
                "repr": attempt(repr, structure),
                "hash": attempt(hash, structure),
                "equal": attempt(lambda: structure == equal[1]),
                "paths of a Structure": attempt(lambda: structure.paths),
            }
        if not isinstance(flat, Exception):
            arrays, structure = flat
            results["match"] = attempt(testing.match, structure, tree)
            results["build"] = attempt(structure.unflatten, arrays)
        new = make_jit(lambda x: x)
        for i, g in enumerate((f, f, new, new)):
            results[f"call {i}"] = attempt(g, tree)
            results[f"static {i}"] = attempt(g, Linear(size=tree))
        kept.append((tree, new, results))
        for key, result in results.items():
            # The tree 1 is not as deep as these filters, which is an error too, as are no leaves.
            other = key in ("filters", "from_skeleton")
            errors = (RecursionError, ValueError) if other else RecursionError
            assert not isinstance(result, Exception) or isinstance(result, errors), (key, result)
        print(name)

    prepared = [prepare(name) for name in NESTS]
    kept.append(prepared)
    return lambda: [use(*each) for each in prepared] and None


def endless_calls(name: str) -> Callable[[], None]:
    f = make_jit(lambda x: 1)

    def static(**methods: Any) -> Any:
        return type("Static", (), methods)()

    scope = {cls.__name__: cls for cls in (Box, Described, Hostile, Maybe, Slots)}
    scope |= {"f": f, "static": static}
    make = scope["make"] = eval(f"lambda: {ENDLESS[name]}", scope)
    kept.append(make())

    def run() -> None:
        for _ in range(2):
            try:
                f(make())
                f(kept[0])
                f(kept[0])
            except RecursionError:
                print("too deep")
        print("ended")

    return run


def main() -> None:
    what, size, detail = sys.argv[1:]
    run = deep_trees(int(detail)) if what == "trees" else endless_calls(detail)
    if int(size) == 0:
        run()
    else:
        threading.stack_size(int(size) << 10)
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
