"""Trees of every kind of node."""

import collections
import random
from typing import Any

from core_support import (
    Array,
    Box,
    Linear,
    LoudPoint,
    Maybe,
    Module,
    OtherArray,
    Point,
    Record,
    Value,
)


def children(x: Any) -> list[tuple[Any, Any]] | None:
    """(key, child) of a node; None for a leaf."""
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
    if isinstance(x, Record):
        return [("data", x.data), ("other", x.other)]
    return list(enumerate(x.children)) if isinstance(x, Box) else None


def _factory() -> int:
    return 0


def trees() -> dict[str, Any]:
    x, y, z = (Array(i) for i in range(3))
    return {
        "array": x,
        "other_array": OtherArray(),
        "asked_array": Maybe(True),
        "asked_static": Maybe(False),
        "static": "text",
        "none": None,
        "tuple": (x, 1, y),
        "tuple_of_nones": (None, (None,)),
        "empty_tuple": (),
        "list": [x, "a", [y, None]],
        "list_of_leaves": [1, 1.5, x, y, "a", Maybe(False)],
        "empty_list": [],
        "dict": {"b": x, "a": y, "c": 1},
        "empty_dict": {},
        "int_keys": {2: x, 1: y},
        "ordered_dict": collections.OrderedDict([("b", x), ("a", 2)]),
        "default_dict": collections.defaultdict(_factory, b=x, a=y),
        "default_dict_none": collections.defaultdict(None, a=y),
        "namedtuple": Point(x, 2),
        "loud_namedtuple": LoudPoint(x, 2),
        "module": Linear(weight=x, bias=y, size=3, activation=len),
        "partial_module": Linear(bias=y, __name__="f"),
        "dataclass": Record(x, [y], "tag"),
        "custom": Box([x, (y, 2)], aux=("aux", 1)),
        "generic_empty": Box([]),
        "deep": ({"k": [Point(x, Record(y, z, 0))]}, Linear(weight=(x, x), bias=None)),
        "mixed": [[1, 2], 3, ([x, y], ([z],), [[], 4]), [None, 5], [6, 7]],
        "shared": [x] * 4,
    }


def random_tree(source: random.Random, depth: int = 4) -> Any:
    """Its leaves are all different objects, None aside."""
    below = lambda: random_tree(source, depth - 1)
    few = range(source.randrange(5))
    kind = source.randrange(14) if depth else source.randrange(3)
    if kind <= 2:
        return (Array(), Value(source.random()), None)[kind]
    if kind <= 5:
        return [below() for _ in few]
    if kind <= 7:
        return tuple([below() for _ in few])
    if kind == 8:
        return [Array() for _ in range(source.randrange(1, 30))]
    if kind == 9:
        return {f"k{i}": below() for i in reversed(few)}
    return (
        lambda: Linear(weight=below(), bias=below(), size=3),
        lambda: Point(below(), below()),
        lambda: Record(below(), below(), "tag"),
        lambda: Box([below() for _ in few], aux="aux"),
    )[kind - 10]()
