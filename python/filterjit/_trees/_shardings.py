"""Shardings for whole trees: rules by path, what they say of each array, and placing a tree.

A *value* stands for the shardings of a tree: a sharding, a ``PartitionSpec``, None (leave it as it
is), `ShardingRules`, or a prefix of the tree with these as leaves. `specs_of` finds the spec of each
array. It needs shapes and dtypes only, so the arrays may be tracers.

A ``PartitionSpec`` stays one as long as the mesh is the one in force: ``jax.jit`` resolves it, and
has the mesh in the key of its programs. With a mesh of its own, it becomes a ``NamedSharding``.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, Sharding

from .. import _core
from .._base._errors import format_path
from .._base._package import public
from ._filters import Expression, as_expression
from ._registry import registry
from ._tree_functions import flatten

Spec = Any
"""The sharding of one array: a PartitionSpec or a sharding; None leaves it as it is."""


# ---- meshes ----


@dataclasses.dataclass(frozen=True)
class Axes:
    """The axes of a mesh.

    Attributes:
        shape: the size of each axis; 1 for the Manual axes, those of ``shard_map``, over which the
            arrays of a trace are divided already.
        manual: the Manual axes.
    """

    shape: dict[str, int]
    manual: frozenset[str] = frozenset()

    @classmethod
    def of(cls, mesh: Any) -> "Axes":
        kinds = zip(mesh.axis_names, mesh.axis_types, strict=True)
        manual = frozenset(name for name, kind in kinds if "Manual" in str(kind))
        return cls({n: 1 if n in manual else size for n, size in mesh.shape.items()}, manual)


def mesh_in_force() -> Any:
    """Returns the abstract mesh of ``jax.set_mesh`` or of the trace under way, or None."""
    mesh = jax.sharding.get_abstract_mesh()
    return None if mesh.empty else mesh


def _axes_for(mesh: Any) -> Axes | None:
    """Returns the axes of `mesh`, or of the mesh in force if `mesh` is None or runs inside
    ``shard_map``; None if there is no mesh."""
    if not (mesh is None or hasattr(mesh, "axis_names")):
        raise TypeError(f"`mesh` must be a jax.sharding.Mesh, not {mesh!r}.")
    inside = mesh_in_force()
    axes = None if inside is None else Axes.of(inside)
    return axes if mesh is None or (axes is not None and axes.manual) else Axes.of(mesh)


def entries_of(spec: PartitionSpec) -> tuple[Any, ...]:
    """Returns what a spec says of each dimension.

    A spec with unreduced or reduced axes refuses to be iterated over.
    """
    partitions = getattr(spec, "partitions", None)
    return tuple(spec) if partitions is None else tuple(partitions)


def rest_of(spec: PartitionSpec, keep: Callable[[str], bool] = lambda axis: True) -> dict[str, Any]:
    """Returns what a spec says besides, as keywords: its unreduced and reduced axes."""
    rest: dict[str, Any] = {
        name: frozenset(filter(keep, getattr(spec, name, ()))) for name in ("unreduced", "reduced")
    }
    if rest["unreduced"]:
        rest["unreduced_kind"] = getattr(spec, "unreduced_kind", None)
    return {name: value for name, value in rest.items() if value}


def _axes(spec: PartitionSpec) -> list[tuple[str, ...]]:
    """Returns the axes that each dimension is divided over."""
    return [
        () if entry is None or entry is PartitionSpec.UNCONSTRAINED
        else tuple(entry) if isinstance(entry, tuple) else (entry,)
        for entry in entries_of(spec)
    ]  # fmt: skip


def _misuse_of_axes(spec: PartitionSpec, mesh: Axes) -> str:
    """Returns in words which axis the mesh lacks or the spec uses twice; "" if there is none."""
    used = [axis for axes in _axes(spec) for axis in axes]
    for axis in used:
        if axis not in mesh.shape:
            return f"the mesh has no axis {axis!r}, it has {', '.join(map(repr, mesh.shape))}"
        if used.count(axis) > 1:
            return f"it uses the axis {axis!r} twice"
    return ""


def _misfit(spec: PartitionSpec, shape: tuple[int, ...], mesh: Axes) -> str:
    """Returns in words why an array of this shape cannot be divided so; "" if it can."""
    axes = _axes(spec)
    if len(axes) > len(shape):
        return f"it has {len(axes)} entries for {len(shape)} dimensions"
    for i, (size, names) in enumerate(zip(shape, axes, strict=False)):
        parts = math.prod(mesh.shape[name] for name in names)
        if size % parts:
            return f"dimension {i}, of size {size}, does not divide into {parts} parts"
    return ""


def _keep_axes(spec: PartitionSpec, keep: Callable[[str], bool]) -> PartitionSpec:
    """Returns `spec` with those of its axes for which `keep` is true."""
    rest = rest_of(spec, keep)
    if all(keep(axis) for axes in _axes(spec) for axis in axes) and rest == rest_of(spec):
        return spec
    kept = [tuple(filter(keep, axes)) for axes in _axes(spec)]
    return PartitionSpec(*(x if len(x) > 1 else x[0] if x else None for x in kept), **rest)


def same_spec(a: Spec, b: Spec) -> bool:
    """Returns whether two specs are the same, however they are written: ``P()`` is ``P(None)``."""
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


# ---- rules ----


@public
@dataclasses.dataclass(frozen=True)
class fsdp:
    """A value of `ShardingRules`: divides the largest dimension that can be divided over an axis.

    An array with fewer than `min_size` elements, or of which the axis divides no dimension, is
    replicated. Of dimensions of the same size, the first one is divided.

    Arguments:
        axis: the name of the mesh's axis, or a tuple of names.
        min_size: the number of elements from which on an array is divided.
    """

    axis: str | tuple[str, ...]
    min_size: int = 0

    def __call__(self, array: Any, mesh: Any) -> PartitionSpec:
        """Returns the spec of an array, which needs a shape only."""
        names = self.axis if isinstance(self.axis, tuple) else (self.axis,)
        for name in names:
            if name not in mesh.shape:
                return PartitionSpec(self.axis)  # the mistake is reported with the path
        parts = math.prod(mesh.shape[name] for name in names)
        shape = tuple(array.shape)
        sizes = [size if size % parts == 0 else 0 for size in shape]
        if math.prod(shape) < max(self.min_size, 1) or not any(sizes):
            return PartitionSpec()
        divided = sizes.index(max(sizes))
        return PartitionSpec(*(None,) * divided, self.axis)


@dataclasses.dataclass
class _Found:
    """What the rules say of one array.

    Attributes:
        path: of the array, in the tree.
        array: an array, or a tracer.
        rule: the number of the rule; None if no rule takes the array.
        spec: of the array.
        note: why the spec is not the rule's, in words; mostly empty.
    """

    path: list[Any]
    array: Any
    rule: int | None
    spec: Spec
    note: str = ""


@public
class ShardingRules:
    """An ordered mapping from path patterns or filters to ``PartitionSpec``.

    A key is any filter that `Filter` describes; a path pattern must match the whole path. An array
    has the spec of the first rule that takes it, and ``...`` is the rule of all others.

    A value is a ``PartitionSpec``, a sharding, None (leave the array as it is), or a function
    ``(array, mesh) -> PartitionSpec`` such as `fsdp`, which sees the shape and the dtype, and
    ``mesh.shape``. Arrays
    without dimensions need no rule: they are replicated.

    The same rules serve the state of an optimizer, wherever it is in the tree. Optax keeps its
    state in named tuples, and below each field of a named tuple a pattern may match from there on:
    the rule of ``layers[0].weight`` also takes ``[0].mu.layers[0].weight``. Where an earlier rule
    takes such a part of a path than takes the whole path, the longest such part decides. There a
    spec that does not fit the array (it has more entries than the array has dimensions, or a
    dimension does not divide, as for the factors that Adafactor keeps) replicates it, and no rule
    needs to match.

    Arguments:
        rules: a mapping, or pairs of key and value.

    Raises:
        ValueError: a key is not a filter, there are rules after ``...``, or there is no rule.
        TypeError: a value is none of the above.

    Examples:
        >>> from jax.sharding import PartitionSpec as P
        >>> rules = ShardingRules({
        ...     "**.weight": P(None, "tp"),
        ...     is_inexact_array: fsdp("data", min_size=2**20),
        ...     ...: P(),
        ... })
        >>> mesh = jax.make_mesh((1, 1), ("data", "tp"))
        >>> print(rules.table(eqx.nn.Linear(2, 8, key=jax.random.key(0)), mesh))
        path    shape         spec...
        weight  float32[8,2]  ...'tp'...
        bias    float32[8]    ...
    """

    __slots__ = ("__weakref__", "_default", "_expressions", "_keys", "_values")

    def __init__(self, rules: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        pairs = list(rules.items() if isinstance(rules, Mapping) else rules)
        if not pairs:
            raise ValueError("ShardingRules need at least one rule")
        if any(key is ... for key, _ in pairs[:-1]):
            raise ValueError("the rules after `...` would never be asked: make it the last one")
        for key, value in pairs:
            if not (value is None or is_spec(value) or callable(value)):
                raise TypeError(
                    f"the rule {_show_key(key)} has the value {value!r}, which is neither a "
                    "PartitionSpec, a sharding, None, nor a function of an array and a mesh"
                )
        self._default = pairs[-1][0] is ...
        self._keys = tuple(key for key, _ in pairs)
        self._values = tuple(value for _, value in pairs)
        keys = self._keys[: len(pairs) - self._default]
        self._expressions: tuple[Expression, ...] = tuple([as_expression(key) for key in keys])

    def __repr__(self) -> str:
        pairs = zip(self._keys, self._values, strict=True)
        return f"ShardingRules({{{', '.join(f'{_show_key(k)}: {v!r}' for k, v in pairs)}}})"

    def _show_rule(self, number: int) -> str:
        return f"{_show_key(self._keys[number])}: {self._values[number]!r}"

    def table(self, tree: Any, mesh: Any = None) -> str:
        """Returns a table of the arrays of a tree: path, shape, spec, bytes a device and rule.

        Arguments:
            tree: any pytree; a ``jax.ShapeDtypeStruct`` may stand for an array.
            mesh: the mesh; the one in force if it is left out.

        Raises:
            ValueError: as `place`.
        """
        axes = _axes_for(mesh)
        rows = [("path", "shape", "spec", "bytes a device", "rule")]
        total = 0
        for one in self.find(_with_arrays(tree), axes, []):
            array = one.array
            size = int(np.dtype(_plain_dtype(array.dtype)).itemsize) * math.prod(array.shape)
            if isinstance(one.spec, PartitionSpec):
                names = [name for entry in _axes(one.spec) for name in entry]
                size //= math.prod(axes.shape[name] for name in names) if axes else 1
            elif one.spec is not None:
                size = size * math.prod(one.spec.shard_shape(array.shape)) // (array.size or 1)
            total += size
            rule = "-" if one.rule is None else _show_key(self._keys[one.rule])
            shape = f"{array.dtype}[{','.join(map(str, array.shape))}]"
            spec = "as it is" if one.spec is None else str(_short_spec(one.spec))
            note = f" ({one.note})" if one.note else ""
            rows.append((_show_path(one.path), shape, spec, f"{size:,}", rule + note))
        rows.append(("", "", "", f"{total:,}", ""))
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        lines = []
        for *cells, last in rows:
            cells = [
                text.rjust(width) if i == 3 else text.ljust(width)
                for i, (text, width) in enumerate(zip(cells, widths, strict=True))
            ]
            lines.append("  ".join([*cells, last]).rstrip())
        return "\n".join(lines)

    def find(self, tree: Any, mesh: Axes | None, where: list[Any]) -> list[_Found]:
        """Returns what the rules say of each array of `tree`, in order; `where` is the path of
        `tree` for messages."""
        if mesh is None:
            raise ValueError(
                "ShardingRules need a mesh: pass `mesh=`, or call it under `jax.set_mesh(mesh)`"
            )
        arrays, structure = _core.flatten(registry, tree)
        paths = [where + path for path in structure._array_paths()]
        groups, in_state = self._groups(tree, len(arrays))
        if arrays and not any(in_state):
            self._check_all_match(tree, set(groups), where)
        return [
            self._find_one(path, array, group, state, mesh)
            for path, array, group, state in zip(paths, arrays, groups, in_state, strict=True)
        ]

    def _groups(self, tree: Any, count: int) -> tuple[list[int], list[bool]]:
        """Returns for each array the number of its rule (the number of filters if none takes it)
        and whether it belongs to an optimizer's state."""
        groups = list(_groups_of(tree, self._expressions).values())
        if len(groups) != count:  # a filter of the user's has changed the tree
            raise ValueError("the tree changed while rules were applied to it")
        numbers, in_state = groups.copy(), [False] * count
        for first, subtree in _below_named_tuples(tree, 0):
            below = _groups_of(subtree, self._expressions).values()
            for i, group in enumerate(below, first):
                in_state[i] = True
                if numbers[i] == groups[i]:  # no longer part of the path has an earlier rule
                    numbers[i] = min(numbers[i], group)
        return numbers, in_state

    def _check_all_match(self, tree: Any, taken: set[int], where: list[Any]) -> None:
        for number, expression in enumerate(self._expressions):
            if number not in taken:
                alone = 0 in _groups_of(tree, (expression,)).values()
                raise ValueError(
                    f"the rule {self._show_rule(number)} takes no array"
                    + (f" of `{format_path(where)}`" if where else "")
                    + (": earlier rules take all that match it" if alone else ": none matches it")
                )

    def _find_one(
        self, path: list[Any], array: Any, group: int, in_state: bool, mesh: Axes
    ) -> _Found:
        scalar = not array.shape
        if group == len(self._expressions) and not self._default:
            if scalar or in_state:
                note = "" if scalar else "replicated: no rule takes it"
                return _Found(path, array, None, PartitionSpec(), note)
            raise ValueError(
                f"no rule takes `{_show_path(path)}`, {_describe(array)}: add one, or `...: P()`"
            )
        value = self._values[group]
        if value is None or isinstance(value, Sharding):
            return _Found(path, array, group, value)
        spec = value if isinstance(value, PartitionSpec) else value(array, mesh)
        if not isinstance(spec, PartitionSpec):
            raise TypeError(f"the rule {self._show_rule(group)} returned {spec!r}, not a spec")
        problem = _misuse_of_axes(spec, mesh)
        misfit = "" if problem else _misfit(spec, tuple(array.shape), mesh)
        if misfit and (in_state or scalar):
            return _Found(path, array, group, PartitionSpec(), f"replicated: {spec} does not fit")
        if problem or misfit:
            raise ValueError(
                f"the rule {self._show_rule(group)} gives `{_show_path(path)}`, "
                f"{_describe(array)}, the spec {spec}: {problem or misfit}"
            )
        return _Found(path, array, group, spec)


