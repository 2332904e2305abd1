"""Programs with objects as configurations: own classes, functions, methods, classes."""

import enum
import functools
import itertools
import types
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from zoo_support import FIELDS, IDENTITY, OWN_EQUALITY, program, told


def setter(name: str, value: Any) -> Any:
    return lambda x: setattr(x, name, value)


# ---- own classes ----


class Plain:
    """Compared by identity."""

    def __init__(self, scale: Any) -> None:
        self.scale = scale

    def apply(self, x: Any) -> Any:
        return x * self.scale

    def __call__(self, x: Any) -> Any:
        return x + self.scale


PLAIN = Plain(2)


@program(lambda: PLAIN, lambda: Plain(2.0), lambda: Plain(3))
def object_of_the_module(cfg, x):
    return cfg.apply(x)


@program(lambda: Plain(2), lambda: Plain(2.0), change=setter("scale", 3), shares=IDENTITY)
def object_with_attributes(cfg, x):
    return cfg.apply(x)


class SlotsOnly:
    __slots__ = ("scale",)

    def __init__(self, scale: Any) -> None:
        self.scale = scale


@program(lambda: SlotsOnly(2), lambda: SlotsOnly(2.0), change=setter("scale", 3), shares=IDENTITY)
def object_with_slots(cfg, x):
    return x * cfg.scale


_labels = itertools.count()


class ByName:
    """Its ``==`` says what counts."""

    def __init__(self, name: str) -> None:
        self.name, self.label = name, next(_labels)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByName) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


@program(lambda: ByName("a"), lambda: ByName("b"), change=setter("name", "c"))
def own_equality(cfg, x):
    return told(x, cfg.name)


class ByNumber:
    """Hashed by an int: ``hash(-1) == hash(-2)``."""

    def __init__(self, n: Any) -> None:
        self.n = n

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByNumber) and self.n == other.n

    def __hash__(self) -> int:
        return hash(self.n)


@program(lambda: ByNumber(-1), lambda: ByNumber(-2), lambda: ByNumber(3), change=setter("n", 5))
def own_equality_of_a_number(cfg, x):
    return x * cfg.n


@program(lambda: ByNumber(-1), lambda: ByNumber(1), change=setter("n", -2), shares=OWN_EQUALITY)
def own_equality_and_equal_hashes(cfg, x):
    return x * cfg.n


@program(
    lambda: ByNumber(1),
    lambda: ByNumber(1.0),
    lambda: ByNumber(True),
    shares={"other 1": "its own `__eq__` says so", "other 2": "its own `__eq__` says so"},
)
def own_equality_that_takes_1_for_true(cfg, x):
    return x * cfg.n, jnp.asarray(cfg.n)


class ConstantHash(ByNumber):
    def __hash__(self) -> int:
        return 7


@program(
    lambda: ConstantHash(1), lambda: ConstantHash(2), change=setter("n", 3), shares=OWN_EQUALITY
)
def own_equality_and_a_constant_hash(cfg, x):
    return x * cfg.n


class WithoutHash(ByNumber):
    __hash__ = None  # type: ignore[assignment]


@program(lambda: WithoutHash(1), lambda: WithoutHash(2), change=setter("n", 3), shares=OWN_EQUALITY)
def own_equality_without_a_hash(cfg, x):
    return x * cfg.n


class RaisingHash(ByNumber):
    def __hash__(self) -> int:
        return hash([self.n])


@program(
    lambda: RaisingHash(1),
    lambda: RaisingHash(2),
    change=setter("n", 3),
    shares=IDENTITY,
    retraced="it is compared by identity",
)
def own_equality_and_a_hash_that_raises(cfg, x):
    return x * cfg.n


class Singleton:
    def __init__(self, n: Any) -> None:
        self.n = n

    def __reduce__(self) -> str:
        return "DEFAULT"


DEFAULT = Singleton(1)


@program(lambda: DEFAULT, lambda: Singleton(2), lambda: None)
def sentinel(cfg, x):
    return x * getattr(cfg, "n", 5)


# ---- functions ----


def scale(x: Any, by: Any = 1) -> Any:
    return x * by, jnp.asarray(by)


