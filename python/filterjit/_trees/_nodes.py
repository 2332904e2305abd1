"""The nodes of a Structure (a treedef with its static leaves), for Python. The C core stores them
in a flat array, parents before their children."""

import dataclasses
import functools
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

from .. import _core
from .._base._messages import path_text


@dataclasses.dataclass(slots=True)
class Node:
    """What ``Structure._node`` returns, with the path of a ref as text. `array` is the number of
    arrays before it; `key` leads to it from its parent."""

    index: int
    kind: str
    arity: int
    type: Any
    detail: Any
    end: int
    array: int = 0
    key: Any = None

    def __post_init__(self) -> None:
        if self.kind == "ref":
            self.detail = path_text(self.detail)

    @property
    def statics(self) -> tuple[Any, ...]:
        """The node's own statics: value, aux data, path of a ref, or keys of its children."""
        if self.kind in ("static", "custom", "ref"):
            return (self.detail,)
        return self.detail if type(self.detail) is tuple else ()


KEYED = ("dict", "ordered_dict", "default_dict", "module")  # have at most one child per key


class Nodes:
    """The nodes of a Structure, by index."""

    def __init__(self, structure: _core.Structure) -> None:
        self.structure = structure

    @functools.cached_property
    def _arrays(self) -> list[int]:
        return self.structure._arrays()

    def leaves_before(self, index: int) -> int:
        """Returns the number of arrays (open leaves) before a node."""
        return bisect_left(self._arrays, index)

    def _of_arrays(self, start: int, count: int, items: Sequence[Any] | None) -> Sequence[Any]:
        """Of `items` with one per array, returns those of the arrays among some nodes."""
        first, end = self.leaves_before(start), self.leaves_before(start + count)
        return () if items is None else items[first:end]

    def __getitem__(self, index: int) -> Node:
        return Node(index, *self.structure._node(index), self.leaves_before(index))

    def children(self, index: int) -> list[int]:
        return [child for child, _ in self.structure._children(index)]

    def lineage(self, index: int) -> list[Node]:
        """Returns the nodes from the root to `index`."""
        nodes = [self[0]]
        while (at := nodes[-1].index) != index:
            children = self.structure._children(at)
            child, key = children[bisect_right(children, index, key=itemgetter(0)) - 1]
            nodes.append(self[child])
            nodes[-1].key = key
        return nodes

    def span(self, *path: int) -> range:
        """Returns the numbers of the leaves below a node. `path` has the number of a child for each
        level. Raises IndexError if there is no such node."""
        at = 0
        for number in path:
            at = self.children(at)[number]
        return range(self.leaves_before(at), self.leaves_before(self[at].end))

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
        counts = {True: 0, False: 0}

        def add(i: int, j: int, is_array: bool) -> None:
            counts[is_array] += 1
            if counts[is_array] <= most:
                pairs.append((i, j))

        todo = [(0, self[0].end, 0)]  # runs of subtrees: from, to, and from in `other`
        while todo:
            i, end, j = todo.pop()
            while i < end:
                same = self.structure._count_equal(i, end, other.structure, j)
                arrays = self._of_arrays(i, same, self._arrays)
                of_both = self._of_arrays(i, same, avals), other._of_arrays(j, same, other_avals)
                for array, *pair in zip(arrays, *of_both, strict=False):
                    if not _are_equal(*pair):
                        add(array, array - i + j, True)
                i, j = i + same, j + same
                if i == end:
                    break
                add(i, j, False)
                kind, arity, cls, _, after = self.structure._node(i)
                its_kind, its_arity, its_cls, _, its_after = other.structure._node(j)
                is_alike = kind == its_kind and cls is its_cls
                if is_alike and kind in KEYED:
                    todo.append((after, end, its_after))
                    mine = {key: child for child, key in self.structure._children(i)}
                    for child, key in reversed(other.structure._children(j)):
                        if key in mine:
                            todo.append((mine[key], self[mine[key]].end, child))
                    break
                if is_alike and kind == "custom" and arity == its_arity:
                    i, j = i + 1, j + 1
                else:
                    i, j = after, its_after
        return pairs, sum(max(0, count - most) for count in counts.values())


def _are_equal(x: Any, y: Any) -> bool:
    try:
        return x is y or bool(x == y)
    except Exception:
        return False


def walk(structure: _core.Structure) -> Iterator[tuple[Node, list[Any]]]:
    """Yields each node with its path, parents before their children."""
    todo: list[tuple[int, Any, list[Any]]] = [(0, None, [])]  # index, key, path of the parent
    arrays = 0
    while todo:
        i, key, path = todo.pop()
        path = path if key is None else [*path, key]
        node = Node(i, *structure._node(i), arrays, key)
        arrays += node.kind == "array"
        yield node, path
        todo += [(child, key, path) for child, key in reversed(structure._children(i))]


def root_of(structure: _core.Structure) -> Node:
    return Node(0, *structure._node(0))
