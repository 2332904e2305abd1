"""Registries here meet the classes of object_support.py."""

from typing import Any

import object_support
import pytest


@pytest.fixture
def registry() -> Any:
    return object_support.make_registry()
