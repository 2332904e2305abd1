"""The nodes of a Structure (a treedef with its static leaves), for Python. The C core stores them
in a flat array, parents before their children."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from .. import _core
from .._base._words import path_text


@dataclasses.dataclass(slots=True)
class Node:
    """A row of ``Structure._nodes``, with the path of a ref as text. `array` is the number of
    arrays before it."""

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
        """The node's own statics: value, aux data, path of a ref, or keys of its children."""
        if self.kind in ("static", "custom", "ref"):
            return (self.detail,)
        return self.detail if type(self.detail) is tuple else ()


def walk(structure: _core.Structure) -> Iterator[tuple[Node, list[Any]]]:
    """Yields each node with its path, parents before their children."""
    array = 0
    todo: list[list[Any]] = [[]]  # the path of the parent of each node to come
    for row in structure._nodes():
        node, path = Node(*row, array), todo.pop()
        if node.key is not None:
            path = [*path, node.key]
        if not node.kind.endswith(" of leaves"):  # its children have no nodes
            todo += [path] * node.arity
        yield node, path
        array += node.kind == "array"


def lineage(structure: _core.Structure, index: int, array: int = 0) -> list[tuple[int, Node]]:
    """Returns (index, node) from the root to `index`, a node after `array` arrays."""
    return [(i, Node(*row, array)) for i, row in structure._lineage(index)]


def root_of(structure: _core.Structure) -> Node:
    return lineage(structure, 0)[0][1]
