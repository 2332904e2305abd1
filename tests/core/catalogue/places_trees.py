"""Places of the hostile matrix in the tree functions."""

import collections
from collections.abc import Callable
from typing import Any

import core_support as cs
from core_support import Array, Linear, core, partition_dict, tree_leaves, tree_paths
from places import PLACES, World, loud_eq, renewed, static, static_type


def tree_function(
    name: str, run: Callable[[World, Any, Any], Any], trap: Callable[[World], Any] | None = None
) -> None:
    """Registers a place: `run` has the trap, or `trap` makes it for the tree."""

    def make(w: World) -> Any:
        w.run = lambda tree: run(w, w.hooks.registry, tree)
        return None if trap is None else trap(w)

    PLACES[name] = make


def loud_key(w: World) -> Any:
    class Key(str):
        __slots__ = ()

        def __str__(self) -> Any:
            return w.answer("text")

        def __repr__(self) -> Any:
            return w.answer("text")

    return {Key("b"): w.y}


def loud_repr(w: World) -> Any:
    return static(__repr__=lambda self: w.answer("loud"), __eq__=lambda self, other: False)


def loud_name(w: World) -> Any:
    class Meta(type):
        @property
        def __name__(cls) -> Any:  # type: ignore[override]
            return w.answer("name")

    return Meta("Loud", (Linear,), {})(weight=w.y)


def two(w: World, tree: Any) -> tuple[Any, Any]:
    """The tree in two Modules, each with its own static."""
    loud = loud_eq(w)
    return (Linear(weight=tree, size=loud()), Linear(weight=tree, size=loud()))


def structure_of(registry: Any, tree: Any) -> Any:
    return core.tree_flatten(registry, tree, ("arrays",), None)[1]


def other_statics(w: World, registry: Any, tree: Any) -> Any:
    """Two trees whose statics differ, so that the error has the repr of both."""
    structure = core.tree_flatten(registry, Linear(size=loud_repr(w)), True, None)[1]
    other = Linear(size=loud_repr(w))
    try:
        structure._subtrees(other)
    except ValueError:
        return tree
    return tree


def other_aux(w: World, registry: Any, tree: Any) -> Any:
    boxes = [cs.Box([1], aux=loud_repr(w)) for _ in range(2)]
    try:
        core.combine(registry, tuple(boxes), None, False)
    except ValueError:
        return tree
    return tree


def unknown_groups(w: World, registry: Any, tree: Any) -> Any:
    try:
        structure_of(registry, [w.x]).combine({loud_repr(w): 1})
    except ValueError:
        return tree
    return tree


def tree_filter(w: World, registry: Any, tree: Any) -> Any:
    expression = ("tree", [1, {"k": 2}], lambda f: w.answer(("leaf", lambda leaf: True)))
    return core.partition(registry, tree, (expression,), None, None)


tree_function("repr of a key", lambda w, r, t: repr(structure_of(r, t)), loud_key)
tree_function("repr of a static", lambda w, r, t: repr(structure_of(r, t)), loud_repr)
tree_function("name of a class", lambda w, r, t: repr(structure_of(r, t)), loud_name)
tree_function("str of a key", lambda w, r, t: tree_paths(r, t, None), loud_key)
tree_function("str of a key that is given", lambda w, r, t: structure_of(r, t).paths, loud_key)
tree_function("reprs of statics that differ", other_statics)
tree_function("reprs of aux data that differ", other_aux)
tree_function("repr of an unknown path", unknown_groups)
tree_function("is_leaf", lambda w, r, t: tree_leaves(r, t, lambda x: w.answer(False)))
tree_function("eq in combine", lambda w, r, t: core.combine(r, two(w, t), None, False))
tree_function(
    "predicate",
    lambda w, r, t: core.partition(r, t, (("leaf", lambda x: w.answer(True)),), None, None),
)
tree_function(
    "predicate of arrays",
    lambda w, r, t: partition_dict(r, t, ("array", lambda x: w.answer(True)), (("arrays",),), None)[
        1:
    ],
)
tree_function(
    "glob",
    lambda w, r, t: core.tree_flatten(r, t, ("path", (..., lambda x: w.answer(True))), None)[0],
)
tree_function("an expression in a tree of filters", tree_filter)
tree_function(
    "str of a key in a pattern",
    lambda w, r, t: core.tree_flatten(r, t, ("path", (..., "text")), None)[0],
    loud_key,
)
tree_function(
    "leaves that are given",
    lambda w, r, t: structure_of(r, [w.x] * 3).unflatten(w.answer(Array(i)) for i in range(3)),
)
tree_function(
    "groups by loud keys",
    lambda w, r, t: structure_of(r, [w.x]).combine(
        {
            type(
                "K",
                (str,),
                {"__hash__": lambda s: hash("0"), "__eq__": lambda s, o: w.answer(True)},
            )(): 1
        }
    ),
)


def up_to(name: str, make: Callable[[World, Any], Any]) -> None:
    """Registers a place that is met where a tree is compared with the structure of an equal one."""

    def compare(w: World, registry: Any, tree: Any) -> Any:
        structure = w.quietly(lambda: core.tree_flatten(registry, tree, True, None))[1]
        w.renew()
        structure._subtrees(tree)
        return tree

    def trap(w: World) -> Any:
        loud = static_type(__eq__=lambda self, other: w.answer(True), __call__=lambda self: None)
        return renewed(w, lambda: make(w, loud()))

    tree_function(f"{name} in _subtrees", compare, trap)


up_to("aux data", lambda w, loud: cs.Box([w.y, 1], aux=loud))
up_to("a static field", lambda w, loud: Linear(weight=w.y, size=loud))
up_to("a field of a dataclass", lambda w, loud: cs.Record(w.y, 1, loud))
up_to("a default factory", lambda w, loud: collections.defaultdict(loud, a=w.y))


def flattens(w: World) -> Any:
    w.registry(flatten_one_level=lambda x: w.answer(cs.flatten_one_level(x)))
    w.run = lambda tree: compare_box(w, tree)
    return cs.Box([w.y, 1], aux=2)


def compare_box(w: World, tree: Any) -> Any:
    registry = w.hooks.registry
    w.quietly(lambda: core.tree_flatten(registry, tree, True, None))[1]._subtrees(tree)
    core.combine(registry, (tree, tree), None, False)
    return tree


PLACES["flatten_one_level in _subtrees"] = flattens
