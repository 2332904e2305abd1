"""Times the calls of several variants in random order, and the first 200 calls after a compilation.

    python benchmarks/orders.py [SECONDS]

The table of random orders has the time of a call over that of calls of one variant, and that time
beside `equinox.filter_jit` and `jax.jit` with the static part as a static argument. The second table
has the time of the first 200 calls of a program with few arrays, over that of `jax.jit`.
"""

import functools
import random
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from flax import nnx

import filterjit
from layout import lay_out
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


def seconds_a_call(f: Callable[..., Any], calls: list[tuple[Any, ...]]) -> float:
    start = time.perf_counter()
    for args in calls:
        out = f(*args)
    found = (time.perf_counter() - start) / len(calls)
    jax.block_until_ready(out)
    return found


def random_orders(seconds: float) -> list[list[str]]:
    rows = [["static", "variants", "one variant, us", "random", "over one", "Equinox", "jax.jit"]]
    for name, make in STATICS.items():
        for count in (2, 4, 8):
            cases = [(X, make(i)) for i in range(count)]
            draw = random.Random(1)
            order = [cases[draw.randrange(count)] for _ in range(CALLS)]
            plus_one = lambda x, static: x + 1
            ours = filterjit.filter_jit(plus_one)
            calls = {"one": (ours, [cases[0]] * CALLS), "random": (ours, order)}
            calls["Equinox"] = eqx.filter_jit(plus_one), order
            if name != "MLPs":
                calls["jax.jit"] = jax.jit(plus_one, static_argnums=1), order
            for call in 2 * [*calls.values()]:
                seconds_a_call(*call)
            batches = {k: functools.partial(seconds_a_call, *call) for k, call in calls.items()}
            t = {k: 1e6 * v for k, v in interleaved(batches, seconds).items()}
            found = t["one"], t["random"], t["random"] / t["one"], t["Equinox"], t.get("jax.jit")
            rows.append([name, str(count), *("-" if x is None else f"{x:.2f}" for x in found)])
    return rows


def first_calls(seconds: float) -> list[list[str]]:
    rows = [["arrays", "first 200 calls over jax.jit's"]]
    for count in (1, 2, 4, 8, 20):
        arrays = tuple(X + i for i in range(count))

        def first(jit: Callable[..., Any], arrays: Any = arrays) -> float:
            f = jit(lambda *xs: xs[0] + 1)
            jax.block_until_ready(f(*arrays))
            return seconds_a_call(f, [arrays] * 200)

        jits = {"ours": filterjit.filter_jit, "jax": jax.jit}
        t = interleaved({k: functools.partial(first, jit) for k, jit in jits.items()}, seconds)
        rows.append([str(count), f"{t['ours'] / t['jax']:.2f}"])
    return rows


if __name__ == "__main__":
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3.0
    warnings.simplefilter("ignore", filterjit.RetraceWarning)
    for table in (random_orders, first_calls):
        print(f"{lay_out(table(seconds), markdown=False)}\n")
