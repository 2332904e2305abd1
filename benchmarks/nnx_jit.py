"""Times `filterjit.nnx.jit` beside ``flax.nnx.jit`` and flat ``jax.jit``.

Models of 10, 64 and 384 Variables in both of Flax's modes: a call that reads one layer, so that
dispatch is nearly all of it, and an Adam step through ``nnx.Optimizer``. *Flat* is ``jax.jit`` of
the same program on a flat list of the arrays, which a step returns anew. All calls of a row are
timed alternately, each on a model of its own.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

import command
import filterjit.nnx
from cases import Call
from timing import best_times

TREE = {"graph": False}
IMPLEMENTATIONS: Mapping[str, tuple[Callable[..., Any], Mapping[str, Any]]] = {
    "ours": (filterjit.nnx.jit, {}),
    "ours_tree": (filterjit.nnx.jit, TREE),
    "nnx": (nnx.jit, {}),
    "nnx_tree": (nnx.jit, TREE),
}
Calls = dict[str, Call]


class Layers(nnx.Module):
    """A chain of linear layers, with a static attribute such as those of BatchNorm."""

    def __init__(self, number: int) -> None:
        rngs = nnx.Rngs(0)
        self.layers = nnx.List([nnx.Linear(2, 2, rngs=rngs) for _ in range(number // 2)])
        self.use_running_average = False

    def __call__(self, x: jax.Array) -> jax.Array:
        for layer in self.layers:
            x = layer(x)
        return x


def read(model: Layers, x: jax.Array) -> jax.Array:
    return model.layers[0](x)


def train(graph: bool) -> Callable[..., jax.Array]:
    """Returns an Adam step for one of the modes."""

    def step(model: Layers, optimizer: Any, x: jax.Array) -> jax.Array:
        loss, gradients = nnx.value_and_grad(lambda m: m(x).sum(), graph=graph)(model)
        optimizer.update(model, gradients)
        return loss

    return step


def calls_that_read(size: int) -> Calls:
    x, model = jnp.ones((1, 2)), Layers(size)
    leaves, treedef = jax.tree.flatten(model)
    flat = jax.jit(lambda x, *leaves: read(jax.tree.unflatten(treedef, leaves), x))
    calls: Calls = {"flat": lambda: flat(x, *leaves)}
    for name, (jit, options) in IMPLEMENTATIONS.items():
        f, own = jit(read, **options), Layers(size)
        calls[name] = lambda f=f, own=own: f(own, x)
    return calls


def calls_that_train(size: int) -> Calls:
    x, transform = jnp.ones((1, 2)), optax.adam(1e-3)

    def pair() -> tuple[Layers, Any]:
        model = Layers(size)
        return model, nnx.Optimizer(model, transform, wrt=nnx.Param)

    params, modeldef = jax.tree.flatten(Layers(size))
    leaves, treedef = jax.tree.flatten((tuple(params), transform.init(tuple(params))))

    @jax.jit
    def flat(x: jax.Array, *leaves: jax.Array) -> tuple[jax.Array, ...]:
        params, state = jax.tree.unflatten(treedef, leaves)
        loss, gradients = jax.value_and_grad(lambda p: jax.tree.unflatten(modeldef, p)(x).sum())(
            params
        )
        updates, state = transform.update(gradients, state, params)
        return loss, *jax.tree.leaves((optax.apply_updates(params, updates), state))

    state = [tuple(leaves)]

    def call_flat() -> jax.Array:
        loss, *new = flat(x, *state[0])
        state[0] = tuple(new)
        return loss

    calls: Calls = {"flat": call_flat}
    for name, (jit, options) in IMPLEMENTATIONS.items():
        f, own = jit(train(options.get("graph", True)), **options), pair()
        calls[name] = lambda f=f, own=own: f(*own, x)
    cached = nnx.cached_partial(nnx.jit(train(True)), *pair())
    calls["cached"] = lambda: cached(x)
    return calls


def rows_of(size: str, seconds: float) -> Iterator[list[str]]:
    """Yields a row for each kind of call: the microseconds of a flat call, and ratios."""
    for kind, calls_of in (("inference", calls_that_read), ("Adam step", calls_that_train)):
        found = best_times(calls_of(int(size)), seconds)
        yield [
            f"{kind}, {size} Variables",
            f"{found['flat'] * 1e6:.0f} us",
            f"{found['ours'] / found['flat']:.2f}",
            f"{found['ours_tree'] / found['flat']:.2f}",
            f"{found['nnx'] / found['ours']:.1f}",
            f"{found['nnx_tree'] / found['ours_tree']:.1f}",
            f"{found['cached'] / found['ours']:.1f}" if "cached" in found else "-",
        ]


HEAD = ["call", "flat", "filterjit.nnx.jit / flat", "`graph=False` / flat", "nnx.jit / ours",
        "both `graph=False`", "nnx.cached_partial / ours"]  # fmt: skip

if __name__ == "__main__":
    sys.exit(command.table(__doc__, ["10", "64", "384"], HEAD, rows_of))