def _show_key(key: Any) -> str:
    return "..." if key is ... else repr(key)


def _short_spec(spec: Any) -> Any:
    return getattr(spec, "spec", spec)


def _show_path(path: Sequence[Any]) -> str:
    return format_path(path) or "the array"


def _describe(array: Any) -> str:
    return f"{array.dtype}[{','.join(map(str, array.shape))}]"


def _plain_dtype(dtype: Any) -> Any:
    """Returns a dtype of NumPy; that of a PRNG key has the size of its words."""
    try:
        return np.dtype(dtype)
    except TypeError:
        return np.dtype(f"V{getattr(dtype, 'itemsize', 0) or 0}")


def _with_arrays(tree: Any) -> Any:
    """Returns `tree` with an array that takes no memory for each ShapeDtypeStruct."""

    def replace(x: Any) -> Any:
        if not isinstance(x, jax.ShapeDtypeStruct):
            return x
        return np.broadcast_to(np.zeros((), _plain_dtype(x.dtype)), x.shape)

    return _core.tree_map(registry, replace, (tree,), None)


def _groups_of(tree: Any, expressions: tuple[Expression, ...]) -> dict[str, int]:
    """Returns, by path and in order, the number of the first expression that takes an array; the
    number of expressions if none does."""
    _, everything = _core.partition_dict(registry, tree, ("arrays",), (), None)
    _, *parts = _core.partition_dict(registry, tree, ("arrays",), expressions, None)
    found = {path: i for i, part in enumerate(parts) for path in part}
    return {path: found.get(path, len(expressions)) for path in everything}


