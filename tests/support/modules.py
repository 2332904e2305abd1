"""Equinox Modules, one class of every form."""

import abc
import dataclasses
import functools
import typing
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp

T = typing.TypeVar("T")


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


class WithFactories(Module):
    """A subclass with a default that a factory makes."""

    c: Any = dataclasses.field(default_factory=lambda: [1, jnp.array(2.0)])
    d: tuple[Any, ...] = eqx.field(static=True, default=(1, "x"))


class AllStatic(eqx.Module):
    a: int = eqx.field(static=True, default=1)
    b: str = eqx.field(static=True, default="b")


class MakesStatic(Child):
    """A field of its base, now static."""

    b: Any = eqx.field(static=True, default=7)


class WithInit(eqx.Module):
    total: Any
    parts: list[Any]
    size: int = eqx.field(static=True)

    def __init__(self, *parts: Any) -> None:
        self.size = len(parts)
        self.parts = list(parts)
        self.total = sum(parts)


class WithPostInit(eqx.Module):
    a: Any
    doubled: Any = eqx.field(init=False, static=True)

    def __post_init__(self) -> None:
        self.doubled = "twice"


class Converted(eqx.Module):
    a: Any = eqx.field(converter=jnp.asarray)
    b: tuple[Any, ...] = eqx.field(converter=tuple, static=True, default=())


class Checked(Module):
    def __check_init__(self) -> None:
        if isinstance(self.a, str):
            raise ValueError("no strings")


class CheckedTwice(Checked):
    b: Any = 1

    def __check_init__(self) -> None:
        if self.b is None:
            raise ValueError("no None")


class Abstract(eqx.Module):
    scale: eqx.AbstractVar[Any]
    label: eqx.AbstractClassVar[str]

    @abc.abstractmethod
    def apply(self, x: Any) -> Any:
        raise NotImplementedError

    def twice(self, x: Any) -> Any:
        return self.apply(self.apply(x))


class Concrete(Abstract):
    scale: Any
    label: ClassVar[str] = "concrete"

    def apply(self, x: Any) -> Any:
        return x * self.scale


class Properties(eqx.Module):
    _width: Any
    height: Any = 2

    @property
    def width(self) -> Any:
        return self._width

    @functools.cached_property
    def area(self) -> Any:
        """Is stored in the ``__dict__`` of the frozen instance."""
        return self._width * self.height

    @property
    def size(self) -> Any:
        return self.width * self.height


class SameNames(eqx.Module):
    """Fields named like attributes of classes and of dicts, and like names that filterjit uses."""

    items: Any
    values: Any
    keys: Any = 1
    self: Any = 2
    cls: Any = 3
    fun: Any = eqx.field(static=True, default="fun")
    __wrapped: Any = 4  # mangled


class Shadowed(eqx.Module):
    """Fields with defaults, which are attributes of the class."""

    a: Any = 10
    b: Any = eqx.field(static=True, default=20)
    call: Callable[..., Any] = jnp.tanh


class GenericModule(eqx.Module, typing.Generic[T]):
    a: T
    b: Any = eqx.field(static=True, default="b")


class OwnEquality(eqx.Module):
    """Its ``__eq__`` is wrong: the ``__eq__`` of a node must not be called."""

    a: Any
    name: str = eqx.field(static=True, default="x")

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1


class UnhashableModule(eqx.Module):
    a: Any
    __hash__ = None  # type: ignore[assignment]


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


class Nested(eqx.Module):
    inner: Any
    others: Any = None
    depth: int = eqx.field(static=True, default=0)


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
