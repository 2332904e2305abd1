"""Times calls with one static of each kind: how much longer a hit takes than with an int.

    python benchmarks/statics.py                    all kinds, some 3 minutes
    python benchmarks/statics.py --quick graphdef   rough times of some kinds
    python benchmarks/statics.py --markdown         the table of benchmarks/README.md

The program adds 1 to an array and takes the static besides. Each kind is measured twice: where each
call has the *same* object, and where calls alternate between two equal objects, so that each is
*another* than that of the call before; there, an int alternates too. `jax.jit`, with the static in
`static_argnums` unless it is a pytree without leaves, stands beside them, over its own call with an
int; it takes 1 for True, and a value that has changed in place for what it was. All of a row are
timed alternately.
"""

import dataclasses
import enum
import functools
import importlib
import itertools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import command
import filterjit
from layout import lay_out, progress
from timing import in_a_row, in_batches, interleaved

BATCH = 3e-3  # the least seconds of a batch of calls
ROUNDS = 10  # the least number of batches of each call
SECONDS = 4.0  # for all batches of a row together


# ---- the kinds of statics ----


@dataclasses.dataclass(frozen=True)
class Layer:
    width: int
    name: str = "dense"
    rate: float = 0.1
    shape: tuple[int, ...] = (3, 3)
    bias: bool = True


@dataclasses.dataclass(frozen=True)
class Net:
    layers: tuple[Layer, ...]
    name: str = "net"


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    a: int
    b: str = "b"


class Point(NamedTuple):
    x: int
    y: int