def _is_named_tuple(x: Any) -> bool:
    return isinstance(x, tuple) and hasattr(x, "_fields")


def _below_named_tuples(x: Any, first: int) -> Iterator[tuple[int, Any]]:
    """Yields the subtree below each field of each named tuple in `x`, outer ones first, with the
    number of its first array; `first` is that of `x`."""
    for node in flatten(x, True, is_leaf=_is_named_tuple)[0]:
        for child in node if _is_named_tuple(node) else ():
            yield first, child
            yield from _below_named_tuples(child, first)
            first += _count(child)
        if not _is_named_tuple(node):
            first += _count(node)


def _count(tree: Any) -> int:
    """Returns the number of arrays in a tree."""
    return len(_core.flatten(registry, tree)[0])


# ---- values ----


def is_spec(x: Any) -> bool:
    return isinstance(x, (PartitionSpec, Sharding))


def is_value(x: Any) -> bool:
    """Returns whether `x` stands for the shardings of a whole tree, and is not a prefix of it."""
    return x is None or is_spec(x) or isinstance(x, ShardingRules)


def specs_of(value: Any, tree: Any, mesh: Any, where: list[Any]) -> list[Spec]:
    """Returns the spec of each array of `tree`, in order.

    Arguments:
        value: see the head of this file.
        tree: any pytree.
        mesh: the mesh that specs are resolved under; None for the one in force.
        where: the path of `tree`, for messages.

    Raises:
        ValueError: `value` is not a prefix of `tree`, or a spec does not fit an array.
        TypeError: a leaf of `value` is not a sharding.
    """
    axes = _axes_for(mesh)
    if isinstance(value, ShardingRules):
        found = [one.spec for one in value.find(tree, axes, where)]
    elif is_value(value):
        found = [value] * len(_core.flatten(registry, tree)[0])
        if value is not None:
            _check(found, tree, axes, where)
    else:
        return _specs_of_prefix(value, tree, mesh, where)
    if axes is not None and axes.manual:
        found = [_outside(s, axes.manual) if isinstance(s, PartitionSpec) else s for s in found]
    if mesh is not None:
        return [NamedSharding(mesh, s) if isinstance(s, PartitionSpec) else s for s in found]
    return found


