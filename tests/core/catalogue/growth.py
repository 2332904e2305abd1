"""What grows when a step is repeated: memory, or the references to an object."""

import gc
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

from catalogue import SHARED

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
