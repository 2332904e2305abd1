"""`pack`: a tree whose arrays are in one buffer for each dtype and sharding.

`_pack_layout` has the static part of a `Packed`, and the programs. The C core reads a Packed as a
dataclass: the buffers and the leaves beside them are its children.

Not traced arrays: what decides where a leaf goes, its *facts*, are read of all leaves, and compared
with those for which a Layout of the same Structure was made; where they are the same, its program
runs at once. Traced arrays have no placement, and go by dtype.
"""

import dataclasses
import functools
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.tree_util as jtu
import numpy as np

from .. import _core
from .._base._checks import check_bool
from .._base._errors import format_path, short
from .._base._package import public
from .._compat import _jax_compat
from .._shardings._specs import default_device, rest_of
from .._trees._nodes import Node, walk
from .._trees._registry import registry
from ._pack_layout import (
    Group,
    Layout,
    NamedSharding,
    Placement,
    Table,
    candidates,
    is_immutable,
    layout_in,
    layout_of,
    table_of,
)

ARRAY_IMPL = _jax_compat.ARRAY_IMPL


def _may_vary(leaf: Any) -> bool:
    return not is_immutable(leaf)


# The open leaves of a Layout's Structure. The second is asked of leaves that are not arrays.
_OPEN = ("or", ("arrays",), ("leaf", _may_vary))
_FACTS = tuple(map(operator.attrgetter, ("sharding", "committed", "aval")))


