"""What happened to jitted functions: a record of each function, of each variant, and of each trace.

Records serve explanations and reports. They are written when a variant is traced or compiled,
which takes milliseconds; a hit writes none. A `FunctionRecord` holds its function's Cache weakly.
When a Cache has been garbage collected, its record is added to the total of its name and place, so
reports still count it.
"""

import collections
import dataclasses
import gc
import itertools
import operator
import os
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import _core
from .._base._arrays import Aval, Placed, placement
from .._base._locks import RLock, taken
from .._base._switches import tell
from .._base._unwrap import code_of, codes_of
from .._call import _direct
from .._compat import _jax_compat
from .._terminal import _notebook
from ._wording import file_and_line

if TYPE_CHECKING:
    from ._causes import Cause, Explanation

MANY = 8  # compilations in a row that have one cause: they are told
_MOST_MADE = 10_000

Key = tuple[str, str]
"""The kind and the path of a cause."""
_KEPT_ALIVE = 1000  # caches
_MANY = 16  # functions of the same code, after which the garbage collector looks for those dropped


@dataclasses.dataclass
class TraceRecord:
    """What one trace of a variant depended on.

    Attributes:
        avals: the avals of the arrays.
        context: the settings of JAX, with the mesh, by name.
        placements: of the arrays of the call that traced; None until the program has run.
        number: is greater than those of all traces before it.
    """

    avals: tuple[Aval, ...]
    context: dict[str, Any]
    placements: tuple[Placed, ...] | None = None
    number: int = dataclasses.field(default_factory=itertools.count().__next__, compare=False)

    @classmethod
    def of(cls, arrays: Sequence[Any], placed: bool = False) -> "TraceRecord":
        """Returns what a trace of these arrays depends on now; `placed`, with where they are."""
        placements = tuple(map(placement, arrays)) if placed else None
        return cls(tuple(map(Aval.of, arrays)), _jax_compat.trace_settings(), placements)

    def record_placements(self, arrays: Sequence[Any]) -> None:
        """Records where the arrays of the call are that has traced.

        One that was on no mesh, and was placed for the trace, is where an array of its aval is.
        """
        self.placements = tuple(
            AS_TRACED if aval.sharding and Aval.of(x).sharding is None else placement(x)
            for x, aval in zip(arrays, self.avals, strict=True)
        )

    def forget_placements(self, specs: Sequence[Any]) -> None:
        """Leaves out where the arrays are that `in_shardings` places."""
        pairs = zip(self.placements or (), specs, strict=True)
        self.placements = tuple(x if spec is None else AS_TRACED for x, spec in pairs)


AS_TRACED: Placed = (None, False)
"""Where an array is whose place is not compared."""


@dataclasses.dataclass
class Cost:
    """The cost of all programs of a variant or of a function.

    Attributes:
        traces, compiles: how many there were.
        from_disk: how many of the compiles JAX read from its persistent cache.
        loads: how many programs were loaded (`keep_programs`).
        tracing, compiling: seconds, lowering with the latter. Each is counted for one function
        only.
        in_hits: the seconds of compiling that passed in timed calls that traced nothing.
    """

    traces: int = 0
    compiles: int = 0
    from_disk: int = 0
    loads: int = 0
    tracing: float = 0.0
    compiling: float = 0.0
    in_hits: float = 0.0

    def add(self, other: "Cost") -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


class Times(NamedTuple):
    """What timed hits took: `FjTimes` in csrc/call/variant.h, in nanoseconds.

    The executable of a hit that ``jax.jit`` makes cannot be timed. It is taken to be as long as
    those of the direct calls.
    """

    hits: int
    hit: int
    waited: int
    runs: int
    around: int
    ran: int

    @property
    def program(self) -> float | None:
        """The seconds of the executables; None if no call was direct."""
        return self.ran / self.runs * self.hits * 1e-9 if self.runs else None

    @property
    def dispatch(self) -> float:
        """The seconds of the rest, without waiting; with the executables, if no call was direct."""
        if not self.runs:
            return self.hit * 1e-9
        others = self.hit - self.around - self.ran / self.runs * (self.hits - self.runs)
        return (self.around - self.ran + max(0.0, others)) * 1e-9


