"""Puts this folder on the path: the modules of the fuzzer import each other by name, as in the
script long.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
