"""What all tests here need: ``downstream_support`` and ``parity``, and short compile times."""

import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
pytest.register_assert_rewrite("parity.support", "downstream_support")


@pytest.fixture(autouse=True, scope="package")
def _compile_quickly() -> Iterator[None]:
    """XLA's optimisations take most of the time, and are the same both ways."""
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
