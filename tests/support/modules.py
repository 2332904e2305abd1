"""Equinox Modules, one class of every form."""

import functools
from typing import Any

import equinox as eqx


class Module(eqx.Module):
    a: Any
    name: str = eqx.field(static=True, default="name")
    b: Any = None


class Holder(eqx.Module):
    """A dynamic and a static field, both optional."""

    x: Any = None
    s: Any = eqx.field(static=True, default=None)


class Child(Module):
    b: Any = 3
    flags: tuple[Any, ...] = eqx.field(static=True, default=())


class Made(Child):
    """Its ``__init__`` takes other arguments, and a field of its base is static."""

    total: Any
    b: Any = eqx.field(static=True)

    def __init__(self, *parts: Any) -> None:
        self.a, self.total, self.b = list(parts), sum(parts), len(parts)

    @functools.cached_property
    def twice(self) -> Any:
        """Is stored in the ``__dict__`` of the frozen instance."""
        return 2 * self.total

    def apply(self, x: Any) -> Any:
        return x * self.total


class SameNames(eqx.Module):
    """Fields named like attributes of classes and of dicts, and like names that filterjit uses."""

    items: Any
    values: Any
    keys: Any = 1
    self: Any = 2
    cls: Any = 3
    fun: Any = eqx.field(static=True, default="fun")
    __wrapped: Any = 4  # mangled


class OwnEquality(eqx.Module):
    """Its ``__eq__`` is wrong: the ``__eq__`` of a node must not be called."""

    a: Any
    name: str = eqx.field(static=True, default="x")

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1


class Callback(eqx.Module):
    fn: Any
    arg: Any

    def __call__(self, *args: Any) -> Any:
        return self.fn(self.arg, *args)


class Wrapper(eqx.Module):
    fn: Any
    a: Any = 1

    def __call__(self, *args: Any) -> Any:
        return self.fn(*args)

    @property
    def __wrapped__(self) -> Any:
        return self.fn


class Weekday(eqx.Enumeration):
    monday = "the first day"
    tuesday = "the second day"


class Empty(eqx.Module):
    pass


class Layer(eqx.Module):
    """Two fields with children, two static ones, and a method."""

    weight: Any
    bias: Any
    size: Any = eqx.field(static=True)
    activation: Any = eqx.field(static=True)

    def method(self, x: Any) -> Any:
        return self.weight, x


class Deeper(Layer):
    extra: Any


class Shell(eqx.Module):
    """A Module that can carry the attributes of a function."""

    inner: Any
