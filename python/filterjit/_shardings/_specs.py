"""Meshes and array specs: checking, comparing and printing."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

from jax.sharding import NamedSharding, PartitionSpec

from .._base._arrays import entries_of, rest_of
from .._base._errors import format_path
from .._compat import _jax_compat

Spec = Any
"""One array's PartitionSpec or sharding; None leaves the array unchanged."""


@dataclasses.dataclass(frozen=True)
class Axes:
    """The axes of a mesh, with sizes. Manual axes (of ``shard_map``) have size 1, because they
    already divide a trace's arrays."""

    shape: dict[str, int]
    manual: frozenset[str] = frozenset()

    @classmethod
    def of(cls, mesh: Any) -> "Axes":
        kinds = _jax_compat.axis_types(mesh).items()
        manual = frozenset(name for name, kind in kinds if "Manual" in kind)
        return cls({n: 1 if n in manual else size for n, size in mesh.shape.items()}, manual)


def mesh_in_force() -> Any:
    """Returns the abstract mesh of ``jax.set_mesh`` or of the current trace, or None."""
    mesh = _jax_compat.abstract_mesh()
    return None if mesh is None or mesh.empty else mesh


def axes_for(mesh: Any) -> Axes | None:
    """Returns the axes of `mesh`, or of the current mesh (always inside ``shard_map``), or None."""
    if not (mesh is None or hasattr(mesh, "axis_names")):
        raise TypeError(f"`mesh` must be a jax.sharding.Mesh, not {mesh!r}.")
    inside = mesh_in_force()
    axes = None if inside is None else Axes.of(inside)
    return axes if mesh is None or (axes is not None and axes.manual) else Axes.of(mesh)


def axes_of(spec: PartitionSpec) -> list[tuple[str, ...]]:
    """Returns the axes that divide each dimension."""
    return [
        () if entry is None or entry is PartitionSpec.UNCONSTRAINED
        else tuple(entry) if isinstance(entry, tuple) else (entry,)
        for entry in entries_of(spec)
    ]  # fmt: skip


def misuse_of_axes(spec: PartitionSpec, mesh: Axes) -> str:
    """Describes an axis that the mesh lacks or the spec uses twice, or returns ""."""
    used = [axis for axes in axes_of(spec) for axis in axes]
    for axis in used:
        if axis not in mesh.shape:
            return f"the mesh has no axis {axis!r}, it has {', '.join(map(repr, mesh.shape))}"
        if used.count(axis) > 1:
            return f"it uses the axis {axis!r} twice"
    return ""


def misfit_of(spec: PartitionSpec, shape: tuple[int, ...], mesh: Axes) -> str:
    """Describes why a spec can't divide an array of this shape, or returns ""."""
    axes = axes_of(spec)
    if len(axes) > len(shape):
        return f"it has {len(axes)} entries for {len(shape)} dimensions"
    for i, (size, names) in enumerate(zip(shape, axes, strict=False)):
        parts = math.prod(mesh.shape[name] for name in names)
        if size % parts:
            return f"dimension {i}, of size {size}, does not divide into {parts} parts"
    return ""


def problem_of(given: Spec, shape: tuple[int, ...], mesh: Axes | None) -> str:
    """Describes why a spec can't divide an array, or returns ""; JAX checks other shardings."""
    spec, on = given, mesh
    if isinstance(given, NamedSharding):
        spec, on = given.spec, Axes.of(given.mesh)
    if not isinstance(spec, PartitionSpec) or on is None:
        return ""
    return misuse_of_axes(spec, on) or misfit_of(spec, shape, on)


def keep_axes(spec: PartitionSpec, keep: Callable[[str], bool]) -> PartitionSpec:
    """Returns `spec` with only the axes for which `keep` is true."""
    rest = rest_of(spec, keep)
    if all(keep(axis) for axes in axes_of(spec) for axis in axes) and rest == rest_of(spec):
        return spec
    kept = [tuple(filter(keep, axes)) for axes in axes_of(spec)]
    return PartitionSpec(*(x if len(x) > 1 else x[0] if x else None for x in kept), **rest)


def on_mesh(specs: Sequence[Spec], mesh: Any) -> list[Spec]:
    """Converts each ``PartitionSpec`` to a sharding over `mesh`."""
    return [NamedSharding(mesh, s) if isinstance(s, PartitionSpec) else s for s in specs]


def show_path(path: Sequence[Any]) -> str:
    return format_path(path) or "the array"


def describe(array: Any) -> str:
    return f"{array.dtype}[{','.join(map(str, array.shape))}]"
