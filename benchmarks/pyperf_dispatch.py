"""The same calls under pyperf, one peer at a time, each case in processes of its own.

    python benchmarks/pyperf_dispatch.py --peer equinox --fast -o equinox.json
    python benchmarks/pyperf_dispatch.py --peer ours --fast -o ours.json
    pyperf compare_to equinox.json ours.json --table

``--case NAME ...`` chooses some; ``--help`` tells what else pyperf can. The clock is dispatch.py's.
The two runs follow each other, so on a busy machine trust dispatch.py, where peers take turns.
"""

import argparse
import functools
import gc
import os
from collections.abc import Callable

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import pyperf

from cases import CASES
from peers import PEERS, applies
from timing import way_to_time


@functools.cache
def _clock(peer: str, name: str) -> Callable[[int], float]:
    case = CASES[name]()
    return functools.partial(way_to_time(case), PEERS[peer](case))


def _seconds(loops: int, peer: str, name: str) -> float:
    """Of so many calls, the garbage collector off."""
    clock = _clock(peer, name)
    gc.collect()
    gc.disable()
    try:
        return loops * clock(loops)
    finally:
        gc.enable()


def _pass_on(command: list[str], options: argparse.Namespace) -> None:
    """Tells a worker what to run."""
    command += ["--peer", options.peer, "--case", *options.case]


def main() -> None:
    """Runs pyperf on the cases that the peer applies to."""
    runner = pyperf.Runner(processes=5, add_cmdline_args=_pass_on)
    runner.argparser.add_argument("--peer", choices=list(PEERS), default="ours")
    runner.argparser.add_argument(
        "--case", nargs="+", choices=list(CASES), default=list(CASES), metavar="NAME"
    )
    options = runner.parse_args()
    if not options.worker:
        options.case = [name for name in options.case if applies(options.peer, CASES[name]())]
    for name in options.case:
        runner.bench_time_func(name, _seconds, options.peer, name)


if __name__ == "__main__":
    main()
