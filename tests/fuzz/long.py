"""The fuzzer at length: ``python tests/fuzz/long.py --calls 100000``; with ``--nnx 100``,
programs of Flax NNX instead.

Most calls go through a stand-in for ``jax.jit``, one in `JAX_SHARE` through JAX itself. At the end a
table shows what was done. A failure ends the run
with exit status 1 and prints the shortest sequence of steps that Hypothesis finds for it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # of `support`
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import equinox
import fuzz_steps as steps
import jax
from fuzz_figures import figures
from fuzz_steps import Differential, WithJax
from hypothesis.stateful import run_state_machine_as_test

JAX_SHARE = 20
_STEPS = 40


def _run(kind: type[Differential], seed: int) -> None:
    settings = steps.machine_settings(
        4 if kind is WithJax else 10, _STEPS, database=None, print_blob=False
    )
    kind._hypothesis_internal_use_seed = seed  # type: ignore[attr-defined]
    run_state_machine_as_test(kind, settings=settings)


def _table(seed: int, seconds: float) -> str:
    rows: list[tuple[str, object]] = [
        ("calls", figures.calls),
        ("  of them hits", figures.hits),
        ("  of them through jax.jit", figures.calls_with_jax),
        ("    of these direct", figures.direct),
        ("new variants", figures.variants),
        ("  of them compiled by JAX", figures.compiled_by_jax),
        ("traces", figures.traces),
        ("evictions", figures.evictions),
        ("caches cleared", figures.clears),
        ("threads", figures.threads),
        ("calls that must fail", figures.failures),
        ("calls that donate", figures.donations),
        ("partials", figures.partials),
        ("machines", figures.machines),
        ("mutations", figures.mutations.total()),
        *((f"  of a {name}", n) for name, n in figures.mutations.most_common()),
        ("nodes and leaves traced", figures.nodes.total()),
        *((f"  {name}", n) for name, n in figures.nodes.most_common()),
        ("seed", seed),
        ("seconds", round(seconds)),
    ]
    return "\n".join(
        f"{name:32}{value:>12,}" if name != "seed" else f"{name:32}{value:>12}"
        for name, value in rows
    )


def _programs(seed: int, programs: int, compare: Callable[[int], int]) -> int:
    handed_over = 0
    for n in range(programs):
        handed_over += compare(seed + n)
        if n % 10 == 9:
            jax.clear_caches()
        if sys.stderr.isatty():
            print(
                f"\r\x1b[K{n + 1:,} of {programs:,} programs", end="", file=sys.stderr, flush=True
            )
    print(f"\n{programs:,} programs from seed {seed}, {handed_over:,} calls handed over")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--jax-share", type=int, default=JAX_SHARE, help="0: never")
    parser.add_argument("--nnx", type=int, metavar="PROGRAMS", help="programs of Flax NNX instead")
    parser.add_argument("--plain", type=int, metavar="PROGRAMS", help="of plain JAX instead")
    options = parser.parse_args()
    seed = int.from_bytes(os.urandom(4)) if options.seed is None else options.seed
    if options.nnx is not None:
        import fuzz_nnx  # imports Flax

        in_each_mode = lambda seed: sum(fuzz_nnx.compare(seed, mode) for mode in fuzz_nnx.MODES)
        return _programs(seed, options.nnx, in_each_mode)
    if options.plain is not None:
        import fuzz_plain

        return _programs(seed, options.plain, fuzz_plain.compare)
    steps.use_fast_draws(True)
    start = time.monotonic()
    now = seed
    try:
        while figures.calls < options.calls:
            share = options.jax_share
            behind = share and figures.calls_with_jax * share < figures.calls
            _run(WithJax if behind else Differential, now)
            if behind:
                jax.clear_caches()
                equinox.clear_caches()
            now += 1
    except KeyboardInterrupt:
        print(_table(seed, time.monotonic() - start))
        return 130
    except BaseException:
        print(f"failed: --seed {now} fails at once, with the same --jax-share", file=sys.stderr)
        raise
    print(_table(seed, time.monotonic() - start))
    return 0


if __name__ == "__main__":
    sys.exit(main())
