"""The history of jitted functions: a record of each function, variant and trace.

Records serve explanations and reports. Tracing and compiling write them; hits don't. A
`FunctionRecord` refers to its function's Cache weakly. After the Cache is collected, reports still
count its record, which is added to the total of its name and place.
"""

import collections
import dataclasses
import gc
import itertools
import os
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import _core
from .._base._arrays import Aval, Placed, placement
from .._base._locks import RLock, drain
from .._base._switches import on_switch
from .._base._unwrap import code_of, codes_of, values_in
from .._call import _direct
from .._compat import _jax_compat
from .._terminal import _notebook
from ._wording import file_and_line

if TYPE_CHECKING:
    from ._causes import Cause

MANY = 8  # compilations in a row with one cause, to report it
MANY_TEXTS = 32  # strings of one argument, to report it
SHORT = 15  # hits of a function that was jitted for a short run
_SELDOM = 1 / 4  # of the calls, that repeat one of many strings
_MOST_MADE = 10_000

Key = tuple[str, str]
"""(kind, path) of a cause."""
_KEPT_ALIVE = 1000  # caches
_ATOMS = (int, float, complex, bool, str, bytes, type(None))
_MANY = 16  # functions with the same code, before collecting garbage to find dropped ones


@dataclasses.dataclass
class TraceRecord:
    """The dependencies of one trace. `context` has JAX's settings and the mesh, by name, and
    `settings` returns a context with these. `placements` of the call's arrays are None until the
    program has run or was compiled ahead of time. `number` increases with each trace. `cost` is
    the cost of the trace and of the program compiled after it."""

    avals: tuple[Aval, ...]
    context: dict[str, Any]
    placements: tuple[Placed, ...] | None = None
    settings: Callable[[], Any] = dataclasses.field(
        default_factory=_jax_compat.settings, compare=False
    )
    number: int = dataclasses.field(default_factory=itertools.count().__next__, compare=False)
    cost: "Cost" = dataclasses.field(default_factory=lambda: Cost(), compare=False)

    @classmethod
    def of(cls, arrays: Sequence[Any], placed: bool = False) -> "TraceRecord":
        """Returns what a trace of these arrays would depend on; `placed` adds placements."""
        placements = tuple(map(placement, arrays)) if placed else None
        return cls(tuple(map(Aval.of, arrays)), _jax_compat.trace_settings(), placements)

    def record_placements(self, arrays: Sequence[Any]) -> None:
        """Records the placements of the tracing call's arrays. An array that was placed on a mesh
        for the trace isn't compared."""
        self.placements = tuple(
            AS_TRACED if aval.sharding and Aval.of(x).sharding is None else placement(x)
            for x, aval in zip(arrays, self.avals, strict=True)
        )

    def forget_placements(self, specs: Sequence[Any]) -> None:
        """Omits the placements of arrays that `in_shardings` places."""
        pairs = zip(self.placements or (), specs, strict=True)
        self.placements = tuple(x if spec is None else AS_TRACED for x, spec in pairs)


AS_TRACED: Placed = (None, False)
"""The placement of an array that isn't compared."""


@dataclasses.dataclass
class Cost:
    """The cost of all programs of a variant or function.

    Attributes:
        from_disk: compiles that JAX read from its persistent cache.
        tracing, compiling: seconds, including lowering in the latter. No second counts twice.
        in_hits: seconds of compiling within timed calls that didn't trace.
    """

    traces: int = 0
    compiles: int = 0
    from_disk: int = 0
    tracing: float = 0.0
    compiling: float = 0.0
    in_hits: float = 0.0

    def add(self, other: "Cost") -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


class Times(NamedTuple):
    """Times of timed hits, in nanoseconds, by the names in csrc/call/variant.h.

    If a hit falls back to ``jax.jit``, its executable can't be timed. It's assumed to take as long as in
    direct calls.
    """

    hits: int = 0
    hit: int = 0
    waited: int = 0
    runs: int = 0
    around: int = 0
    ran: int = 0

    @property
    def program(self) -> float | None:
        """Seconds in executables; None without direct calls."""
        return self.ran / self.runs * self.hits * 1e-9 if self.runs else None

    @property
    def dispatch(self) -> float | None:
        """All other seconds except waiting; None without direct calls."""
        if not self.runs:
            return None
        others = self.hit - self.around - self.ran / self.runs * (self.hits - self.runs)
        return (self.around - self.ran + max(0.0, others)) * 1e-9


