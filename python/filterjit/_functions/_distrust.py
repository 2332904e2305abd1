"""What changed while a function was traced, and is left out of descriptions from then on.

Such *distrusted* items are kept by their owner: a code object for all functions with this code, a
class for itself and its instances, a module. What refers to the owner is in doubt.
"""

import weakref
from typing import Any

_NOTHING: frozenset[Any] = frozenset()
_distrusted: dict[int, tuple[weakref.ref[Any], frozenset[Any]]] = {}  # by address


def distrusted(owner: Any) -> frozenset[Any]:
    """Returns the kinds and names of the items of an owner that are left out."""
    if not _distrusted:
        return _NOTHING
    found = _distrusted.get(id(owner))
    return found[1] if found is not None and found[0]() is owner else _NOTHING


def distrust(owner: Any, items: frozenset[Any]) -> None:
    address, forget = id(owner), _distrusted.pop
    ref = weakref.ref(owner, lambda _: forget(address, None))
    _distrusted[address] = ref, distrusted(owner) | items
