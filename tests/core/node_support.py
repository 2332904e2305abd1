"""Classes of leaves and nodes for particular tests; core_support.py has the ordinary ones."""

import dataclasses
from collections.abc import Callable
from typing import Any

from core_support import Array, Linear, Module, Object, Record, layout
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


# ---- objects ----


@dataclasses.dataclass
class InitDataclass:
    """Is built without a call of its ``__init__``, which does nothing but set the attributes."""

    x: Any
    y: Any
    tag: Any
    layout = layout(("x", "y"), ("tag",), mode="init")


@dataclasses.dataclass(frozen=True, slots=True)
class InitSlots:
    tag: Any
    x: Any
    y: Any
    layout = layout(("x", "y"), ("tag",), mode="init")


class Base(Object):
    __slots__ = ("tag", "x")


class Inherited(Base):
    """Has slots of its own and of its base."""

    __slots__ = ("y",)
    layout = layout(("x", "y"), ("tag",))


class Mixed(Object):
    """Has attributes in slots and in the ``__dict__``."""

    __slots__ = ("__dict__", "x")
    layout = layout(("x", "y"), ("tag",))


class MixedMade(Object):
    """Has its fields in the ``__dict__``, and what is made besides in a slot."""

    __slots__ = ("__dict__", "made")
    layout = layout(("x", "y"), ("tag",), made=list)


class HeldMixed(Object):
    """A held mapping, a child beside it, and a held mapping of statics."""

    layout = layout(
        ("items", "x"), ("meta", "tag"), (None, "x", "meta", ("tag",)), ("items", "meta")
    )


class Children(Object):
    """Has no static attribute."""

    __slots__ = ("x",)
    layout = layout(("x",), (), ((0,),))


class Nothing(Object):
    """Has no attribute at all."""

    layout = layout(())


class NothingInSlots(Object):
    """Has no attribute at all, nor a place for one."""

    __slots__ = ()
    layout = layout(())


class InitNothing(NothingInSlots):
    __slots__ = ()
    layout = layout((), mode="init")


class OnlyStatic(Object):
    __slots__ = ("tag",)
    layout = layout((), ("tag",))


def wide_object(count: int, slots: bool, mode: str = "fill") -> Any:
    names = tuple(f"field{i:02}" for i in range(count))
    space = {"layout": layout(names[:-2], names[-2:], mode=mode)}
    return type("WideObject", (Object,), {**space, **({"__slots__": names} if slots else {})})
