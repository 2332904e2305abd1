"""The fuzzer at length: ``python tests/fuzz/long.py --calls 100000``; with ``--nnx 100``,
programs of Flax NNX instead.

Most calls go through a stand-in for ``jax.jit``, one in `JAX_SHARE` through JAX itself. The end shows
what was done. A failure ends the run with exit status 1 and prints the shortest sequence of steps
that Hypothesis finds for it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # of `support`
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import equinox
import jax
from fuzz_machine import Differential, WithJax, figures, machine_settings
from fuzz_programs import NNX, PLAIN, Programs
from hypothesis.stateful import run_state_machine_as_test

JAX_SHARE = 20
_STEPS = 40


def _run(kind: type[Differential], seed: int) -> None:
    examples = 4 if kind is WithJax else 10
    settings = machine_settings(examples, _STEPS, database=None, print_blob=False)
    kind._hypothesis_internal_use_seed = seed  # type: ignore[attr-defined]
    run_state_machine_as_test(kind, settings=settings)


def _run_programs(programs: Programs, seed: int, count: int) -> int:
    handed_over = 0
    for n in range(count):
        handed_over += sum(programs.compare(seed + n, mode) for mode in programs.modes)
        if n % 10 == 9:
            jax.clear_caches()
        if sys.stderr.isatty():
            print(f"\r\x1b[K{n + 1:,} of {count:,} programs", end="", file=sys.stderr, flush=True)
    print(f"\n{count:,} programs from seed {seed}, {handed_over:,} calls handed over")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--jax-share", type=int, default=JAX_SHARE, help="0: never")
    parser.add_argument("--nnx", type=int, metavar="PROGRAMS", help="programs of Flax NNX instead")
    parser.add_argument("--plain", type=int, metavar="PROGRAMS", help="of plain JAX instead")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", ".*(was compiled 8 times|are compiled in)")
    seed = int.from_bytes(os.urandom(4)) if options.seed is None else options.seed
    for programs, count in ((NNX, options.nnx), (PLAIN, options.plain)):
        if count is not None:
            return _run_programs(programs, seed, count)
    start = time.monotonic()
    now, share, status = seed, options.jax_share, 0
    try:
        while figures["calls"] < options.calls:
            behind = share and figures["jax"] * share < figures["calls"]
            _run(WithJax if behind else Differential, now)
            if behind:
                jax.clear_caches()
                equinox.clear_caches()
            now += 1
    except KeyboardInterrupt:
        status = 130
    except BaseException:
        print(f"failed: --seed {now} fails at once, with the same --jax-share", file=sys.stderr)
        raise
    figures.update(seed=seed, seconds=round(time.monotonic() - start))
    print("\n".join(f"{name:12}{count:>12,}" for name, count in sorted(figures.items())))
    return status


if __name__ == "__main__":
    sys.exit(main())
