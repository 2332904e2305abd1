"""Times a step of whole programs on Equinox and on filterjit, including the wait for its results.

    python benchmarks/end_to_end.py [--quick] [--markdown] [PROGRAM ...]

The programs are written for Equinox. Each runs as it is and inside `filterjit.install()`. Unlike in
dispatch.py, the time of the device is included: the ratio is the gain of a user.

`server` is a server that gets batches of 1 to 39 rows, without and with `filterjit.pad_to`.
"""

import argparse
import contextlib
import dataclasses
import functools
import importlib.util
import itertools
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import command
import filterjit
from cases import squares, training_step
from layout import lay_out, progress
from timing import best_of

Step = Callable[[], Any]


# ---- the programs; the docstring of each function is its label in the output ----


def _loop(function: Callable[..., Any], *state: Any, data: tuple[Any, ...] = ()) -> Step:
    """Returns a step that calls the function with its first results of the last step, and waits."""

    def step() -> None:
        nonlocal state
        out = function(*state, *data)
        state = out[: len(state)]
        out[-1].block_until_ready()

    return step


def _adam(loss: Callable[..., Any], model: Any, *data: Any) -> Step:
    optimiser = optax.adam(1e-3)
    state = optimiser.init(eqx.filter(model, eqx.is_array))
    return _loop(eqx.filter_jit(training_step(optimiser, loss)), model, state, data=data)


def adam_step() -> Step:
    """Adam on a small MLP"""
    x = jax.random.normal(jax.random.key(1), (32, 4))
    return _adam(squares, eqx.nn.MLP(4, 1, 32, 2, key=jax.random.key(0)), x, jnp.sin(x).sum(axis=1))


def pinn_step() -> Step:
    """Adam on a PINN: second derivatives of an MLP by its input"""

    def loss(model: Any, xs: Any) -> Any:
        def residual(x: Any) -> Any:  # of u'' = -pi^2 sin(pi x) with u(0) = u(1) = 0
            u = lambda z: z * (1 - z) * model(z)
            return jax.grad(jax.grad(u))(x) + jnp.pi**2 * jnp.sin(jnp.pi * x)

        return jnp.mean(jax.vmap(residual)(xs) ** 2)

    model = eqx.nn.MLP("scalar", "scalar", 16, 3, activation=jnp.tanh, key=jax.random.key(0))
    return _adam(loss, model, jnp.linspace(0.0, 1.0, 32))


class CartPole(NamedTuple):
    """The state of an environment."""

    position: Any
    velocity: Any
    angle: Any
    spin: Any
    time: Any
    key: Any


@dataclasses.dataclass(frozen=True)
class CartPoleConfig:
    """The static configuration of an environment."""

    gravity: float = 9.8
    mass: float = 1.1
    half_length: float = 0.5
    force: float = 10.0
    dt: float = 0.02
    max_steps: int = 200


def environment_step() -> Step:
    """An environment's step: a state in a named tuple, a static configuration"""

    @eqx.filter_jit
    def advance(state: CartPole, config: CartPoleConfig, action: Any) -> Any:
        force = jnp.where(action == 1, config.force, -config.force)
        sin, cos = jnp.sin(state.angle), jnp.cos(state.angle)
        pull = (force + 0.05 * state.spin**2 * sin) / config.mass
        turn = (config.gravity * sin - cos * pull) / (
            config.half_length * (4 / 3 - 0.1 * cos**2 / config.mass)
        )
        push = pull - 0.05 * turn * cos / config.mass
        key, fresh = jax.random.split(state.key)
        moved = CartPole(
            state.position + config.dt * state.velocity,
            state.velocity + config.dt * push,
            state.angle + config.dt * state.spin,
            state.spin + config.dt * turn,
            state.time + 1,
            key,
        )
        done = (jnp.abs(moved.angle) > 0.2) | (moved.time >= config.max_steps)
        start = jax.random.uniform(fresh, (4,), minval=-0.05, maxval=0.05)
        reset = CartPole(start[0], start[1], start[2], start[3], jnp.zeros_like(moved.time), key)
        state = jax.tree.map(lambda a, b: jnp.where(done, a, b), reset, moved)
        observation = {"position": state.position, "angle": state.angle, "spin": state.spin}
        return state, observation, 1.0 - done.astype(float), done

    zero = jnp.zeros(())
    state = CartPole(zero, zero, zero, zero, jnp.array(0), jax.random.PRNGKey(0))
    return _loop(advance, state, data=(CartPoleConfig(), jnp.array(1)))


