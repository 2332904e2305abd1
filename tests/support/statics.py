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

Colour = enum.Enum("Colour", ["RED", "BLUE"])
Level = enum.IntEnum("Level", ["LOW", "HIGH"])
# Subclasses that add nothing; instances of those without slots can have attributes.
Integer: Any = type("Integer", (int,), {})
Double: Any = type("Double", (float,), {})
Text: Any = type("Text", (str,), {})
Money: Any = type("Money", (decimal.Decimal,), {})
Ratio: Any = type("Ratio", (fractions.Fraction,), {"__slots__": ()})
Stamp: Any = type("Stamp", (datetime.datetime,), {})
Clock: Any = type("Clock", (datetime.time,), {})
Pair: Any = type("Pair", (tuple,), {"__slots__": ()})
ListOfOwn: Any = type("ListOfOwn", (list,), {})
DictOfOwn: Any = type("DictOfOwn", (dict,), {})
SetOfOwn: Any = type("SetOfOwn", (set,), {})
FrozenSetOfOwn: Any = type("FrozenSetOfOwn", (frozenset,), {})
TupleOfOwn: Any = type("TupleOfOwn", (tuple,), {})
OwnArray: Any = type("OwnArray", (np.ndarray,), {})
Unhashable: Any = type("Unhashable", (), {"__hash__": None})


@dataclasses.dataclass(frozen=True)
class Constant:
    """A frozen dataclass: its ``==`` takes ``Constant(1)`` for ``Constant(True)``."""

    value: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    """A frozen dataclass with slots."""

    value: Any
    more: Any = 0


class Thing:
    """Compared by identity, with a method."""

    def method(self) -> None:
        pass
