"""PPO in Equinox for a pendulum in NumPy: each observation is a NumPy array, each action is waited
for."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

STEPS, ROUNDS, GAMMA = 200, 10, 0.95


class Pendulum:
    """Swings a pendulum up. The torque is small, so that it has to swing several times."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)

    def reset(self):
        self.angle, self.speed = self.random.uniform(-np.pi, np.pi), self.random.uniform(-1, 1)
        return self.observe()

    def observe(self):
        return np.array([np.cos(self.angle), np.sin(self.angle), self.speed / 8], np.float32)

    def step(self, torque):
        angle = (self.angle + np.pi) % (2 * np.pi) - np.pi
        cost = angle**2 + 0.1 * self.speed**2 + 0.001 * torque**2
        self.speed += 0.05 * (15 * np.sin(self.angle) + 3 * torque)
        self.speed = np.clip(self.speed, -8, 8)
        self.angle += 0.05 * self.speed
        return self.observe(), -cost


class Agent(eqx.Module):
    actor: eqx.nn.MLP
    log_std: jax.Array

    def __init__(self, key):
        self.actor = eqx.nn.MLP(3, "scalar", 32, 2, activation=jnp.tanh, key=key)
        self.log_std = jnp.zeros(())

    def log_prob(self, x, action):
        z = (action - self.actor(x)) / jnp.exp(self.log_std)
        return -0.5 * z**2 - self.log_std


@eqx.filter_jit
def act(agent, x, key):
    key, own = jax.random.split(key)
    action = agent.actor(x) + jnp.exp(agent.log_std) * jax.random.normal(own)
    return action, agent.log_prob(x, action), key


optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(3e-3))


@eqx.filter_jit
def update(agent, moments, batch):
    def loss_of(agent):
        ratio = jnp.exp(jax.vmap(agent.log_prob)(batch["x"], batch["action"]) - batch["log_prob"])
        gain = batch["advantage"]
        clipped = jnp.clip(ratio, 0.8, 1.2) * gain
        return -jnp.minimum(ratio * gain, clipped).mean()

    loss, gradients = eqx.filter_value_and_grad(loss_of)(agent)
    updates, moments = optimizer.update(gradients, moments)
    return eqx.apply_updates(agent, updates), moments, loss


key, environment = jax.random.key(0), Pendulum(0)
agent = Agent(jax.random.key(1))
moments = optimizer.init(eqx.filter(agent, eqx.is_inexact_array))
random = np.random.default_rng(1)
for round_ in range(ROUNDS):
    rows, x = [], environment.reset()
    for _ in range(STEPS):
        action, log_prob, key = act(agent, x, key)
        after, reward = environment.step(float(np.clip(action, -2, 2)))
        rows.append((x, float(action), float(log_prob), reward / 10))
        x = after
    xs, actions, log_probs, rewards = (
        np.array(column, np.float32) for column in zip(*rows, strict=True)
    )
    gains, last = np.zeros(STEPS, np.float32), 0.0
    for t in reversed(range(STEPS)):
        gains[t] = last = rewards[t] + GAMMA * last
    gains = (gains - gains.mean()) / (gains.std() + 1e-6)
    data = {"x": xs, "action": actions, "log_prob": log_probs, "advantage": gains}
    for _ in range(5):
        for part in random.permutation(STEPS).reshape(4, 50):
            batch = {name: column[part] for name, column in data.items()}
            agent, moments, loss = update(agent, moments, batch)
    print(f"round {round_}: reward {rewards.mean():.4f}, loss {loss:.4f}")
