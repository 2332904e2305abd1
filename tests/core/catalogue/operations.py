"""The registry of the operations, and the objects and checks that they share.

An operation uses the core in one way: it makes its objects, and returns a call and a check of the
call's result. The call can be made again and again. allocations.py makes each of its allocations
fail, and leaks.py repeats it.

CPython itself leaks if an allocation fails in `list(tuple)`, for the cell of a closure or for
`*args`, loses an exception if one fails for its text, and 3.12 crashes if one fails for a
function. The Python code of the operations avoids these.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import core_support as cs
from core_support import Array, Linear, OtherArray, Point, Record, Value, core, same
from trees_support import TREES as ALL_TREES
from trees_support import one_of_each

Operation = tuple[Callable[[], Any], Callable[[Any], None]]
Make = Callable[[], Operation]
OPERATIONS: dict[str, Make] = {}
# Those with too many allocations to let each fail, or in which CPython crashes if one fails.
ONLY_REPEATED: set[str] = set()


def operation(make: Make) -> Make:
    OPERATIONS[make.__name__] = make
    return make


def repeated_operation(make: Make) -> Make:
    ONLY_REPEATED.add(make.__name__)
    return operation(make)


def expect(condition: Any) -> None:
    """Asserts without making a long text."""
    if not condition:
        raise AssertionError


def equals(expected: Any) -> Callable[[Any], None]:
    return lambda found: expect(same(found, expected))


# All operations share these objects, so that their reference counts show a leak.
X, Y, OTHER, STATIC, KEYED = Array("x"), Array("y"), OtherArray(), Value(3), cs.Keyed((1,))
HOLE = Value("hole")
SHARED: list[Any] = [
    *(None, True, False, X, Y, OTHER, STATIC, KEYED, HOLE, len, cs.missing, (), 2**70),
    *(Array, Linear, Point, Record, Value, cs.LoudPoint, cs.classify),
    *(t for t in vars(core).values() if isinstance(t, type)),
]


class Box(cs.Box):
    """Holds the children as they are given, in place of a new list of them."""

    def __init__(self, children: Any, aux: Any = None, hook: Any = None) -> None:
        self.children, self.aux, self.hook = children, aux, hook


def flatten_one_level(x: Any) -> Any:
    if x.hook is not None:
        x.hook()
    return x.children, x.aux


KEYS = ((0,), (1,), (2,), (3,))
MANY = (1,) * 20


def rebuild_box(aux: Any, children: Any) -> Any:
    return Box(children, aux)


def flatten_with_keys(x: Any) -> Any:
    children, aux = flatten_one_level(x)
    return children, aux, rebuild_box, KEYS[: len(children)]


make_registry = functools.partial(
    cs.make_registry, flatten_one_level=flatten_one_level, flatten_with_keys=flatten_with_keys
)


class Key(str):
    """A key whose text Python code makes."""

    __slots__ = ()

    def __str__(self) -> str:
        return "key " + str.__str__(self)


class Elements(frozenset):  # type: ignore[type-arg]
    """A set whose elements Python code enumerates; it compares as its base does."""

    def __iter__(self) -> Any:
        return frozenset.__iter__(self)


class Contained:
    """Compared by `a` and `b`, which the core reads."""

    __slots__ = ("a", "b")

    def __init__(self, a: Any, b: Any) -> None:
        self.a, self.b = a, b

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Contained) and bool(self.a == other.a and self.b == other.b)

    def __hash__(self) -> int:
        return 0


def contents_key(x: Any) -> Any:
    return x.a, x.b


def classify_with_contents(cls: type, x: Any) -> Any:
    if cls is Contained:
        return "static", (contents_key, None, ("a", "b"))
    return cs.classify(cls, x)


def mixed() -> Any:
    tree = one_of_each(lambda: X, lambda: OTHER, lambda: STATIC, Box)
    return {**tree, "t": tree["t"][1:]}  # see LEAKED in allocations.py


_OWN = ("custom", "custom_empty")  # trees_support has them with a Box that makes a list
_BY_IDENTITY = ("maybe_array", "maybe_static", "list_of_leaves", "other_array")
_WIDE = tuple(f"Wide {n}{slots}" for n in (29, 30, 31) for slots in ("", " slots"))

TREES: dict[str, Callable[[], Any]] = {
    **{
        name: functools.partial(make, X, Y, OTHER)
        for name, make in ALL_TREES.items()
        if name not in _OWN + _BY_IDENTITY + _WIDE
    },
    "box": lambda: Box((X, 3), aux=("a", Value(1))),
    "statics": lambda: [STATIC, KEYED, 2**70, -(2**70), 1.5, 2j, frozenset([1, (2, 3)]), "text"],
    "maybe": lambda: [cs.Maybe(True), cs.OtherArray()],
    "sets": lambda: Linear(size=Elements([1, (2, STATIC)]), activation={"k": {1, 2}}),
    "many": lambda: [[X] * 60, [Y, 1] * 60],
}
