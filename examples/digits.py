"""A classifier of scikit-learn's digits in Equinox, trained with either `filter_jit`.

    python examples/digits.py [STEPS]

Both trainings start from the same model, take the same batches and make their steps in turn. The
losses are the same to the bit; the last line says how many steps a second each makes.
"""

import sys
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

import filterjit

BATCH, BLOCK, TEST = 32, 50, 300  # BLOCK: steps with one filter_jit before those with the other

optimizer = optax.adam(2e-3)


def loss_of(model, images, labels):
    logits = jax.vmap(model)(images)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def update(model, state, images, labels):
    """A training step. It is jitted below, once by each filter_jit."""
    loss, gradients = eqx.filter_value_and_grad(loss_of)(model, images, labels)
    updates, state = optimizer.update(gradients, state)
    return eqx.apply_updates(model, updates), state, loss


def main(steps=2000):
    images, labels = load_digits(return_X_y=True)
    images, labels = (images / 16).astype(np.float32), labels.astype(np.int32)
    chosen = np.random.default_rng(0).integers(TEST, len(images), (steps, BATCH))
    batches = [(jnp.asarray(images[i]), jnp.asarray(labels[i])) for i in chosen]

    model = eqx.nn.MLP(64, 10, 32, depth=2, key=jax.random.key(0))
    start = model, optimizer.init(eqx.filter(model, eqx.is_array))
    jitted = {"eqx": eqx.filter_jit(update), "filterjit": filterjit.filter_jit(update)}
    trained, seconds = dict.fromkeys(jitted, start), dict.fromkeys(jitted, 0.0)
    losses = {name: [] for name in jitted}
    for step in jitted.values():
        step(*start, *batches[0])  # compiles

    for done in range(0, steps, BLOCK):
        for name, step in jitted.items():
            model, state = trained[name]
            before = time.perf_counter()
            for batch in batches[done : done + BLOCK]:
                model, state, loss = step(model, state, *batch)
                losses[name].append(loss)
            loss.block_until_ready()
            seconds[name] += time.perf_counter() - before
            trained[name] = model, state

    found = {name: np.array(values) for name, values in losses.items()}
    model = trained["filterjit"][0]
    accuracy = (jax.vmap(model)(images[:TEST]).argmax(1) == labels[:TEST]).mean()
    rates = {name: steps / taken for name, taken in seconds.items()}
    first, last = found["filterjit"][[0, -1]]
    print(f"loss {first:.3f}, then {last:.3f}; accuracy on other digits {accuracy:.2f}")
    print("the same losses to the bit:", np.array_equal(found["eqx"], found["filterjit"]))
    print(
        f"{rates['filterjit']:,.0f} steps a second, with eqx.filter_jit {rates['eqx']:,.0f}: "
        f"{rates['filterjit'] / rates['eqx']:.1f} times as many"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
