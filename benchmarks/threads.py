"""Counts calls of one thread and of two threads at once: what a build without a GIL is for.

    python3.14t benchmarks/threads.py [--quick] [--markdown] [NAME ...]

A call adds up a dict of 20 arrays. Each thread has arrays of its own. The table has the calls a
second of one thread, over those of `jax.jit`, and of two threads over one of the same peer: where
each has a jitted function of its own, and where both call one.
"""

import argparse
import functools
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

import command
import filterjit
from layout import lay_out
from timing import interleaved

ARRAYS = 20
PEERS: dict[str, Callable[..., Any]] = {
    "filterjit": filterjit.filter_jit,
    "jax.jit": jax.jit,
    "Equinox": eqx.filter_jit,
}
ONE, EACH, SHARED = "one thread", "a function each", "one function"


def jitted(jit: Callable[..., Any]) -> Callable[[Any], Any]:
    return jit(lambda tree: sum(tree.values(), jnp.zeros(3)))


def seconds_a_call(functions: list[Callable[[Any], Any]], count: int) -> float:
    """Makes `count` calls of each function, in a thread of its own. Returns seconds / all calls."""
    ready = threading.Barrier(len(functions) + 1)
    done = threading.Barrier(len(functions) + 1)

    def work(function: Callable[[Any], Any], tree: Any) -> None:
        function(tree)
        ready.wait()
        for _ in range(count):
            function(tree)
        done.wait()

    for function in functions:
        tree = {f"x{i}": jnp.ones(3) for i in range(ARRAYS)}
        threading.Thread(target=work, args=(function, tree)).start()
    ready.wait()
    start = time.perf_counter()
    done.wait()
    return (time.perf_counter() - start) / (count * len(functions))


def measure(options: argparse.Namespace) -> str:
    count, rounds = (200, 5) if options.quick else (3000, 25)
    batches: dict[tuple[str, str], Callable[[], float]] = {}
    for name in options.names:
        first, second = jitted(PEERS[name]), jitted(PEERS[name])
        for way, functions in ((ONE, [first]), (EACH, [first, second]), (SHARED, [first, first])):
            seconds_a_call(functions, 60)
            batches[name, way] = functools.partial(seconds_a_call, functions, count)
    best = interleaved(batches, 0, rounds)
    rows = [["calls a second", f"{ONE}, over jax.jit", *(f"two, {way}" for way in (EACH, SHARED))]]
    for name in options.names:
        one = best[name, ONE]
        over = best.get(("jax.jit", ONE), float("nan")) / one
        two = (one / best[name, way] for way in (EACH, SHARED))
        rows.append([name, *(f"{ratio:.2f}" for ratio in (over, *two))])
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    table = lay_out(rows, markdown=options.markdown)
    return f"{table}\n\nThe GIL is {'on' if gil else 'off'}."


if __name__ == "__main__":
    sys.exit(command.run(command.parser(__doc__, quick="a second", names=PEERS), measure))
