"""Fits a logistic regression in Equinox by a scan, which prints its loss by `jax.debug.print`."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_breast_cancer

STEPS = 200
optimizer = optax.sgd(0.1, momentum=0.9)


def loss_of(model, x, y, penalty):
    logits = jax.vmap(model)(x)
    losses = optax.sigmoid_binary_cross_entropy(logits, y)
    return losses.mean() + penalty * jnp.sum(model.weight**2)


@eqx.filter_jit
def fit(model, x, y, penalty):
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def step(carry, i):
        params, moments = carry
        model = eqx.combine(params, static)
        loss, gradients = eqx.filter_value_and_grad(loss_of)(model, x, y, penalty)
        updates, moments = optimizer.update(gradients, moments)

        def show():
            jax.debug.print("  step {}: {:.4f}", i, loss, ordered=True)

        jax.lax.cond(i % 100 == 99, show, lambda: None)
        return (eqx.apply_updates(params, updates), moments), loss

    carry = params, optimizer.init(params)
    (params, _), losses = jax.lax.scan(step, carry, jnp.arange(STEPS))
    return eqx.combine(params, static), losses


@eqx.filter_jit
def accuracy(model, x, y):
    return jnp.mean((jax.vmap(model)(x) > 0) == y)


data = load_breast_cancer()
x = ((data.data - data.data.mean(0)) / data.data.std(0)).astype(np.float32)
y = data.target.astype(np.float32)
folds = np.arange(len(x)) % 4
for penalty in (0.0, 0.01, 0.1):
    found = []
    for fold in range(4):
        train, test = folds != fold, folds == fold
        model = eqx.nn.Linear(30, "scalar", key=jax.random.key(fold))
        model, losses = fit(model, x[train], y[train], jnp.float32(penalty))
        found.append(float(accuracy(model, x[test], y[test])))
    jax.effects_barrier()
    print(f"penalty {penalty}: {np.mean(found):.4f} right, last loss {losses[-1]:.4f}")
