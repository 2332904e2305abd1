"""Code that runs once, and deep trees."""

import collections
import gc
from collections.abc import Callable
from typing import Any

import core_support as cs
from core_support import Array, Box, Described, Frozen, Linear, Pair, Record, Slots, Variable, core
from hooks_support import Hooks, make_jit
from outcome_support import attempt
from trees_support import partition_dict, tree_leaves, tree_paths, wide


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


def made_of(registry: Any, tree: Any, other: Any) -> tuple[Any, ...]:
    """What `uses` takes: a function that was called, and Structures; `other` is equal.  Each is an
    exception where the tree is too deep."""
    f = make_jit(lambda x: x, Hooks(registry))
    attempt(f, tree)
    return (
        f,
        attempt(core.flatten, registry, tree),
        attempt(core.tree_flatten, registry, tree, True, None),
        attempt(core.tree_flatten, registry, other, True, None),
    )


def uses(registry: Any, tree: Any, other: Any, made: tuple[Any, ...]) -> dict[str, Any]:
    """What each operation on a tree returns, or the RecursionError that it raises."""
    f, flat, found, again = made
    calls: dict[str, Callable[[], Any]] = {
        **walks(registry, tree),
        "call": lambda: f(tree),
        "call of another": lambda: f(other),
        "find": lambda: f._find(other),
        "find or compile": lambda: f._find_or_compile(other),
        "static": lambda: f(Linear(size=tree)),
    }
    if not isinstance(flat, Exception):
        calls |= {
            "match": lambda: cs.testing.match(flat[1], other),
            "build": lambda: flat[1].unflatten(flat[0]),
            "hash": lambda: hash(flat[1]),
            "repr": lambda: repr(flat[1]),
            "key paths": lambda: flat[1]._key_paths(),
        }
    if not isinstance(found, Exception):
        leaves, structure = found
        calls |= {
            "unflatten": lambda: structure.unflatten(leaves),
            "up to": lambda: structure._subtrees(other),
            "parts": lambda: structure._skeleton(0),
            "repr of a tree's": lambda: repr(structure),
            "hash of a tree's": lambda: hash(structure),
            "equal": lambda: structure == again[1],
            "paths of a Structure": lambda: structure.paths,
            "groups": lambda: structure.combine(dict(zip(structure.paths, leaves, strict=True))),
        }
    results = {name: attempt(call) for name, call in calls.items()}
    for name, result in results.items():
        # The tree 1 is not as deep as these filters, and () has no leaf: errors too.
        odd = name in ("filters", "from_skeleton")
        errors = (RecursionError, ValueError) if odd else RecursionError
        assert not isinstance(result, Exception) or isinstance(result, errors), (name, result)
        assert result is not None, name
    return results
