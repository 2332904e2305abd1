"""Trees of every kind of node."""

import collections
import functools
import random
from collections.abc import Callable
from typing import Any

from core_support import (
    Array,
    Box,
    Described,
    Frozen,
    Linear,
    LoudPoint,
    Maybe,
    Module,
    OtherArray,
    Pair,
    Part,
    Point,
    Record,
    Slots,
    Value,
    Variable,
    core,
)
from node_support import (
    Called,
    Children,
    HeldMixed,
    Inherited,
    Init,
    InitDataclass,
    InitNothing,
    InitSlots,
    Mixed,
    MixedMade,
    Nothing,
    NothingInSlots,
    OnlyStatic,
    WithDescriptor,
    wide,
    wide_object,
)


def children(x: Any) -> list[tuple[Any, Any]] | None:
    """Returns (key, child) of each child of a node, or None for a leaf."""
    if x is None:
        return []
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return list(zip(x._fields, x, strict=True))
    if type(x) in (tuple, list):
        return list(enumerate(x))
    if isinstance(x, dict):
        return [(k, x[k]) for k in (x if type(x) is collections.OrderedDict else sorted(x))]
    if isinstance(x, Module):
        return [(k, getattr(x, k)) for k in x.dynamic if hasattr(x, k)]
    if hasattr(type(x), "layout"):
        names, _, keys, dict_fields, *_ = x.layout
        found: list[tuple[Any, Any]] = []
        for name, key in zip(names, keys or names, strict=False):
            value = getattr(x, name)
            if name in dict_fields:
                found += sorted(value.items())
            else:
                found.append((key[0] if isinstance(key, tuple) else key, value))
        return found
    if isinstance(x, Described):
        return [(name, getattr(x, name)) for name in sorted(x.nodes)]
    if isinstance(x, Record):
        return [("data", x.data), ("other", x.other)]
    return list(enumerate(x.children)) if isinstance(x, Box) else None


def _factory() -> int:
    return 0


_Wide = wide(40)
WIDE = {(n, slots): wide_object(n, slots) for n in (29, 30, 31, 40) for slots in (False, True)}


def _wide(key: tuple[int, bool]) -> Callable[..., Any]:
    cls = WIDE[key]
    names, static, *_ = cls.layout
    return lambda x, y, tag: cls(
        **{name: (x, y)[i % 2] for i, name in enumerate(names)}, **dict.fromkeys(static, tag)
    )


# Each makes an instance from two children and a static.
OBJECTS: dict[str, Callable[[Any, Any, Any], Any]] = {
    **{
        cls.__name__: lambda x, y, tag, cls=cls: cls(x=x, y=y, tag=tag)  # type: ignore[misc]
        for cls in (Pair, Slots, Called, Init, InitDataclass, InitSlots, Mixed)
    },
    "Inherited": lambda x, y, tag: Inherited(x=x, y=y, tag=tag),
    "MixedMade": lambda x, y, tag: MixedMade(x=x, y=y, tag=tag, made=[]),
    "Frozen": lambda x, y, tag: Frozen({"b": x, "a": y, "c": tag}),
    "Frozen of numbers": lambda x, y, tag: Frozen({2: x, 1: y, -3: tag}),
    "Frozen of nothing": lambda x, y, tag: [Frozen({}), x, y, tag, 1],
    "Variable": lambda x, y, tag: [Variable(x, tag=tag, other=1), Variable((y,))],
    "HeldMixed": lambda x, y, tag: HeldMixed(items={"k": x}, x=y, meta={"m": tag, "l": 1}, tag=tag),
    "Children": lambda x, y, tag: Children(x=[Children(x=x), y, tag]),
    "Nothing": lambda x, y, tag: [Nothing(), x, y, tag, 2],
    "NothingInSlots": lambda x, y, tag: [NothingInSlots(), x, InitNothing(), y, tag, 2, 3],
    "OnlyStatic": lambda x, y, tag: [OnlyStatic(tag=tag), x, y],
    "Part": lambda x, y, tag: Part(max, x, (tag,), key=y),
    "Described": lambda x, y, tag: Described(("x", "y"), x=x, y=[y], tag=tag),
    **{f"Wide {n}{' slots' * slots}": _wide((n, slots)) for n, slots in WIDE},
}

