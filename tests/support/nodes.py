"""Types of pytree nodes that are not Equinox Modules, and types that look like nodes and are not
registered."""

import collections
import dataclasses
from typing import Any, NamedTuple

import jax.tree_util as jtu


class Point(NamedTuple):
    x: Any
    y: Any = 0


class PointWithMethods(Point):
    """A subclass of a named tuple, whose instances have a ``__dict__``."""

    def norm(self) -> Any:
        return self.x**2 + self.y**2


class PointWithNew(collections.namedtuple("PointWithNew", ["a", "b"])):
    """A named tuple with its own ``__new__``."""

    def __new__(cls, a: Any, b: Any = None) -> "PointWithNew":
        return super().__new__(cls, a, b)


@jtu.register_dataclass
@dataclasses.dataclass
class Registered:
    a: Any
    b: Any = 2
    meta: Any = dataclasses.field(metadata={"static": True}, default="meta")


@jtu.register_pytree_node_class
class Custom:
    """A registered class, with a label in its aux data."""

    def __init__(self, *children: Any, label: Any = "label") -> None:
        self.children, self.label = children, label

    def tree_flatten(self) -> tuple[Any, Any]:
        return self.children, (self.label, len(self.children))

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> "Custom":
        return cls(*children, label=aux[0])

    def __repr__(self) -> str:
        return f"Custom({self.children}, {self.label!r})"


class Box:
    """A mutable node with any number of children, which have keys."""

    def __init__(self, children: Any, aux: Any) -> None:
        self.children, self.aux = list(children), aux

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.children}, {self.aux!r})"


class Bag(Box):
    """The same without keys."""


jtu.register_pytree_with_keys(
    Box,
    lambda x: ([(jtu.SequenceKey(i), c) for i, c in enumerate(x.children)], x.aux),
    lambda aux, children: Box(children, aux),
)
jtu.register_pytree_node(
    Bag, lambda x: (tuple(x.children), x.aux), lambda aux, children: Bag(children, aux)
)


class ListSubclass(list[Any]):
    """A registered subclass of list."""


jtu.register_pytree_node(ListSubclass, lambda x: (list(x), None), lambda _, xs: ListSubclass(xs))


@jtu.register_static
@dataclasses.dataclass(frozen=True)
class Static:
    value: Any