def _outside(spec: PartitionSpec, manual: frozenset[str]) -> Spec:
    """Returns what is left of a spec where an array is divided over the `manual` axes already."""
    left = _keep_axes(spec, lambda axis: axis not in manual)
    return left if any(_axes(left)) or rest_of(left) else None


def _specs_of_prefix(value: Any, tree: Any, mesh: Any, where: list[Any]) -> list[Spec]:
    leaves, structure = flatten(value, True, is_leaf=is_value)
    try:
        subtrees = structure.flatten_up_to(tree)
    except ValueError as e:
        place = f" of `{format_path(where)}`" if where else ""
        e.add_note(f"(the shardings{place} must be a prefix of the tree)")
        raise
    paths = structure.paths
    found: list[Spec] = []
    for leaf, subtree, path in zip(leaves, subtrees, paths, strict=True):
        below = [*where, *([path] if path else [])]
        if is_value(leaf):
            found += specs_of(leaf, subtree, mesh, below)
        elif _core.flatten(registry, subtree)[0]:
            raise TypeError(
                f"`{format_path(below) or 'the tree'}` has arrays, and {leaf!r} in its place is "
                "neither a sharding, a PartitionSpec, ShardingRules nor None"
            )
    return found


def _check(specs: Sequence[Spec], tree: Any, mesh: Axes | None, where: list[Any]) -> None:
    """Raises ValueError, with the path, where a spec does not fit an array."""
    arrays, structure = _core.flatten(registry, tree)
    for i, (array, given) in enumerate(zip(arrays, specs, strict=True)):
        spec, on = given, mesh
        if isinstance(given, NamedSharding):
            spec, on = given.spec, Axes.of(given.mesh)
        if not isinstance(spec, PartitionSpec) or on is None:
            continue  # JAX says what is wrong with it
        problem = _misuse_of_axes(spec, on) or _misfit(spec, tuple(array.shape), on)
        if problem:
            path = _show_path(where + structure._array_paths()[i])
            raise ValueError(
                f"`{path}`, {_describe(array)}, cannot have the spec {spec}: {problem}"
            )


