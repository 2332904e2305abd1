"""The package itself: where it lies, and what it shows as its own."""

import os
from typing import TypeVar

_T = TypeVar("_T")

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
"""The folder of the package ``filterjit``."""


def public(x: _T) -> _T:
    """Marks a class or function as part of the public API: its ``__module__`` is ``filterjit``."""
    x.__module__ = "filterjit"
    return x
