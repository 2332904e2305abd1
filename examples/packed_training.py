"""Trains a deep, narrow network twice: with its state as it is, and packed.

    python examples/packed_training.py [STEPS]

Deep and narrow means that there are many small arrays. JAX asks about each of them in each call,
which takes longer than the step itself. A packed state is one array for each dtype. The losses are
the same.
"""

import sys
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import filterjit

LAYERS, WIDTH, BATCH = 24, 8, 16

optimizer = optax.adam(1e-3)


def make_state():
    model = eqx.nn.MLP(WIDTH, WIDTH, WIDTH, LAYERS - 1, activation=jnp.tanh, key=jax.random.key(0))
    return model, optimizer.init(eqx.filter(model, eqx.is_inexact_array))


def update(state, x):
    """Returns the state after a step, and the loss."""
    model, inner = state

    def loss_of(model):
        return jnp.mean((jax.vmap(model)(x) - jnp.sin(x)) ** 2)

    loss, gradients = eqx.filter_value_and_grad(loss_of)(model)
    updates, inner = optimizer.update(gradients, inner)
    return (eqx.apply_updates(model, updates), inner), loss


@filterjit.filter_jit(donate="all-except-first")
def step(x, state):
    return update(state, x)


@filterjit.filter_jit(donate="all-except-first")
def packed_step(x, state):
    tree, loss = update(state.unpack(), x)
    return state.replace(tree), loss


def train(step, state, steps):
    """Returns the last state, the loss of each step, and the seconds of a step."""
    x = jax.random.normal(jax.random.key(1), (BATCH, WIDTH))
    state, loss = step(x, state)  # compiles
    losses = [loss]
    start = time.perf_counter()
    for _ in range(steps - 1):
        state, loss = step(x, state)
        losses.append(loss)
    losses = [float(loss) for loss in losses]  # waits for the device
    return state, losses, (time.perf_counter() - start) / max(1, steps - 1)


def main(steps=1000):
    state, losses, plain = train(step, make_state(), steps)
    packed, packed_losses, fast = train(packed_step, filterjit.pack(make_state()), steps)
    model, _ = packed.unpack()
    arrays = len(jax.tree.leaves(eqx.filter(state, eqx.is_array)))
    equal = losses == packed_losses and bool(eqx.tree_equal(model, state[0]))
    print(
        f"{arrays} arrays, in {len(packed.buffers)} buffers; loss {losses[0]:.4f}, {losses[-1]:.4f}"
    )
    print(f"{1e6 * plain:.0f} us a step, packed {1e6 * fast:.0f} us")
    print(f"equal to the bit: {equal}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
