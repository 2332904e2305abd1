"""What the benchmarks print: tables, what machine they are from, and a bar meanwhile."""

import os
import platform
from collections.abc import Iterator, Sequence

import equinox as eqx
import jax

import filterjit
from filterjit._base import _terminal
from filterjit._base._text import align, widths_of


def lay_out(lines: Sequence[Sequence[str]], *, markdown: bool) -> str:
    """Cells, the first line of them the heads, as Markdown or lined up for a terminal."""
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
    """Where the numbers are from."""
    return (
        f"{os.cpu_count()} cores, {jax.default_backend()}, "
        f"{platform.python_implementation()} {platform.python_version()}, "
        f"JAX {jax.__version__}, Equinox {eqx.__version__}, filterjit {filterjit.__version__}."
    )


def progress(names: Sequence[str]) -> Iterator[str]:
    """The names, one by one, with a bar and the time left on a terminal; nothing elsewhere."""
    bar = _terminal.progress(
        lambda rich: (
            rich.BarColumn(),
            rich.MofNCompleteColumn(),
            rich.TimeRemainingColumn(),
            "{task.description}",
        ),
        auto_refresh=False,  # a thread of it would run while calls are timed
        speed_estimate_period=3600.0,
    )
    if bar is None:
        yield from names
        return
    with bar:
        task = bar.add_task("", total=len(names))
        for name in names:
            bar.update(task, description=name, refresh=True)
            yield name
            bar.advance(task)