def shift(x: Any, by: Any = 1) -> Any:
    return x + by, jnp.asarray(by)


@program(lambda: scale, lambda: shift, lambda: jnp.sin)
def functions(cfg, x):
    return cfg(x)


def scale_by(by: Any) -> Any:
    return lambda x: x * by


def set_cell(fun: Any) -> None:
    fun.__closure__[0].cell_contents = 5


@program(lambda: scale_by(2), lambda: scale_by(2.0), change=set_cell, shares=IDENTITY)
def closures(cfg, x):
    return cfg(x)


PARTIAL = functools.partial(scale, by=1)


@program(
    lambda: PARTIAL,
    lambda: functools.partial(scale, by=True),
    lambda: functools.partial(scale, by=1.0),
    lambda: functools.partial(shift, by=1),
)
def partial_of_the_module(cfg, x):
    return cfg(x)


@program(
    lambda: functools.partial(scale, by=1),
    lambda: functools.partial(scale, by=1.0),
    change=lambda c: c.keywords.update(by=3),
    shares=IDENTITY,
)
def partial_made_again(cfg, x):
    return cfg(x)


@program(
    lambda: functools.partial(functools.partial(scale, by=1)),
    lambda: functools.partial(functools.partial(scale, by=True)),
    lambda: functools.partial(functools.partial(shift), by=1),
)
def tree_of_partials(cfg, x):
    return cfg(x)


@program(
    lambda: jtu.Partial(scale, by=1),
    lambda: jtu.Partial(scale, by=True),
    lambda: jtu.Partial(scale, by=1.0),
    lambda: jtu.Partial(shift, by=1),
    change=lambda c: c.keywords.update(by=3),
    shares=IDENTITY,
    retraced="in a static Module it is compared by identity",
)
def partial_of_jax(cfg, x):
    return cfg(x)


@program(
    lambda: PLAIN.apply, lambda: Plain(2.0).apply, lambda: Plain(3).apply, lambda: PLAIN.__call__
)
def bound_methods(cfg, x):
    return cfg(x)


@program(
    lambda: Plain(2).apply,
    lambda: Plain(2.0).apply,
    change=lambda c: setattr(c.__self__, "scale", 3),
    shares=IDENTITY,
)
def bound_method_made_again(cfg, x):
    return cfg(x)


@program(lambda: (1).__add__, lambda: True.__add__, lambda: (1.0).__add__)
def methods_of_numbers(cfg, x):
    return told(x, cfg(1), type(cfg.__self__))


@program(
    lambda: [1].count, lambda: [True].count, change=lambda c: c.__self__.append(1), shares=IDENTITY
)
def method_of_a_list(cfg, x):
    return told(x, cfg(1), cfg.__self__)


@program(lambda: Plain, lambda: ByNumber, lambda: functools.partial)
def classes(cfg, x):
    return told(x, cfg.__name__)


def make_class(scale: Any) -> type:
    return type("Configuration", (), {"scale": scale})


@program(lambda: make_class(2), lambda: make_class(2.0), change=setter("scale", 3), shares=IDENTITY)
def class_as_a_namespace(cfg, x):
    return x * cfg.scale


def make_module(scale: Any) -> types.ModuleType:
    module = types.ModuleType("config")
    module.scale = scale  # type: ignore[attr-defined]
    return module


@program(
    lambda: make_module(2), lambda: make_module(2.0), change=setter("scale", 3), shares=IDENTITY
)
def python_module_as_a_namespace(cfg, x):
    return x * cfg.scale


class Activation(enum.Enum):
    TANH = enum.member(jnp.tanh)
    SIN = enum.member(jnp.sin)


@program(lambda: Activation.TANH, lambda: Activation.SIN)
def enum_of_functions(cfg, x):
    return cfg.value(x)


JITTED = jax.jit(lambda x: x * 2)


@program(lambda: JITTED, lambda: jax.jit(lambda x: x * 2.0), lambda: jax.nn.relu)
def jitted_functions(cfg, x):
    return cfg(x)


@program(
    lambda: [Plain(2)], lambda: [Plain(2.0)], change=lambda c: c.append(Plain(3)), places=FIELDS
)
def list_of_objects(cfg, x):
    return sum(one.apply(x) for one in cfg)
