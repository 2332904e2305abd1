"""Fixtures of the tests of reports and explanations. `explain_support` is imported by its name."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import filterjit

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("explain_support")


@pytest.fixture
def timed() -> Iterator[None]:
    """Turns on the timing of calls during a test."""
    filterjit.switches.time_calls = True
    yield
    filterjit.switches.time_calls = False
