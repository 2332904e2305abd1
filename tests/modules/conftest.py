"""What the parity suite has to compare with, for the tests here: ``from parity.support import``."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
pytest.register_assert_rewrite("parity.support")
