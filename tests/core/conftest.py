"""Fixtures of the tests of the C core.  core_support.py loads the core without JAX."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# The support modules are imported by name.
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent / "hostile"))
sys.path.insert(0, str(Path(__file__).parent / "catalogue"))

import core_support


class _NotBuilt:
    """Stands for ``filterjit._testing`` where it is not built, as in a wheel: skips a test when the
    test first needs it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest asks for these when it collects tests
            raise AttributeError(name)
        pytest.skip("filterjit._testing is not built: FILTERJIT_TESTING=1 was not set")


# Tests import it from core_support after this.
if core_support.testing is None:
    core_support.testing = _NotBuilt()

_HERE = Path(__file__).parent


@pytest.fixture(scope="session", autouse=True)
def _without_jax(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails if the tests of the core have imported JAX, where no other tests run with them."""
    alone = all(item.path.is_relative_to(_HERE) for item in request.session.items)
    yield
    assert not alone or "jax" not in sys.modules


@pytest.fixture
def registry() -> Any:
    """A registry that has not met any type yet."""
    return core_support.make_registry()


@pytest.fixture(scope="session")
def testing() -> None:
    """Skips a test whose process needs ``filterjit._testing`` where it is not built."""
    if isinstance(core_support.testing, _NotBuilt):
        pytest.skip("filterjit._testing is not built: FILTERJIT_TESTING=1 was not set")


@pytest.fixture
def backend() -> Any:
    """A stand-in for JAX that a Direct calls: see direct_support.py."""
    from direct_support import Backend

    return Backend()