# ---- placing ----


@public
def place(tree: Any, rules: Any, mesh: Any = None) -> Any:
    """Returns a tree with its arrays placed on the devices of a mesh.

    This is ``jax.device_put`` of the arrays of any pytree; everything else stays as it is. On
    several processes, each passes the same tree on its host, and its devices receive their parts.
    In a traced function, the arrays are constrained to be placed so: those over Auto axes as by
    ``jax.lax.with_sharding_constraint``, those over Explicit axes as by ``jax.sharding.reshard``.
    Manual axes, those of ``shard_map``, divide the arrays already and are left out.

    Arguments:
        tree: any pytree.
        rules: `ShardingRules`, a sharding, a ``PartitionSpec``, None, or a prefix of the tree with
            these as leaves.
        mesh: the mesh; the one in force (``jax.set_mesh``) if it is left out.

    Raises:
        ValueError: there is no mesh, no rule for an array, or a rule that matches nothing; a
            dimension does not divide; the mesh lacks an axis, or a spec uses one twice. The message
            names the path and the rule.
        TypeError: `mesh` is no mesh, or `rules` has a value that is not described above.

    Examples:
        >>> from jax.sharding import PartitionSpec as P
        >>> mesh = jax.make_mesh((1,), ("data",))
        >>> placed = place({"x": jnp.ones(8), "name": "relu"}, P("data"), mesh)
        >>> placed["x"].sharding.spec == P("data"), placed["name"]
        (True, 'relu')
    """
    arrays, structure = _core.flatten(registry, tree)
    specs = specs_of(rules, tree, mesh, [])
    placed = list(arrays)
    if any(isinstance(x, jax.core.Tracer) for x in arrays) or is_tracing():
        placed = [x if s is None else constrain(x, s) for x, s in zip(arrays, specs, strict=True)]
    else:
        if any(isinstance(s, PartitionSpec) for s in specs):
            concrete = jax.sharding.get_mesh()
            if concrete.empty:
                raise ValueError(_NO_MESH)
            specs = [
                NamedSharding(concrete, s) if isinstance(s, PartitionSpec) else s for s in specs
            ]
        todo = [i for i, s in enumerate(specs) if s is not None]
        here = [i for i in todo if specs[i].is_fully_addressable]
        on_devices = jax.device_put([arrays[i] for i in here], [specs[i] for i in here])
        for i, x in zip(here, on_devices, strict=True):
            placed[i] = x
        for i in todo:
            if placed[i] is arrays[i] and i not in here:
                placed[i] = _place_on_processes(arrays[i], specs[i])
    return structure.unflatten(placed)