@dataclasses.dataclass
class VariantRecord:
    """The record of one variant.

    Attributes:
        traces: its traces, in order.
        compiled: what JAX has compiled without a trace, since the arrays were in other places.
        cost: what they and their programs cost.
        loop: the Python loop that made most of the program that was traced last, in words; or None.
        waits: whether a call waits for the program, since it can raise.
        not_kept: why `keep_programs` does not keep a program, or None.
    """

    traces: list[TraceRecord] = dataclasses.field(default_factory=list)
    compiled: list[TraceRecord] = dataclasses.field(default_factory=list)
    cost: Cost = dataclasses.field(default_factory=Cost)
    loop: str | None = None
    waits: bool = False
    not_kept: str | None = None


def record_of(variant: _core.Variant) -> VariantRecord:
    """Returns the record of a variant, which the first call creates."""
    record = variant.record
    if record is None:
        record = variant.record = VariantRecord()
    assert isinstance(record, VariantRecord)
    return record


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
    trace: TraceRecord
    part: Any

    @classmethod
    def of(cls, record: Any, variant: _core.Variant, trace: TraceRecord) -> "Miss":
        record.refresh()
        compiles, hits, part = record.cost.compiles, record.hits, _part_of_program()
        return cls(record, compiles, hits, weakref.ref(variant), trace, part)


class Made:
    """The programs that a function has compiled, also dropped ones. It keeps no static alive.

    A static that is neither a number, a text nor an object that can be referred to weakly is not
    recognized.
    """

    def __init__(self) -> None:
        self._made: dict[Any, tuple[list[Any], set[Any]]] = {}

    def add(self, structure: _core.Structure, trace: TraceRecord) -> None:
        key, refs = _key_of(structure)
        if len(self._made) >= _MOST_MADE:
            self._made.clear()
        self._made.setdefault(key, (refs, set()))[1].add(trace.avals)

    def has(self, structure: _core.Structure, trace: TraceRecord) -> bool:
        """Whether a program for such arguments was compiled."""
        return trace.avals in self._made.get(_key_of(structure)[0], ((), ()))[1]


def _key_of(structure: _core.Structure) -> tuple[Any, list[Any]]:
    """Returns a key, and weak references. As long as these live, only structures with the same
    hash and the same objects share the key."""
    refs = []
    for _, x in structure._statics(True):
        try:
            ref: Any = weakref.ref(x)  # for a living object it is always the same
        except TypeError:
            ref = object()
        refs.append(ref)
    return (hash(structure), *map(id, refs)), refs


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
        self._lengths: Counter[Key] = Counter()  # of the streaks: comparisons that found the cause
        self._told: set[Key] = set()

    def merge(self, other: "Misses") -> None:
        """Adds the comparisons of other compilations to these."""
        self.compared += other.compared
        self.counts += other.counts.copy()  # at once: calls of other threads add to it
        self.latest.update(other.latest)

    def add(self, now: Miss, compare: Callable[[Miss], Sequence["Cause"]]) -> Sequence["Cause"]:
        """Adds a compilation that is about to begin. Returns what is to be told: the causes of many
        in a row, if they are not told yet.

        A program that is used again has paid for its trace, and ends a streak. It does not if the
        next program differs, besides in shapes and flags, only in something that was made again
        with equal contents. Such a cause is counted whatever else compiles between.

        `compare` returns in what it differs from the one before it.
        """
        last, self._last = self._last, now
        if last is None:
            return ()
        last.record.refresh()
        causes = {(cause.kind, cause.path): cause for cause in compare(last)}
        self.compared += 1
        self.counts.update(causes.keys())
        self.latest.update(causes)
        if last.record.cost.compiles == last.compiles or last.part != now.part:
            # The trace is part of another function's program, or another part of the program
            # compiled it.
            self._lengths.clear()
            return ()
        has_paid = last.record.hits - last.hits > 1
        endless = {key: cause for key, cause in causes.items() if cause.is_endless}
        is_needless = all(x._is_needless or x.kind == "shape" for x in endless.values())
        found = {
            key for key, x in endless.items() if not has_paid or (is_needless and x._is_needless)
        }
        for key in self._lengths.keys() - found:
            if not self.latest[key]._is_needless:
                del self._lengths[key]
        self._lengths.update(found)
        untold = {key for key in found if self._lengths[key] >= MANY - 1} - self._told
        self._told |= untold
        return [cause for key, cause in causes.items() if key in untold]


def _part_of_program() -> Any:
    """Returns what tells apart the parts of a program that are like programs of their own: a test
    of a suite, or a cell of a notebook, may well compile what another one has compiled."""
    return os.environ.get("PYTEST_CURRENT_TEST"), _notebook.cells_run()


