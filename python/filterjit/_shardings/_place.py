"""Finds the spec of each array in a tree, and places arrays.

A *value* describes the shardings of a tree: a sharding, a ``PartitionSpec``, None (leave
unchanged), `ShardingRules`, or a prefix of the tree with these as leaves. `specs_of` finds the spec
of each array from its shape and dtype; tracers are enough.

Without a given mesh, a ``PartitionSpec`` stays one: ``jax.jit`` resolves it by the current mesh,
which is part of its cache key. With a given mesh, it becomes a ``NamedSharding``.
"""

import functools
from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from .. import _core
from .._base._arrays import is_spec, is_tracing, rest_of
from .._base._errors import format_path
from .._base._package import public
from .._base._versions import needs
from .._compat import _jax_compat
from .._trees._registry import registry
from .._trees._tree_functions import flatten
from . import _specs
from ._rules import ShardingRules
from ._specs import Axes, Spec, axes_for, keep_axes, on_mesh

_T = TypeVar("_T")


def is_value(x: Any) -> bool:
    """True if `x` is one value for a whole tree, not a prefix."""
    return x is None or is_spec(x) or isinstance(x, ShardingRules)


def specs_of(value: Any, tree: Any, mesh: Any, where: list[Any]) -> list[Spec]:
    """Returns the spec of each array of `tree`, in order.

    `value` is described above. `mesh` resolves specs; None means the current mesh. `where` is the
    path of `tree`, for messages. Raises ValueError if `value` isn't a prefix of `tree`, or a spec
    doesn't fit an array, and TypeError for a leaf that isn't a sharding.
    """
    axes = axes_for(mesh)
    if isinstance(value, ShardingRules):
        found = value.find(tree, axes, where)
    elif is_value(value):
        found = [value] * len(_core.flatten(registry, tree)[0])
        if value is not None:
            _check(found, tree, axes, where)
    else:
        return _specs_of_prefix(value, tree, mesh, where)
    if axes is not None and axes.manual:
        found = [_outside(s, axes.manual) if isinstance(s, PartitionSpec) else s for s in found]
    return found if mesh is None else on_mesh(found, mesh)


def _outside(spec: PartitionSpec, manual: frozenset[str]) -> Spec:
    """Removes the `manual` axes, which already divide the array, from a spec."""
    left = keep_axes(spec, lambda axis: axis not in manual)
    return left if any(_specs.axes_of(left)) or rest_of(left) else None


def _specs_of_prefix(value: Any, tree: Any, mesh: Any, where: list[Any]) -> list[Spec]:
    leaves, structure = flatten(value, True, is_leaf=is_value)
    name = f"`{format_path(where)}`" if where else "the tree"
    try:
        subtrees = structure._subtrees(tree, name, "its shardings")
    except ValueError as e:
        if not str(e).startswith(f"{name} differs from its shardings"):
            raise  # from a class's own code
        raise ValueError(
            f"{e}. The shardings must be a prefix of {name}; rules by path are `ShardingRules`."
        ) from None
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
    """Raises ValueError with the path of the first array that its spec doesn't fit."""
    arrays, structure = _core.flatten(registry, tree)
    for i, (array, given) in enumerate(zip(arrays, specs, strict=True)):
        if problem := _specs.problem_of(given, tuple(array.shape), mesh):
            spec = given.spec if isinstance(given, NamedSharding) else given
            path = _specs.show_path(where + structure._key_paths()[i])
            raise ValueError(
                f"`{path}`, {_specs.describe(array)}, cannot have the spec {spec}: {problem}"
            )


# ---- placing ----