class Compared:
    """Has an ``__eq__`` and a hash of its own, of which nothing is known."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Compared) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)


class Color(enum.Enum):
    RED = 1


class Layers(nnx.Module):
    def __init__(self, number: int) -> None:
        rngs = nnx.Rngs(0)
        self.layers = nnx.List([nnx.Linear(2, 2, rngs=rngs) for _ in range(number)])


class Object:
    def method(self) -> None:
        pass


def _function() -> None:
    pass


_object = Object()
_model = Layers(20)


def _mesh() -> Mesh:
    return Mesh(np.array(jax.devices()[:1]), ("data",))


def _config() -> Any:
    config = importlib.import_module("ml_collections")  # which has no annotations
    return config.FrozenConfigDict({"width": 8, "layers": {"rate": 0.1}})


# Functions that make a static. Two results of one are equal; some are the same object.
STATICS: Mapping[str, tuple[str, Callable[[], Any]]] = {
    "int": ("an int", lambda: int("1000")),
    "str": ("a str", lambda: "".join(["re", "lu"])),
    "tuple": ("a tuple of ints", lambda: (int("1000"), 2)),
    "nested": ("nested tuples", lambda: (1, ("a", (int("1000"), None)))),
    "frozenset": ("a frozenset", lambda: frozenset([int("1000"), "a"])),
    "namedtuple": ("a named tuple", lambda: Point(int("1000"), 2)),
    "dataclass": ("a frozen dataclass of 5 fields", lambda: Layer(int("1000"))),
    "slotted": ("a frozen dataclass with slots", lambda: Slotted(int("1000"))),
    "dataclasses": (
        "20 of these in a tuple, in another",
        lambda: Net(tuple(map(Layer, range(20)))),
    ),
    "enum": ("a member of an enum", lambda: Color.RED),
    "dtype": ("a NumPy dtype", lambda: np.dtype("float32")),
    "bfloat16": ("`jnp.bfloat16`'s dtype", lambda: np.dtype(jnp.bfloat16)),
    "structured": ("a structured dtype", lambda: np.dtype([("a", "f4"), ("b", "i4")])),
    "function": ("a function", lambda: _function),
    "partial": ("a `functools.partial`", functools.partial(lambda f: f, functools.partial(max, 1))),
    "method": ("a bound method", lambda: _object.method),
    "class": ("a class", lambda: Object),
    "object": ("an object without `__eq__`", lambda: _object),
    "own_eq": ("an object with its own `__eq__`", lambda: Compared(1)),
    "range": ("a range", lambda: range(int("1000"))),
    "treedef": ("a PyTreeDef", lambda: jtu.tree_structure({"a": 1, "b": (2, 3)})),
    "graphdef": ("an `nnx.GraphDef` of 20 layers", lambda: nnx.split(_model)[0]),
    "mesh": ("a mesh", _mesh),
    "sharding": ("a NamedSharding", lambda: NamedSharding(_mesh(), PartitionSpec("data"))),
    "optax": ("`optax.adam`", functools.partial(lambda tx: tx, optax.adam(1e-3))),
    "config": ("a FrozenConfigDict of ml_collections", _config),
}


# ---- measuring ----


class Row(NamedTuple):
    """How much longer calls take than with an int; `jax` is None if it refuses the static."""

    summary: str
    same: float
    other: float
    jax: tuple[float, float] | None


def _program(static: Any, x: jax.Array) -> jax.Array:
    return x + 1


def _calls(jit: Callable[[Any], Any], values: Sequence[Any]) -> Callable[[], Any]:
    function = jit(lambda static, x: _program(static, x))  # each has its own programs
    following = itertools.cycle(values).__next__
    x = jnp.ones(3)
    return lambda: function(following(), x)


def _plain_jit(value: Any) -> Callable[[Any], Any] | None:
    """Returns how ``jax.jit`` takes the static, or None if it does not."""
    jit: Callable[[Any], Any] = jax.jit
    if jtu.tree_leaves(value):
        jit = functools.partial(jax.jit, static_argnums=0)
    try:
        _calls(jit, [value])()
    except (TypeError, ValueError):
        return None
    return jit


def measure(name: str, seconds: float) -> Row:
    """Times the calls with one kind of static."""
    summary, make = STATICS[name]
    _, make_int = STATICS["int"]
    jits: dict[str, Callable[[Any], Any]] = {"ours": filterjit.filter_jit}
    plain = _plain_jit(make())
    if plain is not None:
        jits["jax"] = plain
    calls: dict[str, Callable[[], Any]] = {}
    for jit_name, jit in jits.items():
        of_int = functools.partial(jax.jit, static_argnums=0) if jit_name == "jax" else jit
        for kind, count in (("same", 1), ("other", 2)):
            pairs = (("static", jit, make), ("int", of_int, make_int))
            for what, jit_of_it, make_it in pairs:
                values = [make_it() for _ in range(count)]
                calls[f"{jit_name} {kind} {what}"] = _calls(jit_of_it, values)
    for call in calls.values():
        for _ in range(8):
            call()
    timers = {name: functools.partial(in_a_row, call) for name, call in calls.items()}
    times = interleaved(in_batches(timers, BATCH), seconds, ROUNDS)

    def ratio(kind: str) -> float:
        return times[f"{kind} static"] / times[f"{kind} int"]

    of_jax = (ratio("jax same"), ratio("jax other")) if "jax" in jits else None
    return Row(summary, ratio("ours same"), ratio("ours other"), of_jax)


def table(rows: Sequence[Row], markdown: bool) -> str:
    """Returns the rows as text."""
    head = ["static", "the same object", "another", "`jax.jit`: the same", "another"]
    cells = [
        [
            row.summary,
            f"{row.same:.2f}",
            f"{row.other:.2f}",
            *(f"{x:.2f}" for x in row.jax or ()),
            *(["-"] * (0 if row.jax else 2)),
        ]
        for row in rows
    ]
    return lay_out([head, *cells], markdown=markdown)


def main(argv: Sequence[str] | None = None) -> int:
    parser = command.parser(
        "Times statics of several kinds.",
        quick="0.5 seconds a kind",
        metavar="STATIC",
        names=STATICS,
    )
    options = parser.parse_args(argv)
    seconds = 0.5 if options.quick else SECONDS
    return command.run(
        lambda: table(
            [measure(name, seconds) for name in progress(options.names)], options.markdown
        )
    )


if __name__ == "__main__":
    sys.exit(main())
