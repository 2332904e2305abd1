"""Static values of many types, and a check that they are compared exactly."""

import enum
import functools
import itertools
import math
from typing import Any

from core_support import Point, Value, core, testing


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    ONE = 1


class MyInt(int):
    __slots__ = ()


class MyFloat(float):
    __slots__ = ()


class MyStr(str):
    __slots__ = ()


class Flat(tuple):
    __slots__ = ()


class Factory(Value):
    def __call__(self) -> int:
        return 0


class ByIdentity:
    """Compares by identity."""


by_identity = ByIdentity()


def equal_copy(value: Any) -> Any:
    """An equal object at another address, where another can exist."""
    if type(value) is float:
        return -math.nan if value != value and math.copysign(1, value) < 0 else float(repr(value))
    if type(value) in (tuple, frozenset):
        return type(value)(map(equal_copy, value)) if value else value
    if type(value) in (MyInt, MyFloat, MyStr, Flat):
        return type(value)(value)
    if type(value) is str:
        return "".join(value)
    return value


# All values differ, though many are equal by ==.
DISTINCT: list[Any] = [
    1,
    True,
    1.0,
    complex(1),
    MyInt(1),
    MyFloat(1),
    Level.ONE,
    Color.RED,
    Color.BLUE,
    0,
    False,
    0.0,
    -0.0,
    complex(0.0, 0.0),
    complex(0.0, -0.0),
    complex(-0.0, 0.0),
    math.nan,
    math.inf,
    complex(math.nan, 0.0),
    2**70,
    "1",
    b"1",
    MyStr("1"),
    None,
    ...,
    NotImplemented,
    by_identity,
    ByIdentity,
    ByIdentity(),
    int,
    len,
    print,
    [].append,
    functools.partial(print),
    range(1),
    (),
    frozenset(),
    Flat(),
]
COMPOUND: list[Any] = [
    *((v,) for v in DISTINCT),
    *(frozenset([v]) for v in DISTINCT),
    *(((v,),) for v in (1, True, 1.0, 0.0, -0.0, math.nan)),
    *((frozenset([(v,)]),) for v in (1, True, 1.0, 0.0, -0.0)),
    Flat((1,)),
    Flat((True,)),
    Flat((1.0,)),
    (1, 2),
    (2, 1),
    frozenset([1, 2]),
    frozenset([1, 2.0]),
    frozenset([True, 2]),
    Point(1, 2),
    Point(True, 2),
]


def check_all_differ(registry: Any, trees: list[Any], again: list[Any]) -> None:
    """Checks that a tree equals its copy in `again`, and no other tree."""
    structures = [core.flatten(registry, tree)[1] for tree in trees]
    copies = [core.flatten(registry, tree)[1] for tree in again]
    for structure in copies:
        hash(structure)
    for (i, s), (j, t) in itertools.product(enumerate(structures), enumerate(copies)):
        hash(s)
        assert (s == t) == (i == j), (s, t)
        assert (testing.match(s, again[j]) is not None) == (i == j), (s, t)
        if i == j:
            assert hash(s) == hash(t)
