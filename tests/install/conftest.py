"""Nothing is installed before a test, nor after it."""

from collections.abc import Iterator

import pytest

import filterjit


@pytest.fixture(autouse=True)
def not_installed() -> Iterator[None]:
    filterjit.uninstall()
    yield
    filterjit.uninstall()
