"""The class `Report`: the figures of a report, and their output as a table and as a plot."""

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any

from .._base import _versions
from .._base._files import replacing
from .._base._package import public
from .._terminal._text import align, widths_of
from ._words import show_bytes

STAGES = ("tracing", "lowering", "compiling", "first_run")
_TIMES = ("dispatch", *STAGES)


def total(row: dict[str, Any]) -> float:
    """Returns all seconds of a function or variant."""
    return sum(row[name] or 0.0 for name in _TIMES)


@public
class Report:
    """Where the time of jitted functions went, most expensive function first.

    ``str()`` of a report is a table. `as_dict` returns the same figures and more, as numbers.
    """

    def __init__(
        self, functions: list[dict[str, Any]], timed: bool, others: dict[str, Any] | None = None
    ) -> None:
        self._functions = sorted(functions, key=total, reverse=True)
        self._timed = timed
        self._others = others

    def as_dict(self) -> dict[str, Any]:
        """Returns the figures of the report; times in seconds, sizes in bytes.

        A figure that JAX does not tell, or that was not measured (see `time_calls`), is None.
        ``direct`` counts the calls that went straight to their executable (see `direct`), and
        ``passed_on`` those that ``jax.jit`` made, by the reason.

        Returns:
            A dict: ``functions``, a list of dicts, each with its ``variants``; ``timed``, whether
            calls are timed now; ``others``, the cost of the programs that JAX compiled for
            functions that filterjit did not jit, or None in the report of one function.
        """
        return {"functions": self._functions, "timed": self._timed, "others": self._others}

    def __str__(self) -> str:
        return self.text(sys.stdout)

    __repr__ = __str__

    def text(self, file: Any) -> str:
        """Returns the table for output to `file`, with colours if `file` is a terminal and ``rich``
        is installed."""
        columns, rows = self._table()
        if file is not None and file.isatty():
            with contextlib.suppress(ImportError):
                return self._rich_text(file, columns, rows)
        table = align([columns, *rows])
        lines = [_HEADING, *("  ".join(row).rstrip() for row in table)]
        return "\n".join((*lines, *self._remarks()))

    def _rich_text(self, file: Any, columns: list[str], rows: list[list[str]]) -> str:
        import rich.box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        console = Console(file=file)
        widths = dict(zip(columns, widths_of([columns, *rows]), strict=True))
        framed = sum(widths.values()) + 3 * len(widths) < console.width
        if framed:
            table = Table(box=rich.box.ROUNDED, title=_HEADING, title_justify="left")
        else:
            table = Table(box=None, title=_HEADING, title_justify="left", padding=(0, 2, 0, 0))
            name_width = widths.pop("function")
            for column in _DISPENSABLE:
                if sum(widths.values()) + 2 * len(widths) + 18 <= console.width:
                    break
                widths.pop(column, None)
            left = console.width - sum(widths.values()) - 2 * len(widths) - 2
            widths = {"function": max(8, min(name_width, left)), **widths}
        for i, (column, width) in enumerate(widths.items()):
            table.add_column(
                column,
                justify="right" if i else "left",
                no_wrap=True,
                width=width,
            )
        for row in rows:
            cells = dict(zip(columns, row, strict=True))
            style = "dim" if row[0].startswith(" ") else None
            table.add_row(*(Text(cells[column]) for column in widths), style=style)
        with console.capture() as captured:
            console.print(table)
            for remark in self._remarks():
                console.print(Text(remark, style="yellow"))
        text: str = captured.get()
        return text.rstrip("\n")

    def _table(self) -> tuple[list[str], list[list[str]]]:
        """Returns the heads of the columns, and the cells of each row."""
        rows: list[tuple[str, dict[str, Any]]] = []
        for function in self._functions:
            many = f" (x{function['functions']:,})" if function["functions"] > 1 else ""
            rows.append((_shorten_name(function["name"]) + many, function))
            variants = function["variants"]
            shown = variants[:_VARIANTS]
            rest = _rest(function, shown) if variants else None
            if len(variants) > 1 or rest is not None:
                rows += [("  " + _shorten_label(v["label"]), v) for v in shown]
            if rest is not None:
                others = len(variants) - len(shown)
                rows.append((f"  {others} other variants" if others else "  other programs", rest))
        if self._others is not None and self._others["compiles"]:
            rows.append(("(not jitted by filterjit)", self._others))
        if not self._functions:
            rows.insert(0, ("(no jitted function was called)", {}))
        shown = [
            (head, name, show)
            for head, name, show, always in _COLUMNS
            if always or any(row.get(name) for _, row in rows)
        ]
        cells = [
            [label, *("" if row.get(name) is None else show(row[name]) for _, name, show in shown)]
            for label, row in rows
        ]
        return ["function", *(head for head, _, _ in shown)], cells

    def _remarks(self) -> list[str]:
        found = [f"{f['name']}: {text}" for f in self._functions for text in f["remarks"]]
        measured = any(f["dispatch"] is not None for f in self._functions)
        if self._functions and not self._timed and not measured:
            found.append(
                "Dispatch and first runs were not measured: call filterjit.time_calls() first."
            )
        if self._others is not None and (warning := _versions.warning()) is not None:
            found.append(warning)
        return found

    def plot(self, path: str | os.PathLike[str]) -> str:
        """Draws a bar chart of the seconds of the twelve most expensive functions.

        Needs Matplotlib. The suffix of `path`, such as ``.svg`` or ``.png``, selects the format. An
        existing file is replaced only when the new one is complete.

        Returns:
            The path.
        """
        from matplotlib.figure import Figure

        path = os.fspath(path)
        functions = self._functions[:12]
        figure = Figure(figsize=(9, 1.4 + 0.4 * max(1, len(functions))), layout="constrained")
        axes = figure.subplots()
        names = [f"{i}: {_shorten_name(f['name'])}" for i, f in enumerate(functions, 1)]
        left = [0.0] * len(functions)
        for name, colour in zip(_TIMES, _COLOURS, strict=True):
            values = [f[name] or 0.0 for f in functions]
            if any(values):
                axes.barh(names, values, left=left, color=colour, label=name.replace("_", " "))
            left = [x + y for x, y in zip(left, values, strict=True)]
        axes.invert_yaxis()
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlabel("seconds")
        axes.set_title("Where the time of jitted functions went", loc="left", weight="bold")
        if any(left):
            axes.legend(frameon=False, loc="lower right")
        with replacing(path) as file:
            kind = os.path.splitext(path)[1][1:].lower()
            figure.savefig(file, format=kind or "png", dpi=160)
        return path


