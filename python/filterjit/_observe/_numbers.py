"""A Python number that changes from call to call, which compiles again each time.

It is the retrace that people meet most: a step counter in a state, a learning rate. So it is told
without being asked, once a function, where many misses in a row differ in one number.
"""

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import _core
from .._base._later import later

if TYPE_CHECKING:
    from . import _compare
else:
    _compare = later("_observe._compare")

_MANY = 20  # misses in a row


class NumberWatch:
    """The latest misses of one function.

    Attributes:
        last: returns the variant of the last miss, or None.
        path: of the number in which it differs from the one before.
        seen: the values of the number at `path` in the misses in a row that differ in it alone.
        hits: the hits of the function at the last miss.
        has_told: whether a number was told.
    """

    def __init__(self) -> None:
        self.last: Callable[[], _core.Variant | None] = lambda: None
        self.path = ""
        self.seen: set[Any] = set()
        self.hits = 0
        self.has_told = False

    def before_trace(self, cache: _core.Cache, variant: _core.Variant) -> str | None:
        """Returns what to tell of a number, where the variant, which is about to be traced for the
        first time, is the last of many in a row that differ in it; else None."""
        last, hits, self.hits = self.last(), cache.hits - self.hits, cache.hits
        if self.has_told:
            return None
        self.last = weakref.ref(variant)
        found = None if last is None else _only_number(cache, last, variant)
        if found is None:
            self.path = ""
            return None
        path, was, now, remedy = found
        # A program that is used again has paid for its trace, and one of an earlier value was dropped.
        if path != self.path or hits > 1 or now in self.seen:
            self.path, self.seen = path, {was}
        self.seen.add(now)
        if len(self.seen) < _MANY:
            return None
        self.has_told = True
        name = cache.attributes.get("__qualname__") or "the function"
        return (
            f"`{name}` was compiled {len(self.seen)} times in a row for another value of `{path}`, a "
            f"Python {type(now).__name__}, which is static (now {now!r}, {was!r} before). {remedy}"
        )


def _only_number(
    cache: _core.Cache, was: _core.Variant, now: _core.Variant
) -> tuple[str, Any, Any, str] | None:
    """Returns the path and the two values of the number that is all in which two variants differ,
    and what helps; None if there is another difference."""
    registry, first_array = cache.hooks.registry, cache.function.num_leaves
    comparison = _compare.comparison_of(
        registry, was.structure, now.structure, first_array, cache=cache
    )
    if not len(comparison.causes) == len(comparison.numbers) == 1:
        return None
    return *comparison.numbers[0], comparison.causes[0].remedy
