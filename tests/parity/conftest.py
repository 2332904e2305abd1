"""The two implementations under test."""

import equinox
import pytest

import filterjit

from .support import Jit

_IMPLEMENTATIONS = {"equinox": equinox.filter_jit, "filterjit": filterjit.filter_jit}


@pytest.fixture(params=list(_IMPLEMENTATIONS))
def jit(request: pytest.FixtureRequest) -> Jit:
    """``filter_jit``, Equinox's or ours."""
    return _IMPLEMENTATIONS[request.param]


@pytest.fixture
def ours(jit: Jit) -> bool:
    """Whether `jit` is ours: for the differences that are decisions."""
    return jit is filterjit.filter_jit
