"""A program that compiles too often and too much, to be found by the command line:

    python -m filterjit run --explain --report examples/find_retrace.py

It is written for Equinox. While it runs, `--explain` reports that `train` compiles again because
`rate` changes. At the end, `--report` counts the equations of `simulate`, whose loop Python unrolled.
The functions with `mended` in their names fix both. The program's last line says what this gains.
"""

import sys
import time

import equinox as eqx
import jax
import jax.numpy as jnp


@eqx.filter_jit
def train(model, x, rate):
    gradients = eqx.filter_grad(lambda model: jnp.mean(jax.vmap(model)(x) ** 2))(model)
    return eqx.apply_updates(model, jax.tree.map(lambda g: -rate * g, gradients))


def train_for(epochs, model, x):
    for epoch in range(epochs):
        model = train(model, x, 0.1 / (1 + epoch))  # a float is static: each is another program
    return model


def mended_train_for(epochs, model, x):
    for epoch in range(epochs):
        model = train(model, x, jnp.asarray(0.1 / (1 + epoch)))  # an array is traced
    return model


@eqx.filter_jit
def simulate(model, x, steps):
    for _ in range(steps):  # runs while JAX traces: each turn is a copy of the model's program
        x = x + 0.1 * jnp.tanh(jax.vmap(model)(x))
    return x


@eqx.filter_jit
def mended_simulate(model, x, steps):
    return jax.lax.fori_loop(0, steps, lambda _, x: x + 0.1 * jnp.tanh(jax.vmap(model)(x)), x)


def timed(f, *arguments):
    """Returns the seconds of a first call, with its compilations, and the result."""
    start = time.perf_counter()
    result = jax.block_until_ready(f(*arguments))
    return time.perf_counter() - start, result


def main(epochs=8, steps=250):
    model = eqx.nn.Linear(4, 4, key=jax.random.key(0))
    x = jnp.ones((8, 4))
    written, trained = timed(lambda: eqx.filter(train_for(epochs, model, x), eqx.is_array))
    mended, again = timed(lambda: eqx.filter(mended_train_for(epochs, model, x), eqx.is_array))
    print("the same training:", bool(eqx.tree_equal(trained, again, rtol=1e-5, atol=1e-6)))
    slow, end = timed(simulate, model, x, steps)
    fast, same = timed(mended_simulate, model, x, steps)
    print("the same simulation:", bool(jnp.allclose(end, same, rtol=1e-4)))
    print(
        f"with one program the training takes {mended / written:.2f} of its time, "
        f"with a loop of JAX the simulation {fast / slow:.2f}"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
