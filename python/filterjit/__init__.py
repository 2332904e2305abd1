"""Drop-in replacements for `equinox.filter_jit`, `flax.nnx.jit` and `jax.jit`, dispatched in C.

Importing filterjit doesn't import JAX or Equinox, and you can still set their options. Each name
below is imported on first use. `filterjit.types` has the types that they return.
"""

from typing import TYPE_CHECKING, Any

from . import types as types  # for pickles

if TYPE_CHECKING:
    from . import lax as lax
    from . import nnx as nnx
    from . import sharding as sharding
    from ._aot._load import load
    from ._base._errors import MismatchError, ProcessMismatchError, StaticArgumentError
    from ._base._switches import switches
    from ._call._programs import clear_caches
    from ._install import install, uninstall
    from ._jit._decorator import filter_jit
    from ._jit._plain import jit
    from ._observe._forbid import ForbiddenCompileError, allow_compile, forbid_compile
    from ._observe._report import report
    from ._observe._retraces import RetraceError, RetraceWarning
    from ._padding import pad_to
    from ._trees._filters import Filter, is_array, is_inexact_array
    from ._trees._partition import combine, partition, partition_dict
    from ._trees._tree_functions import flatten, tree_paths, unflatten

__version__ = "0.1.0"
__all__ = [
    "Filter",
    "ForbiddenCompileError",
    "MismatchError",
    "ProcessMismatchError",
    "RetraceError",
    "RetraceWarning",
    "StaticArgumentError",
    "allow_compile",
    "clear_caches",
    "combine",
    "filter_jit",
    "flatten",
    "forbid_compile",
    "install",
    "is_array",
    "is_inexact_array",
    "jit",
    "load",
    "pad_to",
    "partition",
    "partition_dict",
    "report",
    "switches",
    "tree_paths",
    "unflatten",
    "uninstall",
]

_MODULES = {
    "_base._errors": ("MismatchError", "ProcessMismatchError", "StaticArgumentError"),
    "_observe._forbid": ("ForbiddenCompileError", "allow_compile", "forbid_compile"),
    "_call._programs": ("clear_caches",),
    "_observe._retraces": ("RetraceError", "RetraceWarning"),
    "_trees._filters": ("Filter", "is_array", "is_inexact_array"),
    "_base._switches": ("switches",),
    "_install": ("install", "uninstall"),
    "_jit._decorator": ("filter_jit",),
    "_jit._plain": ("jit",),
    "_trees._partition": ("combine", "partition", "partition_dict"),
    "_observe._report": ("report",),
    "_padding": ("pad_to",),
    "_aot._load": ("load",),
    "_trees._tree_functions": ("flatten", "tree_paths", "unflatten"),
}
_PUBLIC_MODULES = ("lax", "nnx", "sharding")
_ELSEWHERE = {
    "lax": ("cond", "fori_loop", "scan", "switch", "while_loop"),
    "nnx": ("CachedJit", "NNXJit", "cached_partial"),
    "sharding": ("ShardingRules", "fsdp", "place"),
    "types": types.__all__,
}
_METHODS = {
    **{name: f"f.{name}(...)" for name in ("cache_info", "compile", "explain", "lower", "warm_up")},
    "save": "f.save(path)",
}


def _import_core() -> Any:
    from importlib import import_module

    try:
        return import_module(f"{__name__}._core")
    except ModuleNotFoundError:
        raise ImportError(
            "filterjit's C core isn't built for this Python. In a checkout, run `pip install -e .`."
        ) from None


if not TYPE_CHECKING:  # type checkers report names that aren't imported above

    def __getattr__(name: str) -> Any:
        if name == "_core":
            return _import_core()
        from ._base._rooms import import_room, look_up

        if name in _PUBLIC_MODULES:
            return import_room(name, f"`filterjit.{name}`")
        places = {n: f"filterjit.{module}.{n}" for module, ns in _ELSEWHERE.items() for n in ns}
        if (place := (places | _METHODS).get(name)) is not None:
            raise AttributeError(f"module 'filterjit' has no attribute {name!r}. Use `{place}`.")
        return look_up(globals(), _MODULES, name)


def __dir__() -> list[str]:
    return sorted({"__version__", "types", *_PUBLIC_MODULES, *__all__})
