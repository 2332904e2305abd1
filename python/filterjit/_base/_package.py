"""Where the package ``filterjit`` lies, and what belongs to its public API."""

import os
from typing import TypeVar

_T = TypeVar("_T")

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
"""The folder of the package ``filterjit``."""


def public(x: _T) -> _T:
    """Decorates a class or function of the public API: sets its ``__module__`` to ``filterjit``."""
    x.__module__ = "filterjit"
    return x
