"""The two implementations under test."""

import gc
from collections.abc import Iterator

import equinox
import jax
import pytest

import filterjit
from support.comparison import Jit

_IMPLEMENTATIONS = {"equinox": equinox.filter_jit, "filterjit": filterjit.filter_jit}


@pytest.fixture(params=list(_IMPLEMENTATIONS))
def jit(request: pytest.FixtureRequest) -> Jit:
    """``filter_jit``, Equinox's or ours."""
    return _IMPLEMENTATIONS[request.param]


@pytest.fixture
def ours(jit: Jit) -> bool:
    """Whether `jit` is ours: for the differences that are decisions."""
    return jit is filterjit.filter_jit


@pytest.fixture(scope="module", autouse=True)
def _small_process() -> Iterator[None]:
    """Thousands of programs are compiled here: those of one module do not burden the next, nor
    what is imported the garbage collections that tests ask for."""
    gc.collect()
    gc.freeze()
    yield
    jax.clear_caches()
    equinox.clear_caches()
    gc.collect()
    gc.unfreeze()
