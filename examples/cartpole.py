"""Learns to balance a pole on a cart: policy gradient, in an environment in NumPy.

    python examples/cartpole.py [ITERATIONS]

Each step of the environment asks the policy for an action and waits for it, so the dispatch of that
call is most of the time. The iterations act in turn with `filterjit.filter_jit` and `eqx.filter_jit`.
Prints how long the pole stays up, and how many calls a second each makes.
"""

import sys
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import filterjit

CARTS, STEPS = 16, 200
optimizer = optax.adam(1e-2)


class CartPole:
    """Carts side by side, with the equations and limits of Barto, Sutton and Anderson (1983)."""

    def __init__(self, seed):
        self.state = np.random.default_rng(seed).uniform(-0.05, 0.05, (CARTS, 4))

    def step(self, action):
        """Pushes each cart to the left (0) or right (1), and returns which are within limits."""
        _, speed, angle, spin = self.state.T
        sin, cos = np.sin(angle), np.cos(angle)
        push = (np.where(action == 1, 10.0, -10.0) + 0.05 * spin**2 * sin) / 1.1
        turn = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        change = np.stack([speed, push - 0.05 * turn * cos / 1.1, spin, turn], axis=1)
        self.state = self.state + 0.02 * change
        return (np.abs(self.state[:, 0]) < 2.4) & (np.abs(self.state[:, 2]) < 0.21)


def act(policy, observation, key, step):
    logits = jax.vmap(policy)(observation)
    return jax.random.categorical(jax.random.fold_in(key, step), logits)


@filterjit.filter_jit(donate="all-except-first")
def improve(batch, policy, state):
    observations, actions, weights = batch

    def loss_of(policy):
        logits = jax.vmap(jax.vmap(policy))(observations)
        chosen = optax.softmax_cross_entropy_with_integer_labels(logits, actions)
        return jnp.mean(weights * chosen)

    updates, state = optimizer.update(eqx.filter_grad(loss_of)(policy), state)
    return eqx.apply_updates(policy, updates), state


def play(act, policy, seed):
    """Returns the observations, actions and who was within limits, by step; and the seconds."""
    carts, key = CartPole(seed), jax.random.key(seed)
    within, found, seconds = np.ones(CARTS, bool), [], 0.0
    for step in range(STEPS):
        observation = carts.state.astype(np.float32)
        before = time.perf_counter()
        action = np.asarray(act(policy, observation, key, np.int32(step)))
        seconds += time.perf_counter() - before
        found.append((observation, action, within))
        within = within & carts.step(action)
        carts.state[~within] = 0.0  # what follows has no weight
    return [np.stack(x) for x in zip(*found, strict=True)], seconds


def main(iterations=40):
    policy = eqx.nn.MLP(4, 2, 32, depth=2, activation=jnp.tanh, key=jax.random.key(0))
    state = optimizer.init(eqx.filter(policy, eqx.is_array))
    acts = {"filterjit": filterjit.filter_jit(act), "eqx": eqx.filter_jit(act)}
    seconds, lengths = dict.fromkeys(acts, 0.0), []
    for jitted in acts.values():
        play(jitted, policy, 0)  # compiles
    for i in range(iterations):
        for name, jitted in acts.items():
            (observations, actions, within), taken = play(jitted, policy, seed=i + 1)
            seconds[name] += taken
        lengths.append(within.sum(0).mean())
        to_go = np.cumsum(within[::-1], axis=0)[::-1].astype(np.float32)
        weights = np.where(within, to_go - to_go.mean(1, keepdims=True), 0) / 50
        policy, state = improve((observations, actions, weights), policy, state)
    rates = {name: iterations * STEPS / taken for name, taken in seconds.items()}
    print(f"the pole stays up for {lengths[0]:.0f} steps, then {lengths[-1]:.0f} of {STEPS}")
    print(
        f"{rates['filterjit']:,.0f} calls a second, with eqx.filter_jit {rates['eqx']:,.0f}: "
        f"{rates['filterjit'] / rates['eqx']:.1f} times as many"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