@dataclasses.dataclass
class FunctionRecord:
    """The record of one jitted function, or the total of several with the same name and place.

    Attributes:
        name: module and qualified name.
        label: the name that JAX has for its programs.
        place: file and line of the function.
        decorator: what jitted it: "filter_jit", "jit" or "nnx.jit"; or "compiled", of a function
            that was compiled ahead of time, whose cache has one program for good.
        codes: a hash of the code of the function and of what it wraps.
        cost: the cost of all its programs, including those no longer in its cache.
        functions: how many functions the record adds up.
        counters: the `calls`, `hits` and `times` of the cache at the last `refresh`; when the
            cache dies, it leaves the last ones here.
        captured: says which arrays its last program captured; empty without.
        handed_over: how many calls ``jax.jit`` or ``flax.nnx.jit`` made in the place of ours, by
            the reason for it.
        misses: its compilations, each compared with the one before it.
        made: the programs that it has compiled since it was cleared.
        cache: returns the cache, or None if that has been collected.
        jitted: returns what was called first with this cache, or None if that has been collected.
    """

    name: str
    label: str
    place: tuple[str, int] | None = None
    decorator: str = "filter_jit"
    codes: int = 0
    cost: Cost = dataclasses.field(default_factory=Cost)
    functions: int = 1
    counters: tuple[int, int, tuple[int, ...]] = (0, 0, (0,) * 6)
    captured: str = ""
    handed_over: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    misses: Misses = dataclasses.field(default_factory=Misses)
    made: Made = dataclasses.field(default_factory=Made)
    cache: Callable[[], _core.Cache | None] = lambda: None
    jitted: Callable[[], Any] = lambda: None

    @property
    def name_and_place(self) -> str:
        return self.name if self.place is None else f"{self.name} ({file_and_line(*self.place)})"

    @property
    def key(self) -> tuple[Any, ...]:
        """Is equal for functions that one place of the program makes."""
        return self.name, self.place, self.codes

    @property
    def calls(self) -> int:
        return self.counters[0]

    @property
    def hits(self) -> int:
        return self.counters[1]

    @property
    def is_empty(self) -> bool:
        """Whether the function was neither called nor compiled: two threads may both create a
        cache for one function, and one of the two is dropped."""
        return not self.calls and self.cost == Cost() and not self.handed_over

    def refresh(self) -> _core.Cache | None:
        """Reads the counters of the cache. Returns the cache, or None if that was collected."""
        cache = self.cache()
        if cache is not None:
            self.counters = cache.calls, cache.hits, cache._times
        return cache

    def sum(self) -> "FunctionRecord":
        """Returns a sum of functions that one place of the program makes, which begins with
        none."""
        return FunctionRecord(
            self.name, self.label, self.place, self.decorator, self.codes, functions=0
        )

    def add(self, other: "FunctionRecord") -> None:
        self.cost.add(other.cost)
        self.functions += other.functions
        (calls, hits, times), (more_calls, more_hits, more) = self.counters, other.counters
        times = tuple(map(operator.add, times, more))
        self.counters = calls + more_calls, hits + more_hits, times
        self.captured = other.captured or self.captured
        self.handed_over += other.handed_over.copy()  # at once: calls of other threads add to it
        self.misses.merge(other.misses)


class _CacheRef(weakref.ref[_core.Cache]):
    """A weak reference to a Cache. It owns the record, which outlives the Cache."""

    __slots__ = ("record",)
    record: FunctionRecord


