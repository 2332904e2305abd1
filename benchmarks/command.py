"""The command line that the tables have in common: ``[--quick] [--markdown] [NAME ...]``."""

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterable, Sequence

from layout import lay_out, machine, progress


def parser(
    description: str, *, quick: str, metavar: str, names: Iterable[str]
) -> argparse.ArgumentParser:
    """Returns a parser for rough times, Markdown, and some of `names`, by default all of them.

    Arguments:
        description: what is measured, in a sentence.
        quick: how rough the times of ``--quick`` are.
        metavar: what `names` are names of.
    """
    known = list(names)

    def name(text: str) -> str:
        if text not in known:
            raise argparse.ArgumentTypeError(f"unknown {text!r}: choose from {', '.join(known)}")
        return text

    made = argparse.ArgumentParser(description=description)
    made.add_argument("--quick", action="store_true", help=f"rough times: {quick}")
    made.add_argument("--markdown", action="store_true", help="print Markdown")
    made.add_argument(
        "names", nargs="*", type=name, default=known, metavar=metavar, help=", ".join(known)
    )
    return made


def run(measure: Callable[[], str]) -> int:
    """Prints the tables that `measure` returns, and the machine. Returns the exit status."""
    with contextlib.suppress(AttributeError):
        sys.stdout.reconfigure(errors="replace")  # some encodings have no µ
    try:
        tables = measure()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    print(f"{tables}\n\n{machine()}", flush=True)
    return 0


def table(
    description: str,
    names: Iterable[str],
    head: Sequence[str],
    rows_of: Callable[[str, bool], Iterable[Sequence[str]]],
    *,
    quick: str = "0.5 seconds a row",
    metavar: str = "ROW",
    argv: Sequence[str] | None = None,
) -> int:
    """Parses the command line and prints one table. Returns the exit status.

    Arguments:
        description, names, quick, metavar: see `parser`.
        head: the table's first row.
        rows_of: returns the rows of a name; its second argument is True for rough times.
    """
    options = parser(description, quick=quick, metavar=metavar, names=names).parse_args(argv)

    def measure() -> str:
        rows = (row for name in progress(options.names) for row in rows_of(name, options.quick))
        return lay_out([head, *rows], markdown=options.markdown)

    return run(measure)
