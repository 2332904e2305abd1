"""Single ratios that a table of calls does not show.

python benchmarks/ratios.py [--quick] [NAME ...]
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

import filterjit
import peers
from cases import CASES, Call, statics_in_turn
from end_to_end import WAYS, oscillator
from layout import progress
from timing import calls_in, in_a_row, interleaved

TURN = 2e-3  # seconds that a turn takes at least
ROUNDS = 8  # turns that each has at least


def _ratio(
    turns: Mapping[str, Callable[[], float]],
    seconds: float,
    pick: Callable[[list[float]], float] = min,
) -> float:
    """The time of the first over that of the second."""
    above, below = interleaved(turns, seconds, ROUNDS, pick).values()
    return above / below


def _ratio_of_calls(above: Call, below: Call, seconds: float) -> float:
    turns = {}
    for name, call in (("above", above), ("below", below)):
        turn = functools.partial(in_a_row, call)
        turns[name] = functools.partial(turn, calls_in(TURN, turn))
    return _ratio(turns, seconds)


def bound_over_plain(seconds: float) -> float:
    """A bound method over a plain call of the same function, both ours"""
    case = CASES["bound_method"]()
    jitted = filterjit.filter_jit(case.function)
    tiny, x = case.args

    def plain() -> Any:
        return jitted(tiny, x)

    plain()
    return _ratio_of_calls(peers.ours(case), plain, seconds)


def thousand_over_one(seconds: float) -> float:
    """A hit among 1,000 variants, each in its turn, over a hit on the only one"""
    thousand = statics_in_turn(1000)
    one = dataclasses.replace(thousand, others=(thousand.args,) * 999)
    return _ratio_of_calls(peers.ours(thousand), peers.ours(one), seconds)


def thousand_over_one_of_jit(seconds: float) -> float:
    """The same of jax.jit: 1,000 functions, each in its turn, over one"""
    thousand = statics_in_turn(1000)
    one = peers.flat(dataclasses.replace(thousand, others=()))
    return _ratio_of_calls(peers.flat(thousand), peers.in_turn([one] * 1000), seconds)


def first_call_over_jit(seconds: float) -> float:
    """A first call, traced and compiled, over that of jax.jit on the same pytree of arrays"""
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

    jits = {"ours": filterjit.filter_jit, "jax": jax.jit}
    turns = {name: functools.partial(first_call, jit) for name, jit in jits.items()}
    # Of compiles there are too few in that time for the best to be more than chance, and their
    # median has what else goes on in the machine.
    return _ratio(turns, 5 * seconds, lambda times: statistics.quantiles(times)[0])


def nested_solve(seconds: float) -> float:
    """Equinox's time over ours to trace a call of a Diffrax solve, itself a filter_jit, met before"""
    import diffrax

    term, y, args = oscillator()
    solver, controller = diffrax.Tsit5(), diffrax.ConstantStepSize()

    def trace(way: str) -> float:
        def solve(y: Any) -> Any:
            return diffrax.diffeqsolve(
                term, solver, 0.0, 0.5, 0.1, y, args=args, stepsize_controller=controller
            ).ys

        with WAYS[way]():
            start = time.perf_counter()
            jax.jit(solve).trace(y)
            return time.perf_counter() - start

    return _ratio({way: functools.partial(trace, way) for way in WAYS}, seconds)


SLOW = (thousand_over_one.__name__, thousand_over_one_of_jit.__name__)  # to compile
RATIOS: dict[str, Callable[[float], float]] = {
    ratio.__name__: ratio
    for ratio in (
        bound_over_plain,
        thousand_over_one,
        thousand_over_one_of_jit,
        first_call_over_jit,
    )
}
if importlib.util.find_spec("diffrax") is not None:
    RATIOS[nested_solve.__name__] = nested_solve


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints the ratios, and returns the exit status."""
    parser = argparse.ArgumentParser(description="Times pairs of calls on filterjit.")
    parser.add_argument(
        "--quick", action="store_true", help="a rough look: 0.3 seconds each, the slow ones not"
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(RATIOS))
    options = parser.parse_args(argv)
    for name in options.names:
        if name not in RATIOS:
            parser.error(f"{name!r} is none of {', '.join(RATIOS)}")
    names = options.names or [name for name in RATIOS if not (options.quick and name in SLOW)]
    found = {name: RATIOS[name](0.3 if options.quick else 6.0) for name in progress(names)}
    for name, value in found.items():
        print(f"{value:5.2f}x  {RATIOS[name].__doc__}")
    return 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)
