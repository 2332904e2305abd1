"""Classes of leaves and nodes for particular tests; core_support.py has the ordinary ones."""

from collections.abc import Callable
from typing import Any

from core_support import Array, Linear, Module, Record
from outcome_support import nothing


class OtherLinear(Module):
    """Has the fields of Linear, and another type."""

    dynamic = Linear.dynamic
    static = Linear.static


def wide(count: int) -> Any:
    """A class of Modules with `count` fields of arrays.

    Instances share at most 30 keys in CPython, and the core reads at most FJ_FIELDS_INLINE
    fields, which are as many, into an array on the stack.
    """
    return type("Wide", (Module,), {"dynamic": tuple(f"field{i:02}" for i in range(count))})


class WithDescriptor(Module):
    """The field `weight` is a data descriptor, so instances are built field by field."""

    dynamic = ("weight",)
    static = ("size",)
    weight = property(
        lambda self: self.__dict__["weight"], lambda self, x: self.__dict__.update(weight=x)
    )


class LoudRecord(Record):
    """A dataclass node that calls a hook when the field `data` is read."""

    def __init__(self, hook: Any = None, other: Any = 1, tag: Any = 2, data: Any = None) -> None:
        self.__dict__.update(hook=hook, other=other, tag=tag)

    @property
    def data(self) -> Any:
        if callable(self.hook):
            self.hook()
        return Array()


class LoudStr(str):
    """A str that calls the hook of its class when it is compared."""

    hook: Callable[[], Any] = staticmethod(nothing)

    def __hash__(self) -> int:
        return str.__hash__(self)

    def __eq__(self, other: object) -> bool:
        LoudStr.hook()
        return str.__eq__(self, other)

    def __lt__(self, other: str) -> bool:
        LoudStr.hook()
        return str.__lt__(self, other)


class Ambiguous:
    """An answer that is neither true nor false, as an array of several elements is."""

    def __bool__(self) -> bool:
        raise ValueError("the truth value is ambiguous")
