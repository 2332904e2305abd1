"""Transformations of Equinox, inside and outside of a jitted function."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np

from support.comparison import Jit, Traces, on_both
from support.features import TwoFields, X
from support.trees import KEY, ONE, TWO


@on_both
def test_filter_checkpoint(jit: Jit) -> Any:
    runs = Traces()
    model = eqx.nn.MLP(2, "scalar", 3, 1, key=KEY)

    @functools.partial(eqx.filter_checkpoint, policy=jax.checkpoint_policies.dots_saveable)
    def f(model: Any, x: Any, mode: str) -> Any:
        runs.tick()
        return model(x) if mode == "plain" else -model(x)

    loss = lambda m, x, mode: f(m, x, mode) ** 2
    results = [jit(eqx.filter_value_and_grad(loss))(model, X[:2], m) for m in ("plain", "neg")]
    return results, eqx.filter_grad(jit(loss))(model, X[:2], "plain"), runs.count


@on_both
def test_filter_custom_vjp(jit: Jit) -> Any:
    log: list[str] = []

    @eqx.filter_custom_vjp
    def f(vjp_arg: Any, factor: Any, name: str) -> Any:
        return vjp_arg[0] * factor + vjp_arg[1].a

    @f.def_fwd
    def fwd(perturbed: Any, vjp_arg: Any, factor: Any, name: str) -> Any:
        log.append(f"fwd {name} {perturbed[0]}")
        return f(vjp_arg, factor, name), vjp_arg[0]

    @f.def_bwd
    def bwd(residuals: Any, grad: Any, perturbed: Any, vjp_arg: Any, factor: Any, name: str) -> Any:
        log.append(f"bwd {name}")
        return residuals * grad, TwoFields(grad * 10, None)

    arg = (TWO, TwoFields(ONE, "static"))
    loss = lambda a, s, n: f(a, s, n)
    return (
        jit(f)(arg, 3, "plain"),
        jit(eqx.filter_grad(loss))(arg, 3.0, "inside"),
        eqx.filter_grad(jit(loss))(arg, ONE, "outside"),
        log,
    )


@on_both
def test_filter_custom_jvp(jit: Jit) -> Any:
    @eqx.filter_custom_jvp
    def f(x: Any, y: Any, *, name: str) -> Any:
        return x * y.a

    @f.def_jvp
    def f_jvp(primals: Any, tangents: Any, *, name: str) -> Any:
        (x, y), (tx, _) = primals, tangents
        return f(x, y, name=name), tx * 100 * (2 if name == "two" else 1)

    pair = TwoFields(TWO, "static")
    g = lambda x, n: f(x, pair, name=n)
    return (
        jit(f)(ONE, pair, name="plain"),
        [jit(jax.grad(lambda x, n=n: g(x, n)))(ONE) for n in ("one", "two")],
        [jax.grad(lambda x, n=n: jit(g)(x, n))(ONE) for n in ("one", "two")],
        jit(lambda x: eqx.filter_jvp(lambda y: g(y, "one"), (x,), (x,)))(TWO),
    )


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
def test_filter_shard(jit: Jit) -> Any:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("d",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))
    traces = Traces()

    @jit
    def f(tree: Any) -> Any:
        traces.tick()
        tree = eqx.filter_shard(tree, sharding)
        return jtu.tree_map(lambda v: v * 2 if eqx.is_array(v) else v, tree)

    tree = {"x": jnp.arange(4.0), "name": "static"}
    out = f(tree)
    again = f(eqx.filter_shard(tree, sharding))
    return out, again, str(out["x"].sharding.spec), traces.count


@on_both
def test_filter_eval_shape(jit: Jit) -> Any:
    f = jit(lambda x, n: (x * 2, n, TwoFields(jnp.sum(x), n)))
    struct = eqx.filter_eval_shape(f, jax.ShapeDtypeStruct((3,), jnp.float32), "name")
    inside = jit(lambda x: eqx.filter_eval_shape(f, x, "inside")[0].shape)(X)
    return str(struct), inside, f(X, "name")


@on_both
def test_filter_make_jaxpr(jit: Jit) -> Any:
    def function(x: Any, n: Any) -> Any:
        return x * 2, n

    jaxpr, shape, static = eqx.filter_make_jaxpr(jit(function))(X, "name")
    inner = [e for e in jaxpr.eqns if "jit" in e.primitive.name]
    text = str(jaxpr.in_avals), str(jaxpr.out_avals), str(shape), str(static)
    return text, [e.params["name"] for e in inner]


@on_both
def test_filter_closure_convert(jit: Jit) -> Any:
    @jit
    def f(x: Any, y: Any) -> Any:
        closed = eqx.filter_closure_convert(lambda v: v * y + x, x)
        return closed(x), closed, jax.grad(closed)(x)

    value, closed, grad = f(ONE, TWO)
    return value, grad, jit(closed)(TWO), jit(lambda g, x: g(x))(closed, ONE)


@on_both
def test_other_transformations_of_equinox(jit: Jit) -> Any:
    model = eqx.nn.MLP(2, 2, 3, 1, key=KEY)
    call = lambda m, x: m(x)
    x = jnp.array([1.0, 2.0])
    return (
        jit(eqx.filter_jacfwd(lambda v: model(v)))(x),
        jit(eqx.filter_hessian(lambda v: model(v)[0]))(x),
        eqx.filter_jvp(jit(call), (model, x), (eqx.filter(model, eqx.is_array), x)),
        jit(lambda v: eqx.filter_vjp(model, v)[1](v))(x),
        eqx.filter_vmap(jit(call), in_axes=(None, 0))(model, jnp.stack([x, x])),
        jit(eqx.filter_vmap(lambda k: eqx.nn.Linear(2, 2, key=k)))(jax.random.split(KEY, 3)),
    )
