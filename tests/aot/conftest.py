"""Fixtures of the tests of ahead-of-time compilation; makes `aot_zoo` importable by its name."""

import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from aot_support import Compiles


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
