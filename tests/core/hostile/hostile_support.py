"""User code that runs in the middle of a walk, the changes that it makes, and the trees."""

import collections
import gc
from collections.abc import Callable
from typing import Any

from core_support import (
    Array,
    Box,
    Described,
    Frozen,
    Hostile,
    Linear,
    Maybe,
    Module,
    Pair,
    Record,
    Slots,
    Value,
    Variable,
    core,
    partition_dict,
    tree_leaves,
    tree_paths,
)
from node_support import LoudRecord, wide


class Once:
    """Runs `action` at the `at`-th call, and then the garbage collector."""

    def __init__(self, action: Callable[[], Any], at: int = 1) -> None:
        self.action, self.at, self.calls = action, at, 0

    def __call__(self) -> None:
        self.calls += 1
        if self.calls == self.at:
            self.action()
            gc.collect()


# ---- changes of a container ----


def _clear(c: Any) -> None:
    (c if hasattr(c, "clear") else vars(c)).clear()


def _shrink(c: Any) -> None:
    c.pop() if isinstance(c, list) else (c if isinstance(c, dict) else vars(c)).popitem()


def _replace(c: Any) -> None:
    """Puts other objects in the same places."""
    if isinstance(c, list):
        c[:] = [[Array()] for _ in c]
    else:
        d = c if isinstance(c, dict) else vars(c)
        for k in list(d):
            d[k] = [Array()]


def _grow(c: Any) -> None:
    if isinstance(c, list):
        c.extend(range(1000))
    else:
        (c if isinstance(c, dict) else vars(c)).update({f"new{i}": i for i in range(1000)})


def _rekey(c: Any) -> None:
    if isinstance(c, dict):
        items = list(c.items())
        c.clear()
        c.update((i, v) for i, (_, v) in enumerate(items))
    elif isinstance(c, list):
        c.reverse()
    else:
        c.__dict__ = {}


def _class(c: Any) -> None:
    if isinstance(c, Module):
        c.__class__ = type("Elsewhere", (type(c),), {})
    else:
        _shrink(c)


CHANGES = [_clear, _shrink, _replace, _grow, _rekey, _class]

# ---- the containers ----


Fields = wide(10)

CONTAINERS: dict[str, Callable[[], Any]] = {
    "list": list,
    "dict": dict,
    "ordered": collections.OrderedDict,
    "default": lambda: collections.defaultdict(int),
    "module": Fields,
}


def fill(container: Any, trap: Any = None) -> None:
    """Replaces the items by leaves and nodes that nothing else holds, with the trap among them."""
    items = [
        *(Array(i) for i in range(3)),
        [Array(), Value("x" * 50), [Array()]],
        Linear(weight=Array(), bias=(Array(), "text"), size=1),
        Array() if trap is None else trap,
        {"k00": Array(), "k": Array()},
        (1.5, 2),
        *(Array(i) for i in range(2)),
    ]
    if isinstance(container, list):
        container[:] = items
    elif isinstance(container, dict):
        container.clear()
        container.update({f"k{i:02}": item for i, item in enumerate(items)})
    else:
        vars(container).clear()
        for name, item in zip(Fields.dynamic, items, strict=True):
            setattr(container, name, item)


def filled(kind: str, trap: Any = None) -> Any:
    container = CONTAINERS[kind]()
    fill(container, trap)
    return container


# ---- objects that call a hook in the middle of a walk ----


class Factory(Hostile):
    """A default_factory that calls a hook when it is compared."""

    __hash__ = Hostile.__hash__

    def __call__(self) -> int:
        return 0


TRAPS: dict[str, Callable[[Callable[[], Any]], Any]] = {
    "hash": lambda hook: Hostile(on_hash=hook),
    "eq": lambda hook: Hostile(on_eq=hook),
    "is_array": lambda hook: Maybe(True, hook),
    "is_array_static": lambda hook: Maybe(False, hook),
    "flatten_one_level": lambda hook: Box([Array(), 1], hook=hook),
    "in_tuple": lambda hook: Box([], aux=((Hostile(on_eq=hook), Hostile(on_hash=hook)),)),
    "getattr": lambda hook: LoudRecord(hook),
    "aux": lambda hook: Box([Array()], aux=Hostile(on_eq=hook)),
    "static_field": lambda hook: Linear(weight=Array(), size=Hostile(on_eq=hook)),
    "dataclass_field": lambda hook: Record(Array(), [1], Hostile(on_eq=hook)),
    "factory": lambda hook: collections.defaultdict(Factory(on_eq=hook), a=Array()),
}

# ---- the walks ----

ARRAYS = ("arrays",)


def early(registry: Any, tree: Any, hook: Callable[[], Any]) -> dict[str, Callable[[], Any]]:
    """Calls in which the hook runs while the tree is walked."""

    def is_leaf(x: Any) -> bool:
        hook()
        return False

    def expression_of(filter: Any) -> Any:
        hook()
        return "leaf", lambda x: isinstance(x, Array)

    def filters() -> Any:
        """A filter for each leaf of the first two levels, and one for each deeper subtree."""
        is_leaf = lambda x: x is not tree and x is not tree[0]
        leaves, structure = core.tree_flatten(registry, tree, True, is_leaf)
        return structure.unflatten(["filter"] * len(leaves))

    return {
        "leaves": lambda: tree_leaves(registry, tree, is_leaf),
        "paths": lambda: tree_paths(registry, tree, is_leaf),
        "flatten": lambda: core.tree_flatten(registry, tree, ARRAYS, is_leaf),
        "partition": lambda: core.partition(registry, tree, (ARRAYS,), is_leaf, None),
        "partition_dict": lambda: partition_dict(registry, tree, True, (ARRAYS,), is_leaf),
        "combine": lambda: core.combine(registry, (tree, tree), is_leaf, False),
        "tree_of_filters": lambda: core.partition(
            registry, tree, (("tree", filters(), expression_of),), None, None
        ),
    }


def late(registry: Any, tree: Any, hook: Callable[[], Any]) -> dict[str, Callable[[], Any]]:
    """Calls in which the hook runs after the leaves have been taken out of the tree."""

    def takes(leaf: Any) -> bool:
        hook()
        return isinstance(leaf, Array)

    def matches(text: str) -> bool:
        hook()
        return text < "k05"

    leaf, array, path = ("leaf", takes), ("array", takes), ("path", (("deep",), ("glob", matches)))
    return {
        "flatten": lambda: core.tree_flatten(registry, tree, leaf, None),
        "flatten_not": lambda: core.tree_flatten(registry, tree, ("not", ("or", leaf, path)), None),
        "partition": lambda: core.partition(registry, tree, (path, array), None, "none"),
        "partition_and": lambda: core.partition(registry, tree, (("and", leaf, leaf),), None, None),
        "partition_dict": lambda: partition_dict(registry, tree, array, (path,), None),
    }


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
    takes = ("path", (("deep",),))
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
        "from_skeleton": lambda: core.from_skeleton(registry, 0, tree, None),
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
