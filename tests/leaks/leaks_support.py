"""The registry of scenarios of leaks.py."""

from collections.abc import Callable
from typing import Any

Step = Callable[[], Any]
Make = Callable[[list[Any]], Step]
SCENARIOS: dict[str, Make] = {}


def scenario(make: Make) -> Make:
    """Registers a scenario.

    `make` returns a step, whose attribute `loops` may say how often to run it.  The objects that
    `make` adds to its argument are watched: their reference counts must not grow.
    """
    SCENARIOS[make.__name__] = make
    return make
