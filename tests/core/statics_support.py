"""Static values of many types, the places where they stand, and checks of how they are compared."""

import itertools
from collections.abc import Callable
from typing import Any

import core_support as cs
from core_support import Array, Box, Described, Keyed, Linear, Record, Slots, Value, core, static

# ---- types that are easily confused with others ----


MyInt, MyStr = (
    type(name, (base,), {"__slots__": ()}) for name, base in (("MyInt", int), ("MyStr", str))
)


class Factory(Value):
    def __call__(self) -> int:
        return 0


class ByIdentity:
    """Compares by identity."""


# ---- types that say what is compared of them ----


class Pair:
    """Compared by `a` and `b`."""

    def __init__(self, a: Any, b: Any = None) -> None:
        self.a, self.b = a, b

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pair) and bool(self.a == other.a and self.b == other.b)

    def __hash__(self) -> int:
        return 0


class Slotted:
    """The same, in slots."""

    __slots__ = ("a", "b")

    def __init__(self, a: Any, b: Any = None) -> None:
        self.a, self.b = a, b

    __eq__, __hash__ = Pair.__eq__, Pair.__hash__


class Half(Pair):
    """One attribute in a slot, the other in the ``__dict__``."""

    __slots__ = ("a",)


class Mixed(Slotted):
    """In slots, but not side by side, with a ``__dict__``."""

    __slots__ = ("__dict__", "between", "c")


class Shell:
    """Cannot change, but what is in its key can."""

    __slots__ = ("hook", "inside")

    def __init__(self, inside: Any, hook: Callable[[], Any] | None = None) -> None:
        self.inside, self.hook = inside, hook

    __eq__, __hash__ = Pair.__eq__, Pair.__hash__


calls: list[Any] = []


def key(x: Any) -> Any:
    calls.append(x)
    return x.a, x.b


def shell_key(x: Any) -> Any:
    if x.hook is not None:
        x.hook()
    return x.inside


def classify_pairs(cls: type, x: Any) -> Any:
    if issubclass(cls, (Pair, Slotted)):
        return static(key, None, ("a", "b"))
    if cls is Shell:
        return static(shell_key, None, True)
    if cls is Keyed:
        return static(lambda x: x.key, lambda x: x.key == "fixed")
    return cs.classify(cls, x)


def equal_copy(value: Any) -> Any:
    """An equal object at another address, where another can exist."""
    if type(value) is float:
        return float(repr(value))
    if type(value) in (tuple, frozenset):
        return type(value)(map(equal_copy, value))
    if type(value) is str:
        return "".join(value)
    return type(value)(value) if type(value) in (MyInt, MyStr, complex) else value


X = Array("x")
# Where a static can stand: a container is one value there, which needs no hash.
PLACES: dict[str, Callable[[Any], Any]] = {
    "field of a module": lambda v: Linear(weight=X, size=v),
    "field of a dataclass": lambda v: Record(X, 2, v),
    "field of an object": lambda v: Slots(x=X, y=2, tag=v),
    "dict field": lambda v: cs.Variable(X, kind=v),
    "described": lambda v: Described(("x",), x=X, y=v),
    "aux data": lambda v: Box([X], aux=v),
    "many": lambda v: [Linear(weight=X, size=v) for _ in range(20)],
}


def matches(structure: Any, tree: Any) -> bool:
    return cs.testing.match(structure, tree) is not None


def seen(registry: Any, tree: Any) -> Any:
    """The Structure of a tree, which has matched it, so that contents have been taken."""
    structure = core.flatten(registry, tree)[1]
    hash(structure)
    for _ in range(3):
        assert matches(structure, tree)
    return structure


def check_all_differ(registry: Any, trees: list[Any], again: list[Any]) -> None:
    """Checks that a tree equals its copy in `again`, and no other tree."""
    structures = [core.flatten(registry, tree)[1] for tree in trees]
    copies = [core.flatten(registry, tree)[1] for tree in again]
    for structure in copies[::2]:  # equality does not depend on what was hashed
        hash(structure)
    for (i, s), (j, t) in itertools.product(enumerate(structures), enumerate(copies)):
        if j == 1:
            hash(s)
        assert (s == t) == (i == j) == (t == s), (s, t)
        assert matches(s, again[j]) == (i == j), (s, t)
        if i == j:
            assert hash(s) == hash(t)
