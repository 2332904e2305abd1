"""`equinox.filter_jit`, `flax.nnx.jit` and `jax.jit` with their dispatch in C.

Importing filterjit imports neither JAX nor Equinox, so that their options can still be set. Each
name below is imported from its module when it is first used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import nnx as nnx
    from ._aot._file import SavedInfo, saved_info
    from ._aot._load import load
    from ._aot._program_option import ProgramCache, program_cache
    from ._aot._stages import Compiled, Lowered, Traced
    from ._aot._warm_up import Warmed, WarmUp
    from ._base._errors import (
        MismatchError,
        ProcessMismatchError,
        StaleProgramError,
        StaticArgumentError,
    )
    from ._call._direct import direct
    from ._core import Variant
    from ._install import install, installed, uninstall
    from ._jit._decorator import filter_jit
    from ._jit._filter_jit import BoundFilterJit, FilterJit
    from ._jit._freeze import FreezeWarning
    from ._jit._partial import PartialFilterJit
    from ._jit._plain import jit
    from ._observe._causes import Cause, Explanation, Move
    from ._observe._functions import clear_caches
    from ._observe._report import CacheInfo, report, time_calls
    from ._observe._report_output import Report
    from ._observe._retraces import RetraceError, RetraceWarning, log_retraces
    from ._packed._pack import Packed, pack
    from ._shardings._place import place
    from ._shardings._rules import ShardingRules, fsdp
    from ._terminal._progress import show_progress
    from ._trees._filters import Filter, is_array, is_inexact_array
    from ._trees._partition import combine, partition, partition_dict
    from ._trees._tree_functions import (
        Structure,
        flatten,
        tree_paths,
        unflatten,
    )

__version__ = "0.1.0"
__all__ = [
    "BoundFilterJit",
    "CacheInfo",
    "Cause",
    "Compiled",
    "Explanation",
    "Filter",
    "FilterJit",
    "FreezeWarning",
    "Lowered",
    "MismatchError",
    "Move",
    "Packed",
    "PartialFilterJit",
    "ProcessMismatchError",
    "ProgramCache",
    "Report",
    "RetraceError",
    "RetraceWarning",
    "SavedInfo",
    "ShardingRules",
    "StaleProgramError",
    "StaticArgumentError",
    "Structure",
    "Traced",
    "Variant",
    "WarmUp",
    "Warmed",
    "clear_caches",
    "combine",
    "direct",
    "filter_jit",
    "flatten",
    "fsdp",
    "install",
    "installed",
    "is_array",
    "is_inexact_array",
    "jit",
    "load",
    "log_retraces",
    "pack",
    "partition",
    "partition_dict",
    "place",
    "program_cache",
    "report",
    "saved_info",
    "show_progress",
    "time_calls",
    "tree_paths",
    "unflatten",
    "uninstall",
]

_MODULES = {
    "_base._errors": (
        "MismatchError",
        "ProcessMismatchError",
        "StaleProgramError",
        "StaticArgumentError",
    ),
    "_core": ("Variant",),
    "_observe._causes": ("Cause", "Explanation", "Move"),
    "_observe._functions": ("clear_caches",),
    "_observe._retraces": ("RetraceError", "RetraceWarning", "log_retraces"),
    "_trees._filters": ("Filter", "is_array", "is_inexact_array"),
    "_install": ("install", "installed", "uninstall"),
    "_jit._decorator": ("filter_jit",),
    "_jit._filter_jit": ("BoundFilterJit", "FilterJit"),
    "_jit._freeze": ("FreezeWarning",),
    "_jit._partial": ("PartialFilterJit",),
    "_jit._plain": ("jit",),
    "_packed._pack": ("Packed", "pack"),
    "_trees._partition": ("combine", "partition", "partition_dict"),
    "_shardings._place": ("place",),
    "_shardings._rules": ("ShardingRules", "fsdp"),
    "_terminal._progress": ("show_progress",),
    "_call._direct": ("direct",),
    "_observe._report": ("CacheInfo", "report", "time_calls"),
    "_observe._report_output": ("Report",),
    "_aot._file": ("SavedInfo", "saved_info"),
    "_aot._load": ("load",),
    "_aot._program_option": ("ProgramCache", "program_cache"),
    "_aot._stages": ("Compiled", "Lowered", "Traced"),
    "_aot._warm_up": ("WarmUp", "Warmed"),
    "_trees._tree_functions": (
        "Structure",
        "flatten",
        "tree_paths",
        "unflatten",
    ),
}


if not TYPE_CHECKING:  # for type checkers, a name that is not imported above is an error

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name == "nnx":
            return import_module(".nnx", __name__)
        module = next((module for module, names in _MODULES.items() if name in names), None)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if module not in ("_core", "_install"):
            # Before the module, which needs it too: `install` waits for JAX, and then imports
            # modules of ours, of which none may be half imported.
            import_module("jax")
        value = getattr(import_module(f".{module}", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({"__version__", "nnx", *__all__})
