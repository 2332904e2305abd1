"""Statics of types that say what is compared of them, and how the core is told."""

import collections
from collections.abc import Callable
from typing import Any

from core_support import Keyed, classify


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


class Named(collections.namedtuple("Named", "a b")):
    """Has a ``__dict__``."""


def classify_pairs(cls: type, x: Any) -> Any:
    if issubclass(cls, (Pair, Slotted)):
        return "static", (key, None, ("a", "b"))
    if cls is Shell:
        return "static", (shell_key, None, True)
    if cls is Keyed:
        return "static", (lambda x: x.key, lambda x: x.key == "immutable")
    if cls is Named:
        return "static", lambda x: (tuple(x), sorted(vars(x).items()))
    return classify(cls, x)
