"""The records of a variant: what each trace depended on, and the cost and contents of its programs.

Records serve explanations and reports. They are written when a variant is traced or compiled,
which takes milliseconds; a hit writes none.
"""

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from .. import _core
from .._base._arrays import Aval, Placed, placement

if TYPE_CHECKING:
    from ._jaxpr import Program

# The options of JAX that are part of the key of a compiled program and have a public name.
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


def config_context() -> dict[str, Any]:
    """Returns the configuration of JAX that a trace depends on, and the current mesh."""
    found = {name: getattr(jax.config, name, None) for name in _CONFIG}
    get_mesh = getattr(jax.sharding, "get_abstract_mesh", None)
    found["mesh"] = None if get_mesh is None else get_mesh()
    return found


@dataclasses.dataclass
class TraceRecord:
    """What one trace of a variant depended on.

    Attributes:
        avals: of the arrays.
        context: the configuration of JAX.
        placements: of the arrays of the call that traced; None until the program has run.
        wanted: the sharding of each array that `in_shardings` gives, or None (until the program
            has run, it may be a PartitionSpec); empty without that option.
        number: is greater than those of all traces before it.
    """

    avals: tuple[Aval, ...]
    context: dict[str, Any]
    placements: tuple[Placed, ...] | None = None
    wanted: tuple[Any, ...] = ()
    number: int = dataclasses.field(default_factory=itertools.count().__next__, compare=False)

    @classmethod
    def of(cls, arrays: Sequence[Any], placed: bool = False) -> "TraceRecord":
        """Returns what a trace of these arrays depends on now; `placed`, with where they are."""
        placements = tuple(map(placement, arrays)) if placed else None
        return cls(tuple(map(Aval.of, arrays)), config_context(), placements)


@dataclasses.dataclass
class Cost:
    """The cost of a program, of all programs of a variant, or of all programs of a function.

    Attributes:
        traces, compiles: how many there were.
        recompiles: how many of the compiles were in calls that traced nothing, and came after
            another one of the same variant.
        from_disk: how many of the compiles JAX read from its persistent cache.
        tracing, lowering, compiling: seconds. Each second is counted for one function only.
        first_run: seconds of the first execution; None if it was not measured.
        in_hits: the seconds of lowering and compiling that passed in timed calls that traced
            nothing.
    """

    traces: int = 0
    compiles: int = 0
    recompiles: int = 0
    from_disk: int = 0
    tracing: float = 0.0
    lowering: float = 0.0
    compiling: float = 0.0
    first_run: float | None = None
    in_hits: float = 0.0

    def add(self, other: "Cost") -> None:
        for name, value in vars(other).items():
            if value:
                setattr(self, name, (getattr(self, name) or 0) + value)

    @property
    def total(self) -> float:
        return self.tracing + self.lowering + self.compiling + (self.first_run or 0.0)


@dataclasses.dataclass
class VariantRecord:
    """The record of one variant.

    Attributes:
        traces: its traces, in order.
        compiled: what JAX has compiled without a trace, since the arrays were in other places.
        cost: what they and their programs cost.
        program: what the last program that was traced contains.
        placed: the positions of arrays that first calls placed on devices themselves; another thread
            may add to it.
        executable: returns the executable of a program that was compiled ahead of time.
        cached_size: the bytes of the executables, with the numbers of traces and compiles at
            which they were determined.
    """

    traces: list[TraceRecord] = dataclasses.field(default_factory=list)
    compiled: list[TraceRecord] = dataclasses.field(default_factory=list)
    cost: Cost = dataclasses.field(default_factory=Cost)
    program: "Program | None" = None
    placed: set[int] = dataclasses.field(default_factory=set)
    executable: Callable[[], Any] | None = None
    cached_size: tuple[Any, int | None] = (None, None)


def record_of(variant: _core.Variant) -> VariantRecord:
    """Returns the record of a variant, which the first call creates."""
    record = variant.record
    if record is None:
        record = variant.record = VariantRecord()
    assert isinstance(record, VariantRecord)
    return record


@contextlib.contextmanager
def tracing(variant: _core.Variant, arrays: Sequence[Any]) -> Iterator[TraceRecord]:
    """A context for the time of a trace. Yields the record of the trace, and removes it if the
    trace fails. Under ``jax.disable_jit()`` nothing is traced, and no record is kept."""
    is_traced = not jax.config.jax_disable_jit
    trace = TraceRecord.of(arrays if is_traced else ())  # not all of these have avals
    traces = record_of(variant).traces
    if is_traced:
        traces.append(trace)
    try:
        yield trace
    except BaseException:
        traces[:] = [other for other in traces if other is not trace]
        raise


def record_placements(variant: _core.Variant, arrays: Sequence[Any]) -> None:
    """Records where the arrays of a call are placed, and where they are wanted, after the call
    traced the variant and ran."""
    record = record_of(variant)
    if record.traces:
        trace = record.traces[-1]
        trace.wanted = resolve(trace.wanted)
        found = list(map(placement, arrays))
        for i in list(record.placed):
            if trace.wanted and trace.avals[i].sharding is not None:  # it was placed for this trace
                found[i] = trace.wanted[i] and (trace.wanted[i], True)
        trace.placements = tuple(found)


def record_compiled(variant: _core.Variant, arrays: Sequence[Any]) -> None:
    """Records where the arrays of a call are, for which JAX compiles a trace again."""
    record_of(variant).compiled.append(TraceRecord.of(arrays, placed=True))


def resolve(specs: Sequence[Any]) -> tuple[Any, ...]:
    """Returns the sharding of each spec, under the mesh in force; None where that is unknown."""
    mesh = None
    if any(isinstance(spec, PartitionSpec) for spec in specs):
        with contextlib.suppress(ValueError):  # a trace is under way
            mesh = jax.sharding.get_mesh()
    known = mesh is not None and not mesh.empty
    return tuple(
        (NamedSharding(mesh, spec) if known else None) if isinstance(spec, PartitionSpec) else spec
        for spec in specs
    )
