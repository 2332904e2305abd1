"""The nodes of a Structure as a tree of Python objects.

A Structure is a treedef together with its static leaves. The C core stores its nodes as a flat
array; explanations and saved files need them with their children and paths.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from .. import _core
from ._records import Aval
from ._words import class_name, describe


@dataclasses.dataclass
class Node:
    """One node with its children. `kind`, `type`, `detail` and `hash` are as ``Structure._nodes``
    returns them."""

    kind: str
    type: Any
    detail: Any
    hash: int
    children: list["Node"]
    array: int = -1  # the index of an array leaf among all arrays; -1 for other nodes

    def keys(self) -> Sequence[Any]:
        """Returns the key of each child, in the form that `format_path` takes."""
        if self.kind == "arguments":
            return [str(name) for name in self.detail]
        if self.kind in ("module", "object"):
            return list(self.detail[1])
        if self.kind == "custom":
            return [key if isinstance(key, (str, tuple)) else str(key) for key in self.detail[1]]
        if self.kind == "namedtuple":
            return [str(name) for name in self.type._fields]
        if self.kind in ("dict", "ordered_dict"):
            return [(key,) for key in self.detail]
        if self.kind == "default_dict":
            return ["default_factory", *((key,) for key in self.detail)]
        return [(i,) for i in range(len(self.children))]

    def describe(self, avals: Sequence[Aval] | None) -> str:
        """Returns the node in words; `avals` are those of all arrays, or None."""
        match self.kind:
            case "array":
                if not avals or self.array >= len(avals):
                    return "an array"
                return f"an array {avals[self.array]}"
            case "static":
                return describe(self.detail)
            case "none":
                return "None"
            case "missing":
                return "not given"
            case "ref":
                return f"the same object as {self.detail}"
            case "tuple" | "list":
                return f"a {self.kind} of {len(self.children)}"
        return f"a {class_name(self.type)}"


def tree_of(structure: _core.Structure, first_array: int) -> Node:
    """Returns the root node of a structure, whose arrays are numbered from `first_array` on."""
    root: Node | None = None
    open_nodes: list[tuple[Node, int]] = []  # each with the number of children still to come
    array = first_array
    for kind, arity, cls, detail, number in structure._nodes():
        node = Node(kind, cls, detail, number, [])
        if kind == "array":
            node.array, array = array, array + 1
        if open_nodes:
            parent, left = open_nodes.pop()
            parent.children.append(node)
            if left > 1:
                open_nodes.append((parent, left - 1))
        else:
            root = node
        if arity:
            open_nodes.append((node, arity))
    assert root is not None
    return root


def longer(path: list[Any], key: Any) -> list[Any]:
    """Returns the path of a child, whose key is None where a path leaves out the step to it."""
    return path if key is None else [*path, key]


def walk(structure: _core.Structure) -> Iterator[tuple[Node, list[Any]]]:
    """Yields each node with its path, parents before their children."""
    todo: list[tuple[Node, list[Any]]] = [(tree_of(structure, 0), [])]
    while todo:
        node, path = todo.pop()
        yield node, path
        children = list(zip(node.children, node.keys(), strict=True))
        todo.extend((child, longer(path, key)) for child, key in reversed(children))
