"""The command line that the tables have in common: ``[--quick] [--markdown] [NAME ...]``."""

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterable

from layout import machine


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