@public
@functools.partial(
    jtu.register_dataclass, data_fields=["buffers", "beside"], meta_fields=["static"]
)
@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False, weakref_slot=True)
class Packed:
    """A tree whose arrays are in a few buffers; `pack` makes it.

    It is a pytree of these buffers and of the leaves that are in none. All else that there is in
    the tree is static. A function that is jitted by `filter_jit` or ``jax.jit`` takes and returns
    it, and a call costs what a call with a few arrays costs.

    A step compiles as it does on the unpacked tree, and computes the same to the bit, as long as
    XLA respects the barriers around it: on a CPU, that of JAX 0.12 did in all that was tried, and
    that of JAX 0.10 did not. Else it differs by rounding, as two compilations of one program may.
    The barrier before the step copies each leaf, and ``unpack(exact=False)`` leaves it out: small
    steps are faster, and results can differ by rounding.

    Take gradients by the unpacked tree or by the Packed: the transpose of `unpack` is one
    concatenation, so both are linear in the number of leaves.

    ``tree_map``, ``vmap``, ``scan``, ``device_put`` and optimizers see the buffers, which are
    one-dimensional. What treats each leaf on its own, such as a norm of each or a mask by path,
    needs the unpacked tree. A saved Packed can be loaded into one that was packed from a tree of
    its structure and shapes; what `unpack` returns can be loaded anywhere. ``a == b`` compares the
    values, as a Module of Equinox does. Under plain ``jax.jit``, a static value that is changed in
    place goes unseen, as in any pytree; `filter_jit` sees it.

    Attributes:
        buffers: a tuple of arrays of one axis each.
        beside: a tuple of the leaves that are in no buffer, as they were given.
        static: the structure of the tree and the places of its leaves, which hash and compare by
            identity.

    Examples:
        >>> state = pack({"w": jnp.ones(2), "steps": jnp.array(0)})
        >>> @filter_jit(donate="all-except-first")
        ... def step(x, state):
        ...     tree = state.unpack()
        ...     return state.replace({"w": tree["w"] - 0.5 * x, "steps": tree["steps"] + 1})
        >>> step(jnp.ones(2), state).unpack()["w"]
        Array([0.5, 0.5], dtype=float32)
    """

    buffers: tuple[Any, ...]
    beside: tuple[Any, ...]
    static: Any

    @property
    def structure(self) -> _core.Structure:
        """The structure of the tree; its open leaves are those that are not static."""
        return layout_in(self.static).structure

    def unpack(self, *, exact: bool = True) -> Any:
        """Returns the tree, with arrays that are sharded and committed as they were packed.

        Inside of a jitted function it is a part of the program. Outside it runs one program, which
        is compiled once for each layout (one for each placement, if some of the arrays are
        committed to their device and others are not).

        Arguments:
            exact: whether a jitted function computes with the arrays as if they were its arguments,
                to the bit, at the price of a copy of each. With False, XLA fuses the copies with
                what uses them.

        Raises:
            ValueError: a buffer does not have the shape that it was made with, for example since
                ``vmap`` added an axis.
            TypeError: a buffer is not an array.
        """
        if exact is not True:
            check_bool("unpack(exact=...)", exact)
        layout = layout_in(self.static)
        table, buffers = layout.table, self.buffers
        for length, buffer in zip(table.lengths, buffers, strict=True):
            if type(buffer) is not ARRAY_IMPL and not isinstance(buffer, (jax.Array, np.ndarray)):
                raise TypeError(
                    f"cannot unpack: a buffer is {short(buffer)} of type "
                    f"`{type(buffer).__qualname__}`, not an array"
                )
            if (shape := np.shape(buffer)) != (length,):
                raise ValueError(
                    f"cannot unpack: a buffer has the shape {shape}, not ({length},). If "
                    "`vmap` or `scan` added an axis, unpack under `vmap`: "
                    "jax.vmap(lambda packed: packed.unpack())(packed)."
                )
        if set(map(type, buffers)) <= {ARRAY_IMPL}:
            leaves = table.unpack(buffers, self.beside)
        else:
            leaves = table.unpack_traced(buffers, self.beside, exact)
        return layout.structure.unflatten(leaves)

    def replace(self, tree: Any) -> "Packed":
        """Returns a Packed of another tree, each leaf of which has the shape and the dtype that it
        has here. Outside of a trace, arrays are also divided as they are here, and those of one
        buffer are placed alike. Where a leaf is weakly typed and was not, or was and is not, it goes
        into the buffer into which `pack` puts it.

        Raises:
            ValueError: the tree differs in structure, in a static value, or in the shape, dtype or
                sharding of an array. The message says by path where it differs first.

        Examples:
            >>> packed = pack({"w": jnp.ones(2)})
            >>> packed.replace({"w": jnp.zeros(2)}).unpack()
            {'w': Array([0., 0.], dtype=float32)}
        """
        layout = layout_in(self.static)
        leaves, structure = _core.tree_flatten(registry, tree, _OPEN, None)
        if layout.structure != structure:
            difference = _structure_difference(layout.structure, structure)
            if difference is not None:
                raise ValueError(f"cannot replace the tree that is packed: {difference}")
        table, static = layout.table, self.static
        for group, buffer in zip(table.groups, self.buffers, strict=True):
            dtype = getattr(buffer, "dtype", None)
            for i, shape in zip(group.leaves, group.shapes, strict=True):
                x = leaves[i]
                if getattr(x, "shape", None) != shape or x.dtype != dtype:
                    raise ValueError(
                        "cannot replace the tree that is packed: "
                        f"`{_name(structure, i)}` was {_type_of(dtype, shape)}, is {_describe(x)}"
                    )
        kinds = set(map(type, leaves))
        traced = _is_traced(kinds)
        facts = None if traced else _facts(leaves, kinds)
        changed = facts is None or facts != layout.facts
        if facts is not None and changed and (bad := _misplaced(table, facts)) is not None:
            raise ValueError(
                f"cannot replace the tree that is packed: `{_name(structure, bad)}` is placed "
                "otherwise (its sharding, its memory, or whether it is committed). Call `pack`, "
                "or `jax.device_put` before it."
            )
        if changed:
            table = _by_weak_type(table, self.buffers, leaves)
            if table is not layout.table:
                layout = layout_of(layout.structure, table, traced)
                layout.facts, static = facts, layout.static
        buffers = table.pack_traced(leaves) if traced else table.pack(leaves)
        return Packed(buffers, tuple([leaves[i] for i in table.beside]), static)

    def __eq__(self, other: object) -> Any:
        if type(other) is not Packed:
            return NotImplemented
        if self is other:
            return True
        if self.static != other.static:
            return False
        same: Any = True
        for a, b in zip(self.buffers + self.beside, other.buffers + other.beside, strict=True):
            if type(a) is not type(b) and not (_is_array(a) and _is_array(b)):
                return False
            if _is_array(a):
                if (a.shape, a.dtype) != (b.shape, b.dtype):
                    return False
                equal = (a == b).all()
                same = equal & same if isinstance(equal, jax.core.Tracer) else bool(equal) and same
                if same is False:
                    return False
            elif not _core.same_static(registry, a, b):
                return False
        return same if isinstance(same, jax.core.Tracer) else bool(same)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        layout = layout_in(self.static)
        inside = sum(len(group.leaves) for group in layout.table.groups)
        shown = ", ".join(
            _type_of(x.dtype, x.shape) if _is_array(x) else short(x) for x in self.buffers
        )
        return f"Packed([{shown}], of {inside:,} arrays, {len(self.beside):,} leaves beside)"


