"""The output of the benchmarks: tables, a description of the machine, and the progress."""

import os
import platform
import sys
from collections.abc import Iterator, Sequence

import equinox as eqx
import jax

import filterjit
from filterjit._terminal._text import align, widths_of


def lay_out(lines: Sequence[Sequence[str]], *, markdown: bool) -> str:
    """Returns a table of `lines` of cells, as Markdown or aligned; the first line has the heads."""
    rows = [list(line) for line in lines]
    if not markdown:
        for row in rows:
            row[0] = row[0].replace("`", "")
    padded, widths = align(rows), widths_of(rows)
    if not markdown:
        rule = ["-" * w for w in widths]
        return "\n".join("  ".join(row) for row in (padded[0], rule, *padded[1:]))
    rule = ["-" * w if i == 0 else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (padded[0], rule, *padded[1:]))


def machine() -> str:
    """Returns the machine and the versions on which the times were measured."""
    return (
        f"{os.cpu_count()} cores, {jax.default_backend()}, "
        f"{platform.python_implementation()} {platform.python_version()}, "
        f"JAX {jax.__version__}, Equinox {eqx.__version__}, filterjit {filterjit.__version__}."
    )


def progress(names: Sequence[str]) -> Iterator[str]:
    """Yields the names one by one, and shows them on a terminal."""
    for i, name in enumerate(names, 1):
        if sys.stderr.isatty():
            print(f"{i} of {len(names)}: {name}", file=sys.stderr)
        yield name
