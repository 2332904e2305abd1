"""What must be freed once nothing of a program refers to it."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

from .comparison import without


def collect() -> None:
    for _ in range(3):
        gc.collect()


def freed(make: Callable[..., list[weakref.ref[Any]]]) -> Callable[..., None]:
    """Makes a test of a function that returns weak references: after it has returned, they are
    dead."""

    def call(given: dict[str, Any]) -> None:
        watched = make(**given)
        collect()
        assert [found for w in watched if (found := w()) is not None] == []

    return without()(make, call)
