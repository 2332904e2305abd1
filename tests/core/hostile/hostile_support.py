"""Code that runs once, deep trees, and calls within calls."""

import collections
import gc
from collections.abc import Callable
from typing import Any

from core_support import (
    Array,
    Box,
    Described,
    Frozen,
    Linear,
    Pair,
    Record,
    Slots,
    Variable,
    core,
    partition_dict,
    tree_leaves,
    tree_paths,
)
from node_support import wide


class Once:
    """Runs `action` at the `at`-th call, and then the garbage collector."""

    def __init__(self, action: Callable[[], Any], at: int = 1) -> None:
        self.action, self.at, self.calls = action, at, 0

    def __call__(self) -> None:
        self.calls += 1
        if self.calls == self.at:
            self.action()
            gc.collect()


# ---- deep trees ----


def nest(make: Callable[[Any], Any], depth: int) -> Any:
    tree: Any = Array()
    for _ in range(depth):
        tree = make(tree)
    return tree


Wide = wide(40)


def in_a_dict(tree: Any) -> Any:
    """A Module whose attributes are in a dict that shares no keys."""
    module = Linear()
    module.__dict__ = {"weight": tree, "size": 1, "bias": None, "activation": 2}
    return module


def take(x: Any, name: str) -> Any:
    """Deletes an attribute, and returns what it was."""
    value = getattr(x, name)
    delattr(x, name)
    return value


# How a tree is wrapped in one more level, and how the level is removed.
NESTS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "tuple": (lambda t: (t,), lambda t: t[0]),
    "list": (lambda t: [t], lambda t: t.pop()),
    "dict": (lambda t: {"a": t}, lambda t: t.pop("a")),
    "module": (lambda t: Linear(weight=t), lambda t: vars(t).pop("weight")),
    "wide": (lambda t: Wide(field00=t), lambda t: vars(t).pop("field00")),
    "dict_of_attributes": (in_a_dict, lambda t: vars(t).pop("weight")),
    "ordered": (
        lambda t: collections.OrderedDict(a=t),
        lambda t: t.pop("a"),
    ),
    "record": (lambda t: Record(t, 1, 2), lambda t: vars(t).pop("data")),
    "pair": (lambda t: Pair(x=t, y=1, tag=2), lambda t: vars(t).pop("x")),
    "slots": (lambda t: Slots(x=1, y=t, tag=2), lambda t: take(t, "y")),
    "frozen": (lambda t: Frozen({"k": t, "a": 1}), lambda t: t.items.pop("k")),
    "variable": (lambda t: Variable([t], kind=1), lambda t: take(t, "value")[0]),
    "described": (lambda t: Described(("x",), x=t), lambda t: vars(t).pop("x")),
    "box": (lambda t: Box([t]), lambda t: t.children.pop()),
}


def unnest(tree: Any, inner: Callable[[Any], Any]) -> None:
    """Removes the levels of a deep tree one by one, as some types are deallocated recursively."""
    while not isinstance(tree, Array):
        tree = inner(tree)


def walks(registry: Any, tree: Any) -> dict[str, Callable[[], Any]]:
    takes = ("path", (...,))
    return {
        "leaves": lambda: tree_leaves(registry, tree, None),
        "paths": lambda: tree_paths(registry, tree, None),
        "is_leaf": lambda: tree_leaves(registry, tree, lambda x: False),
        "flatten": lambda: core.tree_flatten(registry, tree, takes, None),
        "partition": lambda: core.partition(registry, tree, (takes,), None, None),
        "dict": lambda: partition_dict(registry, tree, True, (takes,), None),
        "combine": lambda: core.combine(registry, (tree, tree), None, False),
        "filters": lambda: core.partition(registry, 1, (("tree", tree, max),), None, None),
        "below": lambda: core.partition(registry, [tree], (("tree", [True], max),), None, None),
        "from_skeleton": lambda: core.from_skeleton(
            registry, 0, tree, tuple(tree_leaves(registry, tree, None))
        ),
    }


# ---- calls within calls ----

# An argument whose hash, comparison and so on call `f` again, which `make` makes.
ENDLESS = {
    "hash": "static(__hash__=lambda self: f(self))",
    "eq": "static(__hash__=lambda self: 1, __eq__=lambda self, other: f(make()))",
    "is_array": "Maybe(True, lambda: f(make()))",
    "flatten_one_level": "Box([], hook=lambda: f(make()))",
    "getattr": "type('Lacks', (Slots,), {'__getattr__': lambda self, name: f(make())})()",
    "describe": "type('Told', (Described,), {'describe': lambda self: f(make())})()",
}
