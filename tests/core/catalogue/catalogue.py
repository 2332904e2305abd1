"""The whole catalogue: what the core does (`OPERATIONS`), and where Python code can run in it
(`PLACES`), in modules by subject."""

import importlib

from operations import ONLY_REPEATED, OPERATIONS, SHARED
from places import PLACES

__all__ = ["ONLY_REPEATED", "OPERATIONS", "PLACES", "SHARED"]

# Trees come first, as more allocations fail in calls after them.
for _name in ("trees", "calls", "direct", "variables"):
    importlib.import_module(f"operations_{_name}")
for _name in ("calls", "direct", "nodes", "trees", "variables"):
    importlib.import_module(f"places_{_name}")
