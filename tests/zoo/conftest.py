"""Puts this folder on the path: the modules of the zoo import each other by name, as in the script
zoo_table.py. Gives each test the programs of its module."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from zoo_support import PROGRAMS

pytest.register_assert_rewrite("zoo_tests")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "name" not in metafunc.fixturenames:
        return
    declared = metafunc.module.PROGRAMS  # the name of a module
    programs = [made for made in PROGRAMS.values() if made.body.__module__ == declared]
    if "place" in metafunc.fixturenames:
        everywhere = [(made.name, place) for made in programs for place in made.places]
        metafunc.parametrize(("name", "place"), everywhere)
    else:
        metafunc.parametrize("name", [made.name for made in programs])
