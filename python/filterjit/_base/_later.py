"""Imports modules of the package on first use."""

from typing import Any

from ._rooms import import_room


class LazyModule:
    """A proxy such as ``LazyModule("_observe._report")`` that imports its module on first use. Needs an
    import under TYPE_CHECKING beside it, for type checkers and import-linter."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_room(self._name, f"`{name}`"), name)
