"""Times the step of a server: a function of an `nnx.State`, as engines call it for each token.

    python benchmarks/serving_step.py                a minute
    python benchmarks/serving_step.py --quick 240    rough times of some sizes
    python benchmarks/serving_step.py --markdown     the table of the documentation

`jax.jit` flattens the State in each call. *By hand*, it is flattened once, and ``jax.jit`` takes the
list of its arrays. filterjit.jit takes the State itself. All three are called alternately.
"""

import functools
import os
import sys
from collections.abc import Sequence
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from flax import nnx

import command
import filterjit
from layout import lay_out, progress
from nodes import BATCH, ROUNDS, Linears
from timing import in_a_row, in_batches, interleaved


def step(state: Any, x: jax.Array) -> jax.Array:
    """Reads each array of the model."""
    for leaf in jtu.tree_leaves(state):
        x = x + leaf[0].sum()
    return x


def measure(number: int, seconds: float) -> dict[str, float]:
    """Returns the microseconds of a step, for a State of `number` arrays."""
    state, x = nnx.state(Linears(number // 2)), jnp.ones(2)
    leaves, structure = jtu.tree_flatten(state)
    plain, ours = jax.jit(step), filterjit.jit(step)
    flat = jax.jit(lambda leaves, x: step(jtu.tree_unflatten(structure, leaves), x))
    calls = {
        "plain": lambda: plain(state, x),
        "flat": lambda: flat(leaves, x),
        "ours": lambda: ours(state, x),
    }
    for call in calls.values():
        for _ in range(40):  # until calls are direct
            jax.block_until_ready(call())
    timers = {name: functools.partial(in_a_row, call) for name, call in calls.items()}
    times = interleaved(in_batches(timers, BATCH), seconds, ROUNDS)
    return {name: 1e6 * taken for name, taken in times.items()}


def main(argv: Sequence[str] | None = None) -> int:
    options = command.parser(
        "Times the step of a server, of an nnx.State.",
        quick="0.5 seconds a size",
        metavar="ARRAYS",
        names=("240", "960"),
    ).parse_args(argv)

    def table() -> str:
        rows = [["arrays of the `nnx.State`", "`jax.jit`", "flattened by hand", "`filterjit.jit`"]]
        rows[0] += ["`jax.jit` / ours", "by hand / ours"]
        for name in progress(options.names):
            times = measure(int(name), 0.5 if options.quick else 20.0)
            row = [name, *(f"{taken:,.0f} us" for taken in times.values())]
            ratios = [times[other] / times["ours"] for other in ("plain", "flat")]
            rows.append([*row, *(f"{ratio:.2f}" for ratio in ratios)])
        return lay_out(rows, markdown=options.markdown)

    return command.run(table)


if __name__ == "__main__":
    sys.exit(main())
