"""What all tests here need: ``downstream_support`` and ``parity``."""

import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
pytest.register_assert_rewrite("parity.support", "downstream_support")
