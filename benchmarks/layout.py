"""The output of the benchmarks: tables, a description of the machine, and a progress bar."""

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
    """Yields the names one by one. On a terminal it shows a bar with the remaining time."""
    try:
        import rich.console
        import rich.progress
    except ImportError:
        yield from names
        return
    if not sys.stderr.isatty():
        yield from names
        return
    bar = rich.progress.Progress(
        rich.progress.BarColumn(),
        rich.progress.MofNCompleteColumn(),
        rich.progress.TimeRemainingColumn(),
        "{task.description}",
        console=rich.console.Console(stderr=True),
        transient=True,
        auto_refresh=False,  # a thread that refreshes it would run while calls are timed
        speed_estimate_period=3600.0,
    )
    with bar:
        task = bar.add_task("", total=len(names))
        for name in names:
            bar.update(task, description=name, refresh=True)
            yield name
            bar.advance(task)
