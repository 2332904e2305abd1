"""Avals, placements and sharding specs of JAX arrays."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec, Sharding

from .._compat import _jax_compat


@dataclasses.dataclass(frozen=True)
class Aval:
    """The abstract value of an array: everything about it that a trace depends on."""

    shape: tuple[int, ...]
    dtype: Any
    weak_type: bool
    sharding: Any = None  # only on a mesh, where JAX makes it part of the type

    @classmethod
    def of(cls, x: Any) -> "Aval":
        return _aval_of(_jax_compat.typeof(x))

    def __str__(self) -> str:
        name = getattr(self.dtype, "name", str(self.dtype))
        weak = " of weak type" if self.weak_type else ""
        return f"{name}[{','.join(map(str, self.shape))}]{weak}"


@functools.lru_cache(maxsize=4096)
def _aval_of(aval: Any) -> Aval:
    sharding = getattr(aval, "sharding", None)
    mesh = getattr(sharding, "mesh", None)
    on_mesh = isinstance(aval, jax.core.AbstractValue) and mesh is not None and not mesh.empty
    return Aval(
        tuple(aval.shape),
        aval.dtype,
        bool(getattr(aval, "weak_type", False)),
        sharding if on_mesh else None,
    )


Placed = tuple[Any, bool] | None
"""A result of `placement`."""


def placement(x: Any) -> Placed:
    """Returns (sharding, is committed) for a JAX array, None for anything else."""
    if isinstance(x, jax.core.Tracer) or not isinstance(x, jax.Array):
        return None
    return x.sharding, _jax_compat.is_committed(x)


def default_device() -> Any:
    device = jax.config.jax_default_device
    if device is None or isinstance(device, str):
        device = jax.local_devices(backend=device)[0]
    return device


def is_tracing() -> bool:
    return not _jax_compat.is_top_level()


# ---- specs ----


def is_spec(x: Any) -> bool:
    return isinstance(x, (PartitionSpec, Sharding))


def entries_of(spec: PartitionSpec) -> tuple[Any, ...]:
    """Like ``tuple(spec)``, which fails for specs with unreduced or reduced axes."""
    partitions = getattr(spec, "partitions", None)
    return tuple(spec) if partitions is None else tuple(partitions)


def rest_of(spec: PartitionSpec, keep: Callable[[str], bool] = lambda axis: True) -> dict[str, Any]:
    """Returns the unreduced and reduced axes of a spec, as keywords of ``PartitionSpec``."""
    rest: dict[str, Any] = {
        name: frozenset(filter(keep, getattr(spec, name, ()))) for name in ("unreduced", "reduced")
    }
    if rest["unreduced"]:
        rest["unreduced_kind"] = getattr(spec, "unreduced_kind", None)
    return {name: value for name, value in rest.items() if value}


def same_spec(a: Any, b: Any) -> bool:
    """True if two specs mean the same: ``P()`` equals ``P(None)``."""
    return bool(a == b) or _written_out(a) == _written_out(b)


def _written_out(spec: Any) -> Any:
    partition = spec.spec if isinstance(spec, NamedSharding) else spec
    if not isinstance(partition, PartitionSpec):
        return spec
    entries = [x if isinstance(x, tuple) or x is None else (x,) for x in entries_of(partition)]
    while entries and not entries[-1]:
        entries.pop()
    mesh = spec.mesh if isinstance(spec, NamedSharding) else None
    memory = spec.memory_kind if isinstance(spec, NamedSharding) else None
    return tuple(entries), rest_of(partition), mesh, memory
