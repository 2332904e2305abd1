"""Ratios of two calls that the table of dispatch.py does not have.

    python benchmarks/ratios.py [--quick] [NAME ...]

The docstring of each function is its label in the output.
"""

import argparse
import contextlib
import dataclasses
import functools
import importlib.util
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np

import filterjit
import peers
from cases import CASES, Call, statics_in_turn
from end_to_end import IMPLEMENTATIONS, oscillator
from layout import progress
from timing import in_a_row, in_batches, interleaved

BATCH = 2e-3  # the least seconds of a batch of calls
ROUNDS = 8  # the least number of batches of each call


def _ratio(
    batches: Mapping[str, Callable[[], float]],
    seconds: float,
    pick: Callable[[list[float]], float] = min,
) -> float:
    """Returns the time of the first of two batches divided by that of the second."""
    above, below = interleaved(batches, seconds, ROUNDS, pick).values()
    return above / below


def _ratio_of_calls(above: Call, below: Call, seconds: float) -> float:
    calls = {"above": above, "below": below}
    timers = {name: functools.partial(in_a_row, call) for name, call in calls.items()}
    return _ratio(in_batches(timers, BATCH), seconds)


def bound_over_plain(seconds: float) -> float:
    """A bound method over a plain call of the same function, both filterjit"""
    case = CASES["bound_method"]()
    jitted = filterjit.filter_jit(case.function)
    tiny, x = case.args

    def plain() -> Any:
        return jitted(tiny, x)

    plain()
    return _ratio_of_calls(peers.filterjit(case), plain, seconds)


def thousand_over_one(seconds: float) -> float:
    """A hit among 1,000 variants, called one after the other, over a hit on the only one"""
    thousand = statics_in_turn(1000)
    one = dataclasses.replace(thousand, others=(thousand.args,) * 999)
    return _ratio_of_calls(peers.filterjit(thousand), peers.filterjit(one), seconds)


def thousand_over_one_of_jit(seconds: float) -> float:
    """The same for jax.jit: 1,000 functions, called one after the other, over one"""
    thousand = statics_in_turn(1000)
    one = peers.flat(dataclasses.replace(thousand, others=()))
    return _ratio_of_calls(peers.flat(thousand), peers.in_turn([one] * 1000), seconds)


def _never_alike(number: int, count: int) -> list[list[jax.Array]]:
    """Lists of arrays that are all other objects, with shardings that are all other objects."""
    values = np.ones(3, np.float32)
    return [[jax.device_put(values) for _ in range(count)] for _ in range(number)]


def never_direct(seconds: float) -> float:
    """A call on 100 arrays, always others with other shardings, over flat jax.jit on the same"""
    calls = [
        [functools.partial(f, *arrays) for arrays in _never_alike(64, 100)]
        for f in (filterjit.filter_jit(_last), jax.jit(_last))
    ]
    for one in calls:
        one[0]()
    above, below = map(peers.in_turn, calls)
    return _ratio_of_calls(above, below, seconds)


def _last(*arrays: Any) -> Any:
    return arrays[-1]


def first_call_over_jit(seconds: float) -> float:
    """A first call, traced and compiled, over a first call of jax.jit on the same pytree of arrays"""
    model, x = CASES["mlp"]().args
    layers = [(layer.weight, layer.bias) for layer in model.layers]

    def first_call(jit: Any) -> float:
        def function(layers: Any, x: Any) -> Any:
            for weight, bias in layers:
                x = jax.nn.relu(weight @ x + bias)
            return x

        start = time.perf_counter()
        jit(function)(layers, x).block_until_ready()
        return time.perf_counter() - start

    jits = {"filterjit": filterjit.filter_jit, "jax": jax.jit}
    batches = {name: functools.partial(first_call, jit) for name, jit in jits.items()}
    # The lower quartile: with so few compilations the minimum is chance, and the median includes
    # other load on the machine.
    return _ratio(batches, 5 * seconds, lambda times: statistics.quantiles(times)[0])


def nested_solve(seconds: float) -> float:
    """Tracing a call of a Diffrax solve, itself a filter_jit that was traced before: Equinox over filterjit"""
    import diffrax

    term, y, args = oscillator()
    solver, controller = diffrax.Tsit5(), diffrax.ConstantStepSize()

    def trace(implementation: str) -> float:
        def solve(y: Any) -> Any:
            return diffrax.diffeqsolve(
                term, solver, 0.0, 0.5, 0.1, y, args=args, stepsize_controller=controller
            ).ys

        with IMPLEMENTATIONS[implementation]():
            start = time.perf_counter()
            jax.jit(solve).trace(y)
            return time.perf_counter() - start

    return _ratio({x: functools.partial(trace, x) for x in IMPLEMENTATIONS}, seconds)


# These compile for long, so --quick leaves them out.
SLOW = (thousand_over_one.__name__, thousand_over_one_of_jit.__name__)
RATIOS: dict[str, Callable[[float], float]] = {
    ratio.__name__: ratio
    for ratio in (
        bound_over_plain,
        never_direct,
        thousand_over_one,
        thousand_over_one_of_jit,
        first_call_over_jit,
    )
}
if importlib.util.find_spec("diffrax") is not None:
    RATIOS[nested_solve.__name__] = nested_solve


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints the ratios, and returns the exit status."""
    parser = argparse.ArgumentParser(description="Times pairs of calls and prints their ratios.")
    parser.add_argument(
        "--quick", action="store_true", help="rough times: 0.3 seconds each, without the slow ones"
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(RATIOS))
    options = parser.parse_args(argv)
    for name in options.names:
        if name not in RATIOS:
            parser.error(f"unknown name {name!r}: choose from {', '.join(RATIOS)}")
    names = options.names or [name for name in RATIOS if not (options.quick and name in SLOW)]
    found = {name: RATIOS[name](0.3 if options.quick else 6.0) for name in progress(names)}
    for name, value in found.items():
        print(f"{value:5.2f}x  {RATIOS[name].__doc__}")
    return 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)
