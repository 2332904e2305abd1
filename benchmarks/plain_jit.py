"""Times functions of plain JAX programs: `jax.jit` over filterjit.jit.

Both are called alternately with the same arguments. A number above 1 says how many times longer
``jax.jit`` takes. The last rows make jitted functions, also by Flax and Equinox: programs that write
``jax.jit(f)(x)`` inside functions pay for it in each call.
"""

import functools
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import equinox as eqx
import flax.training.train_state
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import optax
from flax import nnx

import command
import filterjit.nnx
from cases import Call
from timing import best_times

# The peer and ours.
JITS: tuple[Any, Any] = jax.jit, filterjit.jit
OTHERS: Mapping[str, tuple[Any, Any]] = {
    "make_nnx": (nnx.jit, filterjit.nnx.jit),
    "make_equinox": (eqx.filter_jit, filterjit.filter_jit),
}


def _layers(number: int) -> Any:
    return {
        f"block_{i:03}": {
            name: {"kernel": jnp.full((2, 2), float(i)), "bias": jnp.full((2,), float(i))}
            for name in ("attention", "mlp")
        }
        for i in range(number)
    }


def _total(tree: Any) -> jax.Array:
    total = jnp.float32(0)
    for x in jtu.tree_leaves(tree):
        total = total + x.ravel()[0]
    return total


def _again(function: Callable[..., Any], *args: Any, **options: Any) -> Callable[[Any], Call]:
    """Returns what makes a call that passes the same arguments again."""
    return lambda jit: functools.partial(jit(function, **options), *args)


def _number_that_changes(jit: Any) -> Call:
    f = jit(lambda x, t: x * t)
    x, numbers = jnp.ones(2), itertools.count()
    return lambda: f(x, float(next(numbers)))


def _train(
    number: int, *, steps: int = 1, prints: bool = False, **options: Any
) -> Callable[[Any], Call]:
    """Returns what makes a training step by Adam, whose state is the result of the last one.
    `steps` of them are one scan, awaited. One that `prints` has the effect of `jax.debug.print`."""

    def make(jit: Any) -> Call:
        leaves = [jnp.full((2, 2), float(i)) for i in range(number)]
        params = {f"layer_{i:03}": {"kernel": x} for i, x in enumerate(leaves)}
        state = flax.training.train_state.TrainState.create(
            apply_fn=None, params=params, tx=optax.adam(1e-3)
        )
        state = state.replace(step=jnp.array(0))

        def step(state: Any, _: Any = None) -> tuple[Any, None]:
            if prints:
                jax.debug.callback(lambda step: None, state.step)
            return state.apply_gradients(grads=state.params), None

        @functools.partial(jit, **options)
        def train(state: Any) -> Any:
            return step(state)[0] if steps == 1 else jax.lax.scan(step, state, length=steps)[0]

        def call() -> Any:
            nonlocal state
            state = train(state)
            return state if steps == 1 else jax.block_until_ready(state)

        return call

    return make


def _add(x: Any, n: int = 1) -> Any:
    return x + n


def _make(**options: Any) -> Callable[[Any], Call]:
    return lambda jit: functools.partial(jit, _add, **options)


def _make_and_call(jit: Any) -> Call:
    x = jnp.ones(3)
    return lambda: jit(_add)(x)


PROGRAMS: Mapping[str, tuple[str, Callable[[Any], Call]]] = {
    "array": ("one array", _again(lambda x: x + 1, jnp.ones(2))),
    "number": ("an array and a Python number that changes", _number_that_changes),
    "static": (
        "an array and a static argument",
        _again(lambda x, n: x * n, jnp.ones(2), 3, static_argnums=1),
    ),
    "dict_100": ("dict of 100 arrays, passed again", _again(_total, _layers(25))),
    "dict_336": ("nested dict of 336 arrays, passed again", _again(_total, _layers(84))),
    "adam_44": ("Adam, `TrainState` of 44 arrays", _train(14)),
    "adam_170": ("Adam, `TrainState` of 170 arrays", _train(56)),
    "adam_1010": ("Adam, `TrainState` of 1,010 arrays", _train(336)),
    "donated_170": ("the same of 170, donated", _train(56, donate_argnums=0)),
    "prints_170": ("the same of 170, with a `jax.debug.callback`", _train(56, prints=True)),
    "scan_44": ("1,000 steps of 44 in one `lax.scan`", _train(14, steps=1000)),
    "make": ("`jax.jit(f)`", _make()),
    "make_static": ('`jax.jit(f, static_argnames="n")`', _make(static_argnames="n")),
    "make_and_call": ("`jax.jit(f)(x)`, compiled before", _make_and_call),
    "make_nnx": ("`nnx.jit(f)`", _make()),
    "make_equinox": ("`eqx.filter_jit(f)`", _make()),
}


def rows_of(name: str, seconds: float) -> Iterator[list[str]]:
    title, make = PROGRAMS[name]
    calls = dict(zip(("peer", "ours"), map(make, OTHERS.get(name, JITS)), strict=True))
    times = best_times(calls, seconds, before=40)  # until calls are direct
    yield [title, f"{times['ours'] * 1e6:,.1f} us", f"{times['peer'] / times['ours']:.2f}"]


HEAD = ["program", "filterjit.jit", "`jax.jit` over it"]

if __name__ == "__main__":
    sys.exit(command.table(__doc__, PROGRAMS, HEAD, rows_of))