_NO_MESH = "no mesh to place on: pass `mesh=`, or call it under `jax.set_mesh(mesh)`"


def is_tracing() -> bool:
    """Returns whether code of a traced function is running."""
    try:
        jax.sharding.get_mesh()
    except ValueError:
        return True
    return False


def _place_on_processes(x: Any, sharding: Any) -> Any:
    """Places an array over the devices of several processes; each has all of its values."""
    if isinstance(x, jax.Array) and not x.is_fully_addressable:
        return jax.device_put(x, sharding)
    if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
        return jax.device_put(x, sharding)
    values = np.asarray(x)
    return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])


def constrain(x: Any, spec: Any) -> Any:
    """Constrains an array of a trace to a sharding."""
    if not isinstance(spec, (PartitionSpec, NamedSharding)):
        return jax.lax.with_sharding_constraint(x, spec)
    inside = mesh_in_force()
    mesh = inside if isinstance(spec, PartitionSpec) else spec.mesh
    if mesh is None:
        raise ValueError(_NO_MESH)
    # Inside shard_map, the axes of the mesh in force are Manual, whatever they are outside.
    of_axes = inside if inside is not None and inside.axis_names == mesh.axis_names else mesh
    kinds = {n: str(k) for n, k in zip(of_axes.axis_names, of_axes.axis_types, strict=True)}
    partition = spec if isinstance(spec, PartitionSpec) else spec.spec
    explicit = _keep_axes(partition, lambda axis: "Explicit" in kinds[axis])
    auto = _keep_axes(partition, lambda axis: "Auto" in kinds[axis])
    if any("Explicit" in kind for kind in kinds.values()):
        named = isinstance(spec, NamedSharding) and inside is None
        x = jax.sharding.reshard(x, NamedSharding(mesh, explicit) if named else explicit)
    if any("Auto" in kind for kind in kinds.values()):
        # JAX takes no mesh but the one in force where some of its axes are Manual.
        named = isinstance(spec, NamedSharding) and "Manual" not in "".join(kinds.values())
        x = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, auto) if named else auto)
    return x
