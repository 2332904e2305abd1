"""The folder of the package ``filterjit``, and its public API."""

import functools
import inspect
import os
import sys
import sysconfig
import types
from typing import Any, TypeVar

from ._checks import known_options

_T = TypeVar("_T")

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
"""The folder of the package ``filterjit``."""


def public(x: _T, module: str = "filterjit") -> _T:
    """Decorates a class or function of the public API: sets its ``__module__``, and makes it
    suggest an option for a misspelt one."""
    x.__module__ = module
    return suggesting(x)


def public_type(x: _T) -> _T:
    """Decorates a class of `filterjit.types`, as `public` does."""
    return public(x, "filterjit.types")


_PYTHON_SUGGESTS: bool = sys.version_info >= (3, 13)


def suggesting(x: _T) -> _T:
    """Decorates a function, or a class with methods: a call with a misspelt option suggests the
    right one, as Python itself does since version 3.13."""
    if _PYTHON_SUGGESTS:
        return x
    if isinstance(x, type):
        for name, member in list(vars(x).items()):
            if isinstance(member, types.FunctionType) and (name[0] != "_" or name == "__init__"):
                setattr(x, name, _suggesting(member))
        return x
    found: _T = _suggesting(x)
    return found


def _suggesting(x: Any) -> Any:
    parameters = inspect.signature(x).parameters.values()
    given_by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = [p.name for p in parameters if p.kind in given_by_name]
    has_options = any(p.default is not p.empty for p in parameters)
    if not has_options or any(p.kind is p.VAR_KEYWORD for p in parameters):
        return x

    @functools.wraps(x)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        try:
            return x(*args, **kwargs)
        except TypeError:
            if kwargs.keys() <= set(names):
                raise
        return known_options(x.__qualname__, kwargs, names)

    return call


_INSTALLED = (PACKAGE + os.sep, sysconfig.get_path("stdlib") + os.sep, "<frozen")


def is_library_class(cls: type) -> bool:
    """Whether a class belongs to Python or to an installed library."""
    module = sys.modules.get(cls.__module__)
    if module is None or cls.__module__ == "__main__":
        return False
    file = getattr(module, "__file__", None)
    return file is None or is_installed(file)


def is_installed(file: str) -> bool:
    """Whether a source file belongs to an installed library, and not to the user's program."""
    folders = file.split(os.sep)
    return file.startswith(_INSTALLED) or "site-packages" in folders or "dist-packages" in folders
