"""The nodes of a Structure, for Python.

A Structure is a treedef together with its static leaves. The C core stores its nodes in a flat
array, parents before their children.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

from .. import _core
from .._base._words import path_text


@dataclasses.dataclass(slots=True)
class Node:
    """One node. `kind`, `arity`, `type`, `detail` and `key` are as ``Structure._nodes`` returns
    them, but the path of a ref's object is a text.

    Attributes:
        array: the number of arrays before it.
    """

    kind: str
    arity: int
    type: Any
    detail: Any
    key: Any
    array: int = 0

    def __post_init__(self) -> None:
        if self.kind == "ref":
            self.detail = path_text(self.detail)

    @property
    def statics(self) -> tuple[Any, ...]:
        """The static parts of the node itself: its value or aux data, the path of a ref, or the
        keys or names of its children."""
        if self.kind in ("static", "custom", "ref"):
            return (self.detail,)
        return self.detail if type(self.detail) is tuple else ()


def walk(structure: _core.Structure) -> Iterator[tuple[Node, list[Any]]]:
    """Yields each node with its path, parents before their children."""
    array = 0
    for row, path in zip(structure._nodes(), structure._node_key_paths(), strict=True):
        yield (node := Node(*row, array)), path
        array += node.kind == "array"


def lineage(structure: _core.Structure, index: int, array: int = 0) -> list[tuple[int, Node]]:
    """Returns (index, node) for each node from the root down to the one at `index`, which has
    `array` arrays before it."""
    return [(i, Node(*row, array)) for i, row in structure._lineage(index)]


def root_of(structure: _core.Structure) -> Node:
    """Returns the root node."""
    return lineage(structure, 0)[0][1]
