"""The nodes of a Structure as a tree of Python objects.

A Structure is a treedef together with its static leaves. The C core stores its nodes as a flat
array; explanations and saved files need them with their children and paths.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

from .. import _core
from .._base._words import path_text


@dataclasses.dataclass
class Node:
    """One node with its children. `kind`, `type`, `detail` and `key` are as ``Structure._nodes``
    returns them, but the path of a ref's object is a text."""

    structure: _core.Structure
    index: int  # among all nodes of the structure
    kind: str
    type: Any
    detail: Any
    key: Any
    children: list["Node"]
    array: int = -1  # the index of an array leaf among all arrays; -1 for other nodes

    @property
    def statics(self) -> tuple[Any, ...]:
        """What is static in the node itself: its value or aux data, the path of a ref, or the keys or
        names of its children."""
        if self.kind in ("static", "custom", "ref"):
            return (self.detail,)
        return self.detail if type(self.detail) is tuple else ()

    def equals(self, other: "Node") -> bool:
        """Whether two nodes are equal, without their children: the structures are if all their
        nodes are. False if an ``__eq__`` raises."""
        try:
            return self.structure._equal_nodes(self.index, other.structure, other.index)
        except Exception:
            return False

    def path_below(self, path: list[Any]) -> list[Any]:
        """Returns the path of the node, given that of its parent."""
        return path if self.key is None else [*path, self.key]


def tree_of(structure: _core.Structure, first_array: int = 0) -> Node:
    """Returns the root node of a structure, whose arrays are numbered from `first_array` on."""
    return _nodes_of(structure, first_array)[0]


def walk(structure: _core.Structure) -> Iterator[tuple[Node, list[Any]]]:
    """Yields each node with its path, parents before their children."""
    return zip(_nodes_of(structure), structure._node_key_paths(), strict=True)


def _nodes_of(structure: _core.Structure, first_array: int = 0) -> list[Node]:
    found: list[Node] = []
    open_nodes: list[tuple[Node, int]] = []  # each with the number of children still to come
    array = first_array
    for index, (kind, arity, cls, detail, key) in enumerate(structure._nodes()):
        if kind == "ref":
            detail = path_text(detail)
        node = Node(structure, index, kind, cls, detail, key, [])
        if kind == "array":
            node.array, array = array, array + 1
        if open_nodes:
            parent, left = open_nodes.pop()
            parent.children.append(node)
            if left > 1:
                open_nodes.append((parent, left - 1))
        if arity:
            open_nodes.append((node, arity))
        found.append(node)
    return found


def span(structure: _core.Structure, *path: int) -> tuple[int, int]:
    """Returns which arrays are below a node: the index of the first among all arrays, and how many.

    A path consists of child numbers, from the root down. IndexError if there is no such child.
    """
    nodes = structure._nodes()

    def end(at: int) -> int:
        """Returns the index of the first node after a subtree."""
        left = 1
        while left:
            left += nodes[at][1] - 1
            at += 1
        return at

    at = 0
    for child in path:
        if child >= nodes[at][1]:
            raise IndexError("no such child")
        at += 1
        for _ in range(child):
            at = end(at)
    kinds = [kind for kind, *_ in nodes]
    return kinds[:at].count("array"), kinds[at : end(at)].count("array")
