"""Fits a neural ODE to spirals: Diffrax solves it, and is jitted by either `filter_jit`.

    python examples/diffrax_fit.py [STEPS]

A solver in a loop makes many short calls. Diffrax is itself built on `eqx.filter_jit`; under
`filterjit.install()`, its own jitted functions run on filterjit too. Both make their steps in turn,
with the same losses; the last lines say how many steps a second each makes, of the training and of
solves with the trained model that are called from Python.
"""

import contextlib
import sys
import time

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import filterjit

TIMES, BLOCK = np.linspace(0.0, 1.0, 9, dtype=np.float32), 20

optimizer = optax.adam(5e-3)


TERM = diffrax.ODETerm(lambda t, y, field: field(y))  # one for all calls: it is static


def solve(field, start):
    """Returns the values of a field's solution at TIMES."""
    return diffrax.diffeqsolve(
        TERM,
        diffrax.Euler(),
        t0=0.0,
        t1=1.0,
        dt0=0.125,
        y0=start,
        args=field,
        saveat=diffrax.SaveAt(ts=TIMES),
        max_steps=8,
        adjoint=diffrax.DirectAdjoint(),  # these short solves need no checkpoints
    ).ys


def update(field, state, spirals):
    def loss_of(field):
        return jnp.mean((jax.vmap(solve, (None, 0))(field, spirals[:, 0]) - spirals) ** 2)

    loss, gradients = eqx.filter_value_and_grad(loss_of)(field)
    updates, state = optimizer.update(gradients, state)
    return eqx.apply_updates(field, updates), state, loss


def main(steps=600):
    angles = np.linspace(0, 6, 16, dtype=np.float32)[:, None] + 3 * TIMES  # they start on a circle
    spirals = jnp.asarray(np.exp(-TIMES) * [np.cos(angles), np.sin(angles)]).transpose(1, 2, 0)
    field = eqx.nn.MLP(2, 2, 16, depth=2, activation=jnp.tanh, key=jax.random.key(0))
    fitted = field, optimizer.init(eqx.filter(field, eqx.is_array))
    sides = {"eqx": contextlib.nullcontext, "filterjit": filterjit.install}
    jitted = {"eqx": eqx.filter_jit(update), "filterjit": filterjit.filter_jit(update)}
    trained, losses = dict.fromkeys(sides, fitted), {name: [] for name in sides}
    fits, solves = dict.fromkeys(sides, 0.0), dict.fromkeys(sides, 0.0)

    for name, step in jitted.items():
        with sides[name]():  # compiles
            step(*fitted, spirals), solve(field, spirals[0, 0])
    for _ in range(0, steps, BLOCK):
        for name, step in jitted.items():
            with sides[name]():
                before = time.perf_counter()
                for _ in range(BLOCK):
                    *trained[name], loss = step(*trained[name], spirals)
                    losses[name].append(loss)
                loss.block_until_ready()
                between = time.perf_counter()
                for _ in range(BLOCK):
                    solve(trained[name][0], spirals[0, 0]).block_until_ready()
                fits[name] += between - before
                solves[name] += time.perf_counter() - between

    found = {name: np.array(values) for name, values in losses.items()}
    print(f"loss {found['filterjit'][0]:.4f}, then {found['filterjit'][-1]:.4f}")
    print("the same losses to the bit:", np.array_equal(found["eqx"], found["filterjit"]))
    for what, taken in (("steps of the fit", fits), ("solves", solves)):
        ours, theirs = len(found["eqx"]) / np.array([taken["filterjit"], taken["eqx"]])
        print(
            f"{ours:,.0f} {what} a second, with Equinox's {theirs:,.0f}: {ours / theirs:.1f} times as many"
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