@public
def pack(tree: Any) -> Packed:
    """Returns a tree with its arrays in one buffer for each dtype and sharding.

    A program takes and returns a few arrays in the place of thousands, and JAX asks about each
    array in each call. It pays where the device needs less time for a step than the dispatch.

    Inside of a jitted function the arrays are concatenated in the program, and an array's
    placement is not known: use `Packed.replace` to keep that of the arguments. Outside, one program
    does it (one for each placement, if some of the arrays are committed to their device and others
    are not).

    These leaves are kept beside the buffers, as they are: NumPy arrays, keys of ``jax.random`` and
    other extended dtypes, arrays without elements, arrays on another device than the default one
    that are not committed to it, in another kind of memory, or with another sharding over several
    devices than a ``NamedSharding``; and leaves that are no arrays and can change in place. All
    others that are no arrays, Python's numbers among them, are static, as for `filter_jit`.

    Arguments:
        tree: any pytree.

    Returns:
        A `Packed`; its `unpack` gives the tree.

    Examples:
        >>> packed = pack({"w": jnp.ones((2, 2)), "b": jnp.zeros(2), "name": "linear"})
        >>> packed
        Packed([float32[6]], of 2 arrays, 0 leaves beside)
        >>> packed.unpack()["name"]
        'linear'
    """
    leaves, structure = _core.tree_flatten(registry, tree, _OPEN, None)
    kinds = set(map(type, leaves))
    if _is_traced(kinds):
        table = table_of(len(leaves), _traced_groups(leaves))
        layout = layout_of(structure, table, traced=True)
        buffers = table.pack_traced(leaves)
    else:
        layout = _layout(structure, leaves, kinds)
        table = layout.table
        buffers = table.pack(leaves)
    return Packed(buffers, tuple([leaves[i] for i in table.beside]), layout.static)


def _is_array(x: Any) -> bool:
    return isinstance(x, _jax_compat.ARRAY_TYPES)


def _is_traced(kinds: set[type]) -> bool:
    return kinds != {ARRAY_IMPL} and any(issubclass(kind, jax.core.Tracer) for kind in kinds)


# ---- where arrays go that are not traced ----


class _Facts(NamedTuple):
    """All that decides where leaves go. The lists have None for a leaf that is kept beside."""

    device: Any
    shardings: list[Any]
    committed: list[Any]
    avals: list[Any]

    def of(self, i: int) -> tuple[Any, Any, Any]:
        return self.shardings[i], self.committed[i], self.avals[i]


def _facts(leaves: Sequence[Any], kinds: set[type]) -> _Facts:
    """Returns the facts of leaves of these types."""
    device = jax.config.jax_default_device
    if kinds <= {ARRAY_IMPL}:
        return _Facts(device, *(list(map(get, leaves)) for get in _FACTS))
    is_array = [type(x) is ARRAY_IMPL for x in leaves]
    return _Facts(
        device,
        *(
            [get(x) if array else None for x, array in zip(leaves, is_array, strict=True)]
            for get in _FACTS
        ),
    )


