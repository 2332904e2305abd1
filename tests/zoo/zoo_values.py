"""Programs with values as configurations: numbers, enums, values of the standard library, types."""

import datetime
import decimal
import enum
import fractions
import inspect
import pathlib
import re
import typing
import uuid
import zoneinfo
from collections.abc import Callable
from typing import Annotated, Any, Literal, Optional

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import ml_dtypes
import numpy as np
from zoo_support import FIELDS, IDENTITY, STATIC, program, told

from support.statics import Clock, Colour, Integer, Level, Money, Ratio, Stamp

# ---- Python's numbers and texts ----


@program(lambda: 1, lambda: True, lambda: 1.0, lambda: 1 + 0j)
def numbers(cfg, x):
    return x * cfg, jnp.asarray(cfg)


@program(lambda: (0.0, complex(0.0, 0.0)), lambda: (-0.0, 0j), lambda: (0.0, complex(0.0, -0.0)))
def signs_of_zeros(cfg, x):
    return told(x, cfg), 1 / jnp.asarray(cfg[0])


@program(lambda: float("nan"), lambda: -float("nan"), lambda: float("inf"))
def not_a_number(cfg, x):
    return x * cfg, jnp.signbit(jnp.asarray(cfg))


class Quantity(float):
    """A number with a unit."""

    def __new__(cls, value: Any, unit: str) -> "Quantity":
        self = super().__new__(cls, value)
        self.unit = unit
        return self


def set_unit(quantity: Any) -> None:
    quantity.unit = "km"


@program(lambda: Quantity(1, "m"), lambda: Quantity(1, "s"), lambda: 1.0, change=set_unit)
def float_subclass_with_an_attribute(cfg, x):
    return told(x * cfg, getattr(cfg, "unit", None))


@program(lambda: Integer(-1), lambda: -1, lambda: Integer(-2))
def int_subclass(cfg, x):
    return told(x, type(cfg).__name__, cfg + 0)


class Name(str):
    """A text with its source."""

    source: str = "code"


def named(text: str, source: str) -> Name:
    name = Name(text)
    name.source = source
    return name


@program(lambda: named("a", "file"), lambda: named("a", "web"), lambda: "a")
def str_subclass_with_an_attribute(cfg, x):
    return told(x, cfg, getattr(cfg, "source", None))


@program(lambda: "a", lambda: b"a", lambda: "A")
def text(cfg, x):
    return told(x, cfg)


# ---- enums ----


@program(lambda: Colour.RED, lambda: Colour.BLUE, lambda: 1)
def enum_member(cfg, x):
    return told(x, cfg)


class Priority(enum.IntEnum):
    LOW = 1
    HIGH = 2


@program(lambda: Level.LOW, lambda: Priority.LOW, lambda: 1, lambda: True)
def int_enum_member(cfg, x):
    return told(x * cfg, type(cfg).__name__)


class Permission(enum.Flag):
    READ = 1
    WRITE = 2


class Bits(enum.IntFlag):
    READ = 1
    WRITE = 2


@program(lambda: Permission.READ | Permission.WRITE, lambda: Permission.READ)
def flag(cfg, x):
    return told(x, cfg.value)


@program(lambda: Bits.READ | Bits.WRITE, lambda: 3, lambda: Bits.READ, lambda: 3.0)
def int_flag(cfg, x):
    return told(x, type(cfg).__name__, cfg)


class Mode(enum.StrEnum):
    FAST = "fast"
    EXACT = "exact"


@program(lambda: Mode.FAST, lambda: "fast", lambda: Mode.EXACT)
def str_enum(cfg, x):
    return told(x, cfg)


def module_run_again(value: Any) -> Any:
    """Returns the member of an enum that is defined once more, as when a cell of a notebook runs
    again, with another value."""

    class Choice(enum.Enum):
        ONE = value

    return Choice.ONE


FIRST_RUN = module_run_again(1)


