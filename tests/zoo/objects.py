"""Objects of users' classes, functions, methods, classes."""

import enum
import functools
import types
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu

from support.modules import Holder
from support.statics import Constant
from zoo.zoo_support import Static, fields


class Plain:
    """Compared by identity."""

    def __init__(self, scale: Any) -> None:
        self.scale = scale

    def apply(self, x: Any) -> Any:
        return x * self.scale


class SlotsOnly:
    __slots__ = ("scale",)

    def __init__(self, scale: Any) -> None:
        self.scale = scale


class ByNumber:
    """Hashed by an int: ``hash(-1) == hash(-2)``."""

    def __init__(self, scale: Any) -> None:
        self.scale = scale

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByNumber) and bool(self.scale == other.scale)

    def __hash__(self) -> int:
        return hash(self.scale)


class ConstantHash(ByNumber):
    def __hash__(self) -> int:
        return 7


class WithoutHash(ByNumber):
    __hash__ = None  # type: ignore[assignment]


class SlotsWithoutHash:
    __slots__ = ("scale",)

    def __init__(self, scale: Any) -> None:
        self.scale = scale

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SlotsWithoutHash) and bool(self.scale == other.scale)


class EqualPartials(functools.partial[Any]):
    """Has memory that is not in its attributes."""

    def __new__(cls, *args: Any) -> Any:
        return super().__new__(cls, *args)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EqualPartials) and self.args == other.args


class Elsewhere:
    """Has attributes that are not in its `__dict__`."""

    __slots__ = ("_n",)
    __dict__ = property(lambda self: {})  # type: ignore[assignment]

    def __init__(self, n: Any) -> None:
        self._n = n

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Elsewhere) and bool(self._n == other._n)


def scale(x: Any, by: Any = 1) -> Any:
    return x * by


def shift(x: Any, by: Any = 1) -> Any:
    return x + by


def scale_by(by: Any) -> Any:
    return lambda x: x * by


def set_cell(fun: Any) -> None:
    fun.__closure__[0].cell_contents = 5


def make_class(scale: Any) -> type:
    return type("Configuration", (), {"scale": scale})


def make_module(scale: Any) -> types.ModuleType:
    module = types.ModuleType("config")
    module.scale = scale  # type: ignore[attr-defined]
    return module


def options() -> Any:
    class Options(enum.Enum):
        SMALL = [1, 2]

    return Options.SMALL


class Activation(enum.Enum):
    TANH = enum.member(jnp.tanh)
    SIN = enum.member(jnp.sin)


def three(x: Any) -> None:
    x.scale = 3


PLAIN = [Plain(2), Plain(2.0), Plain(3)]
PARTIALS = [functools.partial(f, by=by) for f in (scale, shift) for by in (1, True, 1.0)]
# What puts a function into another object, takes it out, and how many of two such objects no new
# function shares a program with.
HOLDERS: dict[str, tuple[Any, Any, int]] = {
    "a list": (lambda f: [f], lambda x: x[0], 2),
    "a frozenset": (lambda f: frozenset([f]), lambda x: next(iter(x)), 0),
    "a dataclass": (Constant, lambda x: x.value, 0),
    "a Module": (Holder, lambda x: x.x, 0),
    "a Partial": (jtu.Partial, lambda x: x.func, 0),
    "lru_cache": (functools.lru_cache, lambda x: x.__wrapped__, 2),
    "custom_jvp": (jax.custom_jvp, lambda x: x.__wrapped__, 2),
    "jax.jit": (jax.jit, lambda x: x.__wrapped__, 2),
}
JITTED = [jax.jit(scale), jax.jit(shift), jax.nn.relu]


def by_identity(make: Any, change: Any, opaque: bool = True, apart: int | None = None) -> Static:
    return Static(make, change, shared=False, noticed=False, opaque=opaque, apart=apart)


STATICS = {
    "objects of the module": Static(lambda: list(PLAIN), opaque=True),
    "objects": by_identity(lambda: [Plain(2), Plain(2.0)], three),
    "objects with slots": by_identity(lambda: [SlotsOnly(2), SlotsOnly(2.0)], three),
    "lists of objects": Static(lambda: [[Plain(2)], [Plain(2.0)]], lambda x: x.append(3), fields,
        shared=False, apart=2),
    "own equality": Static(lambda: [ByNumber(-1), ByNumber(-2), ByNumber(4)], three, opaque=True),
    "own equality, with the same hash": Static(lambda: [ByNumber(-1), ByNumber(1)],
        lambda x: setattr(x, "scale", -2), noticed=False, opaque=True),
    "own equality, with a constant hash": Static(lambda: [ConstantHash(1), ConstantHash(2)], three,
        noticed=False, opaque=True),
    "own equality without a hash": Static(
        lambda: [WithoutHash(n) for n in (-1, -2, 1, True, 1.0, [1], [True])], three, opaque=True),
    "deep in an object without a hash": Static(lambda: [WithoutHash([{"a": -1}])],
        lambda x: x.scale[0].update(a=-2), opaque=True),
    "slots without a hash": Static(lambda: [SlotsWithoutHash(n) for n in (-1, 1, True, 1.0)], three,
        opaque=True),
    "memory of a partial": Static(lambda: [EqualPartials(abs, n) for n in (1, True, 1.0)], None,
        fields, shared=False, apart=0),
    "attributes elsewhere": Static(lambda: [Elsewhere(n) for n in (1, True, 1.0)], None, fields,
        shared=False),
    # ---- functions ----
    "functions": Static(lambda: [scale, shift, jnp.sin, len, max]),
    "closures": by_identity(lambda: [scale_by(2), scale_by(2.0)], set_cell, False, 0),
    **{
        f"a function in {name}": by_identity(
            lambda put=put: [put(scale_by(n)) for n in (2, 2.0)],
            lambda x, take=take: set_cell(take(x)), False, apart,
        )
        for name, (put, take, apart) in HOLDERS.items()
    },
    "partials of the module": Static(lambda: list(PARTIALS)),
    "partials": by_identity(lambda: [functools.partial(scale, by=by) for by in (1, 1.0)],
        lambda x: x.keywords.update(by=3), False, 0),
    "bound methods": Static(lambda: [x.apply for x in PLAIN], opaque=True),
    "bound methods of new objects": by_identity(lambda: [Plain(2).apply, Plain(2.0).apply],
        lambda x: three(x.__self__)),
    "bound methods of callables": Static(
        lambda: [types.MethodType(f, PLAIN[0]) for f in (scale, shift, *PARTIALS[:2])],
        opaque=True),
    "methods of numbers": Static(lambda: [(1).__add__, True.__add__, (1.0).__add__]),
    "methods of lists": by_identity(lambda: [[1].count, [True].count],
        lambda x: x.__self__.append(1), False, 2),
    "jitted functions": Static(lambda: list(JITTED)),
    # ---- classes ----
    "classes": Static(lambda: [Plain, ByNumber, functools.partial]),
    "classes as namespaces": by_identity(lambda: [make_class(2), make_class(2.0)], three),
    "modules as namespaces": by_identity(lambda: [make_module(2), make_module(2.0)], three),
    "enums of functions": Static(lambda: list(Activation)),
    "an enum whose value changes": by_identity(lambda: [options()], lambda x: x.value.append(3),
        False, 1),
}  # fmt: skip
