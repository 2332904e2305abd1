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
from .._terminal import _notebook

if TYPE_CHECKING:
    from ._causes import Cause

    TraceRecord = Any

MANY = 8  # compilations in a row
_MOST_MADE = 10_000
_ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes})

Key = tuple[str, str]
"""The kind and the path of a cause."""


class Miss(NamedTuple):
    """A compilation.

    Attributes:
        record: the FunctionRecord of the function.
        compiles, hits: of the function before it.
        variant: returns the variant, or None if that was dropped.
        trace: what it depends on.
        part: of the program, see `_part_of_program`.
    """

    record: Any
    compiles: int
    hits: int
    variant: Callable[[], _core.Variant | None]
    trace: "TraceRecord"
    part: Any

    @classmethod
    def of(cls, record: Any, variant: _core.Variant, trace: "TraceRecord") -> "Miss":
        record.refresh()
        compiles, hits, part = record.cost.compiles, record.hits, _part_of_program()
        return cls(record, compiles, hits, weakref.ref(variant), trace, part)


class Made:
    """The programs that a function has compiled, which it may have dropped since. It holds no static alive.

    A static that is neither a number, a text nor an object that can be referred to weakly is not
    recognized.
    """

    def __init__(self) -> None:
        self._made: dict[Any, tuple[list[Any], set[Any]]] = {}

    def add(self, structure: _core.Structure, trace: "TraceRecord") -> None:
        key, refs = _key_of(structure)
        if len(self._made) >= _MOST_MADE:
            self._made.clear()
        self._made.setdefault(key, (refs, set()))[1].add(trace.avals)

    def has(self, structure: _core.Structure, trace: "TraceRecord") -> bool:
        """Whether a program for such arguments was compiled."""
        return trace.avals in self._made.get(_key_of(structure)[0], ((), ()))[1]


def _key_of(structure: _core.Structure) -> tuple[Any, list[Any]]:
    """Returns a key that only equal structures share as long as some weak references live, and these."""
    key: list[Any] = [hash(structure)]
    refs = []
    for _, _, cls, detail, _ in structure._nodes():
        for x in (cls, *(detail if type(detail) is tuple else (detail,))):
            if type(x) in _ATOMS:
                key.append(hex(x) if type(x) is int else repr(x))  # repr refuses long ones
                continue
            try:
                ref: Any = weakref.ref(x)  # of an object that lives, it is one and the same
            except TypeError:
                ref = object()
            refs.append(ref)
            key.append(id(ref))
    return tuple(key), refs


class Misses:
    """Compilations, each compared with the one before it.

    Attributes:
        compared: how many comparisons there were.
        counts: in how many of them a cause was found.
        latest: the causes as they were found last.
    """

    def __init__(self) -> None:
        self.compared = 0
        self.counts: Counter[Key] = Counter()
        self.latest: dict[Key, Cause] = {}
        self._last: Miss | None = None
        self._length = 0  # of the row of compilations that have the causes `_common`
        self._common: set[Key] = set()
        self._told: set[Key] = set()

    def merge(self, other: "Misses") -> None:
        """Adds the comparisons of other compilations to these."""
        self.compared += other.compared
        self.counts += other.counts.copy()  # at once: calls of other threads add to it
        self.latest.update(other.latest)

    def add(self, now: Miss, compare: Callable[[Miss], Sequence["Cause"]]) -> Sequence["Cause"]:
        """Adds a compilation that is about to begin. Returns what is to be told: the causes of many in
        a row, if they are not told yet.

        `compare` returns in what it differs from the one before it.
        """
        last, self._last, self._length = self._last, now, self._length + 1
        if last is None:
            return ()
        last.record.refresh()
        causes = {(cause.kind, cause.path): cause for cause in compare(last)}
        self.compared += 1
        self.counts.update(causes.keys())
        self.latest.update(causes)
        if last.record.cost.compiles == last.compiles or last.part != now.part:
            # What was traced is a part of another function's program; or it is another's affair.
            self._length, self._common = 1, set()
            return ()
        told = {key for key, cause in causes.items() if cause.is_endless}
        self._common &= told
        # A program that is used again has paid for its trace.
        has_paid = last.record.hits - last.hits > 1
        if not self._common or has_paid:
            self._length, self._common = 2, told
        untold = self._common - self._told if self._length >= MANY else set()
        self._told |= untold
        return [cause for key, cause in causes.items() if key in untold]


def _part_of_program() -> Any:
    """Returns what tells apart the parts of a program that are like programs of their own: a test of a
    suite, or a cell of a notebook, may well compile what another one has compiled."""
    return os.environ.get("PYTEST_CURRENT_TEST"), _notebook.cells_run()
