"""`Report`: a report's figures, and its output as a table."""

import shutil
import sys
from collections.abc import Callable
from typing import Any

from .._base import _versions
from .._base._package import public_type
from .._terminal._text import shorten, table
from ._wording import file_and_line, shorten_name, show_seconds

STAGES = ("tracing", "compiling")
COSTS = ("traces", "compiles", "from_disk", *STAGES)
TIMES = ("dispatch", "program", "waiting")  # of hits
_HEADING = "filterjit: where the time of jitted functions went, most expensive first"
_VARIANTS = 5  # rows for one function's variants
_LONG = 0.5  # seconds to compile operations outside jitted functions

# By column head: the key in the row, and its format. Narrow terminals omit the last columns.
_COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "calls": ("calls", "{:,}".format),
    "hits": ("hits", "{:,}".format),
    "traces": ("traces", "{:,}".format),
    "dispatch": ("dispatch", show_seconds),
    "program": ("program", show_seconds),
    "waiting": ("waiting", show_seconds),
    "tracing": ("tracing", show_seconds),
    "compiling": ("compiling", show_seconds),
    "direct": ("direct", "{:,}".format),
    "from disk": ("from_disk", "{:,}".format),
}
_ALWAYS = {"calls", "hits", "traces", "tracing", "compiling"}  # even if empty


def total(row: dict[str, Any]) -> float:
    return sum(row.get(name) or 0.0 for name in (*TIMES, *STAGES))


@public_type
class Report:
    """The time that jitted functions took, most expensive first.

    ``str()`` returns a table, as wide as the terminal. If most retraces of a function have one
    cause, it is above the table. `as_dict` returns all figures as numbers.
    """

    def __init__(
        self, functions: list[dict[str, Any]], timed: bool, others: dict[str, Any] | None = None
    ) -> None:
        self._functions = sorted(functions, key=total, reverse=True)
        self._timed = timed
        self._others = others

    def as_dict(self) -> dict[str, Any]:
        """Returns the figures of the report, with times in seconds.

        ``dispatch``, ``program`` and ``waiting`` are times of hits, or None if not measured (see
        `switches.time_calls`). ``program`` is the time in the executable, which on many devices
        only starts the program. If all calls fall back to ``jax.jit``, which doesn't tell them
        apart, both are None. ``waiting`` is for programs that can raise.

        ``direct`` counts the calls that went straight to their executable (see `switches.direct`),
        and ``passed_on`` the calls through ``jax.jit``, by reason. ``cause`` says why a function
        has many retraces, or is None.

        Returns:
            A dict: ``functions``, a list of dicts, each with its ``variants``; ``timed``, whether
            calls are timed now; ``others``, the cost of programs outside filterjit, or None in the
            report of one function. Its ``operations`` have the cost of each line with operations
            outside jitted functions.
        """
        return {"functions": self._functions, "timed": self._timed, "others": self._others}

    def __str__(self) -> str:
        is_terminal = sys.stdout is not None and sys.stdout.isatty()
        width = shutil.get_terminal_size().columns if is_terminal else None
        rows = table(self._rows(), width)
        return "\n".join([*self._causes()[:1], _HEADING, *rows, *self._remarks()])

    __repr__ = __str__

    def _causes(self) -> list[str]:
        """Returns the main causes of functions with many retraces, most expensive first. The first
        one goes above the table."""
        return [f["cause"] for f in self._functions if f["cause"]]

    def _rows(self) -> list[list[str]]:
        """Returns the table's cells, beginning with the heads."""
        rows: _Rows = []
        for function in self._functions:
            many = f" (x{function['functions']:,})" if function["functions"] > 1 else ""
            rows.append((shorten_name(function["name"]) + many, function))
            variants = function["variants"]
            shown = variants[:_VARIANTS]
            rest = _rest(function, shown) if variants else None
            has_rows = len(variants) > 1 or rest is not None
            for label, v in _labelled(shown, "  "):
                rows += [(label, v)] * has_rows + _shapes(v["shapes"], "    " if has_rows else "  ")
            if rest is not None:
                others = len(variants) - len(shown)
                rows.append((f"  {others} other variants" if others else "  other programs", rest))
        if self._others is not None and self._others["compiles"]:
            rows.append(("(not jitted by filterjit)", self._others))
        if not self._functions:
            rows.insert(0, ("(no jitted function was called)", {}))
        columns = {
            head: (name, show)
            for head, (name, show) in _COLUMNS.items()
            if head in _ALWAYS or any(row.get(name) for _, row in rows)
        }
        cells = [
            [
                label,
                *(
                    "" if row.get(name) is None else show(row[name])
                    for name, show in columns.values()
                ),
            ]
            for label, row in rows
        ]
        return [["function", *columns], *cells]

    def _remarks(self) -> list[str]:
        found = self._causes()[1:]
        found += [f"{f['name']}: {text}" for f in self._functions for text in f["remarks"]]
        for one in (self._others or {}).get("operations", ())[:1]:
            if one["compiles"] > 1 and one["compiling"] > _LONG:
                found.append(
                    f"(not jitted by filterjit): {file_and_line(one['file'], one['line'])}: operations "
                    f"outside of a jitted function compiled {one['compiles']:,} programs, in "
                    f"{show_seconds(one['compiling'])}. In one jitted function, they are one program."
                )
        measured = any(f["dispatch"] is not None for f in self._functions)
        if self._functions and not self._timed and not measured:
            found.append(
                "Dispatch was not measured: set `filterjit.switches.time_calls = True` first."
            )
        if self._others is not None and (warning := _versions.warning()) is not None:
            found.append(warning)
        return found


