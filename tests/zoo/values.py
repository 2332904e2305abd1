"""Numbers, texts, enums, values of the standard library, of NumPy and of JAX, types."""

import datetime
import decimal
import enum
import fractions
import inspect
import pathlib
import re
import sys
import time
import types
import typing
import uuid
import weakref
import zoneinfo
from collections.abc import Callable
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import ml_dtypes
import numpy as np
from jax.sharding import PartitionSpec as P

from support import statics
from support.statics import Clock, Colour, Constant, Double, Integer, Level, Money, Stamp, Text
from zoo.zoo_support import FIELDS, LEAVES, Static, attributed, fields
from zoo.zoo_support import set_frozen as set_to

Priority = enum.IntEnum("Priority", ["LOW", "HIGH"])
Permission = enum.Flag("Permission", ["READ", "WRITE"])
Bits = enum.IntFlag("Bits", ["READ", "WRITE"])
Mode = enum.StrEnum("Mode", {"FAST": "fast", "EXACT": "exact"})


def defined_again(value: Any) -> Any:
    """Returns the member of an enum that is defined once more, as when a cell of a notebook runs
    again, with another value."""

    class Choice(enum.Enum):
        ONE = value

    return Choice.ONE


RUNS = [defined_again(value) for value in (1, 1.0, True)]


class Day(datetime.datetime):
    """Says less of itself than there is."""

    def isoformat(self, *_: Any) -> str:
        return "today"

    def replace(self, *_: Any, **__: Any) -> Any:
        return self


class Hours(datetime.timedelta):
    days = property(lambda self: 0)


class Scalar(np.float64):
    pass


class Short(pathlib.PurePosixPath):
    def __str__(self) -> str:
        return self.name


zone, hour = datetime.timezone, datetime.timedelta(hours=1)
noon = datetime.datetime(2020, 1, 1, 12, tzinfo=zone.utc)
parameter = inspect.Parameter("x", inspect.Parameter.POSITIONAL_OR_KEYWORD)
signature = inspect.Signature([parameter])
CONSTANTS = [Constant(value) for value in (1, True, 1.0)]
PLUS, MINUS = (np.uint64(bits).view(np.float64).item() for bits in (0x7FF8 << 48, 0xFFF8 << 48))

