"""`Explanation`, the reasons why a call compiles, and `Cause`, one of them."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from .._base._package import public_type
from ._table import TEXT, TITLES, Row

_MOST_CAUSES = 6  # the rest is only counted

WHOLE_FUNCTION = "the function"
"""The path of the function itself."""

_ORDER = {kind: i for i, kind in enumerate(TITLES)}


@public_type
@dataclasses.dataclass(frozen=True)
class Cause:
    """One difference between a call and a compiled program.

    Attributes:
        kind: the kind of difference, such as ``"static"`` or ``"shape"``.
        path: the place in the arguments, such as ``model.layers[2].activation``, or "".
        was: a description of the value that the program was compiled for.
        now: a description of the value in the call.
        remedy: how to avoid the difference, or "".
    """

    kind: str
    path: str
    was: str
    now: str
    remedy: str
    _row: Row | None = dataclasses.field(default=None, repr=False, compare=False)
    _number: Sequence[Any] | None = dataclasses.field(default=None, repr=False, compare=False)
    """The path's keys, if it leads to a Python number."""
    _is_needless: bool = dataclasses.field(default=False, repr=False, compare=False)
    """True if the value was recreated with equal contents."""

    def __str__(self) -> str:
        verb = "compiled for" if self.kind == "shape" else "was"  # lists all shapes, see `_explain`
        change = f": {verb} {self.was}, is {self.now}" if self.was else ""
        place = f"{self.place}: " if self.path else ""
        return f"{place}{TITLES[self.kind]}{change}"

    @property
    def is_of_function(self) -> bool:
        """True if the function itself differs, and this is its first call."""
        return self.path.startswith(WHOLE_FUNCTION)

    @property
    def is_endless(self) -> bool:
        """True if there can be any number of such causes."""
        return self._row is not None and self._row.is_endless

    @property
    def is_text(self) -> bool:
        """True for a string, which is often an option with a few values."""
        return self._row is not None and self._row.remedy == TEXT.remedy

    @property
    def _weight(self) -> int:
        """The distance between two programs with this difference."""
        return 1 if self._row is None else self._row.weight

    def heavier(self, nodes: int) -> "Cause":
        """Returns a cause that weighs more, by the nodes below it, which were not compared."""
        row = self._row and self._row._replace(weight=self._row.weight + nodes)
        return dataclasses.replace(self, _row=row)

    @property
    def place(self) -> str:
        """The place of the difference, for explanations."""
        if self.path == WHOLE_FUNCTION:
            return self.path
        return f"`{self.path}`" if self.path else "the call"


def cause_of(row: Row, path: str = "", was: str = "", now: str = "", **filled: Any) -> Cause:
    """Returns the cause of a row. `filled` completes its remedy."""
    return Cause(row.kind, path, was, now, row.remedy.format(**filled), row)


def in_order(causes: Sequence[Cause]) -> list[Cause]:
    """Sorts causes, the most important first."""
    return sorted(causes, key=lambda cause: _ORDER[cause.kind])


def lines_of(
    causes: Sequence[Cause], write: Callable[[Cause], str] = str, more: int = 0
) -> list[str]:
    """Returns indented lines for the first causes, and one that counts the rest, including `more`
    that aren't listed."""
    lines = [f"  {write(cause)}" for cause in causes[:_MOST_CAUSES]]
    if rest := len(causes[_MOST_CAUSES:]) + more:
        lines.append(f"  and {rest:,} more differences")
    return lines


@public_type
@dataclasses.dataclass(frozen=True)
class Explanation:
    """Why a call is a hit, or why it compiles again.

    ``str()`` returns several lines. ``bool()`` returns `hit`.

    Attributes:
        name: the name of the function.
        hit: whether a compiled program exists for the call.
        causes: the differences from the closest compiled program, the most important first.
        variants: the number of compiled programs compared with the call.
    """

    name: str
    hit: bool
    causes: tuple[Cause, ...] = ()
    variants: int = 0
    _more: int = dataclasses.field(default=0, repr=False)

    def __bool__(self) -> bool:
        return self.hit

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        if self.hit:
            return f"{self.name}: hit"
        if any(cause.kind == "first" for cause in self.causes):
            return f"{self.name}: compiles: no program is compiled for it yet"
        if any(cause.kind == "not compiled" for cause in self.causes):
            return f"{self.name}: compiles: {TITLES['not compiled']}"
        if any(cause.kind == "handed over" for cause in self.causes):
            return f"{self.name}: falls back to `jax.jit`: {self.causes[0].now}"
        fails = any(cause.kind == "deleted" for cause in self.causes)
        others = all(cause.is_of_function and cause.kind != "function" for cause in self.causes)
        begin = "raises an error" if fails else f"compiles{' again' * (not others)}"
        lines = [f"{self.name}: {begin} because", *lines_of(self.causes, more=self._more)]
        if self.variants > 1:
            lines.append(f"  (compared with the closest of {self.variants} compiled programs)")
        causes = self.causes[:_MOST_CAUSES]
        if any(cause.kind in ("class", "structure") for cause in causes):
            causes = tuple(c for c in causes if c.kind != "static")  # they follow from it
        remedies = dict.fromkeys(c.remedy for c in causes if c.remedy)
        lines += [f"  -> {remedy}" for remedy in remedies]
        return "\n".join(lines)

    @property
    def kinds(self) -> tuple[tuple[str, str], ...]:
        """(kind, path) of each cause."""
        return tuple((cause.kind, cause.path) for cause in self.causes)
