"""What a call costs: ours, Equinox's, ``jax.jit`` in its many uses, and the floor below all.

    python benchmarks/dispatch.py [--quick] [--times] [--markdown] [--case NAME] [--peer NAME]
                                  [--plot FILE]

Each case has a process of its own, in which the peers take turns of a few milliseconds; the best
turn of each counts (`timing`).

What is timed is dispatch: the time until the call returns. JAX runs the smallest programs within
the call; there, many calls in a row fill a turn, which is the most exact. Larger ones (`Case.lasts`,
and all on a GPU) it leaves to another thread. Calls in a row would then wait for room behind each
other's programs, and what is measured were the slower of dispatch and device. So there each call
has the clock to itself and finds the device idle: its results are waited for in between, off the
clock, and the median of a turn is taken. Equinox's calls wait on their own before they return:
that is part of what they cost, and counts.
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
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from cases import CASES, GROWTH, Case
from layout import lay_out, machine, progress
from peers import MISSING, PEERS, applies
from timing import calls_in, interleaved, way_to_time

TURN = 2e-3  # seconds that a turn takes at least
ROUNDS = 8  # turns that each peer has at least
SLOW = ("statics_1000",)  # to compile: not in a quick look


@dataclasses.dataclass(frozen=True)
class Row:
    """What was measured of one case: microseconds a call by the name of the peer."""

    name: str
    summary: str
    arrays: int
    nodes: int
    microseconds: dict[str, float]

    def ratio(self, above: str, below: str) -> float:
        """How many times the time of `below` the time of `above` is."""
        return self.microseconds[above] / self.microseconds[below]


def measure(case: Case, peers: Sequence[str], seconds: float) -> Row:
    """Times the peers that apply to a case, by turns, for about as many seconds."""
    turns = {}
    for name in peers:
        if applies(name, case):
            turn = functools.partial(way_to_time(case), PEERS[name](case))
            turns[name] = functools.partial(turn, calls_in(TURN, turn))
    best = interleaved(turns, seconds, ROUNDS)
    microseconds = {name: 1e6 * value for name, value in best.items()}
    return Row(case.name, case.summary, case.num_arrays, case.num_nodes, microseconds)


def measure_apart(name: str, peers: Sequence[str], seconds: float) -> Row:
    """The same in a process of its own."""
    work = json.dumps([name, peers, seconds])
    return Row(**json.loads(_python("dispatch.py", "--work", work, stdout=subprocess.PIPE)))


def _python(script: str, *args: str, stdout: int | None = None) -> str:
    """Runs a script of this folder. Ctrl-C is ours to see: we end it."""
    path = str(Path(__file__).with_name(script))
    command = [sys.executable, path, *args]
    done = subprocess.run(command, check=True, stdout=stdout, text=True, start_new_session=True)
    return done.stdout


def _time(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _times(value: float) -> str:
    text = f"{value:,.0f}" if value >= 100 else f"{value:#.2g}".rstrip(".")
    return f"{text}x"


def _cells(row: Row, peers: Sequence[str], times: bool) -> list[str]:
    def cell(peer: str) -> str:
        if peer not in row.microseconds:
            return "-"
        return _time(row.microseconds[peer]) if times else _times(row.ratio(peer, "ours"))

    cells = [row.summary, f"{row.arrays:,}", f"{row.nodes:,}", _time(row.microseconds["ours"])]
    cells += [cell(peer) for peer in peers if peer != "ours"]
    if "flat" in peers:
        cells.append(f"{row.ratio('ours', 'flat'):.2f}x")
    return cells


def table(rows: Sequence[Row], peers: Sequence[str], *, times: bool, markdown: bool) -> str:
    """The rows as Markdown, or lined up for a terminal: microseconds of ours, and for the others
    how many times as long they take, or theirs too."""
    heads = ["case", "arrays", "nodes", "ours, µs"]
    heads += [peer if times else f"{peer}/ours" for peer in peers if peer != "ours"]
    if "flat" in peers:
        heads.append("ours/flat")
    lines = [heads, *(_cells(row, peers, times) for row in rows)]
    return lay_out(lines, markdown=markdown)


def caption(peers: Sequence[str]) -> str:
    """What the numbers are, who the peers are, and where it all is from."""
    lines = ["Time until a call returns, best of many turns. -: does not apply.", ""]
    lines += [f"{peer + ':':<12}{' '.join(str(PEERS[peer].__doc__).split())}" for peer in peers]
    if MISSING:
        lines.append(f"Left out, for they are not installed: {', '.join(MISSING)}.")
    return "\n".join([*lines, "", machine()])


def draw(path: Path, rows: Sequence[Row], peers: Sequence[str]) -> None:
    """Draws how a call's cost grows with the number of arrays. The file appears when it is whole."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for peer in peers:
        known = [row for row in rows if peer in row.microseconds]
        if known:
            axes.loglog(
                [row.arrays for row in known],
                [row.microseconds[peer] for row in known],
                marker=".",
                linewidth=3 if peer == "ours" else 1.5,
                label=peer,
            )
    axes.set_xlabel("arrays, each in a tiny module, side by side in a tuple")
    axes.set_ylabel("microseconds until a call returns")
    axes.grid(color="#dddddd", linewidth=0.8)
    axes.legend(frameon=False)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        figure.savefig(unfinished, format=path.suffix[1:], dpi=160)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def _picture(text: str) -> Path:
    """A path that a picture can be written to."""
    path = Path(text)
    if path.suffix not in (".svg", ".png", ".pdf"):
        raise argparse.ArgumentTypeError(f"{text!r} does not end in .svg, .png or .pdf")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise argparse.ArgumentTypeError(f"cannot write to the folder {str(path.parent)!r}")
    return path


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Times the dispatch of filterjit, Equinox and jax.jit on the same cases."
    )
    parser.add_argument(
        "--quick", action="store_true", help="a rough look: 0.3 seconds a case, the slow ones not"
    )
    parser.add_argument("--times", action="store_true", help="microseconds of all, not ratios")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    for option, names in (("--case", list(CASES)), ("--peer", list(PEERS))):
        parser.add_argument(
            option, action="append", choices=names, metavar="NAME", help=", ".join(names)
        )
    parser.add_argument(
        "--plot", type=_picture, metavar="FILE", help="draw how the cost grows with the arrays"
    )
    parser.add_argument("--work", type=json.loads, help=argparse.SUPPRESS)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, prints the table, and returns the exit status."""
    options = _parser().parse_args(argv)
    if options.work:
        name, peers, seconds = options.work
        row = measure((CASES | GROWTH)[name](), peers, seconds)
        print(json.dumps(dataclasses.asdict(row)))
        return 0

    # In their order, and ours always: it is what the others are compared with.
    peers = [name for name in PEERS if not options.peer or name in (*options.peer, "ours")]
    names = options.case or [name for name in CASES if not (options.quick and name in SLOW)]
    sizes = list(GROWTH) if options.plot else []
    seconds = 0.3 if options.quick else 6.0
    try:
        rows = {name: measure_apart(name, peers, seconds) for name in progress([*names, *sizes])}
        in_table = [rows[name] for name in names]
        print(table(in_table, peers, times=options.times, markdown=options.markdown))
        print(f"\n{caption(peers)}", flush=True)
        if options.plot:
            draw(options.plot, [rows[name] for name in sizes], peers)
            print(f"Picture: {options.plot}", flush=True)
        if not options.case:
            for script in ("ratios.py", "trees.py"):
                print(flush=True)
                _python(script, *(["--quick"] if options.quick else []))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    with contextlib.suppress(AttributeError):
        sys.stdout.reconfigure(errors="replace")  # not every encoding has a µ
    sys.exit(main())
