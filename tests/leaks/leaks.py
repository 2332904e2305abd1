"""Runs scenarios that must not leak: ``python leaks.py [NAME ...]``.

Each scenario makes a step, which runs some thousand times.  Before and after, references are
counted where Python counts them (``--with-pydebug``), and objects, bytes, and the reference
counts of objects that every step touches.
"""

import gc
import itertools
import sys
import tracemalloc
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "core"))

import leaks_calls  # noqa: F401, registers its scenarios
import leaks_direct  # noqa: F401
import leaks_trees  # noqa: F401
from leaks_support import SCENARIOS, Step


def measure(watched: list[Any]) -> dict[str, int]:
    for _ in range(3):
        gc.collect()
    found = {"bytes": tracemalloc.get_traced_memory()[0], "objects": len(gc.get_objects())}
    if hasattr(sys, "gettotalrefcount"):
        found["references"] = sys.gettotalrefcount()
    for i, x in enumerate(watched):
        found[f"references to watched[{i}], {type(x).__name__}"] = sys.getrefcount(x)
    return found


def run(name: str) -> list[str]:
    """Returns a line for each count that grew."""
    watched: list[Any] = []
    step = SCENARIOS[name](watched)
    loops = getattr(step, "loops", 1500) // 2
    grown = grow(name, step, watched, loops)
    # Free lists, which fill slowly, are full after the first run. A leak continues to grow.
    return grown and grow(name, step, watched, loops * 4)


def grow(name: str, step: Step, watched: list[Any], loops: int) -> list[str]:
    # One leak a step is `loops` objects, or their size in bytes.
    limits = {"bytes": max(loops * 16, 4096), "objects": loops // 2, "references": loops // 2}
    tracemalloc.start()
    try:
        counts = [measure(watched)]
        # Free lists and caches fill once, so they do not grow in each round.
        for _ in range(5):
            for _ in range(loops):
                step()
            counts.append(measure(watched))
    finally:
        tracemalloc.stop()
    found = []
    for what in counts[0]:
        values = [count[what] for count in counts[1:]]
        grown = min(b - a for a, b in itertools.pairwise(values))
        if grown >= limits.get(what, loops // 2):
            found.append(f"{name}: {what}, each {loops} steps: {values}")
    return found


def main(names: list[str]) -> int:
    grown = [line for name in names or SCENARIOS for line in run(name)]
    print("\n".join(grown) or "nothing grew")
    return 1 if grown else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
