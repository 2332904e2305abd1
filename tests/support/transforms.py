"""Transformations of JAX and Equinox, by name."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp

# Each maps a function of one array, of any shape, to a function of one array.
Transform = Callable[[Any], Callable[[Any], Any]]

TRANSFORMS: dict[str, Transform] = {
    "jit": jax.jit,
    "vmap": jax.vmap,
    "grad": lambda f: jax.grad(lambda x: jnp.sum(f(x))),
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (jnp.ones_like(x),)),
    "vjp": lambda f: lambda x: (lambda out, pull: (out, pull(jnp.ones_like(out))))(*jax.vjp(f, x)),
    "linearize": lambda f: lambda x: (lambda out, lin: (out, lin(x)))(*jax.linearize(f, x)),
    "checkpoint": jax.checkpoint,
    "grad of checkpoint": lambda f: jax.grad(lambda x: jnp.sum(jax.checkpoint(f)(x))),
    "scan": lambda f: lambda x: jax.lax.scan(lambda c, _: (f(c) * 0.1, c), x, None, length=3),
    "while_loop": lambda f: lambda x: jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, f(c[1]) * 0.1), (0, x)),
    "cond": lambda f: lambda x: jax.lax.cond(jnp.sum(x) > 0, f, lambda y: y, x),
    "switch": lambda f: lambda x: jax.lax.switch(1, [lambda y: y, f], x),
    "eval_shape": lambda f: lambda x: jax.eval_shape(f, x),
    "custom_jvp": lambda f: _custom_jvp(f),
    "custom_vjp": lambda f: _custom_vjp(f),
    "filter_vmap": eqx.filter_vmap,
    "filter_grad": lambda f: eqx.filter_grad(lambda x: jnp.sum(f(x))),
    "filter_closure_convert": lambda f: lambda x: eqx.filter_closure_convert(f, x)(x),
    "filter_eval_shape": lambda f: lambda x: eqx.filter_eval_shape(f, x),
    "filter_custom_vjp": lambda f: jax.grad(lambda x: jnp.sum(_filter_custom_vjp(f)(x))),
    "noinline": lambda f: eqxi.noinline(f),
    "eqxi while_loop": lambda f: _eqxi_while_loop(f),
    "pure_callback beside": lambda f: lambda x: f(x) + jax.pure_callback(lambda y: y, x, x),
}  # fmt: skip


def _custom_jvp(f: Any) -> Any:
    @jax.custom_jvp
    def g(x: Any) -> Any:
        return f(x)

    g.defjvp(lambda primals, tangents: (g(*primals), f(tangents[0]) * 2))
    return g


def _custom_vjp(f: Any) -> Any:
    @jax.custom_vjp
    def g(x: Any) -> Any:
        return f(x)

    g.defvjp(lambda x: (f(x), x), lambda residual, t: (t * f(residual),))
    return g


def _filter_custom_vjp(f: Any) -> Any:
    """Its rules get a static value, and whether the array is perturbed."""

    @eqx.filter_custom_vjp
    def g(x: Any, name: str) -> Any:
        return f(x)

    g.def_fwd(lambda perturbed, x, name: (f(x), (x, perturbed)))
    g.def_bwd(lambda residual, t, perturbed, x, name: t * f(residual[0]) * (perturbed + len(name)))
    return lambda x: g(x, "static")


def _eqxi_while_loop(f: Any) -> Any:
    """With three steps of at most four."""
    loop = functools.partial(eqxi.while_loop, max_steps=4, kind="checkpointed", checkpoints=2)
    return lambda x: loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, f(c[1]) * 0.1), (0, x))[1]
