"""The command line that the scripts have in common: ``[--quick] [--markdown] [NAME ...]``."""

import argparse
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from layout import lay_out, machine, progress


def parser(doc: str, *, quick: str = "", names: Iterable[str] = ()) -> argparse.ArgumentParser:
    """Returns a parser for Markdown, and for rough times if `quick` says how rough. It takes some of
    `names`, by default all of them."""
    known = list(names)

    def name(text: str) -> str:
        if text not in known:
            raise argparse.ArgumentTypeError(f"unknown {text!r}: choose from {', '.join(known)}")
        return text

    made = argparse.ArgumentParser(description=doc.partition("\n")[0])
    made.add_argument("--markdown", action="store_true", help="print Markdown")
    made.add_argument("--work", type=json.loads, help=argparse.SUPPRESS)
    if quick:
        made.add_argument("--quick", action="store_true", help=f"rough times: {quick}")
    if known:
        made.add_argument(
            "names", nargs="*", type=name, default=known, metavar="NAME", help=", ".join(known)
        )
    return made


def run(
    parser: argparse.ArgumentParser,
    measure: Callable[[argparse.Namespace], str],
    work: Callable[..., Any] | None = None,
    argv: Sequence[str] | None = None,
) -> int:
    """Prints the tables that `measure` returns, and the machine. Returns the exit status.

    In a process of `apart`, it prints the result of `work` instead.
    """
    with contextlib.suppress(AttributeError):
        sys.stdout.reconfigure(errors="replace")  # some encodings have no µ
    options = parser.parse_args(argv)
    if work is not None and options.work:
        print(json.dumps(work(*options.work)))
        return 0
    try:
        print(f"{measure(options)}\n\n{machine()}", flush=True)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


def apart(script: str, *arguments: Any, **variables: str) -> Any:
    """Returns the result of the script's `work` in a process of its own."""
    done = subprocess.run(
        [sys.executable, script, "--work", json.dumps(arguments)],
        check=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", **variables},  # as users import modules
        start_new_session=True,  # Ctrl-C interrupts this process, which then kills the other one
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout)


def table(
    doc: str,
    names: Iterable[str],
    head: Sequence[str],
    rows_of: Callable[[str, float], Iterable[Sequence[str]]],
    amounts: tuple[float, float] = (0.5, 6.0),
    unit: str = "seconds a row",
) -> int:
    """Prints one table. `rows_of` returns the rows of a name, for the first of `amounts` (rough
    times) or the second. Returns the exit status."""

    def measure(options: argparse.Namespace) -> str:
        amount = amounts[not options.quick]
        rows = (row for name in progress(options.names) for row in rows_of(name, amount))
        return lay_out([head, *rows], markdown=options.markdown)

    return run(parser(doc, quick=f"{amounts[0]:g} {unit}", names=names), measure)