@dataclasses.dataclass
class VariantRecord:
    """The record of one variant.

    Attributes:
        compiled: compilations without a trace, for new placements.
        warmed: compilations ahead of time.
        equations: the size of the last program.
        waits: True if calls wait for the program, because it can raise.
    """

    traces: list[TraceRecord] = dataclasses.field(default_factory=list)
    compiled: list[TraceRecord] = dataclasses.field(default_factory=list)
    warmed: list[TraceRecord] = dataclasses.field(default_factory=list)
    cost: Cost = dataclasses.field(default_factory=Cost)
    equations: int = 0
    waits: bool = False


def record_of(variant: _core.Variant) -> VariantRecord:
    """Returns a variant's record, creating it if needed."""
    record = variant._record
    if record is None:
        record = variant._record = VariantRecord()
    assert isinstance(record, VariantRecord)
    return record


class Compilation(NamedTuple):
    """A compilation. `compiles` and `hits` are the function's before it. `variant` is a weak
    reference, and `part` is from `_part_of_program`."""

    record: Any
    compiles: int
    hits: int
    variant: Callable[[], _core.Variant | None]
    trace: TraceRecord
    part: Any

    @classmethod
    def of(cls, record: Any, variant: _core.Variant, trace: TraceRecord) -> "Compilation":
        record.refresh()
        compiles, hits, part = record.cost.compiles, record.hits, _part_of_program()
        return cls(record, compiles, hits, weakref.ref(variant), trace, part)


class CompiledSignatures:
    """The programs that a function has compiled, including dropped ones. Keeps no static alive, and
    recognizes only statics that are numbers, text, or objects with weak references."""

    def __init__(self) -> None:
        self._avals: dict[Any, tuple[list[Any], set[Any]]] = {}

    def add(self, structure: _core.Structure, trace: TraceRecord) -> None:
        key, refs = _key_of(structure)
        if len(self._avals) >= _MOST_MADE:
            self._avals.clear()
        self._avals.setdefault(key, (refs, set()))[1].add(trace.avals)

    def has(self, structure: _core.Structure, trace: TraceRecord) -> bool:
        """True if a program for such arguments was compiled."""
        return trace.avals in self._avals.get(_key_of(structure)[0], ((), ()))[1]


def _key_of(structure: _core.Structure) -> tuple[Any, list[Any]]:
    """Returns a key, and weak references. While these live, only structures with the same hash and
    the same objects have this key."""
    refs = [_ref(x) for _, x in structure._statics(True)]
    return (hash(structure), *map(id, refs)), refs


def _ref(x: Any) -> Any:
    try:
        return weakref.ref(x)  # always the same for a living object
    except TypeError:
        return object()


def held_by(fun: Any) -> tuple[Any, list[Any]]:
    """Returns a key of the values that a function holds in closures and the like, and weak
    references. While these live, only the same objects, or equal atoms, have this key."""
    key, refs = list[Any](), list[Any]()
    for x in (*(held.value for held in values_in(fun)), getattr(fun, "__self__", None)):
        if type(x) in _ATOMS:
            key.append((type(x), x))
            continue
        refs.append(_ref(x))
        key.append(id(refs[-1]))
    return key, refs


