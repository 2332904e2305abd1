"""Classes and functions that saved files refer to, in a module that every process can import.

Classes of `support` are used too where they do.
"""

import collections
import dataclasses
import enum
import functools
import sys
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from support.nodes import Bag, Point, Registered
from support.statics import Colour, Level, Slotted


class Bits(enum.IntFlag):
    A = 1
    B = 2


Loose = collections.namedtuple("Loose", "a b")


@dataclasses.dataclass(frozen=True)
class Setting:
    rate: float
    names: Any = ()


def scale(x: Any, by: float = 2.0) -> Any:
    return x * by


def with_default(x: Any, activation: Callable[..., Any] = lambda x: x + 1) -> Any:
    return activation(x)


jitted = jax.jit(scale)


@functools.wraps(scale)
def wrapped(*args: Any) -> Any:
    return scale(*args)


class Layer(eqx.Module):
    weight: Any
    sizes: list[int] = eqx.field(static=True, default_factory=lambda: [1, 2])
    options: dict[str, Any] = eqx.field(static=True, default_factory=dict)
    activation: Callable[..., Any] = jax.nn.relu

    @staticmethod
    def helper(x: Any) -> Any:
        return x

    def __call__(self, x: Any) -> Any:
        return self.activation(x * self.weight)


class Inner:
    class Deep:
        @staticmethod
        def function(x: Any) -> Any:
            return x


# Static values (values that are not arrays) that a file can hold.
VALUES: list[Any] = [
    True, False, 0, -1, 1 << 5000, -(1 << 5000), 0.0, -0.0, 1e-320, float("inf"), float("-inf"),
    float("nan"), 1j, complex(-0.0, float("nan")), "", "a\x00\ud800\U0001f600'\"", b"", b"\x00\xff",
    ..., range(3), range(10**30, 0, -7),
    frozenset(), frozenset({(2.0, None)}), {1, 2}, {"a"}, Colour.RED, Colour.BLUE, Level.LOW,
    Bits.A, Setting(0.1), Setting(float("nan"), ("a", frozenset({Colour.RED}))),
    Slotted(3), np.dtype("float32"), jnp.dtype("bfloat16"), jnp.float32,
    *map(np.dtype, ("S5", "S0", "U3", "V8", "M8[s]", "m8", "O", ">i4", ">U2")),
    np.float32, int, Layer, Colour, Inner.Deep, Inner.Deep.function, Layer.helper, scale, jitted,
    wrapped, jnp.sin, jax.nn.relu, len, with_default.__defaults__[0], jnp.add, eqx.is_array, np.sin,
]  # fmt: skip
if sys.version_info >= (3, 12):  # before, they cannot be hashed
    VALUES += [slice(None), slice(1, None, -2)]


def layer(x: Any) -> Layer:
    return Layer(x, [1, 2, 3], {"a": (None, [1.0]), "b": {1: Colour.RED}})


def nodes(x: Any) -> dict[str, Any]:
    """A tree with every kind of node, with arrays in it."""
    return {
        "none": None,
        "tuple": (x, (), (1, "s")),
        "list": [x, [], [[x]]],
        "dict": {3: x, 1: "a"},
        "ordered": collections.OrderedDict(b=x, a=1),
        "default": collections.defaultdict(list, b=x),
        "counts": collections.defaultdict(int, {1: x, 2: 5}),
        "point": Point(x, 1),
        "loose": Loose(None, x),
        "layer": layer(x),
        "dataclass": Registered(x, meta="tag"),
        "custom": Bag([x, 3], ("aux", 1)),
        "partial": jax.tree_util.Partial(scale, x, by=3.0),
        "eqx partial": eqx.Partial(scale, x, by=x),
        "setting": Setting(0.1, ("a",)),
        "enum": Colour.BLUE,
        "linear": eqx.nn.Linear(2, 2, key=jax.random.key(0)),
        "function": scale,
    }


def use(tree: Any, x: Any, n: int = 1, *, name: str = "a") -> Any:
    return tree, x * n, name
