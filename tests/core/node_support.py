"""Classes of leaves and nodes for particular tests; core_support.py has the ordinary ones."""

import dataclasses
from collections.abc import Callable
from typing import Any

from core_support import Linear, Module, Object, Pair, Slots, layout
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


class LoudStr(str):
    """A str that calls the hook of its class when it is compared."""

    hook: Callable[[], Any] = staticmethod(nothing)
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        LoudStr.hook()
        return str.__eq__(self, other)


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


class Mixed(Object):
    """Has attributes in slots and in the ``__dict__``."""

    __slots__ = ("__dict__", "x")
    layout = layout(("x", "y"), ("tag",))


class HeldMixed(Object):
    """A dict field, a child beside it, and a dict field of statics."""

    layout = layout(
        ("items", "x"), ("meta", "tag"), (None, "x", "meta", ("tag",)), ("items", "meta")
    )


def object_class(
    details: tuple[Any, ...], slots: tuple[str, ...] | None = None, base: Any = Object
) -> Any:
    """A class with this layout, whose instances have these slots or a ``__dict__``."""
    space = {} if slots is None else {"__slots__": slots}
    return type("Kind", (base,), {"layout": details, **space})


XY_TAG = layout(("x", "y"), ("tag",))
# Has slots of its own and of its base.
Inherited = object_class(XY_TAG, ("y",), object_class(XY_TAG, ("tag", "x")))
# Has its fields in the ``__dict__``, and what is made besides in a slot.
MixedMade = object_class(layout(("x", "y"), ("tag",), made=list), ("__dict__", "made"))
Children = object_class(layout(("x",), (), ((0,),)), ("x",))  # has no static attribute
OnlyStatic = object_class(layout((), ("tag",)), ("tag",))
Nothing = object_class(layout(()))
NothingInSlots = object_class(layout(()), ())
InitNothing = object_class(layout((), mode="init"), ())


def wide_object(count: int, slots: bool) -> Any:
    names = tuple(f"field{i:02}" for i in range(count))
    return object_class(layout(names[:-2], names[-2:]), names if slots else None)


class Init(Slots):
    """Is built without its ``__init__`` as long as the class does not change."""

    __slots__ = ()
    layout = layout(("x", "y"), ("tag",), ("x", (1,), "tag"), mode="init")


class Called(Pair):
    """Is built by a call, which has a say in its attributes."""

    layout = layout(("x", "y"), ("tag",), mode="call")
