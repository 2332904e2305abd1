"""Times the dispatch of a call: by filterjit, by Equinox, and by ``jax.jit`` in several ways.

    python benchmarks/dispatch.py [--quick] [--times] [--markdown] [--case NAME] [--peer NAME]
                                  [--until {return,each}]

Each case runs in its own process, in which the peers run alternately, in batches of a few
milliseconds. The fastest batch of each counts (see `timing`).

Dispatch is the time until the call returns. JAX runs the smallest programs inside the call: these
are called many times in a row, which is the most exact. JAX runs larger programs (`Case.lasts`, and
all programs on a GPU) in another thread. Calls in a row would then wait for each other's programs,
and the result would be the time of the device where the device is slower. Therefore each of these
calls is timed on its own and starts on an idle device: its results are waited for while the clock
is stopped, and the median of a batch is taken. Equinox waits for the device before a call returns.
This wait is part of the cost of the call and counts.

A program that needs each result waits with the other peers too. One more table has the time of a
call in a loop that waits for each result: dispatch and device together. Cases whose calls run no program are left out there.
"""

import argparse
import contextlib
import dataclasses
import functools
import json
import os
import subprocess
import sys
from collections.abc import Sequence

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from cases import CASES, Case
from layout import lay_out, machine, progress
from peers import MISSING, PEERS, applies
from timing import in_batches, interleaved, timers_for

BATCH = 2e-3  # the least seconds of a batch of calls
ROUNDS = 8  # the least number of batches of each peer
SLOW = ("statics_1000",)  # cases that compile for long, which --quick leaves out
UNTIL = {
    "return": "Time until a call returns",
    "each": "Time of a call in a loop that waits for each result",
}


@dataclasses.dataclass(frozen=True)
class Row:
    """The result of one case, timed one way: microseconds of a call by the name of the peer."""

    name: str
    summary: str
    arrays: int
    nodes: int
    microseconds: dict[str, float]

    def ratio(self, above: str, below: str) -> float:
        """The time of `above` divided by the time of `below`."""
        return self.microseconds[above] / self.microseconds[below]


def measure(
    case: Case, peers: Sequence[str], until: Sequence[str], seconds: float
) -> dict[str, Row]:
    """Times the peers that apply to a case, alternately, for about `seconds` each way."""
    calls = {name: PEERS[name](case) for name in peers if applies(name, case)}
    rows = {}
    for way, timer in timers_for(case).items():
        if way in until:
            timers = {name: functools.partial(timer, call) for name, call in calls.items()}
            best = interleaved(in_batches(timers, BATCH), seconds, ROUNDS)
            microseconds = {name: 1e6 * value for name, value in best.items()}
            rows[way] = Row(case.name, case.summary, case.num_arrays, case.num_nodes, microseconds)
    return rows


def measure_apart(
    name: str, peers: Sequence[str], until: Sequence[str], seconds: float
) -> dict[str, Row]:
    """Does the same in another process."""
    work = json.dumps([name, peers, until, seconds])
    command = [sys.executable, __file__, "--work", work]
    # In its own session: Ctrl-C interrupts this process, which then kills the other one.
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    return {way: Row(**row) for way, row in json.loads(done.stdout).items()}


def _time(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _ratio(value: float) -> str:
    text = f"{value:,.0f}" if value >= 100 else f"{value:#.2g}".rstrip(".")
    return f"{text}x"


def _cells(row: Row, peers: Sequence[str], times: bool) -> list[str]:
    def cell(peer: str) -> str:
        if peer not in row.microseconds:
            return "-"
        return _time(row.microseconds[peer]) if times else _ratio(row.ratio(peer, "filterjit"))

    cells = [row.summary, f"{row.arrays:,}", f"{row.nodes:,}", _time(row.microseconds["filterjit"])]
    cells += [cell(peer) for peer in peers if peer != "filterjit"]
    if "flat" in peers:
        cells.append(f"{row.ratio('filterjit', 'flat'):.2f}x")
    return cells


def table(rows: Sequence[Row], peers: Sequence[str], *, times: bool, markdown: bool) -> str:
    """Returns the rows as a table, in Markdown or aligned for a terminal.

    It has the microseconds of filterjit, and for each other peer its time divided by that of
    filterjit, or with `times` its microseconds.
    """
    heads = ["case", "arrays", "nodes", "filterjit, µs"]
    heads += [peer if times else f"{peer}/filterjit" for peer in peers if peer != "filterjit"]
    if "flat" in peers:
        heads.append("filterjit/flat")
    lines = [heads, *(_cells(row, peers, times) for row in rows)]
    return lay_out(lines, markdown=markdown)


def caption(peers: Sequence[str]) -> str:
    """Returns a description of the peers and of the machine."""
    lines = [f"{peer + ':':<12}{' '.join(str(PEERS[peer].__doc__).split())}" for peer in peers]
    if MISSING:
        lines.append(f"Left out, because they are not installed: {', '.join(MISSING)}.")
    return "\n".join([*lines, "", machine()])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Times the dispatch of filterjit, Equinox and jax.jit on the same cases."
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="rough times: 0.3 seconds a case, without the slow cases",
    )
    parser.add_argument(
        "--times", action="store_true", help="print microseconds of all peers, not ratios"
    )
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    for option, names in (
        ("--case", list(CASES)),
        ("--peer", list(PEERS)),
        ("--until", list(UNTIL)),
    ):
        parser.add_argument(
            option, action="append", choices=names, metavar="NAME", help=", ".join(names)
        )
    parser.add_argument("--work", type=json.loads, help=argparse.SUPPRESS)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, prints the table, and returns the exit status."""
    options = _parser().parse_args(argv)
    if options.work:
        name, *work = options.work
        rows = measure(CASES[name](), *work)
        print(json.dumps({way: dataclasses.asdict(row) for way, row in rows.items()}))
        return 0

    # filterjit is always there, because the others are compared with it.
    peers = [name for name in PEERS if not options.peer or name in (*options.peer, "filterjit")]
    names = options.case or [name for name in CASES if not (options.quick and name in SLOW)]
    until = options.until or list(UNTIL)
    seconds = 0.3 if options.quick else 4.0
    try:
        found = {name: measure_apart(name, peers, until, seconds) for name in progress(names)}
        for way in until:
            rows = [found[name][way] for name in names if way in found[name]]
            print(f"{UNTIL[way]}, best of many batches. -: does not apply.\n")
            print(f"{table(rows, peers, times=options.times, markdown=options.markdown)}\n")
        print(caption(peers), flush=True)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    with contextlib.suppress(AttributeError):
        sys.stdout.reconfigure(errors="replace")  # some encodings have no µ
    sys.exit(main())
