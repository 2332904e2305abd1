"""The nodes of a Structure (a treedef with its static leaves), for Python. The C core stores them
in a flat array, parents before their children."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from .. import _core
from .._base._messages import path_text


@dataclasses.dataclass(slots=True)
class Node:
    """A row of ``Structure._nodes``, with the path of a ref as text. `array` is the number of
    leaves before it."""

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


_KEYED = ("dict", "ordered_dict", "default_dict", "module")  # have at most one child per key


class Nodes:
    """All nodes of a Structure.

    Attributes:
        ends: by node, the index of the first node after its subtree.
        leaves: by node, the number of leaves before it; and at the end, of all leaves.
    """

    def __init__(self, structure: _core.Structure) -> None:
        self.structure = structure
        self._rows = structure._nodes()

    @functools.cached_property
    def leaves(self) -> list[int]:
        return list(accumulate((row[0] == "array" for row in self._rows), initial=0))

    @functools.cached_property
    def ends(self) -> list[int]:
        ends = [0] * len(self._rows)
        subtrees: list[int] = []  # ends of those whose parent is still to come, the first one last
        for i in reversed(range(len(self._rows))):
            end = i + 1
            for _ in range(self._rows[i][1]):
                end = subtrees.pop()
            ends[i] = end
            subtrees.append(end)
        return ends

    def __getitem__(self, index: int) -> Node:
        return Node(*self._rows[index], self.leaves[index])

    def children(self, index: int) -> list[int]:
        found, at = [], index + 1
        while at < self.ends[index]:
            found.append(at)
            at = self.ends[at]
        return found

    def ancestors(self, index: int) -> list[int]:
        """Returns the indices of the nodes above `index`, from the root on."""
        at, found = 0, []
        while at != index:
            found.append(at)
            at = next(child for child in self.children(at) if index < self.ends[child])
        return found

    def lineage(self, index: int) -> list[Node]:
        """Returns the nodes from the root to `index`."""
        return [self[i] for i in (*self.ancestors(index), index)]

    def span(self, *path: int) -> range:
        """Returns the numbers of the leaves below a node. `path` has the number of a child for each
        level. Raises IndexError if there is no such node."""
        at = 0
        for number in path:
            at = self.children(at)[number]
        return range(self.leaves[at], self.leaves[self.ends[at]])

    def _children_by_key(self, index: int) -> dict[Any, int]:
        return {self._rows[child][4]: child for child in self.children(index)}

    def differences(
        self,
        other: "Nodes",
        avals: Sequence[Any] | None = None,
        other_avals: Sequence[Any] | None = None,
        most: int = 1,
    ) -> tuple[list[tuple[int, int]], int]:
        """Compares the nodes of two structures in step, and the avals of their arrays::

            self   ARGUMENTS  DICT("a","b")  ARRAY  STATIC 1           STATIC "relu"
            other  ARGUMENTS  DICT("b","c")  STATIC 2  ARRAY           STATIC "tanh"

        The dicts differ, so their common children are paired by key: the two values of "b". Below
        other differing nodes it skips the children, unless only the aux data of a custom node
        differs. Returns the pairs (1, 1), (3, 2) and (4, 4), and how many it left out: it returns
        at most `most` pairs of arrays, and as many others. An Exception counts as a difference.
        """
        pairs: list[tuple[int, int]] = []
        counts, more = {True: 0, False: 0}, 0

        def are_equal(i: int, j: int) -> bool:
            x, y = self.leaves[i], other.leaves[j]
            try:
                if not self.structure._equal_nodes(i, other.structure, j):
                    return False
                return (
                    self._rows[i][0] != "array"
                    or avals is None
                    or other_avals is None
                    or not (x < len(avals) and y < len(other_avals))
                    or avals[x] is other_avals[y]
                    or bool(avals[x] == other_avals[y])
                )
            except Exception:
                return False

        todo = [(0, len(self._rows), 0)]  # runs of subtrees: from, to, and from in `other`
        while todo:
            i, end, j = todo.pop()
            while i < end:
                kind, arity, cls, *_ = self._rows[i]
                other_kind, other_arity, other_cls, *_ = other._rows[j]
                same = are_equal(i, j)
                if not same:
                    are_arrays = kind == other_kind == "array"
                    if counts[are_arrays] < most:
                        pairs.append((i, j))
                        counts[are_arrays] += 1
                    else:
                        more += 1
                is_alike = kind == other_kind and cls is other_cls
                is_custom = is_alike and kind == "custom" and arity == other_arity
                if same or is_custom or arity == other_arity == 0:
                    i, j = i + 1, j + 1
                    continue
                if is_alike and kind in _KEYED:
                    todo.append((self.ends[i], end, other.ends[j]))
                    mine = self._children_by_key(i)
                    for key, child in reversed(other._children_by_key(j).items()):
                        if key in mine:
                            todo.append((mine[key], self.ends[mine[key]], child))
                    break
                i, j = self.ends[i], other.ends[j]
        return pairs, more


def walk(structure: _core.Structure) -> Iterator[tuple[Node, list[Any]]]:
    """Yields each node with its path, parents before their children."""
    nodes = Nodes(structure)
    todo: list[list[Any]] = [[]]  # the path of the parent of each node to come
    for i in range(len(nodes._rows)):
        node, path = nodes[i], todo.pop()
        if node.key is not None:
            path = [*path, node.key]
        todo += [path] * node.arity
        yield node, path


def root_of(structure: _core.Structure) -> Node:
    return Node(*structure._nodes()[0])


def types_of(structure: _core.Structure) -> set[type]:
    """Returns the classes of the objects in a structure, except tuples and lists."""
    return {cls for _, _, cls, *_ in structure._nodes() if cls is not None}