class Block(eqx.Module):
    """A layer of the transformer, with a cache of keys and values."""

    norms: list[eqx.nn.LayerNorm]
    qkv: eqx.nn.Linear
    out: eqx.nn.Linear
    mlp: eqx.nn.MLP
    heads: int = eqx.field(static=True)

    def __init__(self, size: int, heads: int, key: Any) -> None:
        keys = jax.random.split(key, 3)
        self.norms = [eqx.nn.LayerNorm(size), eqx.nn.LayerNorm(size)]
        self.qkv = eqx.nn.Linear(size, 3 * size, use_bias=False, key=keys[0])
        self.out = eqx.nn.Linear(size, size, use_bias=False, key=keys[1])
        self.mlp = eqx.nn.MLP(size, size, 2 * size, 1, activation=jax.nn.gelu, key=keys[2])
        self.heads = heads

    def __call__(self, x: Any, cache: Any, position: Any) -> Any:
        q, k, v = self.qkv(self.norms[0](x)).reshape(3, self.heads, -1)
        keys = cache["keys"].at[position].set(k)
        values = cache["values"].at[position].set(v)
        scores = jnp.einsum("hd,thd->ht", q, keys) / jnp.sqrt(q.shape[-1])
        seen = jnp.arange(keys.shape[0]) <= position
        weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf))
        x = x + self.out(jnp.einsum("ht,thd->hd", weights, values).reshape(-1))
        return x + self.mlp(self.norms[1](x)), {"keys": keys, "values": values}


class Transformer(eqx.Module):
    """A decoder of tokens."""

    embedding: eqx.nn.Embedding
    blocks: list[Block]
    norm: eqx.nn.LayerNorm
    head: eqx.nn.Linear

    def __init__(self, tokens: int, size: int, depth: int, key: Any) -> None:
        keys = jax.random.split(key, depth + 2)
        self.embedding = eqx.nn.Embedding(tokens, size, key=keys[0])
        self.blocks = [Block(size, 2, k) for k in keys[2:]]
        self.norm = eqx.nn.LayerNorm(size)
        self.head = eqx.nn.Linear(size, tokens, key=keys[1])

    def __call__(self, token: Any, caches: Any, position: Any) -> Any:
        x = self.embedding(token)
        new = []
        for block, cache in zip(self.blocks, caches, strict=True):
            x, cache = block(x, cache, position)
            new.append(cache)
        return self.head(self.norm(x)), new


