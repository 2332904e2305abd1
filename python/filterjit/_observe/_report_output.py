"""The class `Report`: the figures of a report, and their output as a table."""

import contextlib
import html
import sys
from collections.abc import Callable
from typing import Any

from .._base import _versions
from .._base._package import public_type
from .._terminal._text import align, html_table, widths_of
from ._wording import TIMES, shorten_name, show_bytes, show_seconds, total


@public_type
class Report:
    """Where the time of jitted functions went, most expensive function first.

    ``str()`` of a report is a table. Above it stands why a function has many retraces, if most of
    them have one cause. What libraries jit for their own use has one row. `as_dict` returns the same figures and more, as numbers.
    """

    def __init__(
        self, functions: list[dict[str, Any]], timed: bool, others: dict[str, Any] | None = None
    ) -> None:
        self._functions = sorted(functions, key=total, reverse=True)
        self._shown = [f for f in self._functions if not f.get("internal")]
        self._timed = timed
        self._others = others

    def as_dict(self) -> dict[str, Any]:
        """Returns the figures of the report; times in seconds, sizes in bytes.

        A figure that JAX does not tell, or that was not measured (see `time_calls`), is None.
        ``direct`` counts the calls that went straight to their executable (see `direct`), and
        ``passed_on`` those that ``jax.jit`` made, by the reason. ``cause`` says why a function has
        many retraces, or is None. ``internal`` is whether a library has jitted it for its own use.

        Returns:
            A dict: ``functions``, a list of dicts, each with its ``variants``; ``timed``, whether
            calls are timed now; ``others``, the cost of the programs that JAX compiled for
            functions that filterjit did not jit, or None in the report of one function.
        """
        return {"functions": self._functions, "timed": self._timed, "others": self._others}

    def __str__(self) -> str:
        return self.text(sys.stdout)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Returns what a notebook shows: the table, with the lines above and below it."""
        columns, rows = self._table()
        above, below = [
            "".join(map(_paragraph, texts)) for texts in (self._first(), self._remarks())
        ]
        return above + html_table(columns, rows, _HEADING) + below

    def text(self, file: Any) -> str:
        """Returns the table for output to `file`, with colours if `file` is a terminal and ``rich``
        is installed.

        Arguments:
            file: an open text file such as ``sys.stdout``, or None for plain text. Nothing is written.

        Raises:
            TypeError: `file` is no file.
        """
        if not (file is None or hasattr(file, "isatty")):
            raise TypeError(f"`text(file)` must be an open file or None, not {file!r}.")
        columns, rows = self._table()
        if file is not None and file.isatty():
            with contextlib.suppress(ImportError):
                return self._rich_text(file, columns, rows)
        table = align([columns, *rows])
        lines = [*self._first(), _HEADING, *("  ".join(row).rstrip() for row in table)]
        return "\n".join((*lines, *self._remarks()))

    def _causes(self) -> list[str]:
        """Returns why functions have many retraces, where most of these have one cause; that which
        took most time comes first."""
        found = [f for f in self._shown if f.get("cause")]
        return [f["cause"] for f in sorted(found, key=lambda f: -f["again"])]

    def _first(self) -> list[str]:
        """Returns the line above the table, if any."""
        return self._causes()[:1]

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
            for line in self._first():
                console.print(Text(line, style="bold yellow"))
            console.print(table)
            for remark in self._remarks():
                console.print(Text(remark, style="yellow"))
        text: str = captured.get()
        return text.rstrip("\n")

    def _table(self) -> tuple[list[str], list[list[str]]]:
        """Returns the heads of the columns, and the cells of each row."""
        rows: list[tuple[str, dict[str, Any]]] = []
        for function in self._shown:
            many = f" (x{function['functions']:,})" if function["functions"] > 1 else ""
            rows.append((shorten_name(function["name"]) + many, function))
            variants = function["variants"]
            shown = variants[:_VARIANTS]
            rest = _rest(function, shown) if variants else None
            if len(variants) > 1 or rest is not None:
                labels = _shorten_labels([v["label"] for v in shown])
                rows += [("  " + label, v) for label, v in zip(labels, shown, strict=True)]
            if rest is not None:
                others = len(variants) - len(shown)
                rows.append((f"  {others} other variants" if others else "  other programs", rest))
        internal = [f for f in self._functions if f not in self._shown]
        if internal:
            rows.append(("(jitted by libraries)", _sum(internal)))
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
        found = self._causes()[1:]
        found += [f"{f['name']}: {text}" for f in self._shown for text in f["remarks"]]
        measured = any(f["dispatch"] is not None for f in self._functions)
        if self._functions and not self._timed and not measured:
            found.append(
                "Dispatch and first runs were not measured: call filterjit.time_calls() first."
            )
        if self._others is not None and (warning := _versions.warning()) is not None:
            found.append(warning)
        return found


def _paragraph(text: str) -> str:
    return f"<p>{html.escape(text)}</p>"


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


def _sum(functions: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the figures of several functions, added up; those that none has are None."""
    figures = {name: [f[name] for f in functions if f[name] is not None] for name in _SUMS}
    return {name: sum(values) if values else None for name, values in figures.items()}


def _shorten_labels(labels: list[str]) -> list[str]:
    """Returns labels of at most 38 characters; those that would be the same have numbers."""
    cut = [text if len(text) <= 38 else text[:35] + "..." for text in labels]
    return [
        text if cut.count(text) == 1 else f"{i}: {label[:32]}..."
        for i, (text, label) in enumerate(zip(cut, labels, strict=True), 1)
    ]


def _rest(function: dict[str, Any], shown: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Returns the figures of a function that are not in the rows of its variants: those of other
    variants, and of programs that were dropped. None if there are none."""
    rest: dict[str, Any] = {}
    for name in ("hits", "traces", "compiles", "from_disk", *TIMES):
        if function[name] is not None:
            rest[name] = max(0, function[name] - sum(v[name] or 0 for v in shown))
    return rest if rest["traces"] or total({**dict.fromkeys(TIMES), **rest}) > 1e-4 else None


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
_SUMS = [name for _, name, _, _ in _COLUMNS if name != "bytes_a_device"]
