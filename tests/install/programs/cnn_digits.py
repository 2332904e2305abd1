"""Trains a small CNN with BatchNorm on scikit-learn's digits, with Equinox and Optax."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits


class CNN(eqx.Module):
    convolutions: list[eqx.nn.Conv2d]
    norms: list[eqx.nn.BatchNorm]
    head: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, 3)
        self.convolutions = [
            eqx.nn.Conv2d(1, 8, 3, padding=1, key=keys[0]),
            eqx.nn.Conv2d(8, 16, 3, stride=2, padding=1, key=keys[1]),
        ]
        self.norms = [
            eqx.nn.BatchNorm(channels, axis_name="batch", mode="batch") for channels in (8, 16)
        ]
        self.head = eqx.nn.Linear(16 * 4 * 4, 10, key=keys[2])

    def __call__(self, x, state):
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x, state = norm(convolution(x), state)
            x = jax.nn.relu(x)
        return self.head(x.ravel()), state


def run(model, state, images):
    over_batch = jax.vmap(model, axis_name="batch", in_axes=(0, None), out_axes=(0, None))
    return over_batch(images, state)


def loss_of(model, state, images, labels):
    logits, state = run(model, state, images)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    return losses.mean(), state


optimizer = optax.adamw(3e-3)


@eqx.filter_jit
def train_step(model, state, moments, images, labels):
    gradient_of = eqx.filter_value_and_grad(loss_of, has_aux=True)
    (loss, state), gradients = gradient_of(model, state, images, labels)
    params = eqx.filter(model, eqx.is_inexact_array)
    updates, moments = optimizer.update(gradients, moments, params)
    return eqx.apply_updates(model, updates), state, moments, loss


@eqx.filter_jit
def correct(model, state, images, labels):
    logits, _ = run(eqx.nn.inference_mode(model), state, images)
    return (logits.argmax(-1) == labels).sum()


digits = load_digits()
images = (digits.images[:, None] / 16).astype(np.float32)
labels = digits.target.astype(np.int32)
train, test = slice(0, 1500), slice(1500, None)
model, state = eqx.nn.make_with_state(CNN)(jax.random.key(0))
moments = optimizer.init(eqx.filter(model, eqx.is_inexact_array))
random = np.random.default_rng(0)
for epoch in range(8):
    order, losses = random.permutation(1500), []
    for begin in range(0, 1500, 32):
        batch = order[begin : begin + 32]
        model, state, moments, loss = train_step(
            model, state, moments, images[train][batch], labels[train][batch]
        )
        losses.append(loss)
    right = correct(model, state, images[test], labels[test])
    print(f"epoch {epoch}: loss {jnp.stack(losses).mean():.3f}, {right} of 297 right")
