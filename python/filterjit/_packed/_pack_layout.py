"""The static part of a `Packed`: a `Layout`, which is a Structure and a `Table`.

A Table says into which buffer each leaf goes. It holds nothing of the user's: its programs, which
JAX's caches may hold, are shared by all Layouts with this Table.

A Layout equals itself alone: where two would be equal, there is one. So comparing two of them is
comparing two addresses, for the C core and for JAX. It is found by the hash of its Structure, in a
dict that holds neither of the two.

The Structure may have values that can change in place, such as a list in a static field, or that
have an ``==`` of their own. They are compared on each call: the static part is then a `Varying`,
the Layout together with these values.
"""

import dataclasses
import math
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
from jax import lax

from .. import _core
from .._compat import _jax_compat
from .._trees._registry import registry
from .._trees._tree_functions import Structure  # which makes Structures picklable

PartitionSpec = jax.sharding.PartitionSpec
NamedSharding = jax.sharding.NamedSharding


@dataclasses.dataclass(frozen=True)
class Placement:
    """Where the leaves of a buffer that lies on several devices are.

    A buffer has on each device the leaves' shards of this device, one after the other.

    Attributes:
        mesh: of all these leaves.
        axes: the axes of the mesh over which the leaves are sharded; none if they are replicated.
        specs: the PartitionSpec of each leaf.
    """

    mesh: Any
    axes: tuple[str, ...]
    specs: tuple[Any, ...]

    def shardings(self) -> list[Any]:
        return [NamedSharding(self.mesh, spec) for spec in self.specs]


@dataclasses.dataclass(frozen=True)
class Group:
    """The leaves of one buffer.

    Attributes:
        leaves: their indices among the open leaves of the Structure.
        shapes: of these leaves.
        place: None where a buffer lies on one device.
        run: leaves with the same number can be in one program: their arrays are on the same
            devices, and all are committed to them or none is.
    """

    leaves: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    place: Placement | None = None
    run: int = 0

    def concatenate(self, xs: Sequence[Any]) -> Any:
        if self.place is None:
            return _concatenate(xs)
        place, spec = self.place, PartitionSpec(self.place.axes or None)
        together: Callable[..., Any] = jax.shard_map(
            lambda *shards: _concatenate(shards),
            mesh=place.mesh,
            in_specs=place.specs,
            out_specs=spec,
        )
        return together(*xs)

    def split(self, buffer: Any) -> Sequence[Any]:
        """Returns the leaves.

        This is one operation, whose transpose is a concatenation. With one slice for each leaf, a
        gradient by the buffer would add up an array of its size for each of them.
        """
        if self.place is None:
            return _split(buffer, self.shapes)
        place, spec = self.place, PartitionSpec(self.place.axes or None)
        shapes = [
            sharding.shard_shape(shape)
            for sharding, shape in zip(place.shardings(), self.shapes, strict=True)
        ]
        apart: Callable[..., Any] = jax.shard_map(
            lambda shard: _split(shard, shapes),
            mesh=place.mesh,
            in_specs=spec,
            out_specs=place.specs,
        )
        parts: Sequence[Any] = apart(buffer)
        return parts


def _concatenate(xs: Sequence[Any]) -> Any:
    flat = [lax.reshape(x, (math.prod(x.shape),)) for x in xs]
    return lax.concatenate(flat, 0)


def _split(buffer: Any, shapes: Sequence[tuple[int, ...]]) -> tuple[Any, ...]:
    parts = lax.split(buffer, [math.prod(shape) for shape in shapes])
    return tuple(lax.reshape(part, shape) for part, shape in zip(parts, shapes, strict=True))


