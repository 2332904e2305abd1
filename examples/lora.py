"""Fine-tunes a model by adapters of low rank (LoRA), which path patterns choose.

    python examples/lora.py [STEPS]

`partition` splits the model by the paths of its arrays. Only the adapters are trained and saved; the
step is a closure over the base, so its arrays are constants of the program. Prints what is trained, and
how many steps a second it makes beside `eqx.filter_jit` on the same split.
"""

import functools
import io
import sys
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import filterjit
from filterjit import combine, partition, partition_dict

WIDTH, DEPTH, RANK, BLOCK = 64, 6, 2, 50
ADAPTERS = filterjit.Filter("layers[1:-1].up") | "layers[1:-1].down"

optimizer = optax.adam(3e-3)


class Adapted(eqx.Module):
    """A linear layer with a correction of low rank."""

    base: eqx.nn.Linear
    down: jax.Array
    up: jax.Array

    def __init__(self, base, key):
        self.base = base
        self.down = jax.random.normal(key, (RANK, base.in_features)) / base.in_features
        self.up = jnp.zeros((base.out_features, RANK))

    def __call__(self, x, *, key=None):
        return self.base(x) + self.up @ (self.down @ x)


def make_model():
    model = eqx.nn.MLP(8, 8, WIDTH, depth=DEPTH, activation=jnp.tanh, key=jax.random.key(0))
    layers = tuple(Adapted(x, jax.random.key(i)) for i, x in enumerate(model.layers))
    return eqx.tree_at(lambda model: model.layers, model, layers)


def update(base, adapters, state, x, y):
    def loss_of(adapters):
        return jnp.mean((jax.vmap(combine(adapters, base))(x) - y) ** 2)

    loss, gradients = jax.value_and_grad(loss_of)(adapters)
    updates, state = optimizer.update(gradients, state)
    return optax.apply_updates(adapters, updates), state, loss


def main(steps=1000):
    model = make_model()
    adapters, base = partition(model, ADAPTERS)
    x = jax.random.normal(jax.random.key(2), (8, 8))
    y = jnp.roll(x, 1, axis=1) / 4  # the new task
    jitted = {
        "eqx": functools.partial(eqx.filter_jit(update), base),
        "ours": filterjit.filter_jit(lambda *args: update(base, *args)),
    }
    trained = dict.fromkeys(jitted, (adapters, optimizer.init(adapters)))
    losses, seconds = {name: [] for name in jitted}, dict.fromkeys(jitted, 0.0)
    for name, step in jitted.items():
        step(*trained[name], x, y)  # compiles
    for done in range(0, steps, BLOCK):
        for name, step in jitted.items():
            before = time.perf_counter()
            for _ in range(min(BLOCK, steps - done)):
                *trained[name], loss = step(*trained[name], x, y)
                losses[name].append(loss)
            loss.block_until_ready()
            seconds[name] += time.perf_counter() - before

    tuned = combine(trained["ours"][0], base)
    structure, saved, others = partition_dict(tuned, ADAPTERS)  # flat dicts, by path
    np.savez(file := io.BytesIO(), **saved)
    file.seek(0)
    restored = structure.combine(others, dict(np.load(file)))
    print(f"trained {len(saved)} of {len(saved) + len(others)} arrays")
    print("the saved adapters restore the model:", bool(jnp.all(tuned(x[0]) == restored(x[0]))))
    print(f"loss {losses['ours'][0]:.4f}, then {losses['ours'][-1]:.4f}")
    rates = {name: steps / taken for name, taken in seconds.items()}
    print(
        f"{rates['ours']:,.0f} steps a second, with eqx.filter_jit {rates['eqx']:,.0f}: "
        f"{rates['ours'] / rates['eqx']:.1f} times as many"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
