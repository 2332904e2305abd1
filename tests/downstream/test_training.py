"""Equinox with Optax: models of all kinds trained both ways, with results equal bit for bit."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import pytest

from support.comparison import Traces, on_install

X = jax.random.normal(jax.random.key(1), (8, 4))
Y = jnp.arange(8) % 3


class Classifier(eqx.Module):
    layers: list[Any]
    dropout: eqx.nn.Dropout
    scale: Any = eqx.field(converter=jnp.asarray)
    name: str = eqx.field(static=True)

    def __init__(self, key: Any) -> None:
        keys = jax.random.split(key, 2)
        self.layers = [eqx.nn.Linear(4, 8, key=keys[0]), jax.nn.relu]
        self.layers.append(eqx.nn.Linear(8, 3, key=keys[1]))
        self.dropout = eqx.nn.Dropout(0.2)
        self.scale = jnp.ones(())
        self.name = "classifier"

    def __call__(self, x: Any, *, key: Any = None) -> Any:
        for layer in self.layers[:-1]:
            x = layer(x)
        return self.layers[-1](self.dropout(x, key=key)) * self.scale


OPTIMISERS = {
    "adamw": lambda: optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 1e-2, 2, 10)),
    "clipped": lambda: optax.chain(optax.clip_by_global_norm(0.1), optax.sgd(0.1, 0.9)),
}


@pytest.mark.parametrize(
    ("name", "donate"), [("adamw", "none"), pytest.param("clipped", "all", marks=pytest.mark.slow)]
)
@on_install
def test_classifier(name: str, donate: Any) -> Any:
    optimiser = OPTIMISERS[name]()
    traces = Traces()

    @eqx.filter_value_and_grad(has_aux=True)
    def loss(model: Any, x: Any, y: Any, key: Any) -> Any:
        logits = jax.vmap(model)(x, key=jax.random.split(key, x.shape[0]))
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, y)
        return jnp.mean(losses), {"accuracy": jnp.mean(jnp.argmax(logits, 1) == y)}

    @eqx.filter_jit(donate=donate)
    def train(model: Any, state: Any, key: Any) -> Any:
        traces.tick()
        key, used = jax.random.split(key)
        (value, aux), grads = loss(model, X, Y, used)
        updates, state = optimiser.update(grads, state, eqx.filter(model, eqx.is_array))
        return eqx.apply_updates(model, updates), state, key, value, aux

    @eqx.filter_jit
    def evaluate(model: Any) -> Any:
        return jax.vmap(eqx.nn.inference_mode(model))(X)

    model = Classifier(jax.random.key(0))
    state = optimiser.init(eqx.filter(model, eqx.is_array))
    key, told = jax.random.key(7), []
    for _ in range(3):
        model, state, key, value, aux = train(model, state, key)
        told.append((value, aux))
    return told, model, state, evaluate(model), traces.count
