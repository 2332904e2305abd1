"""The modules of the fuzzer import one another by name, as its command does."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
