"""What the benchmarks print: tables, what machine they are from, and a bar meanwhile."""

import os
import platform
import sys
from collections.abc import Iterator, Sequence

import equinox as eqx
import jax

import filterjit


def lay_out(lines: Sequence[Sequence[str]], *, markdown: bool) -> str:
    """Cells, the first line of them the heads, as Markdown or lined up for a terminal."""
    rows = [list(line) for line in lines]
    if not markdown:
        for row in rows:
            row[0] = row[0].replace("`", "")
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = [
        [row[0].ljust(widths[0])] + [x.rjust(w) for x, w in zip(row[1:], widths[1:], strict=True)]
        for row in rows
    ]
    if not markdown:
        rule = ["-" * w for w in widths]
        return "\n".join("  ".join(row) for row in (padded[0], rule, *padded[1:]))
    rule = ["-" * w if i == 0 else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (padded[0], rule, *padded[1:]))


def machine() -> str:
    """Where the numbers are from."""
    return (
        f"{os.cpu_count()} cores, {jax.default_backend()}, "
        f"{platform.python_implementation()} {platform.python_version()}, "
        f"JAX {jax.__version__}, Equinox {eqx.__version__}, filterjit {filterjit.__version__}."
    )


def progress(names: Sequence[str]) -> Iterator[str]:
    """The names, one by one, with a bar and the time left on a terminal; nothing elsewhere."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
    except ImportError:
        yield from names
        return
    with Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        "{task.description}",
        console=Console(stderr=True),
        auto_refresh=False,  # which would be a thread, at work while we measure
        speed_estimate_period=3600.0,
        transient=True,
        disable=not sys.stderr.isatty(),
    ) as bar:
        task = bar.add_task("", total=len(names))
        for name in names:
            bar.update(task, description=name, refresh=True)
            yield name
            bar.advance(task)
