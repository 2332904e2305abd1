"""Helpers of the tests of ahead-of-time compilation."""

from typing import Any


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
