"""Stateful layers, ``eqx.nn.State`` and shared layers."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import pytest

from support.comparison import Jit, Traces, on_both
from support.trees import KEY, ONE


class Counter(eqx.Module):
    index: eqx.nn.StateIndex

    def __init__(self) -> None:
        self.index = eqx.nn.StateIndex(jnp.array(0))

    def __call__(self, x: Any, state: eqx.nn.State) -> Any:
        value = state.get(self.index)
        return x + value, state.set(self.index, value + 1)


class Model(eqx.Module):
    norm: eqx.nn.BatchNorm
    linear: eqx.nn.Linear
    counters: list[Counter]

    def __init__(self, key: Any) -> None:
        self.norm = eqx.nn.BatchNorm(2, "batch", mode="ema")
        self.linear = eqx.nn.Linear(2, 1, key=key)
        self.counters = [Counter(), Counter()]

    def __call__(self, x: Any, state: eqx.nn.State) -> Any:
        x, state = self.norm(x, state)
        for counter in self.counters:
            x, state = counter(x, state)
        return self.linear(x), state


@on_both
def test_stateful_training(jit: Jit, traces: Traces) -> Any:
    def loss(model: Any, state: Any, x: Any) -> Any:
        out, state = jax.vmap(model, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(
            x, state
        )
        return jnp.mean(out**2), state

    @jit
    def step(model: Any, state: Any, x: Any) -> Any:
        traces.tick()
        grads, state = eqx.filter_grad(loss, has_aux=True)(model, state, x)
        return eqx.apply_updates(model, jtu.tree_map(lambda g: -0.1 * g, grads)), state

    model, state = eqx.nn.make_with_state(Model)(KEY)
    x = jax.random.normal(jax.random.key(1), (3, 2))
    for _ in range(4):
        model, state = step(model, state, x)
    inference = eqx.nn.inference_mode(model)
    out, _ = jit(inference)(x[0], state)
    counts = [state.get(c.index) for c in model.counters]
    sub = state.substate(model.norm)
    assert type(state) is eqx.nn.State
    return out, counts, traces.count, jtu.tree_leaves(model), len(jtu.tree_leaves(sub))


@on_both
def test_old_state_is_invalid(jit: Jit) -> Any:
    """A state that is updated inside is invalid there, and still valid outside."""
    counter, state = eqx.nn.make_with_state(Counter)()
    with pytest.raises(ValueError, match="Attempted to use old state"):
        jit(lambda state: (counter(ONE, state), counter(ONE, state))[1])(state)
    made_inside = jit(lambda x: counter(x, eqx.nn.make_with_state(Counter)()[1])[0])
    return jit(counter)(ONE, state), jit(counter)(ONE, state), made_inside(ONE)