@program(lambda: FIRST_RUN, lambda: module_run_again(1.0), lambda: module_run_again(True))
def enum_defined_again(cfg, x):
    return x * cfg.value, jnp.asarray(cfg.value)


def enum_of_lists() -> Any:
    class Options(enum.Enum):
        SMALL = [1, 2]

    return Options.SMALL


@program(enum_of_lists, change=lambda c: c.value.append(3), shares=IDENTITY)
def enum_whose_value_changes(cfg, x):
    return x * sum(cfg.value)


# ---- NumPy ----


@program(lambda: np.float64(0.0), lambda: np.float64(-0.0), lambda: 0.0, places=STATIC)
def numpy_zero(cfg, x):
    return told(1 / jnp.asarray(cfg), cfg)


@program(
    lambda: np.float32(1), lambda: np.float64(1), lambda: np.int32(1), lambda: 1, places=STATIC
)
def numpy_scalar_types(cfg, x):
    return told(x, type(cfg).__name__, cfg)


@program(lambda: np.float32(2), lambda: np.float16(2), lambda: np.int32(2))
def numpy_scalar_that_may_be_traced(cfg, x):
    return x * cfg


@program(lambda: np.bool_(True), lambda: np.bool_(False), lambda: True, places=STATIC)
def numpy_bool(cfg, x):
    return told(x, cfg)


@program(
    lambda: np.timedelta64(24, "h"),
    lambda: np.timedelta64(1, "D"),
    lambda: np.timedelta64(1440, "m"),
    places=STATIC,
)
def numpy_timedelta(cfg, x):
    return told(x, str(cfg.dtype), cfg)


@program(
    lambda: np.datetime64("2026-01-01"),
    lambda: np.datetime64("2026-01-01T00"),
    lambda: np.datetime64("2026-01-01", "ns"),
    places=STATIC,
)
def numpy_datetime(cfg, x):
    return told(x, str(cfg.dtype))


@program(
    lambda: ml_dtypes.bfloat16(0.0),
    lambda: ml_dtypes.bfloat16(-0.0),
    lambda: np.float32(0.0),
    places=STATIC,
)
def bfloat16_scalar(cfg, x):
    return told(x, str(cfg.dtype), bool(np.signbit(np.float32(cfg))))


@program(lambda: np.str_("a"), lambda: "a", lambda: np.bytes_(b"a"), places=STATIC)
def numpy_text(cfg, x):
    return told(x, type(cfg).__name__)


RECORD = np.dtype([("a", "f4"), ("b", "i4")])


@program(
    lambda: np.array([(0.0, 1)], RECORD)[0],
    lambda: np.array([(-0.0, 1)], RECORD)[0],
    lambda: np.array([(0.0, 1)], [("a", "f8"), ("b", "i4")])[0],
    change=lambda c: c.__setitem__("b", 2),
    places=FIELDS,
)
def numpy_record(cfg, x):
    return told(x, str(cfg.dtype), cfg.item())


@program(
    lambda: np.dtype("float32"),
    lambda: jnp.float32,
    lambda: np.float32,
    lambda: np.dtype("float32", metadata={"unit": "m"}),
    lambda: "float32",
)
def dtype(cfg, x):
    return told(x.astype(cfg), type(cfg).__name__, getattr(cfg, "metadata", None), str(cfg))


@program(
    lambda: np.dtype([("a", "f4"), ("b", "f4")]),
    lambda: np.dtype([("a", "f4"), ("b", "f8")]),
    lambda: np.dtype([(("title", "a"), "f4"), ("b", "f4")]),
    lambda: np.dtype([("a", np.dtype("f4", metadata={"unit": "m"})), ("b", "f4")]),
)
def structured_dtype(cfg, x):
    return told(x, cfg.descr, [field[0].metadata for field in cfg.fields.values()])


