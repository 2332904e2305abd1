"""Types of static values: those that ``==`` or ``hash`` takes for one another, and other kinds.

Static values are all leaves and fields that are not arrays.
"""

import dataclasses
import datetime
import decimal
import enum
import fractions
from typing import Any

import numpy as np


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Integer(int):
    """A subclass of int."""


class Double(float):
    """A subclass of float."""


class Text(str):
    """A subclass of str."""


class Money(decimal.Decimal):
    """A subclass of Decimal."""


class Ratio(fractions.Fraction):
    """A subclass of Fraction."""

    __slots__ = ()


class Stamp(datetime.datetime):
    """A subclass of datetime."""


class Clock(datetime.time):
    """A subclass of time."""


class Pair(tuple[Any, ...]):
    """A subclass of tuple."""

    __slots__ = ()


@dataclasses.dataclass(frozen=True)
class Constant:
    """A frozen dataclass: its ``==`` takes ``Constant(1)`` for ``Constant(True)``."""

    value: Any


@dataclasses.dataclass(frozen=True)
class Other:
    """A frozen dataclass of the same fields as `Constant`."""

    value: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    """A frozen dataclass with slots."""

    value: Any
    more: Any = 0


@dataclasses.dataclass(frozen=True)
class PartlyCompared:
    """A frozen dataclass with a field that does not take part in comparisons."""

    value: Any
    ignored: Any = dataclasses.field(default=0, compare=False)


class Inherited(Constant):
    """Has the ``__eq__`` of a dataclass, without being declared as one."""


class ListOfOwn(list[Any]):
    """A subclass of list."""


class DictOfOwn(dict[Any, Any]):
    """A subclass of dict."""


class SetOfOwn(set[Any]):
    """A subclass of set."""


class FrozenSetOfOwn(frozenset[Any]):
    """A subclass of frozenset."""


class TupleOfOwn(tuple[Any, ...]):
    """A subclass of tuple whose instances can have attributes."""


class OwnArray(np.ndarray[Any, Any]):
    """A subclass of NumPy's array."""


@dataclasses.dataclass
class Variable:
    """A mutable dataclass: it has no hash, so it can stand in static fields only."""

    value: Any


class Coarse:
    """Its ``==`` is coarser than its value, which is its own decision."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Coarse) and self.value // 2 == other.value // 2

    def __hash__(self) -> int:
        return 5


class Value:
    """Compared by value, and mutable."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Value) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)


class Thing:
    """Compared by identity, with a method."""

    def method(self) -> None:
        pass


class Unhashable:
    """Has no hash."""

    __hash__ = None  # type: ignore[assignment]