class _Functions:
    """The jitted functions of the process.

    Attributes:
        timed: whether their calls are timed.
        kept_alive: caches that are not to be collected before the report of `filterjit run`.
        lock: held while a `Cost` of a function or variant, or a total, changes.
        misses: the first compilations of functions that one place of the program makes, by their
            key.
        traced: the keys of the functions that were traced.
        by_code: the caches by the code that the user wrote, each with the codes of all that its
            function wraps. A function that is recreated has a new cache, which is found here.
    """

    def __init__(self) -> None:
        self.timed = False
        self.kept_alive: collections.deque[_core.Cache] | None = None
        self.lock = RLock()
        self.misses: dict[Any, Misses] = {}
        self.traced: set[Any] = set()
        self.by_code: weakref.WeakKeyDictionary[Any, weakref.WeakKeyDictionary[_core.Cache, Any]]
        self.by_code = weakref.WeakKeyDictionary()
        self._refs: set[_CacheRef] = set()
        self._collected: collections.deque[Any] = collections.deque()  # refs not yet in a total
        self._totals: dict[Any, FunctionRecord] = {}  # for collected caches, by name and place

    def register(self, cache: _core.Cache, label: str, fun: Any, name: str = "") -> None:
        """Begins the record of a new cache, of the function `fun`; None if it is not known."""
        self._add_collected_to_totals()
        attributes, codes = cache.attributes, None if fun is None else codes_of(fun)
        name = (
            name or f"{attributes.get('__module__', '?')}.{attributes.get('__qualname__') or label}"
        )
        decorator = getattr(cache.hooks, "decorator", "compiled")
        code = None if fun is None else code_of(fun)
        place = None if code is None else (code.co_filename, code.co_firstlineno)
        # The garbage collector may run the callback at any moment. It is a C function and takes
        # no lock: Python code could deadlock here, or be interrupted by a signal.
        ref = _CacheRef(cache, self._collected.append)
        cache.record = ref.record = FunctionRecord(
            name, label, place, decorator, hash((decorator, codes)), cache=ref
        )
        cache.timed = int(self.timed)
        if code is not None:
            alike = self.by_code.setdefault(code, weakref.WeakKeyDictionary())
            alike[cache] = codes
            # A dropped function and its programs are in a cycle, which looks small to the collector.
            if (n := len(alike)) >= _MANY and n & (n - 1) == 0 and gc.isenabled():
                gc.collect(1 + (n > _MANY))  # of young objects first
        self._refs.add(ref)
        if self.kept_alive is not None:
            self.kept_alive.append(cache)

    def _add_collected_to_totals(self) -> None:
        with self.lock:
            for ref in taken(self._collected):
                try:
                    self._refs.discard(ref)
                    record: FunctionRecord = ref.record
                except (AttributeError, TypeError):
                    continue  # `register` was interrupted before it set the record
                if not record.is_empty:
                    self._totals.setdefault(record.key, record.sum()).add(record)

    def live(self) -> list[tuple[_core.Cache, FunctionRecord]]:
        """Returns the caches that exist, with their records."""
        pairs = ((ref(), ref.record) for ref in list(self._refs))
        return [(cache, record) for cache, record in pairs if cache is not None]

    def of_code(self, fun: Any) -> list[_core.Cache]:
        """Returns the caches of functions that have the code of `fun` and wrap the same code."""
        code, codes = code_of(fun), codes_of(fun)
        alike = None if code is None else self.by_code.get(code)
        if alike is None:
            return []
        # `keyrefs` copies at once: other threads add caches.
        caches = [ref() for ref in alike.keyrefs()]
        return [cache for cache in caches if cache is not None and alike.get(cache) == codes]

    def are_kept(self, fun: Any, number: int) -> bool:
        """Whether the program keeps as many functions of the code of `fun`, as in a table."""
        gc.collect()
        return sum(cache.record.jitted() is not None for cache in self.of_code(fun)) >= number

    def groups(self) -> list[tuple[FunctionRecord, list[_core.Cache]]]:
        """Returns for each place that has made functions which were called or compiled, the sum of
        their records, and the caches that exist."""
        self._add_collected_to_totals()
        found: dict[Any, tuple[FunctionRecord, list[_core.Cache]]] = {}
        with self.lock:
            for record in (*self._totals.values(), *(record for _, record in self.live())):
                cache = record.refresh()
                if not record.is_empty:
                    total, caches = found.setdefault(record.key, (record.sum(), []))
                    total.add(record)
                    caches += [cache] if cache is not None else []
        return list(found.values())

    def time_calls(self, on: bool) -> None:
        self.timed = on
        _direct.time_runs(on)
        for cache, _ in self.live():
            cache.timed = int(on)

    def keep_alive(self) -> None:
        """From now on, holds the caches registered last, so that they are not collected."""
        self.kept_alive = collections.deque(maxlen=_KEPT_ALIVE)


functions = _Functions()
tell("time_calls", functions.time_calls)


class Event(NamedTuple):
    """What JAX did once for a jitted function.

    Attributes:
        kind: "trace" or "compile".
        name, place: of the function, as in its `FunctionRecord`.
        begin, end: by ``time.perf_counter``.
        reason: why it is a retrace; None for the first trace and for other events.
    """

    kind: str
    name: str
    place: tuple[str, int] | None
    begin: float
    end: float
    reason: "Explanation | None" = None