class Streaks:
    """Compilations, each compared with the previous one: the number of comparisons, how many of
    them found each cause, and each cause as found last."""

    def __init__(self) -> None:
        self.compared = 0
        self.counts: Counter[Key] = Counter()
        self.latest: dict[Key, Cause] = {}
        self._last: Compilation | None = None
        self._lengths: Counter[Key] = Counter()  # of streaks: comparisons that found the cause
        self._reported: set[Key] = set()
        self._texts: dict[Key, set[str]] = {}  # different strings of each such cause

    def merge(self, other: "Streaks") -> None:
        self.compared += other.compared
        self.counts += other.counts.copy()  # a copy, because calls in other threads add to it
        self.latest.update(other.latest)

    def add(
        self,
        now: Compilation,
        compare: Callable[[Compilation], Sequence["Cause"]],
        most_hits: int = 1,
    ) -> Sequence["Cause"]:
        """Adds a compilation that is about to begin. Returns causes to report: those of many in a
        row, if not yet reported. `compare` returns the causes that tell it from an earlier one.

        A program with more than `most_hits` hits has paid for its trace, and ends a streak, unless
        the next program differs only in shapes, flags, and values recreated with equal contents.
        The last are counted whatever compiles in between. Strings are often options with a few
        values: different ones are counted, and reported if few calls repeat one.
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
            # The trace belongs to another function's program, or a different part of the program
            # compiled it.
            self._lengths.clear()
            return ()
        has_paid = last.record.hits - last.hits > most_hits
        endless = {key: cause for key, cause in causes.items() if cause.is_endless}
        texts = {key for key, cause in endless.items() if cause.is_text}
        endless = {key: cause for key, cause in endless.items() if key not in texts}
        is_needless = all(x._is_needless or x.kind == "shape" for x in endless.values())
        found = {
            key for key, x in endless.items() if not has_paid or (is_needless and x._is_needless)
        }
        for key in self._lengths.keys() - found:
            if not self.latest[key]._is_needless:
                del self._lengths[key]
        self._lengths.update(found)
        new = {key for key in found if self._lengths[key] >= MANY - 1}
        for key in texts:
            different = self._texts.setdefault(key, set())
            if len(different) < MANY_TEXTS:
                different |= {causes[key].was, causes[key].now}
            if len(different) >= MANY_TEXTS and now.hits < _SELDOM * now.record.calls:
                new.add(key)
        new -= self._reported
        self._reported |= new
        return [cause for key, cause in causes.items() if key in new]


def _part_of_program() -> Any:
    """Returns the current part of the program: a test or a notebook's cell. Different parts can
    reasonably compile the same thing."""
    return os.environ.get("PYTEST_CURRENT_TEST"), _notebook.cells_run()


@dataclasses.dataclass
class FunctionRecord:
    """The record of one jitted function, or the total of several with the same name and place.

    Attributes:
        label: JAX's name for its programs.
        decorator: "filter_jit", "jit" or "nnx.jit"; or "compiled" for a function compiled ahead of
            time, whose cache has one program for good.
        codes: a hash of the code of the function and of the callables it wraps.
        functions: the number of functions in a total.
        counters: `calls`, `hits` and `times` of the cache at the last `refresh`, or at its death.
        captured: a description of the arrays that its last program captured, or "".
        handed_over: the number of calls that fell back to ``jax.jit`` or ``flax.nnx.jit``, by reason.
        cache, jitted: weak references to the cache, and to the function first called with it.
    """

    name: str
    label: str
    place: tuple[str, int] | None = None
    decorator: str = "filter_jit"
    codes: int = 0
    cost: Cost = dataclasses.field(default_factory=Cost)
    functions: int = 1
    counters: tuple[int, int, dict[str, int]] = (0, 0, {})
    captured: str = ""
    handed_over: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    streaks: Streaks = dataclasses.field(default_factory=Streaks)
    signatures: CompiledSignatures = dataclasses.field(default_factory=CompiledSignatures)
    cache: Callable[[], _core.Cache | None] = lambda: None
    jitted: Callable[[], Any] = lambda: None

    @property
    def name_and_place(self) -> str:
        return self.name if self.place is None else f"{self.name} ({file_and_line(*self.place)})"

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for functions made by one place of the program."""
        return self.name, self.place, self.codes

    @property
    def calls(self) -> int:
        return self.counters[0]

    @property
    def hits(self) -> int:
        return self.counters[1]

    @property
    def is_empty(self) -> bool:
        """True for a function never called or compiled, such as the cache of a thread that lost the
        race to create one."""
        return not self.calls and self.cost == Cost() and not self.handed_over

    def refresh(self) -> _core.Cache | None:
        """Updates the counters. Returns the cache, or None if it was collected."""
        cache = self.cache()
        if cache is not None:
            self.counters = cache.calls, cache.hits, cache._times
        return cache

    def sum(self) -> "FunctionRecord":
        """Returns an empty total for functions made by the same place."""
        return FunctionRecord(
            self.name, self.label, self.place, self.decorator, self.codes, functions=0
        )

    def add(self, other: "FunctionRecord") -> None:
        self.cost.add(other.cost)
        self.functions += other.functions
        (calls, hits, times), (more_calls, more_hits, more) = self.counters, other.counters
        self.counters = calls + more_calls, hits + more_hits, Counter(times) + Counter(more)
        self.captured = other.captured or self.captured
        self.handed_over += other.handed_over.copy()  # a copy, because other threads add to it
        self.streaks.merge(other.streaks)


class _CacheRef(weakref.ref[_core.Cache]):
    """A weak reference to a Cache that owns the record, which outlives the Cache."""

    __slots__ = ("record",)
    record: FunctionRecord


