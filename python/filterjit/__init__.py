"""`equinox.filter_jit` with its dispatch in C.

Importing this imports neither JAX nor Equinox: their options can still be set. The first use of
a name below does.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._errors import StaticArgumentError
    from ._install import install, installed, uninstall
    from ._jit import filter_jit

__version__ = "0.1.0"
__all__ = ["StaticArgumentError", "filter_jit", "install", "installed", "uninstall"]

_HOMES = {
    "StaticArgumentError": "_errors",
    "filter_jit": "_jit",
    "install": "_install",
    "installed": "_install",
    "uninstall": "_install",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
