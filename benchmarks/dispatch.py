"""Times the dispatch of a call: by filterjit, by Equinox, and by ``jax.jit`` in several ways.

    python benchmarks/dispatch.py [--quick] [--times] [--markdown] [--case NAME] [--peer NAME]
                                  [--until {return,each}]

Each case runs in its own process. Dispatch is the time until the call returns. JAX runs the smallest
programs inside the call: these are called many times in a row, which is the most exact. JAX runs
larger programs (`Case.lasts`, and all programs on a GPU) in another thread. Calls in a row would then
wait for each other's programs, so each of these calls is timed on its own (`timing.one_by_one`).
Equinox waits for the device before a call returns. This wait is part of the cost and counts.

One more table has the time of a call in a loop that waits for each result: dispatch and device
together. Cases whose calls run no program are left out there.
"""

import argparse
import dataclasses
import functools
import sys
from collections.abc import Sequence
from typing import Any

import command
from cases import CASES, Case
from layout import lay_out, progress
from peers import MISSING, PEERS, applies
from timing import best_of, timers_for

SLOW = ("statics_1000",)  # cases that compile for long, which --quick leaves out
UNTIL = {
    "return": "Time until a call returns",
    "each": "Time of a call in a loop that waits for each result",
}


@dataclasses.dataclass(frozen=True)
class Row:
    """The result of one case, timed one way: microseconds of a call by the name of the peer."""

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
            best = best_of(timers, seconds)
            microseconds = {name: 1e6 * value for name, value in best.items()}
            rows[way] = Row(case.summary, case.num_arrays, case.num_nodes, microseconds)
    return rows


def _time(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _ratio(value: float) -> str:
    text = f"{value:,.0f}" if value >= 100 else f"{value:#.2g}".rstrip(".")
    return f"{text}x"


def table(rows: Sequence[Row], peers: Sequence[str], *, times: bool, markdown: bool) -> str:
    """Returns the rows as a table: the microseconds of filterjit, and for each other peer its time
    divided by that of filterjit, or with `times` its microseconds."""
    others = [peer for peer in peers if peer != "filterjit"]
    heads = ["case", "arrays", "nodes", "filterjit, µs"]
    lines = [[*heads, *(peer if times else f"{peer}/filterjit" for peer in others)]]
    for row in rows:
        found = row.microseconds
        cells = [row.summary, f"{row.arrays:,}", f"{row.nodes:,}", _time(found["filterjit"])]
        for peer in others:
            if peer not in found:
                cells.append("-")
            else:
                cells.append(_time(found[peer]) if times else _ratio(row.ratio(peer, "filterjit")))
        lines.append(cells)
    if "flat" in peers:
        shares = (f"{row.ratio('filterjit', 'flat'):.2f}x" for row in rows)
        for line, cell in zip(lines, ["filterjit/flat", *shares], strict=True):
            line.append(cell)
    return lay_out(lines, markdown=markdown)


def caption(peers: Sequence[str]) -> str:
    """Returns a description of the peers."""
    lines = [f"{peer + ':':<12}{' '.join(str(PEERS[peer].__doc__).split())}" for peer in peers]
    if MISSING:
        lines.append(f"Left out, because they are not installed: {', '.join(MISSING)}.")
    return "\n".join(lines)


def work(name: str, *options: Any) -> dict[str, dict[str, Any]]:
    """Measures a case in a process of its own."""
    rows = measure(CASES[name](), *options)
    return {way: dataclasses.asdict(row) for way, row in rows.items()}


def report(options: argparse.Namespace) -> str:
    # filterjit is always there, because the others are compared with it.
    peers = [name for name in PEERS if not options.peer or name in (*options.peer, "filterjit")]
    names = options.case or [name for name in CASES if not (options.quick and name in SLOW)]
    until = options.until or list(UNTIL)
    more = peers, until, 0.3 if options.quick else 4.0
    found = {name: command.apart(__file__, name, *more) for name in progress(names)}
    parts = []
    for way in until:
        rows = [Row(**found[name][way]) for name in names if way in found[name]]
        parts += [
            f"{UNTIL[way]}, best of many batches. -: does not apply.",
            table(rows, peers, times=options.times, markdown=options.markdown),
        ]
    return "\n\n".join([*parts, caption(peers)])


def main(argv: Sequence[str] | None = None) -> int:
    parser = command.parser(__doc__, quick="0.3 seconds a case, without the slow cases")
    parser.add_argument(
        "--times", action="store_true", help="print microseconds of all peers, not ratios"
    )
    for option, names in (("--case", CASES), ("--peer", PEERS), ("--until", UNTIL)):
        parser.add_argument(
            option, action="append", choices=list(names), metavar="NAME", help=", ".join(names)
        )
    return command.run(parser, report, work, argv)


if __name__ == "__main__":
    sys.exit(main())
