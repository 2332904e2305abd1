"""The compilations of a function one after the other, and what they have in common.

Each is compared with the one before it. Where many in a row have one cause, such as a number, a
shape or a lambda that is another one in each call, it is told without being asked, once a cause. A
report tells the one cause of most (`_again`).
"""

import os
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import _core
from .._base._later import later
from .._terminal import _notebook

if TYPE_CHECKING:
    from . import _compare
    from ._causes import Cause
    from ._records import TraceRecord
else:
    _compare = later("_observe._compare")

MANY = 8  # compilations in a row

# The kinds of causes of which there can be any number. A program has the other ones on purpose, or
# has few of them.
_TOLD = frozenset(
    {"function", "bound method", "recreated", "class", "structure", "static", "identity", "shape"}
    | {"changed in place"}
)

Key = tuple[str, str]
"""The kind and the path of a cause."""


class Miss(NamedTuple):
    """A compilation.

    Attributes:
        record: the FunctionRecord of the function.
        compiles, hits: of the function before it.
        variant: returns the variant, or None if that was dropped.
        hash: of the structure of its arguments.
        trace: what it depends on.
        part: of the program, see `_part_of_program`.
    """

    record: Any
    compiles: int
    hits: int
    variant: Callable[[], _core.Variant | None]
    hash: int
    trace: "TraceRecord"
    part: Any

    @classmethod
    def of(cls, record: Any, variant: _core.Variant, trace: "TraceRecord") -> "Miss":
        record.refresh()
        compiles, hits, of_structure = record.cost.compiles, record.hits, hash(variant.structure)
        part = _part_of_program()
        return cls(record, compiles, hits, weakref.ref(variant), of_structure, trace, part)

    def is_repeated_by(self, other: "Miss") -> bool:
        """Whether the other one makes the same program, which was dropped in between."""
        return (
            self.record is other.record
            and self.hash == other.hash
            and self.trace.avals == other.trace.avals
            and self.trace.context == other.trace.context
        )


class Misses:
    """Compilations, each compared with the one before it.

    Attributes:
        compared: how many comparisons there were.
        counts: in how many of them a cause was found.
        latest: the causes as they were found last.
        numbers: the paths of Python numbers that differed and are leaves of arguments, by their texts.
    """

    def __init__(self) -> None:
        self.compared = 0
        self.counts: Counter[Key] = Counter()
        self.latest: dict[Key, Cause] = {}
        self.numbers: dict[str, Sequence[Any]] = {}
        self._row: list[Miss] = []  # in which each has the causes `_common`
        self._common: set[Key] = set()
        self._told: set[Key] = set()

    def merge(self, other: "Misses") -> None:
        """Adds the comparisons of other compilations to these."""
        self.compared += other.compared
        self.counts += other.counts
        self.latest.update(other.latest)
        self.numbers.update(other.numbers)

    def add(self, now: Miss, compare: Callable[[Miss], Sequence["Cause"]]) -> Sequence["Cause"]:
        """Adds a compilation that is about to begin. Returns what is to be told: the causes of many in
        a row, if they are not told yet.

        `compare` returns in what it differs from the one before it.
        """
        if not self._row:
            self._row = [now]
            return ()
        last = self._row[-1]
        last.record.refresh()
        causes = {(cause.kind, cause.path): cause for cause in compare(last)}
        self.compared += 1
        self.counts.update(causes.keys())
        self.latest.update(causes)
        if last.record.cost.compiles == last.compiles or last.part != now.part:
            # What was traced is a part of another function's program; or it is another's affair.
            self._row, self._common = [now], set()
            return ()
        told = {key for key, cause in causes.items() if _is_told(cause)}
        self._common &= told
        # A program that is used again has paid for its trace.
        has_paid = last.record.hits - last.hits > 1
        if not self._common or has_paid or any(one.is_repeated_by(now) for one in self._row):
            self._row, self._common = [last], told
        self._row = [*self._row, now][-MANY:]
        if len(self._row) < MANY or self._common <= self._told:
            return ()
        untold = self._common - self._told
        self._told |= untold
        return [cause for key, cause in causes.items() if key in untold]


def _is_told(cause: "Cause") -> bool:
    if cause.kind in ("class", "structure"):  # those of another type are given on purpose
        return cause.remedy in _compare.ENDLESS
    return cause.kind in _TOLD and not cause.remedy.endswith("this is normal.")


def _part_of_program() -> Any:
    """Returns what tells apart the parts of a program that are like programs of their own: a test of a
    suite, or a cell of a notebook, may well compile what another one has compiled."""
    return os.environ.get("PYTEST_CURRENT_TEST"), _notebook.cells_run()
