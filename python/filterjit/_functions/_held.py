"""What several processes that are about to run one program hold: it must be the same on all."""

import dataclasses
import enum
import functools
import hashlib
from collections.abc import Iterable, Mapping, Set
from typing import Any

import numpy as np

from . import _types
from ._describe import Part
from ._digest import Digest

# What a function holds must be the same everywhere if it is of these types, or a dataclass.
# Other objects, such as a logger or a file, may know their process.
_VALUES = (
    bool, int, float, complex, str, bytes, enum.Enum, type, np.ndarray, functools.partial,
    tuple, list, Mapping, Set, *_types.CALLABLES,
)  # fmt: skip


def is_held_value(x: Any) -> bool:
    """Whether what a function holds must be the same on all processes."""
    return x is None or isinstance(x, _VALUES) or dataclasses.is_dataclass(x)


def digest_of_function(f: Any) -> str:
    """Returns a digest of the code of a function and of the values that it holds, in defaults, in
    its closure and in what it wraps, as far as they must be the same on all processes."""
    walk = _Held()
    try:
        walk.at(None, "root", "", f)
        walk.describe()
    except RecursionError:
        pass
    return hashlib.sha256(repr(walk.noted).encode("utf-8", "backslashreplace")).hexdigest()[:16]


class _Held(Digest):
    """The walk that leaves out globals, and what may differ between processes."""

    def doubt(self, reason: str) -> None:
        pass

    def _add_named(self, *_: Any) -> None:
        pass

    def _attributes(self, f: Any) -> Iterable[tuple[Any, Any]]:
        return ((k, x) for k, x in super()._attributes(f) if k == "__wrapped__")

    def _annotations(self, x: Any) -> Iterable[tuple[str, Any]]:
        return ()

    def of_library(self, x: Any, module: str, name: str) -> Part:
        return "library", module, name

    def cls(self, x: Any, facts: Any = None) -> Part:
        return "class", _types.module_of(x), _types.qualname_of(x)

    def module(self, x: Any, _: Any = None) -> Part:
        return "module", x.__name__

    def contents(self, x: Any, facts: _types.Type) -> Part:
        return super().contents(x, facts) if is_held_value(x) else self.unknown(x, facts)

    def unknown(self, x: Any, facts: _types.Type) -> Part:
        return "object", self.cls(type(x))

    value = identity = logger = unknown  # type: ignore[assignment]
