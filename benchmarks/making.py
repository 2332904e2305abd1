"""Times making a jitted function, beside `jax.jit`, `equinox.filter_jit` and `flax.nnx.jit`.

    python benchmarks/making.py [--quick] [--markdown] [ROW ...]

Programs that write ``jax.jit(f)(x)`` inside functions pay for it in each call. Each pair is made
alternately in one process, and the fastest batch of each counts.
"""

import functools
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import equinox as eqx
import jax
import jax.numpy as jnp
from flax import nnx

import command
import filterjit
from timing import in_a_row, in_batches, interleaved

BATCH = 5e-3  # the least seconds of a batch
ROUNDS = 10  # the least number of batches of each

X = jnp.ones(3)


def add(x: Any, n: int = 1) -> Any:
    return x + n


def make(jit: Any, **options: Any) -> Callable[[], Any]:
    return lambda: jit(add, **options)


def make_and_call(jit: Any, **options: Any) -> Callable[[], Any]:
    return lambda: jit(add, **options)(X)


Make = Callable[[Any], Callable[[], Any]]
# A label, what is timed, and the peer and ours.
ROWS: dict[str, tuple[str, Make, Any, Any]] = {
    "jit": ("`jax.jit(f)`", make, jax.jit, filterjit.jit),
    "call": ("`jax.jit(f)(x)`, compiled before", make_and_call, jax.jit, filterjit.jit),
    "static": (
        '`jax.jit(f, static_argnames="n")`',
        functools.partial(make, static_argnames="n"),
        jax.jit,
        filterjit.jit,
    ),
    "nnx": ("`nnx.jit(f)`", make, nnx.jit, filterjit.nnx.jit),
    "equinox": ("`eqx.filter_jit(f)`", make, eqx.filter_jit, filterjit.filter_jit),
}


def measure(name: str, seconds: float) -> list[str]:
    label, call_of, *jits = ROWS[name]
    timers = {
        side: functools.partial(in_a_row, call_of(jit))
        for side, jit in zip(("peer", "ours"), jits, strict=True)
    }
    best = interleaved(in_batches(timers, BATCH), seconds, ROUNDS)
    times = [f"{1e6 * best[side]:.1f}" for side in timers]
    return [label, *times, f"{best['ours'] / best['peer']:.2f}"]


def main(argv: Sequence[str] | None = None) -> int:
    return command.table(
        "Times making a jitted function.",
        ROWS,
        ["microseconds", "peer", "filterjit", "filterjit / peer"],
        lambda name, quick: [measure(name, 0.5 if quick else 5.0)],
        argv=argv,
    )


if __name__ == "__main__":
    sys.exit(main())