class _Functions:
    """The jitted functions of the process.

    Attributes:
        kept_alive: caches to keep until the report of `filterjit run`.
        lock: held to change a `Cost` or a total.
        streaks: first compilations of the functions made by one place of the program, by their key.
        traced: for functions traced, what the last one held, from `held_by`, by the same key.
        explained: the causes logged last, and how often in a row, by the same key.
        by_code: caches by the user's code, each with the codes of everything its function wraps.
            Finds the caches of a recreated function.
    """

    def __init__(self) -> None:
        self.timed = False
        self.kept_alive: collections.deque[_core.Cache] | None = None
        self.lock = RLock()
        self.streaks: dict[Any, Streaks] = {}
        self.traced: dict[Any, Any] = {}
        self.explained: dict[Any, tuple[tuple[Key, ...], int]] = {}
        self.by_code: weakref.WeakKeyDictionary[Any, weakref.WeakKeyDictionary[_core.Cache, Any]]
        self.by_code = weakref.WeakKeyDictionary()
        self._refs: set[_CacheRef] = set()
        self._collected: collections.deque[Any] = collections.deque()  # refs not yet in a total
        self._totals: dict[Any, FunctionRecord] = {}  # of collected caches, by name and place

    def register(self, cache: _core.Cache, label: str, fun: Any, name: str = "") -> None:
        """Begins the record of a new cache. `fun` is its function, if known."""
        self._add_collected_to_totals()
        attributes, codes = cache.attributes, None if fun is None else codes_of(fun)
        name = (
            name or f"{attributes.get('__module__', '?')}.{attributes.get('__qualname__') or label}"
        )
        decorator = getattr(cache.hooks, "decorator", "compiled")
        code = None if fun is None else code_of(fun)
        place = None if code is None else (code.co_filename, code.co_firstlineno)
        # The garbage collector can run the callback at any time. It is a C function without locks:
        # Python code could deadlock here, or be interrupted by a signal.
        ref = _CacheRef(cache, self._collected.append)
        cache.record = ref.record = FunctionRecord(
            name, label, place, decorator, hash((decorator, codes)), cache=ref
        )
        cache.timed = int(self.timed)
        if code is not None:
            alike = self.by_code.setdefault(code, weakref.WeakKeyDictionary())
            alike[cache] = codes
            # A dropped function and its programs form a cycle that the collector finds too small.
            if (n := len(alike)) >= _MANY and n & (n - 1) == 0 and gc.isenabled():
                gc.collect(1 + (n > _MANY))  # young objects first
        self._refs.add(ref)
        if self.kept_alive is not None:
            self.kept_alive.append(cache)

    def _add_collected_to_totals(self) -> None:
        with self.lock:
            for ref in drain(self._collected):
                try:
                    self._refs.discard(ref)
                    record: FunctionRecord = ref.record
                except (AttributeError, TypeError):
                    continue  # an interrupt hit `register` before it set the record
                if not record.is_empty:
                    self._totals.setdefault(record.key, record.sum()).add(record)

    def live(self) -> list[tuple[_core.Cache, FunctionRecord]]:
        """Returns (cache, record) of living caches."""
        pairs = ((ref(), ref.record) for ref in list(self._refs))
        return [(cache, record) for cache, record in pairs if cache is not None]

    def of_code(self, fun: Any) -> list[_core.Cache]:
        """Returns the caches of functions with the same code as `fun`, wrapped code included."""
        code, codes = code_of(fun), codes_of(fun)
        alike = None if code is None else self.by_code.get(code)
        if alike is None:
            return []
        # `keyrefs` copies atomically, while other threads add caches.
        caches = [ref() for ref in alike.keyrefs()]
        return [cache for cache in caches if cache is not None and alike.get(cache) == codes]

    def are_kept(self, fun: Any, number: int) -> bool:
        """True if the program keeps at least `number` functions with the code of `fun`."""
        gc.collect()
        return sum(cache.record.jitted() is not None for cache in self.of_code(fun)) >= number

    def groups(self) -> list[tuple[FunctionRecord, list[_core.Cache]]]:
        """Returns the total and the living caches for each place that made functions in use."""
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
        """Keeps the caches registered last alive from now on."""
        self.kept_alive = collections.deque(maxlen=_KEPT_ALIVE)


functions = _Functions()
on_switch("time_calls", functions.time_calls)
