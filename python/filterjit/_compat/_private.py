"""Looks up private names: missing ones are None. The other files here have a fallback for each."""

import sys
from typing import Any


def private(module: str, *names: str) -> Any:
    """Returns ``module.names[0].names[1]...``, or None if it doesn't exist."""
    try:
        found = __import__(module, fromlist=["_"])
        for name in names:
            found = getattr(found, name)
    except (ImportError, AttributeError):
        return None
    return found


def private_attribute(x: Any, *names: str) -> Any:
    """Returns ``x.names[0].names[1]...``, or None if it doesn't exist."""
    for name in names:
        x = getattr(x, name, None)
    return x


def loaded(module: str, *names: str) -> Any:
    """Returns ``module.names[0].names[1]...`` if the module is imported and has it, otherwise
    None."""
    return private_attribute(sys.modules.get(module), *names)
