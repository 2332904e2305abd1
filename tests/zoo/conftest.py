"""Puts this folder on the path: the modules of the zoo import each other by name, as in the script
zoo_table.py."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from zoo_support import compiled_once


@pytest.fixture(scope="package", autouse=True)
def _compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with compiled_once(str(tmp_path_factory.mktemp("cache"))):
        yield
