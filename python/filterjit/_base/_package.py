"""The package's folder, decorators for its public API, and telling libraries from user code."""

import functools
import inspect
import os
import sys
import sysconfig
import types
from collections.abc import Mapping
from typing import Any, TypeVar

from ._checks import known_options

_T = TypeVar("_T")

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def public(x: _T, module: str = "filterjit") -> _T:
    """Decorates a public class or function: sets its ``__module__``."""
    x.__module__ = module
    return x


public_type = functools.partial(public, module="filterjit.types")


def advising(x: Any, others: Mapping[str, str]) -> Any:
    """Makes a call with an unknown option raise a TypeError with advice. `others` has the advice on
    options of similar functions."""
    names = inspect.signature(x).parameters

    @functools.wraps(x)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        known_options(x.__qualname__, kwargs, names, others)
        return x(*args, **kwargs)

    return call


_STANDARD = tuple(
    path(sysconfig.get_path(name)) + os.sep
    for name in ("stdlib", "platstdlib")
    for path in (str, os.path.realpath)
)
# Libraries, even if they run from a checkout.
_ALWAYS = frozenset({"jax", "jaxlib", "equinox", "filterjit", "numpy"})
_libraries: dict[str, bool] = {}


def is_installed(file: str) -> bool:
    """True if a source file belongs to an installed library."""
    folders = file.split(os.sep)
    return (
        file.startswith((PACKAGE + os.sep, "<frozen", *_STANDARD))
        or "site-packages" in folders
        or "dist-packages" in folders
    )


def is_library(module: Any) -> bool:
    """True if a module of this name belongs to Python or an installed library."""
    if type(module) is not str or module == "__main__":
        return False
    found = _libraries.get(module)
    if found is None:
        top = module.partition(".")[0]
        file = _file_of(module) or _file_of(top)
        is_standard = top in sys.stdlib_module_names and top != "__main__"
        found = top in _ALWAYS or (is_standard if file is None else is_installed(file))
        if found or module in sys.modules:
            _libraries[module] = found
    return found


def _file_of(module: str) -> str | None:
    found = sys.modules.get(module)
    if not issubclass(type(found), types.ModuleType):
        return None
    file = object.__getattribute__(found, "__dict__").get("__file__")
    return file if type(file) is str else None


def is_library_class(cls: type) -> bool:
    return is_library(cls.__module__)