# Each makes a tree with up to three arrays.
TREES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "array": lambda x, y, z: x,
    "other_array": lambda x, y, z: OtherArray(),
    "maybe_array": lambda x, y, z: Maybe(True),
    "maybe_static": lambda x, y, z: Maybe(False),
    "static": lambda x, y, z: "text",
    "none": lambda x, y, z: None,
    "tuple": lambda x, y, z: (x, 1, y),
    "tuple_of_nones": lambda x, y, z: (None, (None,)),
    "constant_tuple": lambda x, y, z: (x, 1, (2, "a"), None),
    "empty_tuple": lambda x, y, z: (),
    "list": lambda x, y, z: [x, "a", [y, None, 2.5, []]],
    "list_of_leaves": lambda x, y, z: [1, 1.5, x, y, "a", Maybe(False)],
    "empty_list": lambda x, y, z: [],
    "dict": lambda x, y, z: {"b": x, "a": {"k": y}, "c": 1},
    "empty_dict": lambda x, y, z: {},
    "number_keys": lambda x, y, z: {2: x, 1: {3.5: y}},
    "ordered_dict": lambda x, y, z: collections.OrderedDict([("b", x), ("a", 2)]),
    "default_dict": lambda x, y, z: collections.defaultdict(_factory, b=x, a=y),
    "default_dict_none": lambda x, y, z: collections.defaultdict(None, a=y),
    "namedtuple": lambda x, y, z: Point(x, 2),
    "loud_namedtuple": lambda x, y, z: LoudPoint(x, 2),
    "module": lambda x, y, z: Linear(weight=x, bias=[y], size=3, activation=len),
    "wrapper_module": lambda x, y, z: Linear(bias=y, size=[1, {"k": 2}], __name__="f"),
    "wide_module": lambda x, y, z: _Wide(**dict.fromkeys(_Wide.dynamic, x)),
    "descriptor_module": lambda x, y, z: WithDescriptor(weight=x, size=(1, Value(2))),
    "dataclass": lambda x, y, z: Record(x, [y], ("a", frozenset([1, 2]))),
    "partial_of_a_partial": lambda x, y, z: Part(functools.partial(max, key=1), x),
    "custom": lambda x, y, z: Box([x, (y, 2)], aux=("aux", 1)),
    "custom_empty": lambda x, y, z: Box([]),
    "deep": lambda x, y, z: (
        {"k": [Point(x, Record(y, z, 0))]},
        Linear(weight=(x, x), bias=None),
    ),
    "mixed": lambda x, y, z: [[1, 2], 3, ([x, y], ([z],), [[], 4]), [None, 5], [6, 7]],
    "shared": lambda x, y, z: [x] * 4,
    **{
        name: lambda x, y, z, make=make: make(x, [y], Value("tag"))  # type: ignore[misc]
        for name, make in OBJECTS.items()
    },
}


def trees() -> dict[str, Any]:
    x, y, z = (Array(i) for i in range(3))
    return {name: make(x, y, z) for name, make in TREES.items()}


def _leaf(source: random.Random) -> Any:
    return source.choice((Array(), Value(source.random()), None))


def random_tree(
    source: random.Random, depth: int = 4, leaf: Callable[[random.Random], Any] = _leaf
) -> Any:
    """All leaves are different objects, except for None; a Variable has the path of its value."""
    below = lambda: random_tree(source, depth - 1, leaf)
    few = range(source.randrange(5))
    kind = source.randrange(20) if depth else source.randrange(3)
    if kind <= 2:
        return leaf(source)
    if kind <= 5:
        return [below() for _ in few]
    if kind <= 7:
        return tuple([below() for _ in few])
    if kind == 8:
        return [Array() for _ in range(source.randrange(1, 30))]
    if kind <= 10:
        items = {key: below() for key in source.choice(_KEYS)[: len(few)]}
        return source.choice((dict, collections.OrderedDict, _default_dict))(items)
    return (
        lambda: Linear(weight=below(), bias=below(), size=3),
        lambda: Linear(**{name: below() for name in Linear.dynamic[: len(few)]}),
        lambda: source.choice((Point, LoudPoint))(below(), below()),
        lambda: Record(below(), below(), "tag"),
        lambda: Box([below() for _ in few], aux="aux"),
        lambda: Slots(x=below(), y=below(), tag="tag"),
        lambda: Frozen({f"k{i}": below() for i in reversed(few)}),
        lambda: Variable(below(), kind="kind"),
        lambda: Described(("x", "y"), x=below(), y=below(), z=1),
    )[kind - 11]()


_KEYS: list[list[Any]] = [["k3", "k0", "k2", "k1"], [0, True, 2.0, -1], ["k1", "k0"]]
_default_dict = functools.partial(collections.defaultdict, int)


# ---- the tree functions that are Python ----


def tree_leaves(registry: Any, tree: Any, is_leaf: Any) -> list[Any]:
    return core.tree_flatten(registry, tree, True, is_leaf)[0]  # type: ignore[no-any-return]


def tree_paths(registry: Any, tree: Any, is_leaf: Any) -> list[str]:
    return list(core.tree_flatten(registry, tree, True, is_leaf)[1].paths)


def parts_of(structure: Any, hole: Any) -> tuple[Any, tuple[Any, ...]]:
    """What `core.from_skeleton` makes the structure of again."""
    return structure._skeleton(hole), structure._leaves(hole)


def partition_dict(
    registry: Any, tree: Any, candidates: Any, expressions: tuple[Any, ...], is_leaf: Any
) -> tuple[Any, ...]:
    """What `filterjit.partition_dict` does."""
    leaves, structure, groups = core.tree_groups(registry, tree, candidates, expressions, is_leaf)
    parts: list[dict[str, Any]] = [{} for _ in range(len(expressions) + 1)]
    for path, leaf, group in zip(structure.paths, leaves, groups, strict=True):
        parts[group][path] = leaf
    return structure, *parts