def advise(report: Report, *, explained: bool, jax: bool) -> str:
    """Returns the line below the report of ``filterjit run``: other commands that help.

    Arguments:
        report: the report.
        explained: True if each retrace was explained.
        jax: True if `filterjit.jit` replaced ``jax.jit``.
    """
    found = report.as_dict()
    functions, others = [f for f in found["functions"] if f["calls"]], found["others"] or {}
    if not functions:
        more = " For functions of `jax.jit`, pass `--jax`."
        return "No jitted function was called." + more * bool(others.get("compiles") and not jax)
    said = "`run --compare` tells whether filterjit pays."
    if not explained and any(f["traces"] > f["functions"] for f in functions):
        said += " `run --explain` tells why functions were retraced."
    return said


_Rows = list[tuple[str, dict[str, Any]]]


def _labelled(rows: list[dict[str, Any]], indent: str) -> _Rows:
    """Returns rows with their labels, cut to 38 characters. Adds numbers to equal ones."""
    cut = [shorten(row["label"], 38) for row in rows]
    return [
        (indent + (text if cut.count(text) == 1 else f"{i}: {row['label'][:32]}..."), row)
        for i, (text, row) in enumerate(zip(cut, rows, strict=True), 1)
    ]


def _shapes(rows: list[dict[str, Any]], indent: str) -> _Rows:
    """Returns a row for each of several shapes, and one for all after the first few."""
    if len(rows) < 2:
        return []
    more = rows[_VARIANTS:]
    costs = {name: sum(row[name] for row in more) for name in COSTS}
    others = [(f"{indent}{len(more)} other shapes", costs)] if more else []
    return _labelled(rows[:_VARIANTS], indent) + others


def _rest(function: dict[str, Any], shown: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Returns the figures outside the rows of variants: of more variants and dropped programs. None
    if there are none."""
    rest: dict[str, Any] = dict.fromkeys(TIMES)
    for name in ("hits", *COSTS, *TIMES):
        if function[name] is not None:
            rest[name] = max(0, function[name] - sum(v[name] or 0 for v in shown))
    return rest if rest["traces"] or total(rest) > 1e-4 else None
