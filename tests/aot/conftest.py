"""Fixtures of the tests of what is compiled ahead of time; `aot_zoo` is found by its name."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest

sys.path.insert(0, str(Path(__file__).parent))


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


@pytest.fixture(scope="session")
def _listener() -> Iterator[Compiles]:
    compiles = Compiles()
    jax.monitoring.register_event_duration_secs_listener(compiles)
    yield compiles
    compiles.on = False


@pytest.fixture
def compiles(_listener: Compiles) -> Compiles:
    _listener.since()
    return _listener
