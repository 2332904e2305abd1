"""The types of filterjit's results, for annotations and `isinstance`. Imported on first use."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._aot._load import Loaded
    from ._aot._stages import Compiled, Lowered, Traced
    from ._base._switches import Switches
    from ._core import Structure, Variant
    from ._jit._filter_jit import BoundFilterJit, FilterJit
    from ._observe._causes import Cause, Explanation
    from ._observe._report import CacheInfo
    from ._observe._report_output import Report

__all__ = [
    "BoundFilterJit",
    "CacheInfo",
    "Cause",
    "Compiled",
    "Explanation",
    "FilterJit",
    "Loaded",
    "Lowered",
    "Report",
    "Structure",
    "Switches",
    "Traced",
    "Variant",
]

_MODULES = {
    "_aot._load": ("Loaded",),
    "_aot._stages": ("Compiled", "Lowered", "Traced"),
    "_base._switches": ("Switches",),
    "_core": ("Structure", "Variant"),
    "_jit._filter_jit": ("BoundFilterJit", "FilterJit"),
    "_observe._causes": ("Cause", "Explanation"),
    "_observe._report": ("CacheInfo",),
    "_observe._report_output": ("Report",),
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        from ._base._rooms import look_up

        return look_up(globals(), _MODULES, name)
