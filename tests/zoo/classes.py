"""Dataclasses, named tuples and Equinox Modules."""

import dataclasses
import functools
import types
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from support.modules import Holder
from support.nodes import Point
from support.statics import Constant, Pair, Slotted
from zoo.zoo_support import Static, fields, of_numbers
from zoo.zoo_support import set_frozen as set_to


def undecorated(base: type, **more: Any) -> Any:
    """Returns a class that inherits the generated equality, so that all attributes count."""
    return type(f"Undecorated{base.__name__}", (base,), more)


@dataclasses.dataclass(frozen=True)
class Config:
    n: Any
    more: Any = 0


@dataclasses.dataclass(frozen=True)
class Derived(Config):
    eps: Any = 1e-8


@dataclasses.dataclass(frozen=True, eq=False)
class Redecorated(Config):
    last: Any = 0


@dataclasses.dataclass(frozen=True)
class Acting:
    n: Any

    def __call__(self, *args: Any) -> Any:
        return self.n


OBJECT = object()


class WithMore(Config):
    def __init__(self, n: Any, extra: Any) -> None:
        super().__init__(n)
        object.__setattr__(self, "extra", extra)


class Lazy(Config):
    @functools.cached_property
    def n_twice(self) -> Any:
        return 2 * self.n


class NotLazy(Lazy):
    __slots__ = ("n_twice",)

    def __init__(self, n_twice: Any) -> None:
        super().__init__(1)
        object.__setattr__(self, "n_twice", n_twice)


@dataclasses.dataclass
class Mutable:
    lr: Any = 1
    betas: Any = dataclasses.field(default_factory=lambda: [0, 1])


@dataclasses.dataclass(frozen=True)
class HashesItsList:
    names: Any

    def __hash__(self) -> int:
        return hash(self.names)


@dataclasses.dataclass(unsafe_hash=True, order=True)
class Ordered:
    level: Any = -1


@dataclasses.dataclass(eq=False)
class Identity:
    scale: Any = 2


Undecorated = undecorated(Config)
UndecoratedMutable = undecorated(Mutable)  # its inherited `__hash__` is None
UndecoratedHashesItsList = undecorated(HashesItsList)
UndecoratedOrdered = undecorated(Ordered)
UndecoratedSlots = undecorated(Slotted, __slots__=())

# The code of an own ``__eq__`` in the text of `exec`, or of `python -c`, has the file name "<string>",
# as that of a generated one.
_names: dict[str, Any] = {"dataclasses": dataclasses, "__name__": "own"}
exec(
    "@dataclasses.dataclass(frozen=True)\n"
    "class Own:\n"
    "    n: object\n"
    "    def __eq__(self, other): return abs(self.n) == abs(other.n)\n"
    "    def __hash__(self): return hash(abs(self.n))\n",
    _names,
)
Own = _names["Own"]


class PairOfFunctions(Point):
    """Has a ``__dict__``, since it has no ``__slots__``, as the optimizers of Optax."""


class Annotated(eqx.Module):
    weight: Float[Array, " n"]  # noqa: F722
    size: Any = eqx.field(static=True)


class Kind(eqx.Enumeration):
    periodic = "periodic"
    fixed = "fixed"


PARTIAL = functools.partial(len)
LINEAR = eqx.nn.Linear(3, 3, key=jax.random.key(0))
FLOATS = [Float[t, dims] for t in (Array, np.ndarray) for dims in ("a b", "b a")]
NUMBERS = -1, 2, 2.0, True, 1, 1.0, -2, 0.0, -0.0

