"""Learns a neural ODE online, one sequence at a time: the eight rows of a digit as eight moments."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits


class Field(eqx.Module):
    mlp: eqx.nn.MLP

    def __call__(self, t, y, args):
        return self.mlp(jnp.append(y, t))


class Model(eqx.Module):
    field: Field
    encoder: eqx.nn.Linear
    decoder: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, 3)
        mlp = eqx.nn.MLP(13, 12, 32, 2, activation=jax.nn.softplus, key=keys[0])
        self.field = Field(mlp)
        self.encoder = eqx.nn.Linear(8, 12, key=keys[1])
        self.decoder = eqx.nn.Linear(12, 8, key=keys[2])

    def __call__(self, first):
        times = jnp.linspace(0.0, 1.0, 8)
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(self.field),
            diffrax.Tsit5(),
            t0=0.0,
            t1=1.0,
            dt0=0.1,
            y0=self.encoder(first),
            saveat=diffrax.SaveAt(ts=times),
            stepsize_controller=diffrax.ConstantStepSize(),
        )
        return jax.vmap(self.decoder)(solution.ys)


optimizer = optax.adam(2e-3)


@eqx.filter_jit
def learn(model, moments, rows):
    def loss_of(model):
        return jnp.mean((model(rows[0]) - rows) ** 2)

    loss, gradients = eqx.filter_value_and_grad(loss_of)(model)
    updates, moments = optimizer.update(gradients, moments)
    return eqx.apply_updates(model, updates), moments, loss


images = (load_digits().images / 16).astype(np.float32)
model = Model(jax.random.key(0))
moments = optimizer.init(eqx.filter(model, eqx.is_inexact_array))
mean = 0.0
for i, rows in enumerate(images[:1200], 1):
    model, moments, loss = learn(model, moments, rows)
    mean += (float(loss) - mean) / min(i, 100)
    if i % 300 == 0:
        print(f"after {i} digits: loss {mean:.4f}")
