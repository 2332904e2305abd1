"""Times the calls of several variants in random order, and the first 200 calls after a compilation.

    python benchmarks/orders.py [SECONDS]

The table of random orders has the time of a call over that of calls of one variant, and that time
beside `equinox.filter_jit` and `jax.jit` with the static part as a static argument. The second table
has the time of the first 200 calls of a program with few arrays, over that of `jax.jit`. Each batch
is new and interleaved with the others, and the best counts.
"""

import os
import random
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import equinox as eqx
import jax
import jax.numpy as jnp
from flax import nnx

import filterjit
from timing import interleaved

X = jnp.ones(4)
CALLS = 400


class Config:
    def __init__(self, n: int) -> None:
        self.layers, self.n = [{"size": 8, "names": ["a", "b"]} for _ in range(10)], n

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(self.n)


class Net(nnx.Module):
    def __init__(self, n: int) -> None:
        rngs = nnx.Rngs(0)
        self.layers = nnx.List([nnx.Linear(2, 2, rngs=rngs) for _ in range(20)])
        self.n = n


STATICS: dict[str, Callable[[int], Any]] = {
    "integers": lambda i: i,
    "MLPs": lambda i: eqx.nn.MLP(4, 4, 8, i + 1, key=jax.random.key(0)),
    "configurations": Config,
    "GraphDefs": lambda i: nnx.split(Net(i))[0],
}


def timed(f: Callable[..., Any], calls: list[tuple[Any, ...]]) -> Callable[[], float]:
    def batch() -> float:
        start = time.perf_counter()
        for args in calls:
            out = f(*args)
        found = (time.perf_counter() - start) / len(calls)
        jax.block_until_ready(out)
        return found

    batch(), batch()
    return batch


def random_orders(seconds: float) -> None:
    print("static           variants  one variant, us  random   over one  Equinox  jax.jit")
    for name, make in STATICS.items():
        for count in (2, 4, 8):
            cases = [(X, make(i)) for i in range(count)]
            draw = random.Random(1)
            order = [cases[draw.randrange(count)] for _ in range(CALLS)]
            ours = filterjit.filter_jit(lambda x, static: x + 1)
            batches = {"one": timed(ours, [cases[0]] * CALLS), "random": timed(ours, order)}
            batches["Equinox"] = timed(eqx.filter_jit(lambda x, static: x + 1), order)
            if name != "MLPs":
                static = jax.jit(lambda x, static: x + 1, static_argnums=1)
                batches["jax.jit"] = timed(static, order)
            t = {k: v * 1e6 for k, v in interleaved(batches, seconds, 9).items()}
            print(
                f"{name:16} {count:8} {t['one']:16.1f} {t['random']:7.1f} {t['random'] / t['one']:10.2f} "
                f"{t['Equinox']:8.1f} {t.get('jax.jit', float('nan')):8.1f}"
            )


def first_calls(seconds: float) -> None:
    print("\narrays   first 200 calls over jax.jit's")
    for count in (1, 2, 4, 8, 20):
        arrays = [X + i for i in range(count)]

        def first(jit: Callable[..., Any], arrays: Any = arrays) -> float:
            f = jit(lambda *xs: xs[0] + 1)
            jax.block_until_ready(f(*arrays))
            start = time.perf_counter()
            for _ in range(200):
                out = f(*arrays)
            found = (time.perf_counter() - start) / 200
            jax.block_until_ready(out)
            return found

        t = interleaved(
            {"ours": lambda: first(filterjit.filter_jit), "jax": lambda: first(jax.jit)}, seconds, 9
        )
        print(f"{count:6} {t['ours'] / t['jax']:32.2f}")


if __name__ == "__main__":
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3.0
    warnings.simplefilter("ignore", filterjit.RetraceWarning)
    random_orders(seconds)
    first_calls(seconds)
