"""Modules of the package that are imported when they are used: a first call does without them."""

from importlib import import_module
from typing import Any


class later:
    """Stands for a module, such as ``later("_observe._report")``, whose names are looked up in it.

    Type checkers see the import that stands beside it, under TYPE_CHECKING; so does import-linter.
    """

    def __init__(self, name: str) -> None:
        self._name = f"{__name__.partition('.')[0]}.{name}"

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)