def _layout(structure: _core.Structure, leaves: Sequence[Any], kinds: set[type]) -> Layout:
    facts = _facts(leaves, kinds)
    for layout in candidates(structure):
        if layout.facts == facts and not layout.varying:
            return layout
    layout = layout_of(structure, _table_of(facts))
    layout.facts = facts
    return layout


def _table_of(facts: _Facts) -> Table:
    default = default_device()
    found: dict[Any, list[tuple[int, tuple[int, ...], Any]]] = {}
    for i, aval in enumerate(facts.avals):
        place = _placement(*facts.of(i), default)
        if place is not None:
            run, mesh, axes, spec = place
            key = aval.dtype, aval.weak_type, run, mesh, axes
            found.setdefault(key, []).append((i, aval.shape, spec))
    runs = {run: n for n, run in enumerate(dict.fromkeys(key[2] for key in found))}
    groups = []
    for (_, _, run, mesh, axes), members in found.items():
        indices, shapes, specs = zip(*members, strict=True)
        on_mesh = None if mesh is None else Placement(mesh, axes, specs)
        groups.append(Group(indices, shapes, on_mesh, runs[run]))
    return table_of(len(facts.avals), tuple(groups))


def _placement(
    sharding: Any, committed: Any, aval: Any, default: Any
) -> tuple[Any, Any, Any, Any] | None:
    """Returns the run, and the mesh, axes and spec, of an array; None if it is kept beside."""
    if aval is None or 0 in aval.shape or jax.dtypes.issubdtype(aval.dtype, jax.dtypes.extended):
        return None
    devices = sharding.device_set
    (device, *_) = devices
    if sharding.memory_kind not in (None, device.default_memory().kind):
        return None
    if len(devices) == 1:
        return ((device, committed), None, None, None) if committed or device is default else None
    if type(sharding) is not NamedSharding or not _is_plain(sharding):
        return None
    used = {axis for part in sharding.spec for axis in _axes(part)}
    axes = tuple(name for name in sharding.mesh.axis_names if name in used)
    return sharding.mesh, sharding.mesh, axes, sharding.spec


def _misplaced(table: Table, facts: _Facts) -> int | None:
    """Returns the first leaf that cannot be in the buffer that it has in the table."""
    default = default_device()
    runs: dict[int, Any] = {}
    for group in table.groups:
        specs = (None,) * len(group.leaves) if group.place is None else group.place.specs
        for i, spec in zip(group.leaves, specs, strict=True):
            place = _placement(*facts.of(i), default)
            if place is None or place[3] != spec:
                return i
            if group.run not in runs and place[0] in runs.values():
                return i
            if runs.setdefault(group.run, place[0]) != place[0]:
                return i
    return None


def _by_weak_type(table: Table, buffers: Sequence[Any], leaves: Sequence[Any]) -> Table:
    """Returns the table with weakly typed leaves and others in buffers apart: in one buffer, all
    would be taken for others."""
    weak = [isinstance(x, jax.Array) and bool(_jax_compat.aval(x).weak_type) for x in leaves]
    avals = [_jax_compat.aval(x) for x in buffers]
    if all(
        weak[i] == bool(aval.weak_type)
        for group, aval in zip(table.groups, avals, strict=True)
        for i in group.leaves
    ):
        return table
    found: dict[Any, list[tuple[int, tuple[int, ...], Any]]] = {}
    members = sorted(
        (i, shape, n, m)
        for n, group in enumerate(table.groups)
        for m, (i, shape) in enumerate(zip(group.leaves, group.shapes, strict=True))
    )
    for i, shape, n, m in members:
        group, aval = table.groups[n], avals[n]
        place = group.place
        on_mesh = None if place is None else (place.mesh, place.axes)
        key = aval.dtype, weak[i], group.run, on_mesh, _jax_compat.varying_axes(aval)
        found.setdefault(key, []).append((i, shape, None if place is None else place.specs[m]))
    runs = {run: n for n, run in enumerate(dict.fromkeys(key[2] for key in found))}
    groups = []
    for (_, _, run, on_mesh, _), apart in found.items():
        indices, shapes, specs = zip(*apart, strict=True)
        at = None if on_mesh is None else Placement(on_mesh[0], on_mesh[1], specs)
        groups.append(Group(indices, shapes, at, runs[run]))
    return table_of(table.count, tuple(groups))


