"""Modules of the package that are imported when they are first used, not by a first call."""

from typing import Any

from ._rooms import import_room


class later:
    """Stands for a module, such as ``later("_observe._report")``, whose names are looked up in it.

    Type checkers and import-linter see the import beside it, under TYPE_CHECKING.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_room(self._name, f"`{name}`"), name)
