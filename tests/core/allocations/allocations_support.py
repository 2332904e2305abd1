"""What the scenarios of allocations.py are made of."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from typing import Any

import core_support as cs
from core_support import Array, Linear, Module, OtherArray, Point, Record, Value, core, same

Call = Callable[[], Any]
Check = Callable[[Any], None]
Make = Callable[[], tuple[Call, Check]]


def registering(scenarios: dict[str, Make]) -> Callable[[Make], Make]:
    def scenario(make: Make) -> Make:
        scenarios[make.__name__] = make
        return make

    return scenario


def fail(*args: Any) -> Any:
    raise ZeroDivisionError("by zero")


def expect(condition: Any) -> None:
    """An assertion that makes no long text."""
    if not condition:
        raise AssertionError


def equals(expected: Any) -> Check:
    return lambda found: expect(same(found, expected))


def raised(error: type[BaseException], call: Callable[..., Any], *args: Any) -> str:
    """The text of the error that the call is to raise."""
    try:
        call(*args)
    except error as e:
        return str(e)
    raise AssertionError(f"{call} did not raise {error}")


# What all scenarios share, so that its reference counts tell.
X, Y, OTHER, STATIC, KEYED = Array("x"), Array("y"), OtherArray(), Value(3), cs.Keyed((1,))
HOLE = Value("hole")
SHARED: list[Any] = [
    *(None, True, False, X, Y, OTHER, STATIC, KEYED, HOLE, len, cs.missing, (), 2**70),
    *(Array, Linear, Point, Record, Value, cs.LoudPoint, cs.classify),
    *(t for t in vars(core).values() if isinstance(t, type)),
]


class Box(cs.Box):
    """Holds the very children."""

    def __init__(self, children: Any, aux: Any = None, hook: Any = None) -> None:
        self.children, self.aux, self.hook = children, aux, hook


def flatten_one_level(x: Any) -> Any:
    if x.hook is not None:
        x.hook()
    return x.children, x.aux


KEYS = ((0,), (1,), (2,), (3,))
MANY = (1,) * 20


def flatten_with_keys(x: Any) -> Any:
    children, aux = flatten_one_level(x)
    return children, aux, functools.partial(type(x), aux=aux), KEYS[: len(children)]


make_registry = functools.partial(
    cs.make_registry, flatten_one_level=flatten_one_level, flatten_with_keys=flatten_with_keys
)


class Wide(Module):
    """Has more fields than are read into an array on the stack."""

    dynamic = tuple(f"field{i}" for i in range(40))


class Slotted(Module):
    """A field of it is a descriptor, so it is built field by field."""

    dynamic = ("weight",)
    static = ("size",)
    weight = property(
        lambda self: self.__dict__["weight"], lambda self, x: self.__dict__.update(weight=x)
    )


class Key(str):
    """A key whose text is made by Python code."""

    __slots__ = ()

    def __str__(self) -> str:
        return "key " + str.__str__(self)


class Elements(frozenset):  # type: ignore[type-arg]
    """A set whose elements Python code enumerates; it compares as its base does."""

    def __iter__(self) -> Any:
        return frozenset.__iter__(self)


TREES: dict[str, Callable[[], Any]] = {
    "tuple": lambda: (X, 1, (2, "a"), None),
    "list": lambda: [X, [Y, 2.5], []],
    "dict": lambda: {"a": X, "b": {"c": 1}},
    "keys": lambda: {2: X, 1: {3.5: Y}},
    "ordered": lambda: collections.OrderedDict(b=X, a=1),
    "default": lambda: collections.defaultdict(list, k=X),
    "named": lambda: Point(X, cs.LoudPoint(1, Y)),
    "module": lambda: Linear(weight=X, bias=[Y], size=3, activation=len),
    "wrapper": lambda: Linear(weight=X, size=[1, {"k": 2}], __name__="f"),
    "wide": lambda: Wide(**dict.fromkeys(Wide.dynamic, X)),
    "slotted": lambda: Slotted(weight=X, size=(1, Value(2))),
    "record": lambda: Record(X, [1], ("a", frozenset([1, 2]))),
    "box": lambda: Box((X, 3), aux=("a", Value(1))),
    "statics": lambda: [STATIC, KEYED, 2**70, -(2**70), 1.5, 2j, frozenset([1, (2, 3)]), "text"],
    "asked": lambda: [cs.Maybe(True), cs.OtherArray()],
    "sets": lambda: Linear(size=Elements([1, (2, STATIC)]), activation={"k": {1, 2}}),
    "many": lambda: [[X] * 60, [Y, 1] * 60],
}