def _axes(part: Any) -> tuple[Any, ...]:
    return () if part is None else part if isinstance(part, tuple) else (part,)


def _is_plain(sharding: Any) -> bool:
    """Whether the spec of a sharding says all, and the mesh is one of devices, not of types."""
    spec, kinds = sharding.spec, getattr(sharding.mesh, "axis_types", None) or ()
    return (
        all(kind is jax.sharding.AxisType.Auto for kind in kinds)
        and not rest_of(spec)
        and all(part is None or isinstance(part, (str, tuple)) for part in spec)
    )


# ---- where traced arrays go ----


def _traced_groups(leaves: Sequence[Any]) -> tuple[Group, ...]:
    found: dict[Any, list[tuple[int, tuple[int, ...]]]] = {}
    for i, x in enumerate(leaves):
        if not isinstance(x, jax.Array):
            continue
        aval = _jax_compat.aval(x)
        key = _key_of(aval)
        if key is not None:
            found.setdefault(key, []).append((i, tuple(aval.shape)))
    return tuple(
        Group(*zip(*members, strict=True))  # type: ignore[arg-type]
        for members in found.values()
    )


def _key_of(aval: Any) -> Any:
    """Returns what the leaves of a buffer have in common; None if the array is kept beside."""
    if (
        type(aval) is not jax.core.ShapedArray
        or 0 in aval.shape
        or jax.dtypes.issubdtype(aval.dtype, jax.dtypes.extended)
    ):
        return None
    spec = getattr(getattr(aval, "sharding", None), "spec", ())
    if any(part is not None for part in spec):  # sharding is in the types of such a mesh
        return None
    return aval.dtype, bool(aval.weak_type), _jax_compat.varying_axes(aval)


# ---- differences ----


def _type_of(dtype: Any, shape: Sequence[int]) -> str:
    return f"{getattr(dtype, 'name', dtype)}[{','.join(map(str, shape))}]"


def _describe(x: Any) -> str:
    return _type_of(x.dtype, x.shape) if _is_array(x) else short(x)


def _name(structure: _core.Structure, leaf: int) -> str:
    return structure.paths[leaf]


_HOLE = np.zeros(())


def _whole(structure: _core.Structure) -> _core.Structure:
    """Returns the structure whose nodes have the static leaves among them."""
    tree = structure.unflatten([_HOLE] * structure.num_leaves)
    return _core.flatten(registry, tree)[1]


def _structure_difference(was: _core.Structure, now: _core.Structure) -> str | None:
    """Returns where two Structures differ first; None if they only did when they were made."""
    for (a, path), (b, _) in zip(walk(_whole(was)), walk(_whole(now)), strict=False):
        if not a.equals(b):
            where = f"`{format_path(path)}`" if path else "the tree itself"
            return f"{where} was {_show(a)}, is {_show(b)}"
    return None


def _show(node: Node) -> str:
    match node.kind:
        case "array":
            return "an array"
        case "static":
            return f"{short(node.detail)} of type `{type(node.detail).__qualname__}`"
        case "dict" | "ordered_dict" | "default_dict":
            return f"a dict with the keys {short(list(node.detail))}"
    name = node.kind if node.type is None else node.type.__qualname__
    aux = node.kind == "custom" and node.detail is not None
    return f"a `{name}` of {len(node.children)} children" + (
        f" and {short(node.detail)}" if aux else ""
    )
