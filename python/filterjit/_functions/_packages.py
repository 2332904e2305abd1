"""Which modules belong to installed packages, whose code is taken as fixed.

An installed package is known by its name and its version. All other modules are the user's, also
those of a package that is installed to be edited, and are known by their contents.
"""

import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import sys
import sysconfig
import types
from typing import Any

from .._trees import _static_keys

# The libraries that are taken as fixed wherever they are.
_ALWAYS = frozenset({"jax", "jaxlib", "equinox", "filterjit", "numpy"})
_STANDARD = _static_keys.STANDARD_LIBRARY
_FOLDERS = ("site-packages", "dist-packages")
_LIBRARY = tuple(
    os.path.join(os.path.realpath(sysconfig.get_path(name)), "")
    for name in ("stdlib", "platstdlib")
)

_known: dict[str, bool] = {}
_versions: dict[str, str | None] = {}


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
    if any(folder in parts for folder in _FOLDERS):
        return True
    return top in _STANDARD and os.path.realpath(file).startswith(_LIBRARY)


def _file_of(module: str) -> str | None:
    found = sys.modules.get(module)
    if not issubclass(type(found), types.ModuleType):
        return None
    file = object.__getattribute__(found, "__dict__").get("__file__")
    return file if type(file) is str else None


def version_of(module: str) -> str | None:
    """Returns the name and the version of the package of a module; None if it has none."""
    top = module.partition(".")[0]
    if top not in _versions:
        _versions[top] = _find_version(top)
    return _versions[top]


def _find_version(top: str) -> str | None:
    if top in _STANDARD and top not in _ALWAYS:
        return f"python {sys.version_info.major}.{sys.version_info.minor}"
    module = sys.modules.get(top)
    if issubclass(type(module), types.ModuleType):
        version = object.__getattribute__(module, "__dict__").get("__version__")
        if type(version) is str:
            return f"{top} {version}"
    try:
        names = importlib.metadata.packages_distributions().get(top, [top])
        return " ".join(f"{name} {importlib.metadata.version(name)}" for name in sorted(set(names)))
    except importlib.metadata.PackageNotFoundError:
        return None


# ---- whether the files of a package are the same ----

_stamps: dict[str, str | None] = {}


def stamp_of(top: str) -> str | None:
    """Returns a text that changes when another build of a package is installed, also one of the
    same version; None if it is not known where the package is."""
    if top not in _stamps:
        _stamps[top] = _find_stamp(top)
    return _stamps[top]


def _find_stamp(top: str) -> str | None:
    file = _file_of(top)
    if file is None:
        try:
            spec = importlib.util.find_spec(top)
        except (ImportError, ValueError, AttributeError):
            return None
        file = None if spec is None else spec.origin
    if file is None or not os.path.isabs(file):
        return None
    is_package = os.path.basename(file).partition(".")[0] == "__init__"
    folder = os.path.dirname(os.path.dirname(file) if is_package else file)
    record = _record(folder, top)
    if record is not None:  # with a digest of each file
        return f"record {hashlib.sha256(record).hexdigest()[:32]}"
    newest, count = 0, 0
    for at in _files(os.path.dirname(file)) if is_package else [file]:
        newest, count = max(newest, os.stat(at).st_mtime_ns), count + 1
    return f"files {count} {newest}"


def _record(folder: str, top: str) -> bytes | None:
    try:
        for name in _installed_in(folder):
            if name.lower().startswith(top.lower() + "-"):
                with open(os.path.join(folder, name, "RECORD"), "rb") as file:
                    found = file.read()
                return found if f"{top}/".encode() in found else None
    except OSError:
        pass
    return None


@functools.lru_cache(maxsize=1)  # most packages are in one folder of some hundred names
def _installed_in(folder: str) -> list[str]:
    return [name for name in os.listdir(folder) if name.endswith(".dist-info")]


def _files(folder: str) -> list[str]:
    found = []
    for at, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        found += [os.path.join(at, n) for n in names if n.endswith((".py", ".so", ".pyd"))]
    return found
