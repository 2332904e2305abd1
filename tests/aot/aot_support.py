"""What the tests of what is compiled ahead of time share."""

from typing import Any


class Compiles:
    """Counts what XLA compiles: `since` starts anew."""

    def __init__(self) -> None:
        self.count = 0
        self.on = True

    def __call__(self, event: str, _: float, **__: Any) -> None:
        self.count += self.on and "backend_compile" in event

    def since(self) -> int:
        found, self.count = self.count, 0
        return found
