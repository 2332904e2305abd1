from collections.abc import Iterator

import pytest

import filterjit


@pytest.fixture
def timed() -> Iterator[None]:
    filterjit.switches.time_calls = True
    yield
    filterjit.switches.time_calls = False
