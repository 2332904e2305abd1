"""Looking up private names: a missing one is None.

The other files of this package have a fallback for each.
"""

import sys
from typing import Any


def private(module: str, *names: str) -> Any:
    """Returns ``module.names[0].names[1]...``, or None if there is no such object."""
    try:
        found = __import__(module, fromlist=["_"])
        for name in names:
            found = getattr(found, name)
    except (ImportError, AttributeError):
        return None
    return found


def private_attribute(x: Any, *names: str) -> Any:
    """Returns ``x.names[0].names[1]...``, or None if there is no such attribute."""
    for name in names:
        x = getattr(x, name, None)
    return x


def loaded(module: str, *names: str) -> Any:
    """Returns ``module.names[0].names[1]...`` if the module is imported and has it, else None."""
    return private_attribute(sys.modules.get(module), *names)
