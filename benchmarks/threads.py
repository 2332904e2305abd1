"""Counts calls of one thread and of two threads at once: what a build without a GIL is for.

    python3.14t benchmarks/threads.py [--quick] [--markdown] [NAME ...]

A call adds up a dict of 20 arrays. Each thread has arrays of its own. The table has the calls a
second of one thread, over those of `jax.jit`, and of two threads over one of the same peer: where
each has a jitted function of its own, and where both call one. The peers run alternately, and the
best round of each counts.
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

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
    def add_up(tree: dict[str, jax.Array]) -> jax.Array:
        return sum(tree.values(), jnp.zeros(3))

    return jit(add_up)


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

    threads = []
    for function in functions:
        tree = {f"x{i}": jnp.ones(3) for i in range(ARRAYS)}
        threads.append(threading.Thread(target=work, args=(function, tree)))
        threads[-1].start()
    ready.wait()
    start = time.perf_counter()
    done.wait()
    taken = time.perf_counter() - start
    for thread in threads:
        thread.join()
    return taken / (count * len(functions))


def measure(names: list[str], quick: bool, markdown: bool) -> str:
    count, rounds = (200, 5) if quick else (3000, 25)
    batches: dict[str, Callable[[], float]] = {}
    for name in names:
        first, second = jitted(PEERS[name]), jitted(PEERS[name])
        for way, functions in ((ONE, [first]), (EACH, [first, second]), (SHARED, [first, first])):
            seconds_a_call(functions, 60)
            batches[f"{name}: {way}"] = lambda f=functions: seconds_a_call(f, count)  # type: ignore[misc]
    best = interleaved(batches, 0, rounds)
    rows = []
    for name in names:
        one = best[f"{name}: {ONE}"]
        over = best[f"jax.jit: {ONE}"] / one if "jax.jit" in names else float("nan")
        two = (one / best[f"{name}: {way}"] for way in (EACH, SHARED))
        rows.append([name, *(f"{ratio:.2f}" for ratio in (over, *two))])
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    head = ["calls a second", f"{ONE}, over jax.jit", *(f"two, {way}" for way in (EACH, SHARED))]
    return f"{lay_out([head, *rows], markdown=markdown)}\n\nThe GIL is {'on' if gil else 'off'}."


def main() -> int:
    parser = command.parser(__doc__.splitlines()[0], quick="a second", metavar="PEER", names=PEERS)
    options = parser.parse_args()
    return command.run(lambda: measure(options.names, options.quick, options.markdown))


if __name__ == "__main__":
    sys.exit(main())
