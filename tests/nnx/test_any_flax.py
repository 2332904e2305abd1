"""`filterjit.nnx.jit` beside ``flax.nnx.jit``, with any version of Flax: what programs do most."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import filterjit.nnx
from filterjit._compat import _nnx_compat as compat

X, Y = jnp.ones((4, 3)), jnp.arange(8.0).reshape(4, 2)


class Net(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.linear = nnx.Linear(3, 2, rngs=rngs)
        self.norm = nnx.BatchNorm(2, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.calls = nnx.Variable(jnp.array(0))

    def __call__(self, x: Any) -> Any:
        self.calls.value = self.calls.value + 1
        return self.dropout(self.norm(self.linear(x)))


def step(model: Any, x: Any, y: Any, rate: Any = 0.1) -> Any:
    def loss_of(model: Any) -> Any:
        return jnp.mean((model(x) - y) ** 2)

    loss, gradients = nnx.value_and_grad(loss_of)(model)
    params = nnx.state(model, nnx.Param)
    nnx.update(model, jax.tree.map(lambda p, g: p - rate * g, params, gradients))
    return loss


def numbers(model: Any) -> list[Any]:
    """Returns the values of all Variables."""
    leaves = jax.tree.leaves(nnx.split(model)[1])
    keys = [jnp.issubdtype(x.dtype, jax.dtypes.prng_key) for x in leaves]
    return [
        np.asarray(jax.random.key_data(x) if k else x) for x, k in zip(leaves, keys, strict=True)
    ]


def same(a: Any, b: Any) -> None:
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(x, y)


JITS: list[Any] = [
    lambda jit, f: jit(f, static_argnames="rate"),
    pytest.param(lambda jit, f: jit(f), marks=pytest.mark.thorough),
    pytest.param(lambda jit, f: jit(f, donate_argnums=1), marks=pytest.mark.thorough),
]


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Variable.value
@pytest.mark.parametrize("make", JITS)
def test_a_step_that_updates_a_model(make: Any) -> None:
    models = [Net(nnx.Rngs(0)) for _ in range(2)]
    ours, theirs = (make(jit, step) for jit in (filterjit.nnx.jit, nnx.jit))
    for i in range(20):
        losses = [
            f(model, X + i, Y, rate=0.1 if i < 10 else 0.2)
            for f, model in zip((ours, theirs), models, strict=True)
        ]
        same(losses[:1], losses[1:])
        same(*map(numbers, models))
    assert numbers(models[0]) and int(models[0].calls.value) == 20
    handed_over = not compat.supported
    assert bool(ours.handed_over) == handed_over
    assert ("this version of Flax or JAX is not supported" in str(ours.report())) == handed_over
    assert ours.cache_info().hits >= 18 or handed_over