@functools.partial(public, module="filterjit.sharding")
def place(tree: _T, rules: Any, mesh: Mesh | None = None) -> _T:
    """Returns a tree with its arrays placed on the devices of a mesh.

    This is ``jax.device_put`` for the arrays of any pytree. Everything else stays unchanged.

    With several processes, each passes the same tree on its host, and its devices receive their
    parts.

    In a traced function, it constrains the arrays: Auto axes by
    ``jax.lax.with_sharding_constraint``, Explicit axes by ``jax.sharding.reshard``. Manual axes
    (of ``shard_map``) already divide the arrays and are ignored.

    Arguments:
        tree: any pytree.
        rules: `ShardingRules`, a sharding, a device, a ``PartitionSpec``, None (leave unchanged),
            or a prefix of the tree with these as leaves.
        mesh: the mesh, by default the current one (``jax.set_mesh``).

    Raises:
        ValueError: if there is no mesh; if an array has no rule, or a rule matches nothing; if a
            dimension doesn't divide; or if a spec uses an axis twice, or one that the mesh lacks.
            The message names the path and the rule.
        TypeError: if `mesh` isn't a mesh, or `rules` contains anything else.

    Examples:
        >>> from jax.sharding import PartitionSpec as P
        >>> mesh = jax.make_mesh((1,), ("data",))
        >>> placed = place({"x": jnp.ones(8), "name": "relu"}, P("data"), mesh)
        >>> placed["x"].sharding.spec == P("data"), placed["name"]
        (True, 'relu')
        >>> place({"x": jnp.ones(8)}, jax.devices()[0])["x"].committed
        True
    """
    arrays, structure = _core.flatten(registry, tree)
    specs = specs_of(_without_devices(rules), tree, mesh, [])
    placed = list(arrays)
    if any(isinstance(x, jax.core.Tracer) for x in arrays) or is_tracing():
        placed = [x if s is None else constrain(x, s) for x, s in zip(arrays, specs, strict=True)]
    else:
        if any(isinstance(s, PartitionSpec) for s in specs):
            concrete = _jax_compat.concrete_mesh()
            if concrete is None:
                raise ValueError(_NO_MESH)
            specs = on_mesh(specs, concrete)
        todo = [i for i, s in enumerate(specs) if s is not None]
        here = [i for i in todo if specs[i].is_fully_addressable]
        on_devices = jax.device_put([arrays[i] for i in here], [specs[i] for i in here])
        for i, x in zip(here, on_devices, strict=True):
            placed[i] = x
        for i in todo:
            if placed[i] is arrays[i] and i not in here:
                placed[i] = _place_on_processes(arrays[i], specs[i])
    return structure.unflatten(placed)


def _without_devices(rules: Any) -> Any:
    leaves, structure = flatten(rules, True, is_leaf=is_value)
    if not any(isinstance(x, jax.Device) for x in leaves):
        return rules
    return structure.unflatten(
        [SingleDeviceSharding(x) if isinstance(x, jax.Device) else x for x in leaves]
    )


_NO_MESH = "no mesh to place on: pass `mesh=`, or call it under `jax.set_mesh(mesh)`"


def _place_on_processes(x: Any, sharding: Any) -> Any:
    """Places an array on the devices of several processes, each of which has all values."""
    if isinstance(x, jax.Array) and not x.is_fully_addressable:
        return jax.device_put(x, sharding)
    if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
        return jax.device_put(x, sharding)
    values = np.asarray(x)
    return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])


def constrain(x: Any, spec: Any) -> Any:
    if not isinstance(spec, (PartitionSpec, NamedSharding)):
        return jax.lax.with_sharding_constraint(x, spec)
    inside = _specs.mesh_in_force()
    mesh = inside if isinstance(spec, PartitionSpec) else spec.mesh
    if mesh is None:
        raise ValueError(_NO_MESH)
    # Inside shard_map, the current mesh has Manual axes, whatever kind they are outside.
    of_axes = inside if inside is not None and inside.axis_names == mesh.axis_names else mesh
    kinds = _jax_compat.axis_types(of_axes)
    partition = spec if isinstance(spec, PartitionSpec) else spec.spec
    explicit = keep_axes(partition, lambda axis: "Explicit" in kinds[axis])
    auto = keep_axes(partition, lambda axis: "Auto" in kinds[axis])
    if any("Explicit" in kind for kind in kinds.values()):
        if not hasattr(jax.sharding, "reshard"):
            raise RuntimeError(needs("a mesh with Explicit axes", "0.7.2"))
        named = isinstance(spec, NamedSharding) and inside is None
        x = jax.sharding.reshard(x, NamedSharding(mesh, explicit) if named else explicit)
    if any("Auto" in kind for kind in kinds.values()):
        # If some axes are Manual, JAX accepts only the current mesh.
        named = isinstance(spec, NamedSharding) and "Manual" not in "".join(kinds.values())
        x = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, auto) if named else auto)
    return x
