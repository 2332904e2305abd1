"""Which modules belong to installed packages, whose code counts as fixed.

An installed package is known by its name and its version. All other modules are the user's, and are
known by their contents. A package that is installed to be edited is the user's too.
"""

import os
import sys
import sysconfig
import types
from typing import Any

from .._trees import _static_keys

# The libraries whose code counts as fixed wherever they are.
_ALWAYS = frozenset({"jax", "jaxlib", "equinox", "filterjit", "numpy"})
_STANDARD = _static_keys.STANDARD_LIBRARY
FOLDERS = ("site-packages", "dist-packages")
_LIBRARY = tuple(
    os.path.join(path(sysconfig.get_path(name)), "")
    for name in ("stdlib", "platstdlib")
    for path in (str, os.path.realpath)
)

_known: dict[str, bool] = {}


def is_library(module: Any) -> bool:
    """Whether a module of this name belongs to an installed package or to the standard library."""
    if type(module) is not str:
        return False
    found = _known.get(module)
    if found is None:
        found = _ask(module)
        if found or module in sys.modules:
            _known[module] = found
    return found


def _ask(module: str) -> bool:
    top = module.partition(".")[0]
    if top in _ALWAYS or top == "__main__":
        return top != "__main__"
    file = _file_of(module) or _file_of(top)
    if file is None:
        return top in _STANDARD
    parts = file.split(os.sep)
    if any(folder in parts for folder in FOLDERS) or file.startswith(_LIBRARY):
        return True
    return top in _STANDARD and os.path.realpath(file).startswith(_LIBRARY)


def _file_of(module: str) -> str | None:
    found = sys.modules.get(module)
    if not issubclass(type(found), types.ModuleType):
        return None
    file = object.__getattribute__(found, "__dict__").get("__file__")
    return file if type(file) is str else None
