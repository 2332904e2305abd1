"""Places of the hostile matrix in the tree functions."""

from collections.abc import Callable
from typing import Any

import core_support as cs
from core_support import Array, Linear, Record, core
from places import Static, World, place
from trees_support import tree_leaves, tree_paths

Trap = Callable[[World], Any]


class Key(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "text"

    __repr__ = __str__


class Different(Static):
    """Equal to nothing."""

    __hash__ = Static.__hash__

    def __eq__(self, other: object) -> bool:
        return False

    def __repr__(self) -> str:
        return "different"


class Zero(str):
    def __hash__(self) -> int:
        return hash("0")

    def __eq__(self, other: object) -> bool:
        return True


def loud_key(w: World) -> Any:
    return {w.loud(w.loud(Key, "__str__"), "__repr__")("b"): w.y}


def loud_repr(w: World) -> Any:
    return w.loud(Different, "__repr__")()


def loud_name(w: World) -> Any:
    name = property(lambda cls: w.answer("name"))
    return type("Meta", (type,), {"__name__": name})("Loud", (Linear,), {})(weight=w.y)


def structure_of(registry: Any, tree: Any) -> Any:
    return core.tree_flatten(registry, tree, ("arrays",), None)[1]


def differ(w: World, registry: Any, tree: Any) -> Any:
    one, other = (Linear(size=loud_repr(w)) for _ in "ab")
    return core.tree_flatten(registry, one, True, None)[1]._subtrees(other)


def two_boxes(w: World) -> Any:
    return cs.Box([1], loud_repr(w)), cs.Box([1], loud_repr(w))


def two_modules(w: World, tree: Any) -> Any:
    return [Linear(weight=tree, size=w.loud(Static, "__eq__")()) for _ in "ab"]


# What is called with a registry and a tree, in which there may be a trap.
CALLS: dict[str, tuple[Callable[[World, Any, Any], Any], Trap | None]] = {
    "repr of a key": (lambda w, r, t: repr(structure_of(r, t)), loud_key),
    "repr of a static": (lambda w, r, t: repr(structure_of(r, t)), loud_repr),
    "name of a class": (lambda w, r, t: repr(structure_of(r, t)), loud_name),
    "str of a key": (lambda w, r, t: tree_paths(r, t, None), loud_key),
    "str of a key that is given": (lambda w, r, t: structure_of(r, t).paths, loud_key),
    "reprs of statics that differ": (differ, None),
    "reprs of aux data that differ": (lambda w, r, t: core.combine(r, two_boxes(w), None, False),
        None),
    "repr of an unknown path": (lambda w, r, t: structure_of(r, [w.x]).combine({loud_repr(w): 1}),
        None),
    "init of a part": (lambda w, r, t: core.partition(r, t, (("arrays",),), None, None),
        lambda w: w.loud(Record, "__init__")(w.y, 1, 2)),
    "is_leaf": (lambda w, r, t: tree_leaves(r, t, lambda x: w.answer(False)), None),
    "eq in combine": (lambda w, r, t: core.combine(r, tuple(two_modules(w, t)), None, False), None),
    "leaves that are given": (
        lambda w, r, t: structure_of(r, [w.x] * 3).unflatten(w.answer(Array(i)) for i in range(3)),
        None),
    "groups by loud keys": (
        lambda w, r, t: structure_of(r, [w.x]).combine({w.loud(Zero, "__eq__")(): 1}), None),
}  # fmt: skip


def leaves(registry: Any, tree: Any, expression: Any) -> Any:
    return core.tree_flatten(registry, tree, expression, None)


def groups(registry: Any, tree: Any, expression: Any) -> Any:
    return core.tree_groups(registry, tree, expression, (("arrays",),), None)


def partition(registry: Any, tree: Any, expression: Any) -> Any:
    return core.partition(registry, tree, (expression,), None, None)


# What is called with a filter, and the filter.
FILTERS: dict[str, tuple[Callable[[Any, Any, Any], Any], Callable[[World], Any], Trap | None]] = {
    "predicate": (partition, lambda w: ("leaf", lambda x: w.answer(True)), None),
    "predicate of arrays": (groups, lambda w: ("array", lambda x: w.answer(True)), None),
    "glob": (leaves, lambda w: ("path", (..., lambda x: w.answer(True))), None),
    "an expression in a tree of filters": (partition,
        lambda w: ("tree", [1, {"k": 2}], lambda f: w.answer(("leaf", lambda leaf: True))), None),
    "str of a key in a pattern": (leaves, lambda w: ("path", (..., "text")), loud_key),
}  # fmt: skip


def add(name: str, call: Callable[[World, Any, Any], Any], trap: Trap | None) -> None:
    def run(w: World, tree: Any) -> Any:
        try:
            call(w, w.hooks.registry, tree)
        except ValueError:
            if "repr" not in name:
                raise
        return tree

    place(name, trap or (lambda w: None), run=run)


for _name, (_call, _trap) in CALLS.items():
    add(_name, _call, _trap)
for _name, (_use, _make, _trap) in FILTERS.items():
    add(_name, lambda w, r, t, use=_use, make=_make: use(r, t, make(w)), _trap)