@program(
    lambda: np.array([0.0, 1.0]),
    lambda: np.array([-0.0, 1.0]),
    lambda: np.array([0.0, 1.0], np.float32),
    lambda: np.array([[0.0, 1.0]]),
    change=lambda c: c.__setitem__(1, 5.0),
    places=FIELDS,
)
def numpy_array(cfg, x):
    return told(x, cfg.dtype.name, cfg.tolist())


# ---- the standard library ----


@program(
    lambda: decimal.Decimal("1.0"), lambda: decimal.Decimal("1.00"), lambda: decimal.Decimal(1)
)
def decimal_number(cfg, x):
    return told(x, str(cfg))


@program(lambda: Money("1.0"), lambda: Money("1.00"), lambda: decimal.Decimal("1.0"))
def decimal_subclass(cfg, x):
    return told(x, type(cfg).__name__, str(cfg))


@program(lambda: fractions.Fraction(2), lambda: 2, lambda: 2.0, lambda: fractions.Fraction(1, 2))
def fraction(cfg, x):
    return told(x * float(cfg), type(cfg).__name__)


@program(lambda: Ratio(1, 2), lambda: fractions.Fraction(1, 2), lambda: 0.5, lambda: Ratio(1, 3))
def fraction_subclass(cfg, x):
    return told(x, type(cfg).__name__, str(cfg))


UTC = datetime.UTC
PARIS_WINTER = datetime.timezone(datetime.timedelta(hours=1))
NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=UTC)


@program(
    lambda: datetime.datetime(2026, 1, 1, 12, tzinfo=UTC),
    lambda: NOON.astimezone(PARIS_WINTER),
    lambda: NOON.replace(tzinfo=None),
    lambda: NOON.replace(fold=1),
)
def date_and_time(cfg, x):
    return told(x * cfg.hour, cfg, cfg.fold)


@program(
    lambda: Stamp(2026, 1, 1, 12, tzinfo=UTC),
    lambda: Stamp(2026, 1, 1, 13, tzinfo=PARIS_WINTER),
    lambda: Stamp(2026, 1, 1, 12, tzinfo=UTC, fold=1),
    lambda: NOON,
)
def datetime_subclass(cfg, x):
    return told(x * cfg.hour, cfg, cfg.fold)


@program(
    lambda: Clock(12, tzinfo=UTC),
    lambda: Clock(13, tzinfo=PARIS_WINTER),
    lambda: Clock(12, tzinfo=UTC, fold=1),
    lambda: datetime.time(12, tzinfo=UTC),
)
def time_subclass(cfg, x):
    return told(x * cfg.hour, type(cfg).__name__, str(cfg), cfg.fold)


@program(
    lambda: datetime.timezone(datetime.timedelta(0), "A"),
    lambda: datetime.timezone(datetime.timedelta(0), "B"),
    lambda: datetime.UTC,
)
def time_zone(cfg, x):
    return told(x, cfg)


@program(lambda: zoneinfo.ZoneInfo("UTC"), lambda: datetime.UTC)
def zone_info(cfg, x):
    return told(x, type(cfg).__name__)


@program(lambda: datetime.date(2026, 1, 1), lambda: datetime.date(2026, 1, 2))
def date(cfg, x):
    return told(x, cfg.isoformat())


@program(lambda: datetime.timedelta(days=1), lambda: datetime.timedelta(seconds=1))
def time_delta(cfg, x):
    return x * cfg.total_seconds()


@program(
    lambda: uuid.UUID(int=1),
    lambda: uuid.UUID(int=1, is_safe=uuid.SafeUUID.safe),
    lambda: uuid.UUID(int=2),
)
def universally_unique_identifier(cfg, x):
    return told(x, cfg, cfg.is_safe)


@program(
    lambda: pathlib.PurePosixPath("a/b"),
    lambda: pathlib.Path("a/b"),
    lambda: pathlib.PurePosixPath("a/B"),
    lambda: pathlib.PurePosixPath("/a/b"),
)
def path(cfg, x):
    return told(x, cfg)


