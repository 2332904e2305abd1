"""Microseconds a call: ours, Equinox's, ``jax.jit`` on a pytree, and the floor below all.

    python benchmarks/dispatch.py [--quick] [--markdown] [--case NAME]

The peers take turns in one process, a few milliseconds each, so that what else goes on in the
machine meets all of them; the best turn of each counts. Garbage is collected before each turn
and not during it. After each turn its results are waited for, so that no queue builds up.

Calls do not wait for the device, except those that do so on their own, which is how Equinox's
are. The programs are small, to leave that difference small.
"""

import argparse
import contextlib
import dataclasses
import functools
import gc
import itertools
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import equinox as eqx
import jax

import filterjit
from cases import CASES, Call, Case, arrays_in
from layout import lay_out
from peers import PEERS

TURN = 2e-3  # seconds that a turn takes at least
ROUNDS = 8  # turns that each peer has at least
Tick = Callable[[float], None]


@dataclasses.dataclass(frozen=True)
class Row:
    """What was measured of one case: microseconds a call by the name of the peer."""

    case: Case
    microseconds: dict[str, float]

    def ratio(self, above: str, below: str) -> float:
        """How many times the time of `below` the time of `above` is."""
        return self.microseconds[above] / self.microseconds[below]


def _turn(call: Call, number: int) -> float:
    """Seconds that a call takes, of `number` in a row."""
    out = None
    repeat = itertools.repeat(None, number)
    start = time.perf_counter()
    for _ in repeat:
        out = call()
    seconds = time.perf_counter() - start
    jax.block_until_ready(arrays_in(out))
    return seconds / number


def _number(call: Call) -> int:
    """How many calls fill a turn, at the pace of the fastest of a few tries."""
    number = 1
    while True:
        seconds = min(_turn(call, number) for _ in range(3)) * number
        if seconds >= TURN:
            return number
        number = max(number + 1, min(number * 10, int(number * TURN / seconds * 1.2)))


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.freeze()  # what is there by now is no garbage: collecting ours in between is quick
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def measure(case: Case, seconds: float, tick: Tick = lambda done: None) -> Row:
    """Times all peers on a case, by turns, for about as many seconds.

    `tick` is told between rounds how much is done, as a fraction.
    """
    calls = {name: peer(case) for name, peer in PEERS.items()}
    numbers = {name: _number(call) for name, call in calls.items()}
    best = dict.fromkeys(calls, float("inf"))
    order = list(calls)
    with _no_garbage_collection():
        start = time.perf_counter()
        for done in itertools.count(1):
            for name in order:
                gc.collect()
                best[name] = min(best[name], _turn(calls[name], numbers[name]))
            order.append(order.pop(0))  # nobody always follows the same one
            spent = time.perf_counter() - start
            tick(min(done / ROUNDS, spent / seconds, 1.0))
            if done >= ROUNDS and spent >= seconds:
                break
    return Row(case, {name: 1e6 * value for name, value in best.items()})


HEADERS = (
    "case",
    "arrays",
    "nodes",
    "flat jax.jit",
    "jax.jit, same pytree",
    "eqx.filter_jit",
    "filterjit",
    "ours / flat",
    "jax.jit / ours",
    "eqx / ours",
)


def _cells(row: Row) -> list[str]:
    def time_of(peer: str) -> str:
        value = row.microseconds[peer]
        return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"

    def ratio_of(above: str, below: str) -> str:
        value = row.ratio(above, below)
        return f"{value:,.0f}x" if value >= 100 else f"{value:#.2g}x".replace(".x", "x")

    cells = [row.case.summary, f"{row.case.num_arrays:,}", f"{row.case.num_nodes:,}"]
    cells += [time_of(peer) for peer in ("flat", "pytree", "equinox", "ours")]
    cells += [
        f"{row.ratio('ours', 'flat'):.2f}x",
        ratio_of("pytree", "ours"),
        ratio_of("equinox", "ours"),
    ]
    return cells


def table(rows: Sequence[Row], *, markdown: bool) -> str:
    """The rows as Markdown, or lined up for a terminal."""
    lines = [list(HEADERS), *(_cells(row) for row in rows)]
    return lay_out(lines, markdown=markdown)


def caption() -> str:
    """What the numbers are, and where they are from."""
    return (
        "Microseconds a call, best of many turns. flat: jax.jit of the same function on its "
        "arrays alone, the floor.\n"
        "jax.jit, same pytree: statics were taken out beforehand, which is not counted.\n"
        f"{os.cpu_count()} cores, {jax.default_backend()}, "
        f"{platform.python_implementation()} {platform.python_version()}, "
        f"JAX {jax.__version__}, Equinox {eqx.__version__}, filterjit {filterjit.__version__}."
    )


@contextlib.contextmanager
def _progress(names: Sequence[str]) -> Iterator[Callable[[int, float], None]]:
    """A bar on a terminal, nothing elsewhere."""
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        yield lambda index, done: None
        return
    # No thread of its own: that would run while we measure.
    with Progress(
        console=Console(stderr=True),
        auto_refresh=False,
        transient=True,
        disable=not sys.stderr.isatty(),
    ) as progress:
        task = progress.add_task("", total=len(names))

        def show(index: int, done: float) -> None:
            progress.update(task, completed=index + done, description=names[index], refresh=True)

        yield show


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, prints the table, and returns the exit status."""
    parser = argparse.ArgumentParser(
        description="Times the dispatch of filterjit, Equinox and jax.jit on the same cases."
    )
    parser.add_argument("--quick", action="store_true", help="a rough look: 0.3 seconds a case")
    parser.add_argument("--markdown", action="store_true", help="print the table of the README")
    parser.add_argument(
        "--case", action="append", choices=list(CASES), metavar="NAME", help=", ".join(CASES)
    )
    options = parser.parse_args(argv)
    names = options.case or list(CASES)
    seconds = 0.3 if options.quick else 6.0

    rows = []
    try:
        with _progress(names) as show:
            for index, name in enumerate(names):
                show(index, 0.0)
                rows.append(measure(CASES[name](), seconds, functools.partial(show, index)))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    print(table(rows, markdown=options.markdown))
    print()
    print(caption())
    return 0


if __name__ == "__main__":
    status = main()
    if status == 130:
        os._exit(status)  # JAX may be compiling in a thread, which an orderly exit would crash
    sys.exit(status)
