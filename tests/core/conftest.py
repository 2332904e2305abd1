"""Fixtures of the tests of the C core: see core_support.py, which loads it without JAX."""

import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Support modules are imported by name.
sys.path[:0] = [str(Path(__file__).parent / folder) for folder in (".", "hostile")]

import core_support

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.filterwarnings("error"))


@pytest.fixture(scope="module", autouse=True)
def _frozen() -> Iterator[None]:
    """What was there before is no business of the many collections in here: ten times faster."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def registry() -> Any:
    """A registry that has not met any type yet."""
    return core_support.make_registry()


@pytest.fixture
def options(registry: Any) -> core_support.Options:
    return core_support.Options(registry)


@pytest.fixture(scope="session")
def testing() -> Any:
    """``filterjit._testing``, where it is built."""
    module = core_support.load_extension("_testing")
    if module is None:
        pytest.skip("filterjit._testing is not built: FILTERJIT_TESTING=1 was not set")
    return module
