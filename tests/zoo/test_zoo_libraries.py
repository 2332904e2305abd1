"""The programs of zoo_libraries.py."""

import pytest
import zoo_libraries
from zoo_support import MISSING
from zoo_tests import *  # noqa: F403

pytestmark = pytest.mark.slow

PROGRAMS = zoo_libraries.__name__


def test_all_libraries() -> None:
    """Tells which libraries' programs are left out."""
    if MISSING:
        pytest.skip(f"not installed: {', '.join(MISSING)}")
