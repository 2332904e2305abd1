"""Modules and states of Flax's linen: the results are those of ``jax.jit`` and Equinox."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import filterjit
from support.comparison import Jit, Traces, on, on_both

pytest.importorskip("flax")
optax = pytest.importorskip("optax")
import flax.linen as nn  # noqa: E402
from flax.training.train_state import TrainState  # noqa: E402

KEY = jax.random.key(0)
X = jax.random.normal(jax.random.key(1), (4, 3))


class Network(nn.Module):
    features: int = 4

    @nn.compact
    def __call__(self, x: Any, train: bool = False) -> Any:
        x = nn.Dense(self.features)(x)
        x = nn.BatchNorm(use_running_average=not train)(x)
        return nn.Dense(1)(nn.relu(x))


@on_both
def test_linen_module_as_an_argument(jit: Jit, traces: Traces) -> Any:
    """A linen Module is not a pytree and can be hashed: it is static."""
    params = Network().init(KEY, X)
    apply = jit(traces.counting(lambda model, params, x: model.apply(params, x)))
    found = [apply(Network(4), params, X) for _ in range(3)]
    assert traces.count == 1
    return found


@on_both
def test_linen_init_and_apply_as_the_function(jit: Jit) -> Any:
    model = Network()
    variables = jit(model.init)(KEY, X)
    return variables, jit(model.apply)(variables, X)


@on(jax.jit, eqx.filter_jit, filterjit.filter_jit)
def test_train_state(jit: Jit, traces: Traces) -> Any:
    model = nn.Dense(2)
    params = model.init(KEY, X)["params"]

    @jit
    def step(state: Any, x: Any) -> Any:
        traces.tick()
        loss = lambda p: jnp.mean(state.apply_fn({"params": p}, x) ** 2)
        value, grads = jax.value_and_grad(loss)(state.params)
        return state.apply_gradients(grads=grads), value

    # `step` is an int at first, and an array later.
    state = TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(0.1))
    state = state.replace(step=jnp.asarray(0))
    values = []
    for _ in range(4):
        state, value = step(state, X)
        values.append(value)
    return values, state.params, state.opt_state, state.step
