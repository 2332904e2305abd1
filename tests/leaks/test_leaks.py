"""Runs each scenario of leaks.py in a process of its own, where nothing else allocates."""

from pathlib import Path

import pytest
from process_support import output_of

import leaks


@pytest.mark.slow
@pytest.mark.parametrize("name", leaks.SCENARIOS)
def test_nothing_grows(name: str) -> None:
    output_of(str(Path(__file__).with_name("leaks.py")), name)
