"""Helpers of the tests of ahead-of-time compilation."""

import types
from typing import Any

import equinox as eqx

from filterjit._aot import _program_cache


class Compiles:
    """Counts the compilations of XLA; `since` returns the count and resets it."""

    def __init__(self) -> None:
        self.count = 0
        self.on = True

    def __call__(self, event: str, _: float, **__: Any) -> None:
        self.count += self.on and "backend_compile" in event

    def since(self) -> int:
        found, self.count = self.count, 0
        return found


def new_process() -> None:
    """Lets what follows count as another process for a program cache."""
    _program_cache._asked.clear()


def copied(f: Any) -> Any:
    """Returns another function with the same code, as a second run has one."""
    copy = types.FunctionType(f.__code__, f.__globals__, f.__name__, f.__defaults__, f.__closure__)
    copy.__qualname__, copy.__annotations__ = f.__qualname__, f.__annotations__
    return copy


def counts(f: Any) -> tuple[int, int]:
    """Returns how often a jitted function was traced, and how many programs of it were loaded."""
    (row,) = f.report().as_dict()["functions"]
    return row["traces"], row["loaded"]


def same(x: Any, y: Any) -> bool:
    return bool(eqx.tree_equal(x, y))
