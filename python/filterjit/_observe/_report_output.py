"""The class `Report`: the figures of a report, and their output as a table."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from .._base import _versions
from .._base._package import public_type
from .._terminal._text import Table, escape, shorten
from ._wording import TIMES, add_up, shorten_name, show_bytes, show_seconds, total


@public_type
class Report:
    """Where the time of jitted functions went, most expensive function first.

    ``str()`` of a report is a table. Above it stands why a function has many retraces, if most of
    them have one cause. What libraries jit for their own use has one row. `as_dict` returns the
    same figures and more, as numbers.
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
        above, below = (
            "".join(f"<p>{escape(line)}</p>" for line in lines)
            for lines in (self._causes()[:1], self._remarks())
        )
        return above + self._table().html() + below

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
        if file is not None and file.isatty():
            with contextlib.suppress(ImportError):
                return self._coloured(file)
        return "\n".join(line for line, _ in self._lines(None))

    def _lines(self, width: int | None) -> Iterator[tuple[str, str]]:
        """Yields each line, with its style on a terminal."""
        for line in self._causes()[:1]:
            yield line, "bold yellow"
        table = self._table()
        yield table.title, "italic"
        for line in table.lines(width, _SPARE):
            yield line, "dim" if line.startswith(" ") else "none"
        for line in self._remarks():
            yield line, "yellow"

    def _coloured(self, file: Any) -> str:
        from rich.console import Console
        from rich.text import Text

        console = Console(file=file)
        with console.capture() as captured:
            for line, style in self._lines(console.width):
                console.print(Text(line, style=style))
        text: str = captured.get()
        return text.rstrip("\n")

    def _causes(self) -> list[str]:
        """Returns why functions have many retraces, where most of these have one cause; that which
        took most time comes first, and stands above the table."""
        found = [f for f in self._shown if f.get("cause")]
        return [f["cause"] for f in sorted(found, key=lambda f: -f["again"])]

    def _table(self) -> Table:
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
        if internal := [f for f in self._functions if f.get("internal")]:
            rows.append((LIBRARIES, _sum(internal)))
        if self._others is not None and self._others["compiles"]:
            rows.append(("(not jitted by filterjit)", self._others))
        if not self._functions:
            rows.insert(0, ("(no jitted function was called)", {}))
        columns = [
            (head, name, show)
            for head, (name, show, _) in _COLUMNS.items()
            if head in _ALWAYS or any(row.get(name) for _, row in rows)
        ]
        cells = [
            [
                label,
                *("" if row.get(name) is None else show(row[name]) for _, name, show in columns),
            ]
            for label, row in rows
        ]
        return Table(_HEADING, ["function", *(head for head, _, _ in columns)], cells)

    def _remarks(self) -> list[str]:
        """Returns the lines below the table."""
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


LIBRARIES = "(jitted by libraries)"
_HEADING = "filterjit: where the time of jitted functions went, most expensive first"
_VARIANTS = 5  # rows of variants of one function

# By the head of each column: the key in the row, how to write the figure, and where it is in the order
# in which columns are left out on a narrow terminal; 0 if it never is.
_COLUMNS: dict[str, tuple[str, Callable[[Any], str], int]] = {
    "calls": ("calls", "{:,}".format, 0),
    "hits": ("hits", "{:,}".format, 7),
    "direct": ("direct", "{:,}".format, 1),
    "traces": ("traces", "{:,}".format, 9),
    "dispatch": ("dispatch", show_seconds, 0),
    "tracing": ("tracing", show_seconds, 0),
    "lowering": ("lowering", show_seconds, 8),
    "compiling": ("compiling", show_seconds, 0),
    "first run": ("first_run", show_seconds, 6),
    "from disk": ("from_disk", "{:,}".format, 3),
    "size": ("bytes", show_bytes, 5),
}
_ALWAYS = {"calls", "hits", "traces", "tracing", "lowering", "compiling"}  # also without figures
_SPARE = sorted((head for head in _COLUMNS if _COLUMNS[head][2]), key=lambda x: _COLUMNS[x][2])


def _sum(functions: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the figures of several functions, added up; those that none has are None."""
    names = [name for name, _, _ in _COLUMNS.values()]
    return {name: add_up(f[name] for f in functions) for name in names}


def _shorten_labels(labels: list[str]) -> list[str]:
    """Returns labels of at most 38 characters; those that would be the same have numbers."""
    cut = [shorten(text, 38) for text in labels]
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