def decode_step() -> Step:
    """A small transformer, token by token, with a cache"""
    length, size = 64, 32

    @eqx.filter_jit
    def decode(token: Any, caches: Any, position: Any, model: Any) -> Any:
        logits, caches = model(token, caches, position)
        return jnp.argmax(logits), caches, (position + 1) % length

    model = Transformer(50, size, 4, jax.random.key(0))
    empty = jnp.zeros((length, 2, size // 2))
    caches = [{"keys": empty, "values": empty} for _ in model.blocks]
    return _loop(decode, jnp.array(1), caches, jnp.array(0), data=(model,))


def oscillator() -> tuple[Any, Any, Any]:
    """Returns the term, the initial state and the arguments of a damped spring."""
    import diffrax

    def field(t: Any, y: Any, args: Any) -> Any:
        position, velocity = y
        return velocity, -args["stiffness"] * position - args["damping"] * velocity

    args = {"stiffness": jnp.array(4.0), "damping": jnp.array(0.1)}
    return diffrax.ODETerm(field), (jnp.array(1.0), jnp.array(0.0)), args


def diffrax_jitted() -> Step:
    """A Diffrax solve of 5 steps, in a jitted function, called in a loop"""
    import diffrax

    term, y, args = oscillator()

    @eqx.filter_jit
    def solve(position: Any, velocity: Any, args: Any) -> Any:
        y = position, velocity
        solution = diffrax.diffeqsolve(term, diffrax.Tsit5(), 0.0, 0.5, 0.1, y, args=args)
        return jax.tree.map(lambda leaf: leaf[-1], solution.ys)

    return _loop(solve, *y, data=(args,))


def diffrax_bare() -> Step:
    """The same, `diffrax.diffeqsolve` itself called in a loop"""
    import diffrax

    term, y0, args = oscillator()
    solver, controller = diffrax.Tsit5(), diffrax.ConstantStepSize()

    def step() -> Any:
        solution = diffrax.diffeqsolve(
            term, solver, 0.0, 0.5, 0.1, y0, args=args, stepsize_controller=controller
        )
        return jax.block_until_ready(solution.ys)

    return step


PROGRAMS: dict[str, Callable[[], Step]] = {
    make.__name__: make for make in (adam_step, pinn_step, environment_step, decode_step)
}
if importlib.util.find_spec("diffrax") is not None:
    PROGRAMS |= {make.__name__: make for make in (diffrax_jitted, diffrax_bare)}

SERVER = "server"

# A context in which a program runs on each implementation.
IMPLEMENTATIONS: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "equinox": contextlib.nullcontext,
    "filterjit": filterjit.install,
}


# ---- measuring ----


def _seconds(implementation: str, step: Step, number: int) -> float:
    """Runs `number` steps in a row, and returns the seconds of one."""
    repeat = itertools.repeat(None, number)
    with IMPLEMENTATIONS[implementation]():
        start = time.perf_counter()
        for _ in repeat:
            step()
        return (time.perf_counter() - start) / number


def measure(name: str, seconds: float) -> list[str]:
    """Times a program on both implementations, alternately, for about `seconds`."""
    timers = {}
    for x, implementation in IMPLEMENTATIONS.items():
        with implementation():
            step = PROGRAMS[name]()
        _seconds(x, step, 3)  # traces and compiles
        timers[x] = functools.partial(_seconds, x, step)
    best = best_of(timers, seconds)
    times = [f"{1e6 * best[x]:,.0f}" for x in IMPLEMENTATIONS]
    return [str(PROGRAMS[name].__doc__), *times, f"{best['equinox'] / best['filterjit']:.1f}x"]


def serve(padded: bool) -> float:
    """Returns the 95th percentile of the seconds of 200 answers, compilation included."""
    predict = filterjit.filter_jit(lambda model, x: jax.vmap(model)(x), on_retrace="ignore")
    model = eqx.nn.MLP(16, 4, 256, 3, key=jax.random.key(0))
    random, seconds = np.random.default_rng(0), []
    for rows in random.integers(1, 40, 200):
        x = random.standard_normal((rows, 16), np.float32)
        start = time.perf_counter()
        if padded:
            x, mask = filterjit.pad_to(x, (8, 16, 40))
            np.asarray(predict(model, x))[mask]
        else:
            np.asarray(predict(model, x))
        seconds.append(time.perf_counter() - start)
    return float(np.percentile(seconds, 95))


def measure_server() -> list[list[str]]:
    head = ["milliseconds, 95th percentile", "without pad_to", "with pad_to", "ratio"]
    without, padded = (serve(padded) for padded in (False, True))
    label = "A server with batches of 1 to 39 rows, 200 requests"
    row = [label, f"{1e3 * without:.1f}", f"{1e3 * padded:.1f}", f"{without / padded:.0f}x"]
    return [head, row]


def tables(options: argparse.Namespace) -> str:
    head = ["microseconds a step", "equinox.filter_jit", "filterjit", "equinox / filterjit"]
    seconds = 0.5 if options.quick else 8.0
    names = [name for name in options.names if name != SERVER]
    found = [[head, *(measure(name, seconds) for name in progress(names))]] if names else []
    found += [measure_server()] if SERVER in options.names else []
    return "\n\n".join(lay_out(rows, markdown=options.markdown) for rows in found)


if __name__ == "__main__":
    names = [*PROGRAMS, SERVER]
    sys.exit(
        command.run(command.parser(__doc__, quick="0.5 seconds a program", names=names), tables)
    )
