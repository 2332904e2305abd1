"""Transformations of Equinox, inside and outside of a jitted function."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np

from support.comparison import Jit, Traces, on_both
from support.features import TwoFields, X
from support.trees import ONE, TWO


@on_both
def test_filter_pure_callback(jit: Jit) -> Any:
    calls: list[str] = []

    def host(x: Any, name: str, *, module: Any) -> Any:
        calls.append(name)
        return TwoFields(np.asarray(x) * np.float32(module.a), np.float32(len(name)))

    @jit
    def f(x: Any, name: str) -> Any:
        shape = TwoFields(jax.ShapeDtypeStruct(x.shape, x.dtype), jax.ShapeDtypeStruct((), x.dtype))
        return eqx.filter_pure_callback(
            host, x, name, module=TwoFields(TWO, None), result_shape_dtypes=shape
        )

    return f(X, "one"), f(X + 1, "three"), f(ONE, "one"), calls


@on_both
def test_filter_shard(jit: Jit, traces: Traces) -> Any:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("d",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))

    @jit
    def f(tree: Any) -> Any:
        traces.tick()
        tree = eqx.filter_shard(tree, sharding)
        return jtu.tree_map(lambda v: v * 2 if eqx.is_array(v) else v, tree)

    tree = {"x": jnp.arange(4.0), "name": "static"}
    out = f(tree)
    again = f(eqx.filter_shard(tree, sharding))
    return out, again, str(out["x"].sharding.spec)


@on_both
def test_filter_make_jaxpr(jit: Jit) -> Any:
    def function(x: Any, n: Any) -> Any:
        return x * 2, n

    jaxpr, shape, static = eqx.filter_make_jaxpr(jit(function))(X, "name")
    inner = [e for e in jaxpr.eqns if "jit" in e.primitive.name]
    text = str(jaxpr.in_avals), str(jaxpr.out_avals), str(shape), str(static)
    return text, [e.params["name"] for e in inner]
