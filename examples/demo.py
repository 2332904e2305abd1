"""A classifier of scikit-learn's digits in Equinox, trained with either `filter_jit`: `make demo`.

    python examples/demo.py [STEPS] [PICTURE]

Both trainings start from the same model, take the same batches and make their steps in turn. The
losses are the same to the bit. Prints a table, and draws it if a file for the picture is named.
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
ROW = "| {:20} | {:>10} | {:>10} | {:>14} | {:>8} |"

optimizer = optax.adam(2e-3)


def loss_of(model, images, labels):
    logits = jax.vmap(model)(images)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def update(model, state, images, labels):
    """A training step. It is jitted below, once by each filter_jit."""
    loss, gradients = eqx.filter_value_and_grad(loss_of)(model, images, labels)
    updates, state = optimizer.update(gradients, state)
    return eqx.apply_updates(model, updates), state, loss


def draw(path, losses, rates):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, style in zip(losses, ("-", "--"), strict=True):
        left.plot(losses[name], style, label=name)
    left.set(xlabel="step", ylabel="loss", title="the same losses")
    left.legend(frameon=False)
    right.bar(list(rates), list(rates.values()))
    right.set(title="steps a second")
    figure.savefig(path)


def main(steps="2000", picture=None):
    steps = int(steps)
    images, labels = load_digits(return_X_y=True)
    images, labels = (images / 16).astype(np.float32), labels.astype(np.int32)
    chosen = np.random.default_rng(0).integers(TEST, len(images), (steps, BATCH))
    batches = [(jnp.asarray(images[i]), jnp.asarray(labels[i])) for i in chosen]

    model = eqx.nn.MLP(64, 10, 32, depth=2, key=jax.random.key(0))
    start = model, optimizer.init(eqx.filter(model, eqx.is_array))
    jitted = {"equinox.filter_jit": eqx.filter_jit(update)}
    jitted["filterjit.filter_jit"] = filterjit.filter_jit(update)
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

    losses = {name: np.array(values) for name, values in losses.items()}
    rates = {name: steps / taken for name, taken in seconds.items()}
    print(ROW.format("", "first loss", "last loss", "steps a second", "accuracy"))
    print(ROW.format("---", "---:", "---:", "---:", "---:"))
    for name, (model, _) in trained.items():
        correct = jax.vmap(model)(images[:TEST]).argmax(1) == labels[:TEST]
        first, last = (f"{losses[name][i]:.4f}" for i in (0, -1))
        print(ROW.format(name, first, last, f"{rates[name]:,.0f}", f"{correct.mean():.3f}"))
    equal = np.array_equal(*losses.values())
    slow, fast = rates.values()
    print(f"the same losses to the bit: {equal}; {fast / slow:.1f} times as many steps a second")
    if picture is not None:
        draw(picture, losses, rates)
        print(f"picture: {picture}")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