STATICS = {
    "dataclass": of_numbers(Config, set_to("n", -3), numbers=NUMBERS),
    "dataclass, of -1": Static(lambda: [Config(-1)], set_to("n", -2)),
    "dataclass, of 1": Static(lambda: [Config(1)], set_to("n", True)),
    "dataclass, by vars": Static(lambda: [Config(1)], lambda x: vars(x).update(n=2)),
    "inherited dataclass": of_numbers(Undecorated, set_to("n", -3), numbers=NUMBERS),
    "more attributes": Static(lambda: [Undecorated(1), *(WithMore(1, n) for n in (-1, 1, 1.0))],
        set_to("extra", -2)),
    "derived dataclass": of_numbers(lambda n: Derived(1, eps=n), set_to("eps", 1),
        numbers=(-0.0, 0.0, 0)),
    "eq=False below eq=True": of_numbers(lambda n: Redecorated(1, last=n), set_to("last", -3),
        numbers=NUMBERS),
    "slots": Static(
        lambda: [f(*a) for f in (Slotted, UndecoratedSlots) for a in ((0.0,), (-0.0,), (0, True))],
        set_to("value", -1.0)),
    "slots, of 0.0": Static(lambda: [Slotted(0.0)], set_to("value", -0.0)),
    "a slot that is cached in a base": Static(lambda: [NotLazy(1), NotLazy(True), NotLazy(2)]),
    "own __eq__ under exec": Static(lambda: [Own(1), Own(2)], set_to("n", 3)),
    "nested": Static(
        lambda: [
            Config(Derived(1), f(n, ("a", m)))
            for f in (Config, Undecorated) for n in (2, 2.0) for m in (1, True)
        ],
        lambda x: object.__setattr__(x.more, "n", 4),
    ),
    "a field of a field": Static(lambda: [Slotted(Config(Slotted(Config(1))))],
        lambda x: object.__setattr__(x.value.n.value, "n", 2)),
    "a field of many types": Static(
        lambda: [
            f(n)
            for f in (Constant, Slotted, Config)
            for n in ((1,), Pair((1,)), Point(1), (1, None), "1", None, (), frozenset(), "", 0)
        ]
    ),
    # ---- dataclasses that have no hash, and what they hold ----
    "mutable": Static(lambda: [f(n) for f in (Mutable, UndecoratedMutable) for n in (1, 1.0, True)],
        set_to("lr", 3)),
    "a list in a mutable one": of_numbers(lambda n: Mutable(betas=[n, 1]),
        lambda x: x.betas.append(2), numbers=(0, False, -0.0)),
    "a hash that raises": of_numbers(lambda n: UndecoratedHashesItsList([1, n]),
        lambda x: x.names.append(2)),
    "unsafe_hash": Static(lambda: [f(n) for f in (Ordered, UndecoratedOrdered) for n in (-1, -1.0)],
        set_to("level", -2), apart=4),
    "eq=False": Static(lambda: [Identity(), Identity(2.0)], set_to("scale", 3), shared=False,
        noticed=False, apart=2),
    "list in a field": Static(
        lambda: [f([n]) for f in (Config, Slotted, Undecorated) for n in (1, True, 1.0)],
        lambda x: x.n.append(2)),
    "dict in a field": of_numbers(lambda n: Config({"k": n}), lambda x: x.n.update(l=2)),
    "array in a field": Static(lambda: [Config(f(2)) for f in (np.zeros, np.ones)],
        lambda x: x.n.__setitem__(0, 3.0)),
    "dtype in a field": Static(lambda: [Config(np.dtype([("a", "f4")]))],
        lambda x: setattr(x.n, "names", ("b",))),
    "partial beside its argument": Static(lambda: [[Config([PARTIAL]), [1]]],
        lambda x: x[1].append(2), fields),
    "function of a method": Static(lambda: [Config(types.MethodType(Acting([1]), OBJECT))],
        lambda x: x.n.__func__.n.append(2)),
    "methods of equal callables": of_numbers(lambda n: types.MethodType(Acting(n), OBJECT)),
    # ---- named tuples ----
    "named tuple": Static(lambda: [Point(n, [m]) for n in (1, True) for m in (0.0, -0.0)],
        lambda x: x.y.append(1.0)),
    "named tuple with attributes": Static(lambda: [PairOfFunctions(dict, list),
        PairOfFunctions(list, dict)], set_to("note", 1), fields),
    # ---- Modules ----
    "Module": of_numbers(Holder, set_to("x", -3), numbers=NUMBERS),
    "Module, of -1": Static(lambda: [Holder(-1)], set_to("x", -2)),
    "static field of a Module": Static(
        lambda: [Holder(None, n) for n in (*NUMBERS, [1], [True], {1: 2}, {True: 2})],
        set_to("s", -3)),
    "Modules in Modules": Static(
        lambda: [Holder(Holder(m), ("fast", n)) for n in (1, True) for m in (1, True)],
        lambda x: object.__setattr__(x.x, "x", 5)),
    "Module in a static field of a Module": of_numbers(lambda n: Holder(None, Holder(None, n)),
        lambda x: object.__setattr__(x.s, "s", -2)),
    "Module of a list": Static(lambda: [Holder([1, 2]), Holder([1, 2.0]), Holder([True, 2])],
        lambda x: x.x.append(3)),
    "Module of an array of NumPy": Static(
        lambda: [Holder(np.array(n)) for n in ([-1, 2], [1, 2], [1.0, 2.0])],
        lambda x: x.x.__setitem__(0, -2), fields),
    "Module of an array": Static(lambda: [Holder(jnp.array(n)) for n in ([1, 2], [1, 3], [1.0, 3.0])],
        set_to("x", jnp.array([4, 5])), fields, apart=0),
    "Module of layers": Static(
        lambda: [eqx.tree_at(lambda x: x.bias, LINEAR, f(3)) for f in (jnp.ones, jnp.zeros)], None,
        fields, apart=0),
    "Module with a jaxtyped field": Static(
        lambda: [Annotated(jnp.ones(3), n) for n in (1, True, 1.0)], None, fields, apart=0),
    "types of jaxtyping": Static(lambda: list(FLOATS)),
    "Enumeration": Static(lambda: [Kind.periodic, Kind.fixed], None, fields, apart=0),
}  # fmt: skip
