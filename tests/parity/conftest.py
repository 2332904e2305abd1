"""The two implementations under test."""

import gc
from collections.abc import Iterator

import equinox
import jax
import pytest

import filterjit
from support.comparison import Jit, Traces
from support.direct import also_few_arrays, direct  # noqa: F401

_IMPLEMENTATIONS = {"equinox": equinox.filter_jit, "filterjit": filterjit.filter_jit}


@pytest.fixture(params=list(_IMPLEMENTATIONS))
def jit(request: pytest.FixtureRequest) -> Jit:
    """``filter_jit`` of Equinox, then of filterjit."""
    return _IMPLEMENTATIONS[request.param]


@pytest.fixture
def ours(jit: Jit) -> bool:
    """Whether `jit` is filterjit's: for differences from Equinox that are decisions."""
    return jit is filterjit.filter_jit


@pytest.fixture
def traces() -> Traces:
    """Counts how often the functions of the test are traced."""
    return Traces()


@pytest.fixture(scope="module", autouse=True)
def _small_process() -> Iterator[None]:
    """Drops the programs that a module's tests compiled, of thousands in all."""
    yield
    jax.clear_caches()
    equinox.clear_caches()
    gc.collect()
