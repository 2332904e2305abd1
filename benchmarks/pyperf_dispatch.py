"""Times the cases with pyperf, one peer at a time, each case in its own processes.

    python benchmarks/pyperf_dispatch.py --peer equinox --fast -o equinox.json
    python benchmarks/pyperf_dispatch.py --peer filterjit --fast -o filterjit.json
    pyperf compare_to equinox.json filterjit.json --table

``--case NAME ...`` selects cases; ``--help`` lists the other options of pyperf. Calls are timed as
in dispatch.py. On a busy machine, dispatch.py is more exact: there the peers run alternately, and
here one after the other.
"""

import argparse
import functools
import gc
from collections.abc import Callable

import pyperf

from cases import CASES
from peers import PEERS, applies
from timing import timer_for


@functools.cache
def _timer(peer: str, name: str) -> Callable[[int], float]:
    case = CASES[name]()
    return functools.partial(timer_for(case), PEERS[peer](case))


def _seconds(loops: int, peer: str, name: str) -> float:
    """Returns the seconds of `loops` calls, with the garbage collector off."""
    timer = _timer(peer, name)
    gc.collect()
    gc.disable()
    try:
        return loops * timer(loops)
    finally:
        gc.enable()


def _add_options(command: list[str], options: argparse.Namespace) -> None:
    """Adds the options of this script to the command of a worker process."""
    command += ["--peer", options.peer, "--case", *options.case]


def main() -> None:
    """Runs pyperf on the cases that the peer applies to."""
    runner = pyperf.Runner(processes=5, add_cmdline_args=_add_options)
    runner.argparser.add_argument("--peer", choices=list(PEERS), default="filterjit")
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
