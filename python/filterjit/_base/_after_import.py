"""Calls a function right after the program imports a module, without importing it."""

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType


class AfterImport(importlib.abc.MetaPathFinder):
    """An import hook that calls `action` once, right after the module `name` is executed. If the
    import fails, it waits for the next attempt."""

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self._name = name
        self._action = action

    def add(self) -> None:
        """Starts waiting (idempotent)."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Stops waiting (idempotent)."""
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if name != self._name:
            return None
        self.remove()
        try:
            spec = importlib.util.find_spec(name)
        except BaseException:
            self.add()
            raise
        if spec is None or spec.loader is None:
            self.add()
            return None
        execute: Callable[[ModuleType], None] = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            try:
                execute(module)
            except BaseException:
                self.add()  # for the next attempt
                raise
            self._action()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def after_import(name: str, action: Callable[[], None]) -> None:
    """Calls `action` right after the import of `name`: now, if it's already imported."""
    if name in sys.modules:
        action()
    else:
        AfterImport(name, action).add()