class Table:
    """Into which buffer each open leaf of a Structure goes.

    Attributes:
        count: the number of open leaves.
        groups: one for each buffer.
        lengths: of the buffers.
        beside: the indices of the leaves that are in no buffer.
        runs: for each program that packs: the leaves that it takes, or None for all, and the
            program.
    """

    __slots__ = ("__weakref__", "_apart", "beside", "count", "groups", "lengths", "runs")
    __filterjit_value__ = ("count", "groups")  # what the rest follows from, for descriptions

    def __init__(self, count: int, groups: tuple[Group, ...]) -> None:
        self.count = count
        self.groups = groups
        self.lengths = tuple(sum(map(math.prod, group.shapes)) for group in groups)
        packed = {i for group in groups for i in group.leaves}
        self.beside = tuple(i for i in range(count) if i not in packed)
        self._apart: dict[tuple[int, ...], Callable[..., Any]] = {}
        self.runs: list[tuple[list[int] | None, tuple[int, ...], Callable[..., Any]]] = []
        for run in sorted({group.run for group in groups}):
            picked = tuple(g for g, group in enumerate(groups) if group.run == run)
            leaves = sorted(i for g in picked for i in groups[g].leaves)
            whole = len(leaves) == count
            self.runs.append(
                (
                    None if whole else leaves,
                    picked,
                    _packing(tuple(groups[g] for g in picked), leaves),
                )
            )

    def __reduce__(self) -> Any:
        return table_of, (self.count, self.groups)

    def pack(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
        """Returns the buffers of arrays that are not traced."""
        buffers: list[Any] = [None] * len(self.groups)
        for taken, picked, program in self.runs:
            made = program(leaves if taken is None else [leaves[i] for i in taken])
            for g, buffer in zip(picked, made, strict=True):
                buffers[g] = buffer
        return tuple(buffers)

    def unpack(self, buffers: Sequence[Any], beside: Sequence[Any]) -> list[Any]:
        """Returns the leaves, from buffers that are not traced: by one program, or by one for each
        placement."""
        leaves: list[Any] = [None] * self.count
        runs: dict[Any, list[int]] = {}
        for g, buffer in enumerate(buffers):
            place = frozenset(buffer.sharding.device_set), buffer.committed
            on_mesh = self.groups[g].place
            if on_mesh is not None and on_mesh.mesh.size != len(place[0]):
                raise ValueError(
                    f"cannot unpack: a buffer whose leaves are placed on {on_mesh.mesh.size} devices "
                    f"is on {len(place[0])}. Call `unpack` before `jax.device_put`."
                )
            runs.setdefault(place, []).append(g)
        for run in map(tuple, runs.values()):
            program = self._apart.get(run)
            if program is None:
                made = _unpacking(tuple(self.groups[g] for g in run))
                program = self._apart.setdefault(run, made)
            parts = program([buffers[g] for g in run])
            for g, xs in zip(run, parts, strict=True):
                for i, x in zip(self.groups[g].leaves, xs, strict=True):
                    leaves[i] = x
        for i, x in zip(self.beside, beside, strict=True):
            leaves[i] = x
        return leaves

    # The barriers keep XLA from fusing the step with the slices before it and the concatenation
    # after it. So it compiles the step as it does without a Packed, and results are equal to the
    # bit; without them, they can differ by rounding. That before the step costs a copy of each leaf,
    # which a small step notices; that after it costs little.

    def unpack_traced(
        self, buffers: Sequence[Any], beside: Sequence[Any], exact: bool
    ) -> list[Any]:
        leaves: list[Any] = [None] * self.count
        parts = [group.split(x) for group, x in zip(self.groups, buffers, strict=True)]
        if exact:
            parts = lax.optimization_barrier(parts)
        for group, xs in zip(self.groups, parts, strict=True):
            for i, x in zip(group.leaves, xs, strict=True):
                leaves[i] = x
        for i, x in zip(self.beside, beside, strict=True):
            leaves[i] = x
        return leaves

    def pack_traced(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
        parts = [[leaves[i] for i in group.leaves] for group in self.groups]
        return tuple(
            group.concatenate(xs)
            for group, xs in zip(self.groups, lax.optimization_barrier(parts), strict=True)
        )


def _packing(groups: tuple[Group, ...], leaves: list[int]) -> Callable[..., Any]:
    """Returns the program that packs `leaves`, by their indices among all. It does not refer to
    the Table, which JAX's caches would keep alive."""
    at = {leaf: k for k, leaf in enumerate(leaves)}

    def pack(xs: Sequence[Any]) -> Any:
        return [group.concatenate([xs[at[i]] for i in group.leaves]) for group in groups]

    program: Callable[..., Any] = _jax_compat.jit(pack, keep_unused=True)
    return program


def _unpacking(groups: tuple[Group, ...]) -> Callable[..., Any]:
    def unpack(buffers: Sequence[Any]) -> Any:
        return [tuple(group.split(buffer)) for group, buffer in zip(groups, buffers, strict=True)]

    shardings = [None if g.place is None else tuple(g.place.shardings()) for g in groups]
    options = {"out_shardings": shardings} if any(shardings) else {}
    program: Callable[..., Any] = _jax_compat.jit(unpack, **options)
    return program


_tables: weakref.WeakValueDictionary[Any, Table] = weakref.WeakValueDictionary()


def table_of(count: int, groups: tuple[Group, ...]) -> Table:
    with _lock:
        key = count, groups
        table = _tables.get(key)
        if table is None:
            table = _tables[key] = Table(count, groups)
        return table


# ---- layouts ----


class Layout:
    """A Structure and a Table. It equals itself alone.

    Attributes:
        structure: its open leaves are the arrays, and the other leaves that are not immutable.
        table: which of them are in which buffer.
        facts: of the leaves that were packed last, which `_pack` sets; None before.
        varying: those values in the Structure that can change in place or have their own ``==``.
    """

    __slots__ = ("__weakref__", "facts", "structure", "table", "varying")
    __filterjit_value__ = ("structure", "table")

    def __init__(self, structure: Structure, table: Table, varying: tuple[Any, ...]) -> None:
        self.structure = structure
        self.table = table
        self.varying = varying
        self.facts: Any = None

    @property
    def static(self) -> "Layout | Varying":
        """What stands for the Layout in the aux data of a Packed."""
        return Varying(self, self.varying) if self.varying else self

    def __repr__(self) -> str:
        return f"Layout({len(self.table.groups)} buffers, {len(self.table.beside)} leaves beside)"

    def __reduce__(self) -> Any:
        return layout_of, (self.structure, self.table)

    def __deepcopy__(self, memo: Any) -> "Layout":
        return self


@dataclasses.dataclass(frozen=True, slots=True)
class Varying:
    """A Layout with values that are compared each time, by `static_key` or by their ``==``."""

    layout: Layout
    values: tuple[Any, ...]


def layout_in(static: Any) -> Layout:
    layout: Layout = static.layout if type(static) is Varying else static
    return layout


# From the hash of a Structure to weak references to the Layouts with it, none of which keeps it
# alive. A Structure refers to the user's objects, which may refer to a Packed.
_layouts: dict[int, list[weakref.ref[Layout]]] = {}
_lock = threading.RLock()


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class _Ref(weakref.ref[Layout]):
    __slots__ = ("key",)
    key: int


def _forget(ref: Any) -> None:
    refs = _layouts.get(ref.key, [])
    if ref in refs:
        refs.remove(ref)
    if not refs:
        _layouts.pop(ref.key, None)


def candidates(structure: Structure) -> list[Layout]:
    """Returns the Layouts that exist for a Structure, or one that is equal."""
    found = (ref() for ref in list(_layouts.get(hash(structure), ())))
    return [x for x in found if x is not None and x.structure == structure]


def layout_of(structure: Structure, table: Table, traced: bool = False) -> Layout:
    """Returns the Layout, which is made where there is none.

    Values that can change in place are the same objects in both Structures, or, in a trace, equal
    ones: a trace may make new ones each time.
    """
    varying = tuple(_varying_in(structure))
    with _lock:
        for layout in candidates(structure):
            if layout.table is table and all(
                x is y or (traced and _core.same_static(registry, x, y))
                for x, y in zip(layout.varying, varying, strict=True)
            ):
                return layout
        layout = Layout(structure, table, varying)
        ref = _Ref(layout, _forget)
        ref.key = hash(structure)
        _layouts.setdefault(ref.key, []).append(ref)
        return layout


def is_immutable(x: Any) -> bool:
    """Whether nothing changes what a static value is equal to."""
    if type(x) in (tuple, frozenset):
        return all(map(is_immutable, x))
    return _core.is_immutable(registry, x)


def _varying_in(structure: Structure) -> Iterable[Any]:
    for kind, _, _, detail, _ in structure._nodes():
        if kind in ("static", "custom") and not is_immutable(detail):
            yield detail