# Values that differ, many of which are ``==``.
STATICS = {
    "numbers": Static(lambda: [1, True, 1.0, 1 + 0j, 0, 0.0, -0.0, False, "1", -1, -2]),
    "zeros": Static(lambda: [complex(a, b) for a in (0.0, -0.0) for b in (0.0, -0.0)]),
    "NaNs": Static(lambda: [PLUS, MINUS, float("inf")]),
    "ints": Static(lambda: [Integer(-1), -1, Integer(-2), attributed(Integer(-1), unit="m")],
        set_to("unit", "s"), apart=1),
    "floats": Static(lambda: [Double(0), Double(-0.0), 0.0,
        *(attributed(Double(0), n=n) for n in (1, True))], set_to("n", -2), apart=2),
    "texts": Static(lambda: ["a", b"a", "A", Text("a"),
        *(attributed(Text("a"), lang=n) for n in ("a", 1, 2))], apart=3),
    "nothing": Static(lambda: [None, (), frozenset(), "", b"", 0]),
    # ---- enums ----
    "enums": Static(lambda: [*Colour, *Level, *Priority, 1, True]),
    "flags": Static(lambda: [*Permission, Permission(3), *Bits, Bits(3), 3, 3.0]),
    "enums of strings": Static(lambda: [*Mode, "fast"]),
    "enums that are defined again": Static(lambda: list(RUNS)),
    # ---- the standard library ----
    "Decimal": Static(
        lambda: [f(n) for f in (decimal.Decimal, Money) for n in ("1.0", "1.00", "1", "-0")]),
    "Fraction": Static(
        lambda: [*(f(1, n) for f in (fractions.Fraction, statics.Ratio) for n in (1, 2, 3)), 0.5, 1]
    ),
    "datetime": Static(
        lambda: [
            *(noon, noon.astimezone(zone(hour)), noon.replace(fold=1), noon.replace(tzinfo=None)),
            Stamp(2020, 1, 1, 12, tzinfo=zone.utc),
            *(Stamp(2020, 1, 1, 13, tzinfo=zone(hour, *name)) for name in ((), ("CET",))),
            Stamp(2020, 1, 1, 12, tzinfo=zone.utc, fold=1),
        ]
    ),
    "datetime with other methods": Static(lambda: [Day(2020, 1, 1), Day(2020, 1, 1, 1),
        Day(2020, 1, 1, fold=1)]),
    "time": Static(lambda: [datetime.time(12, tzinfo=zone.utc), Clock(12, tzinfo=zone.utc),
        Clock(13, tzinfo=zone(hour)), Clock(13, tzinfo=zone(hour), fold=1)]),
    "date": Static(lambda: [datetime.date(2026, 1, day) for day in (1, 2)]),
    "timedelta": Static(lambda: [hour, 2 * hour, Hours(1), Hours(2)]),
    "time zones": Static(
        lambda: [
            *(zone(hour), zone(hour, "CET"), zone(hour, "MEZ"), zone.utc, zoneinfo.ZoneInfo("UTC")),
            *(zone(0 * hour, name) for name in "AB"),
        ]
    ),
    "struct_time": Static(
        lambda: [time.struct_time((2020, 1, 1, 0, 0, 0, 0, 0, 0, name, 0)) for name in "AB"],
        apart=2),
    "UUID": Static(lambda: [uuid.UUID(int=1), uuid.UUID(int=1, is_safe=uuid.SafeUUID.safe),
        uuid.UUID(int=2)]),
    "paths": Static(lambda: [*(pathlib.PurePosixPath(p) for p in ("a/b", "a/B", "/a/b")),
        *(pathlib.PureWindowsPath(p) for p in ("a/b", "a/B")),
        *(pathlib.Path("a/b"), Short("a/b"), Short("c/b"))]),
    "patterns": Static(lambda: [re.compile("a"), re.compile("a", re.I), re.compile(b"a"),
        re.compile("b")]),
    "range": Static(lambda: [range(0, 3, 2), range(0, 4, 2), range(0), range(1, 1)]),
    "slice": Static(lambda: [slice(0, 1), slice(False, True), slice(0, 2), slice(1)], None, fields,
        apart=0),
    "signatures": Static(lambda: [signature, signature.replace(return_annotation=int),
        *(signature.replace(parameters=[parameter.replace(default=n)]) for n in (1, True)),
        signature.replace(parameters=[parameter.replace(annotation=int)]),
        signature.replace(parameters=[parameter.replace(kind=parameter.POSITIONAL_ONLY)])]),
    "weak references": Static(lambda: [weakref.ref(x) for x in CONSTANTS]),
    # ---- types ----
    "types": Static(lambda: [int, bool, str, Constant, jnp.float32, np.float32, np.dtype("f4")]),
    "unions": Static(lambda: [int | str, str | int, int | None]),
    "Literal": Static(lambda: [Literal[1, 2], Literal[2, 1], Literal[True, 2]]),
    "Annotated": Static(lambda: [Annotated[int, 1], Annotated[int, True], Annotated[int, 1.0]]),
    "aliases": Static(
        lambda: [
            *(list[int], list[bool], *(types.GenericAlias(list, (n,)) for n in (1, True))),
            *(dict[str, Literal[0]], dict[str, Literal[False]]),
            *(typing.List[int], typing.List[str], typing.Sequence[int]),  # noqa: UP006
            *(Callable[[int | str], int], Callable[[str | int], int], Callable[..., int]),
        ],
        None,
        tuple(
            place for place in LEAVES | FIELDS if place != "key"
        ),  # JAX cannot sort them in Python 3.11
    ),
    # ---- NumPy and JAX ----
    "dtypes": Static(lambda: [*map(np.dtype, ("i4", "f4", ">i4", "U3", "U4")),
        jnp.dtype("bfloat16"), *(np.dtype("i4", metadata={"a": n}) for n in (1, True)),
        np.dtype((np.record, [("a", "i4")])),
        *(np.dtype((o + "i4", {"re": (np.int16, 0), "im": (np.int16, 2)})) for o in "<>"),
        *(np.dtype([(name, "f4"), ("b", "f4")]) for name in ("a", "c", ("title", "a"))),
        np.dtype([("a", np.dtype("f4", metadata={"unit": "m"})), ("b", "f4")])]),
    "a dtype with other names": Static(lambda: [np.dtype([("a", "f4")])],
        lambda x: setattr(x, "names", ("c",))),
    "scalars": Static(
        lambda: [*(t(n) for t in (np.float32, np.float64, jnp.bfloat16) for n in (0.0, -0.0)),
        *(np.int64(1), np.int32(1), np.bool_(True), np.bool_(False), True, 0.0),
        *(np.complex64(0), np.complex64(complex(-0.0, 0))),
        *(np.datetime64("2020", *unit) for unit in ((), ("D",), ("ns",))),
        *(np.timedelta64(n, unit) for n, unit in ((24, "h"), (1, "D"), (1440, "m"))),
        *(np.str_("a"), np.bytes_(b"a"), ml_dtypes.int4(1))], None, fields, apart=0),
    "scalars with attributes": Static(lambda: [attributed(Scalar(1), n=n) for n in (-1, 1, True)],
        set_to("n", -2), fields, apart=3),
    "treedefs": Static(lambda: [jtu.tree_structure({n: 0}) for n in (1, True, 1.0)]),
    "PartitionSpec": Static(lambda: [P("a"), P("a", None), P("b")]),
    "ShapeDtypeStruct": Static(
        lambda: [*(jax.ShapeDtypeStruct((3,), d) for d in (jnp.float32, jnp.int32)),
        jax.ShapeDtypeStruct((3,), jnp.float32, weak_type=True)]),
}  # fmt: skip
if sys.version_info < (3, 14):  # since then, a reference changes when its repr is asked for
    STATICS["unions of forward references"] = Static(
        lambda: [typing.Union[a] for a in ((int, "T"), ("T", int))]  # noqa: UP007
    )
