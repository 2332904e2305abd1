"""Where the package ``filterjit`` lies, and what belongs to its public API."""

import os
import sysconfig
from typing import TypeVar

_T = TypeVar("_T")

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
"""The folder of the package ``filterjit``."""


def public(x: _T) -> _T:
    """Decorates a class or function of the public API: sets its ``__module__`` to ``filterjit``."""
    x.__module__ = "filterjit"
    return x


_INSTALLED = (PACKAGE + os.sep, sysconfig.get_path("stdlib") + os.sep, "<frozen")


def is_installed(file: str) -> bool:
    """Whether a source file belongs to an installed library, and not to the user's program."""
    folders = file.split(os.sep)
    return file.startswith(_INSTALLED) or "site-packages" in folders or "dist-packages" in folders