_HEADING = "filterjit: where the time of jitted functions went, most expensive first"
# Columns to leave out on a narrow terminal, in this order, before names are shortened.
_DISPENSABLE = (
    "direct",
    "loaded",
    "from disk",
    "a device",
    "size",
    "first run",
    "hits",
    "lowering",
    "traces",
)
_VARIANTS = 5  # rows of variants of one function
# The palette of Okabe and Ito, which colour-blind people can distinguish.
_COLOURS = ("#999999", "#56B4E9", "#E69F00", "#0072B2", "#009E73")


def _shorten_name(name: str) -> str:
    return name if len(name) <= 40 else "..." + name[-37:]


def _shorten_label(text: str) -> str:
    return text if len(text) <= 38 else text[:35] + "..."


def _rest(function: dict[str, Any], shown: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Returns the figures of a function that are not in the rows of its variants: those of other
    variants, and of programs that were dropped. None if there are none."""
    rest: dict[str, Any] = {}
    for name in ("hits", "traces", "compiles", "from_disk", *_TIMES):
        if function[name] is not None:
            rest[name] = max(0, function[name] - sum(v[name] or 0 for v in shown))
    return rest if rest["traces"] or total({**dict.fromkeys(_TIMES), **rest}) > 1e-4 else None


def show_seconds(value: float) -> str:
    if value >= 99.95:
        return f"{value:,.0f} s"
    return f"{value:.2f} s" if value >= 0.9995 else f"{1e3 * value:.1f} ms"


# Head, key in the row, how to write the figure, and whether the column is shown without figures.
_COLUMNS: tuple[tuple[str, str, Callable[[Any], str], bool], ...] = (
    ("calls", "calls", "{:,}".format, True),
    ("hits", "hits", "{:,}".format, True),
    ("direct", "direct", "{:,}".format, False),
    ("traces", "traces", "{:,}".format, True),
    ("dispatch", "dispatch", show_seconds, False),
    ("tracing", "tracing", show_seconds, True),
    ("lowering", "lowering", show_seconds, True),
    ("compiling", "compiling", show_seconds, True),
    ("first run", "first_run", show_seconds, False),
    ("from disk", "from_disk", "{:,}".format, False),
    ("loaded", "loaded", "{:,}".format, False),
    ("size", "bytes", show_bytes, False),
    ("a device", "bytes_a_device", show_bytes, False),
)
