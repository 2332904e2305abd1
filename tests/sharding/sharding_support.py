"""Meshes, a model and comparisons for tests with eight devices."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh
from jax.sharding import PartitionSpec as P

from filterjit.sharding import ShardingRules

AUTO, EXPLICIT = AxisType.Auto, AxisType.Explicit
KINDS = pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=["auto", "explicit"])
RULES = ShardingRules({"layers[*].weight": P("data"), ...: P()})
X = np.arange(16.0, dtype=np.float32)


def mesh_of(kind: Any = AUTO, shape: tuple[int, ...] = (8,), first: int = 0) -> Mesh:
    """Returns a mesh over some of the devices, with the axes "data" and "model", of one kind or of a
    kind each."""
    names = ("data", "model")[: len(shape)]
    devices = jax.devices()[first : first + int(np.prod(shape))]
    kinds = kind if isinstance(kind, tuple) else (kind,) * len(shape)
    return jax.make_mesh(shape, names, axis_types=kinds, devices=devices)


def make_model(width: int = 16, seed: int = 0) -> eqx.nn.MLP:
    return eqx.nn.MLP(8, 8, width, depth=2, key=jax.random.key(seed))


def specs(tree: Any) -> list[Any]:
    """Returns the spec of each array of a tree, without None at its end."""
    found = []
    for x in jax.tree.leaves(eqx.filter(tree, eqx.is_array)):
        entries = list(x.sharding.spec)
        while entries and entries[-1] is None:
            entries.pop()
        found.append(tuple(entries))
    return found


def devices(x: Any) -> list[int]:
    return sorted(d.id for d in x.sharding.device_set)
