"""What is written down of each trace of a variant, for those who ask why and how long.

A trace takes milliseconds, so its notes are always taken; a hit writes nothing here.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import jax

from .. import _core
from .._base import _jax_compat

# What of JAX's configuration is part of the key of a compiled program, and has a public name.
_CONFIG = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_default_device",
    "jax_default_prng_impl",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_threefry_partitionable",
    "jax_softmax_custom_jvp",
    "jax_debug_nans",
    "jax_debug_infs",
    "jax_enable_checks",
)


@dataclasses.dataclass(frozen=True)
class Aval:
    """What a program was traced for, of one array."""

    shape: tuple[int, ...]
    dtype: Any
    weak_type: bool

    @classmethod
    def of(cls, x: Any) -> "Aval":
        aval = _jax_compat.aval(x)
        return cls(tuple(aval.shape), aval.dtype, bool(getattr(aval, "weak_type", False)))

    def __str__(self) -> str:
        name = getattr(self.dtype, "name", str(self.dtype))
        weak = ", weak type" if self.weak_type else ""
        return f"{name}[{','.join(map(str, self.shape))}]{weak}"


def placement(x: Any) -> tuple[Any, bool] | None:
    """The sharding of an array, and whether it is committed to it; None where it has none."""
    if isinstance(x, jax.core.Tracer) or not isinstance(x, jax.Array):
        return None
    return x.sharding, bool(getattr(x, "committed", getattr(x, "_committed", False)))


def config_context() -> dict[str, Any]:
    """What of JAX's configuration a trace depends on, and the mesh in force."""
    found = {name: getattr(jax.config, name, None) for name in _CONFIG}
    get_mesh = getattr(jax.sharding, "get_abstract_mesh", None)
    found["mesh"] = None if get_mesh is None else get_mesh()
    return found


@dataclasses.dataclass
class TraceNotes:
    """One trace. Times in seconds; None where it was not measured."""

    avals: tuple[Aval, ...]
    context: dict[str, Any]
    placements: tuple[Any, ...] | None = None  # of the arrays of the call that traced


@dataclasses.dataclass
class Spent:
    """What a program, or all of a function's, took to make; seconds, each counted once."""

    traces: int = 0
    compiles: int = 0
    from_disk: int = 0  # of the compiles: taken out of JAX's persistent cache
    tracing: float = 0.0
    lowering: float = 0.0
    compiling: float = 0.0
    first_run: float | None = None  # where it was waited for
    in_hits: float = 0.0  # of lowering and compiling: in calls that traced nothing, and were timed

    def add(self, other: "Spent") -> None:
        for name, value in vars(other).items():
            if value:
                setattr(self, name, (getattr(self, name) or 0) + value)

    @property
    def total(self) -> float:
        return self.tracing + self.lowering + self.compiling + (self.first_run or 0.0)


@dataclasses.dataclass
class VariantNotes:
    """All traces of one variant, in order; what it cost (`_report`), and what the last program
    that was made of it consists of (`_program.Program`)."""

    traces: list[TraceNotes] = dataclasses.field(default_factory=list)
    spent: Spent = dataclasses.field(default_factory=Spent)
    program: Any = None
    size: tuple[Any, int | None] = (None, None)  # bytes of executables, and when that was


def notes_of(variant: _core.Variant) -> VariantNotes:
    notes = variant.record
    if notes is None:
        notes = variant.record = VariantNotes()
    assert isinstance(notes, VariantNotes)
    return notes


@contextlib.contextmanager
def tracing(variant: _core.Variant, arrays: Sequence[Any]) -> Iterator[TraceNotes]:
    """Around a trace: its notes, which are dropped again if it fails."""
    trace = TraceNotes(tuple(map(Aval.of, arrays)), config_context())
    traces = notes_of(variant).traces
    traces.append(trace)
    try:
        yield trace
    except BaseException:
        traces[:] = [other for other in traces if other is not trace]
        raise


def settled(variant: _core.Variant, arrays: Sequence[Any]) -> None:
    """After the first call of a program that was just traced: where its arrays were."""
    traces = notes_of(variant).traces
    if traces:
        traces[-1].placements = tuple(map(placement, arrays))