@program(lambda: pathlib.PureWindowsPath("a"), lambda: pathlib.PureWindowsPath("A"))
def windows_path(cfg, x):
    return told(x, str(cfg))


@program(
    lambda: re.compile("a"),
    lambda: re.compile(b"a"),
    lambda: re.compile("a", re.I),
    lambda: re.compile("b"),
)
def regular_expression(cfg, x):
    return told(x, cfg.pattern, int(cfg.flags))


@program(lambda: range(0, 3, 2), lambda: range(0, 4, 2), lambda: range(3))
def a_range(cfg, x):
    return told(x * len(cfg), cfg)


@program(lambda: slice(0, 1), lambda: slice(False, True), lambda: slice(0, 2), places=FIELDS)
def a_slice(cfg, x):
    return told(x[cfg], cfg)


def scaled(x: Any, by: Any = 1) -> Any:
    return x


@program(
    lambda: inspect.signature(scaled),
    lambda: inspect.signature(scaled).replace(return_annotation=int),
    lambda: inspect.Signature(
        [
            inspect.Parameter("x", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Any),
            inspect.Parameter(
                "by", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=True, annotation=Any
            ),
        ],
        return_annotation=Any,
    ),
)
def signature_of_a_function(cfg, x):
    return told(x, str(cfg))


# ---- types, and what JAX has ----


@program(lambda: int | str, lambda: str | int, lambda: int | None)
def union_of_types(cfg, x):
    return told(x, cfg)


@program(
    lambda: Optional[int],  # noqa: UP045
    lambda: typing.Union[None, int],  # noqa: UP007
    lambda: typing.Union[int, str],  # noqa: UP007
)
def typing_union(cfg, x):
    return told(x, typing.get_args(cfg))


@program(lambda: Literal[1, "a"], lambda: Literal["a", 1], lambda: Literal[True, "a"])
def literal(cfg, x):
    return told(x, cfg)


@program(lambda: Annotated[int, 1], lambda: Annotated[int, True], lambda: Annotated[int, 1.0])
def annotated(cfg, x):
    return told(x, cfg)


@program(lambda: list[int], lambda: list[bool], lambda: tuple[int, ...])
def generic_alias(cfg, x):
    return told(x, cfg)


@program(lambda: dict[str, Literal[0]], lambda: dict[str, Literal[False]])
def generic_alias_of_a_literal(cfg, x):
    return told(x, cfg)


@program(
    lambda: Callable[[int | str], int],
    lambda: Callable[[str | int], int],
    lambda: Callable[..., int],
)
def callable_type(cfg, x):
    return told(x, cfg)


@program(lambda: int, lambda: bool, lambda: float)
def a_type(cfg, x):
    return x.astype(cfg)


@program(
    lambda: jtu.tree_structure({1: 0}),
    lambda: jtu.tree_structure({True: 0}),
    lambda: jtu.tree_structure({1.0: 0}),
)
def tree_structure(cfg, x):
    return told(x, str(cfg))


@program(
    lambda: jax.sharding.PartitionSpec("a"),
    lambda: jax.sharding.PartitionSpec("a", None),
    lambda: jax.sharding.PartitionSpec("b"),
)
def partition_spec(cfg, x):
    return told(x, len(cfg), cfg)


@program(
    lambda: jax.ShapeDtypeStruct((3,), jnp.float32),
    lambda: jax.ShapeDtypeStruct((3,), jnp.int32),
    lambda: jax.ShapeDtypeStruct((3,), jnp.float32, weak_type=True),
)
def shape_and_dtype(cfg, x):
    return told(jnp.ones(cfg.shape, cfg.dtype), cfg.weak_type)


@program(lambda: jax.lax.Precision.HIGHEST, lambda: jax.lax.Precision.DEFAULT)
def precision(cfg, x):
    return told(x, cfg.name)
