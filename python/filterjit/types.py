"""The types of what the functions and methods of filterjit return, for annotations and `isinstance`.

A program that only calls them needs none of these names.
"""

# isort: off
import jax  # noqa: F401 (first: `install` waits for it, and then imports the modules below)

# isort: on
from ._aot._file import SavedInfo
from ._aot._stages import Compiled, Lowered, Traced
from ._aot._warm_up import Warmed, WarmUp
from ._base._switches import Switches
from ._core import Structure, Variant
from ._jit._filter_jit import BoundFilterJit, FilterJit
from ._jit._partial import PartialFilterJit
from ._observe._causes import Cause, Explanation, Move
from ._observe._report import CacheInfo
from ._observe._report_output import Report

__all__ = [
    "BoundFilterJit",
    "CacheInfo",
    "Cause",
    "Compiled",
    "Explanation",
    "FilterJit",
    "Lowered",
    "Move",
    "PartialFilterJit",
    "Report",
    "SavedInfo",
    "Structure",
    "Switches",
    "Traced",
    "Variant",
    "WarmUp",
    "Warmed",
]
