"""Random values of all types, each in a holder, and what is said of them: see test_random_values."""

import collections
import datetime
import decimal
import fractions
import functools
import json
import pathlib
import random
import sys
import types
import uuid
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from filterjit._trees import _codes, _digests
from filterjit._trees._registry import registry
from support.nodes import Point
from support.statics import Colour, Constant, Level, ListOfOwn, Pair, Slotted
from zoo.objects import Plain, scale

COUNT = 500
# Each value is made anew. Values of these differ in type or by a bit, and many are ``==``.
LEAVES: list[Callable[[], Any]] = [
    lambda: 1, lambda: True, lambda: 1.0, lambda: 0.0, lambda: -0.0, lambda: float("nan"),
    lambda: 1 + 0j, lambda: 1 << 70, lambda: "a", lambda: b"a", lambda: None, lambda: ...,
    lambda: Colour.RED, lambda: Level.LOW, lambda: range(0, 3, 2), lambda: range(0, 4, 2),
    lambda: decimal.Decimal("1.0"), lambda: decimal.Decimal("1.00"), lambda: fractions.Fraction(1),
    lambda: datetime.date(2020, 1, 1), lambda: datetime.datetime(2020, 1, 1, fold=1),
    lambda: datetime.timedelta(1), lambda: datetime.UTC, lambda: uuid.UUID(int=1),
    lambda: pathlib.PurePosixPath("a"), lambda: slice(1), lambda: slice(True), lambda: int | str,
    lambda: np.dtype("f4"), lambda: jnp.dtype("bfloat16"), lambda: np.dtype([("a", "f4")]),
    lambda: np.float32(1), lambda: np.float64(1), lambda: np.ones(2), lambda: np.ones((2, 1)),
    lambda: bytearray(b"a"), lambda: jax.sharding.PartitionSpec("a"),
]  # fmt: skip


def scale_by(by: Any) -> Any:
    def scaled(x: Any, default: Any = by) -> Any:
        return scale(x, by)

    return scaled


# Their values are compared by identity in hits, or by what new functions hold.
OTHERS: list[Callable[[], Any]] = [
    lambda: scale, lambda: scale_by(1), lambda: scale_by(1.0), lambda: functools.partial(scale, by=1),
    lambda: int, lambda: Constant, lambda: jnp.sin, lambda: len, lambda: Plain(1),
]  # fmt: skip
CONTAINERS: list[Callable[[list[Any]], Any]] = [
    tuple, list, lambda xs: dict(enumerate(xs)), lambda xs: {str(x): x for x in xs},
    lambda xs: collections.OrderedDict(enumerate(xs)), lambda xs: collections.deque(xs, 4),
    lambda xs: collections.defaultdict(list, enumerate(xs)), ListOfOwn,
    lambda xs: types.MappingProxyType(dict(enumerate(xs))),
    lambda xs: types.SimpleNamespace(a=tuple(xs)), lambda xs: Point(*xs[:2]),
    lambda xs: Constant(tuple(xs)), lambda xs: Slotted(tuple(xs)), lambda xs: Pair(tuple(xs)),
]  # fmt: skip
SETS: list[Callable[[list[Any]], Any]] = [frozenset, set]
HOLDERS: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda x: x,
    "tuple": lambda x: (x, 1),
    "list": lambda x: [x],
    "dict": lambda x: {"k": x},
    "dataclass": Constant,
    "closure": lambda x: lambda: x,
    "partial": lambda x: functools.partial(scale, by=x),
}


def random_value(rng: random.Random, level: int, with_others: bool = False) -> Any:
    kind = rng.random()
    if level == 0 or kind < 0.4:
        leaves = OTHERS if with_others and rng.random() < 0.3 else LEAVES
        return rng.choice(leaves)()
    count = rng.randint(1, 2)
    if kind < 0.5:
        return rng.choice(SETS)([rng.choice(LEAVES[:15])() for _ in range(count)])
    return rng.choice(CONTAINERS)([random_value(rng, level - 1, with_others) for _ in range(count)])


def held_values() -> list[tuple[str, bool, Any]]:
    """Returns the holder of each value, whether it can contain functions, classes or objects, and
    the holder's object."""
    rng, found = random.Random(0), []
    for i in range(COUNT):
        holder = list(HOLDERS)[i % len(HOLDERS)]
        with_others = i % 3 == 0
        found.append(
            (holder, with_others, HOLDERS[holder](random_value(rng, i % 4 // 2, with_others)))
        )
    return found


def digest(x: Any) -> str | None:
    try:
        return _digests.digest(x)
    except _codes.Unsupported:
        return None


def codes(x: Any) -> Any:
    """Returns the names and the codes of a value, or None."""
    coder = _codes.Coder()
    try:
        return [coder.encode_static(registry, x), coder.names]
    except _codes.Unsupported:
        return None


def write() -> None:
    json.dump([(digest(x), codes(x)) for _, _, x in held_values()], sys.stdout)
