"""The model of a function's cache: which variants it must hold."""

from __future__ import annotations

import inspect
from typing import Any

from fuzz_figures import figures
from fuzz_oracle import may_change, static_key, statics


class Variant:
    """The model of a variant."""

    def __init__(self, key: Any, tree: Any, structure: bool) -> None:
        self.key = key
        self.structure = structure
        # Its own static values, which its next trace would use: once they change, it is not valid.
        changing = [x for x in statics(tree) if may_change(x)]
        self.own = [(x, static_key(x, structure)) for x in changing]
        self.traces: dict[Any, set[int]] = {}

    def is_valid(self) -> bool:
        return all(static_key(x, self.structure) == key for x, key in self.own)


class CacheModel:
    def __init__(self, maxsize: int) -> None:
        self.maxsize = maxsize
        self.variants: list[Variant] = []  # the least recently used first

    def touch(self, variant: Variant) -> None:
        if variant in self.variants:
            self.variants.remove(variant)
            self.variants.append(variant)

    def add(self, variant: Variant) -> None:
        self.variants.append(variant)
        figures.variants += 1
        while len(self.variants) > self.maxsize:
            self.variants.pop(0)
            figures.evictions += 1

    def clear(self) -> None:
        self.variants.clear()


class Target:
    """A function under test: as it is, jitted, and the model of its cache.

    `last` is the variant that the wrapper predicts for the next call.
    """

    def __init__(self, fun: Any, f: Any, cache: CacheModel, structure: bool, own: Any = ()) -> None:
        self.fun, self.f, self.cache, self.structure = fun, f, cache, structure
        self.own = own  # the arrays of the function itself
        self.signature = inspect.signature(fun)
        self.last: Variant | None = None
        self.donates = False

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        bound = self.signature.bind(*args, **kwargs).arguments
        return {name: x for name, x in bound.items() if name != "rest" or len(x) > 0}
