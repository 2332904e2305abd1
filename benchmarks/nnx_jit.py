"""Times `filterjit.nnx.jit` beside ``flax.nnx.jit`` and flat ``jax.jit``.

    python benchmarks/nnx_jit.py                all figures, some 3 minutes
    python benchmarks/nnx_jit.py --quick        rough ones
    python benchmarks/nnx_jit.py --markdown     the tables of the documentation

Models of 10, 64 and 384 Variables in both of Flax's modes: a call that reads one layer, so that
dispatch is nearly all of it, and an Adam step through ``nnx.Optimizer``. *Flat* is ``jax.jit`` of
the same program on a flat list of the arrays, which a step returns anew. All calls of a row are
timed alternately, each on a model of its own.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import optax
from flax import nnx

import command
import filterjit.nnx
from layout import lay_out, progress
from timing import in_a_row, in_batches, interleaved

BATCH = 5e-3  # the least seconds of a batch of calls
ROUNDS = 10  # the least number of batches of each implementation
SECONDS = 6.0  # for all batches of a row together
SIZES = (10, 64, 384)  # Variables, two in each layer
TREE = {"graph": False}
Calls = dict[str, Callable[[], Any]]


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
    for name, jit, options in IMPLEMENTATIONS:
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
    for name, jit, options in IMPLEMENTATIONS:
        f, own = jit(train(options.get("graph", True)), **options), pair()
        calls[name] = lambda f=f, own=own: f(*own, x)
    cached = nnx.cached_partial(nnx.jit(train(True)), *pair())
    calls["cached"] = lambda: cached(x)
    return calls


IMPLEMENTATIONS: tuple[tuple[str, Callable[..., Any], Mapping[str, Any]], ...] = (
    ("ours", filterjit.nnx.jit, {}),
    ("ours_tree", filterjit.nnx.jit, TREE),
    ("nnx", nnx.jit, {}),
    ("nnx_tree", nnx.jit, TREE),
)


class Row(NamedTuple):
    """The microseconds of a flat call, and ratios: of our two modes over flat, of Flax's two modes
    and of `nnx.cached_partial` over ours."""

    summary: str
    flat: float
    ours: float
    ours_tree: float
    nnx: float
    nnx_tree: float
    cached: float | None


def measure(summary: str, calls: Calls, seconds: float) -> Row:
    for call in calls.values():
        for _ in range(3):
            jax.block_until_ready(call())
    timers = {name: lambda n, call=call: in_a_row(call, n) for name, call in calls.items()}
    found = interleaved(in_batches(timers, BATCH), seconds, ROUNDS)
    ours, tree = found["ours"], found["ours_tree"]
    return Row(
        summary,
        found["flat"] * 1e6,
        ours / found["flat"],
        tree / found["flat"],
        found["nnx"] / ours,
        found["nnx_tree"] / tree,
        found["cached"] / ours if "cached" in found else None,
    )


def first_calls(size: int, rounds: int) -> dict[str, float]:
    """Returns the best seconds of a first call, on empty caches."""
    x = jnp.ones((1, 2))
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, jit, options in IMPLEMENTATIONS:
            jax.clear_caches()
            model = Layers(size)
            start = time.perf_counter()
            jax.block_until_ready(jit(lambda m, x: m(x), **options)(model, x))
            best[name] = min(best.get(name, 1e9), time.perf_counter() - start)
    return best


def statics_that_change(size: int, seconds: float) -> float:
    """Returns how much longer a hit takes where a static attribute alternates between calls. The
    attribute is set before each call of the other function too."""
    x, model, still = jnp.ones((1, 2)), Layers(size), Layers(size)
    f, g = filterjit.nnx.jit(read), filterjit.nnx.jit(read)

    def alternating() -> Any:
        model.use_running_average = not model.use_running_average
        return f(model, x)

    def unchanged() -> Any:
        still.use_running_average = bool(still.use_running_average)
        return g(still, x)

    calls: Calls = {"alternating": alternating, "still": unchanged}
    for call in calls.values():
        for _ in range(4):
            jax.block_until_ready(call())
    timers = {name: lambda n, call=call: in_a_row(call, n) for name, call in calls.items()}
    found = interleaved(in_batches(timers, BATCH), seconds, ROUNDS)
    return found["alternating"] / found["still"]


def table(rows: Sequence[Row], markdown: bool) -> str:
    head = ["call", "flat", "filterjit.nnx.jit / flat", "`graph=False` / flat"]
    head += ["nnx.jit / ours", "both `graph=False`", "nnx.cached_partial / ours"]
    cells = [
        [
            row.summary,
            f"{row.flat:.0f} us",
            f"{row.ours:.2f}",
            f"{row.ours_tree:.2f}",
            f"{row.nnx:.1f}",
            f"{row.nnx_tree:.1f}",
            "-" if row.cached is None else f"{row.cached:.1f}",
        ]
        for row in rows
    ]
    return lay_out([head, *cells], markdown=markdown)


def main(argv: Sequence[str] | None = None) -> int:
    options = command.parser(
        "Times filterjit.nnx.jit and flax.nnx.jit.",
        quick="0.5 seconds a row",
        metavar="VARIABLES",
        names=map(str, SIZES),
    ).parse_args(argv)
    seconds = 0.5 if options.quick else SECONDS
    sizes = [int(name) for name in options.names]
    kinds = {"inference": calls_that_read, "Adam step": calls_that_train}

    def measured() -> str:
        rows = []
        for name in progress([f"{kind}, {size} Variables" for kind in kinds for size in sizes]):
            kind, _, size = name.partition(", ")
            rows.append(measure(name, kinds[kind](int(size.split()[0])), seconds))
        first = first_calls(sizes[0], 1 if options.quick else 5)
        changed = statics_that_change(sizes[0], seconds)
        return (
            f"{table(rows, options.markdown)}\n\n"
            f"A first call of {sizes[0]} Variables takes {first['ours'] / first['nnx']:.2f} of "
            f"nnx.jit's time ({first['ours_tree'] / first['nnx_tree']:.2f} with graph=False). "
            f"Where a static attribute alternates, a hit takes {changed:.2f} of the time that it "
            "takes without."
        )

    return command.run(measured)


if __name__ == "__main__":
    sys.exit(main())
