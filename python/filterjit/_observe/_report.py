"""Where the time went: what each jitted function and each of its programs cost to make and run.

JAX's monitoring events tell how long it traced, lowered and compiled. They name no function of
ours, so they go to the trace under way in their thread: what JAX does between the beginning of
a trace and the end of its call is done for it, and for the innermost of several. Each second is
counted once. Programs that are compiled without a trace, for a new sharding say, are known by
their name where only one function bears it.

Nothing here runs on a hit. Only where `time_calls` asks for it, the C core looks at the clock.
"""

import collections
import contextlib
import dataclasses
import logging
import os
import threading
import time
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax

from .. import _core
from .._base import _jax_compat
from .._base._progress import Job, watcher
from . import _program, _records
from ._records import Spent
from ._screens import MAKING, Report, total

logger = logging.getLogger("filterjit")

_TRACED = "/jax/core/compile/jaxpr_trace_duration"
_LOWERED = "/jax/core/compile/jaxpr_to_mlir_module_duration"
_COMPILED = "/jax/core/compile/backend_compile_duration"
_FROM_DISK = "/jax/compilation_cache/cache_hits"

_KEPT = 1000  # functions that are kept alive for the report of `run`


# ---- what is written down ----


@dataclasses.dataclass
class Record:
    """What is known of one jitted function; its `Cache` holds it.

    Attributes:
        name: module and qualified name.
        label: the name that JAX knows its programs under.
        place: file and line of the function.
        spent: on all its programs, those that are gone included.
        functions: how many are summed up here; one, while they live.
        calls, hits: as they were last seen.
    """

    name: str
    label: str
    place: tuple[str, int] | None = None
    spent: Spent = dataclasses.field(default_factory=Spent)
    functions: int = 1
    calls: int = 0
    hits: int = 0
    dispatch: float | None = None
    captured: _program.Captured | None = None
    cache: Callable[[], _core.Cache | None] = lambda: None

    def look(self) -> _core.Cache | None:
        """Brings the counters up to date. None where the function is gone."""
        cache = self.cache()
        if cache is not None:
            self.calls, self.hits = cache.calls, cache.hits
            if cache.timed or cache.hit_time:
                self.dispatch = _dispatch(cache.hit_time, self.spent)
        return cache

    def add(self, other: "Record") -> None:
        self.spent.add(other.spent)
        self.functions += other.functions
        self.calls += other.calls
        self.hits += other.hits
        if other.dispatch is not None:
            self.dispatch = (self.dispatch or 0.0) + other.dispatch
        self.captured = other.captured or self.captured


class _Ref(weakref.ref[_core.Cache]):
    """To a Cache, with its Record, which outlives it."""

    __slots__ = ("record",)
    record: Record


class _Work:
    """A trace, and what JAX does for it until its call is over."""

    __slots__ = ("compiled", "inner", "job", "open", "record", "spent", "start", "taken")

    def __init__(self, record: Record, notes: _records.VariantNotes) -> None:
        self.record = record
        self.spent = notes.spent
        self.open = False  # while the user's function runs
        self.inner = 0.0  # seconds of it that others have counted
        self.taken: float | None = None  # by the trace, until JAX tells how long it took
        self.compiled: float | None = None  # when
        self.job: Job | None = None
        self.start = time.perf_counter()


class _Thread(threading.local):
    """What a thread is doing."""

    def __init__(self) -> None:
        self.stack: list[_Work] = []
        self.from_disk = 0  # since the last compile
        self.job: Job | None = None  # without a trace
        self.idle = False  # nothing may be compiled


class _WouldCompileError(Exception):
    """Raised in the place of compiling for a report."""


class _Recorder:
    def __init__(self) -> None:
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)
        self.timed = False
        self.kept: collections.deque[_core.Cache] | None = None
        self.others = Spent()  # programs that are none of ours
        self._lock = threading.Lock()
        self._listening = False
        self._live: set[_Ref] = set()
        self._dead: collections.deque[Any] = collections.deque()
        self._gone: dict[Any, Record] = {}  # of functions that are no more, by name and place
        self._names: set[str] = set()  # under which others have programs
        self._thread = _Thread()

    def _forked(self) -> None:
        self._lock = threading.Lock()

    # ---- the functions ----

    def watch(self, cache: _core.Cache, label: str, fun: Any) -> None:
        """Begins the record of a new cache, of `fun`."""
        self._listen()
        self._bury()
        clears = _jax_compat.equinox_cache_clears()
        if clears is not None and clear_caches not in clears:
            clears.append(clear_caches)
        code = _code_of(fun)
        module = cache.attributes.get("__module__", "?")
        name = cache.attributes.get("__qualname__") or label
        place = None if code is None else (code.co_filename, code.co_firstlineno)
        # It dies at any moment: no lock may be taken then, and no Python code be interrupted.
        ref = _Ref(cache, self._dead.append)
        cache.record = ref.record = Record(f"{module}.{name}", label, place, cache=ref)
        cache.timed = int(self.timed)
        self._live.add(ref)
        if self.kept is not None:
            self.kept.append(cache)

    def _bury(self) -> None:
        """Sums up the records of functions that are gone."""
        with self._lock:
            while self._dead:
                ref = self._dead.popleft()
                try:
                    self._live.discard(ref)
                    record: Record = ref.record
                except (AttributeError, TypeError):
                    continue  # `watch` was interrupted before it was complete
                if not record.calls and not record.spent.total:
                    continue  # two threads made it at once, say
                key = record.name, record.place
                if key in self._gone:
                    self._gone[key].add(record)
                else:
                    self._gone[key] = record

    def live(self) -> list[tuple[_core.Cache, Record]]:
        pairs = ((ref(), ref.record) for ref in list(self._live))
        return [(cache, record) for cache, record in pairs if cache is not None]

    def groups(self) -> list[list[Record]]:
        """The records by name and place, those of functions that are gone first."""
        self._bury()
        found: dict[Any, list[Record]] = {}
        with self._lock:
            gone = [
                dataclasses.replace(r, spent=dataclasses.replace(r.spent))
                for r in self._gone.values()
            ]
        for record in (*gone, *(record for _, record in self.live())):
            record.look()
            if record.calls or record.spent.total:
                found.setdefault((record.name, record.place), []).append(record)
        return list(found.values())

    def time(self, on: bool) -> None:
        self.timed = on
        for cache, _ in self.live():
            cache.timed = int(on)

    def clear(self) -> None:
        for cache, _ in self.live():
            clear(cache)

    # ---- JAX's events ----

    def _listen(self) -> None:
        if self._listening:
            return
        self._listening = True
        jax.monitoring.register_event_duration_secs_listener(self._on_duration)
        jax.monitoring.register_event_listener(self._on_event)
        scalars = getattr(jax.monitoring, "register_scalar_listener", None)
        if scalars is not None:  # JAX 0.7.1 and later
            scalars(self._on_begin)
        _jax_compat.clears_with_jax(clear_caches)

    def _on_event(self, event: str, **_: Any) -> None:
        if event == _FROM_DISK:
            self._thread.from_disk += 1

    def _on_begin(self, event: str, _value: Any = None, *, fun_name: str = "", **_: Any) -> None:
        """JAX begins to trace, lower or compile."""
        thread = self._thread
        if thread.idle and event in (_TRACED, _LOWERED, _COMPILED):
            raise _WouldCompileError
        if event not in (_LOWERED, _COMPILED):
            return
        if thread.stack:
            work = thread.stack[-1]
            if work.job is None:
                work.job = watcher.job(_shown_name(work.record))
                watcher.begin(work.job)
        elif thread.job is None and (record := self._named(fun_name)[0]) is not None:
            thread.job = watcher.job(_shown_name(record))
            watcher.begin(thread.job)

    def _on_duration(self, event: str, duration: float, *, fun_name: str = "", **_: Any) -> None:
        """JAX has traced, lowered or compiled."""
        if event == _TRACED:
            self._on_traced(duration, fun_name)
        elif event in (_LOWERED, _COMPILED):
            thread = self._thread
            work = thread.stack[-1] if thread.stack else None
            spent: Sequence[Spent] = (self.others,)
            if work is not None:
                spent = work.record.spent, work.spent
            elif (found := self._named(fun_name))[0] is not None:
                spent = found[0].spent, *(() if found[1] is None else (found[1],))
            taken = Spent(in_hits=duration if work is None and self.timed else 0.0)
            if event == _LOWERED:
                taken.lowering = duration
            else:
                taken.compiles, taken.compiling = 1, duration
                taken.from_disk, thread.from_disk = thread.from_disk, 0
                if work is not None and not work.open:
                    work.compiled = time.perf_counter()
            with self._lock:
                for one in spent:
                    one.add(taken)
            self._count_inner(duration)
            job = thread.job if work is None else work.job
            if event == _COMPILED or work is None or work.open:
                watcher.end(job)
                if work is None:
                    thread.job = None
                else:
                    work.job = None

    def _on_traced(self, duration: float, fun_name: str) -> None:
        """JAX's own measure of an outermost trace, what it does at its end included."""
        stack = self._thread.stack
        work = stack[-1] if stack else None
        if work is not None and work.taken is not None and work.record.label == fun_name:
            more = max(0.0, duration - work.taken)
            work.taken = None
            self._add(work, Spent(tracing=more))
        elif fun_name and len(self._names) < 10_000:
            self._names.add(fun_name)

    def _count_inner(self, seconds: float) -> None:
        for work in reversed(self._thread.stack):
            if work.open:
                work.inner += seconds
                break

    def _add(self, work: _Work, taken: Spent) -> None:
        with self._lock:
            work.record.spent.add(taken)
            work.spent.add(taken)

    def _named(self, fun_name: str) -> tuple[Record | None, Spent | None]:
        """The function whose programs are called so, and the variant, where there is one of it
        alone."""
        name = fun_name[4:-1] if fun_name.startswith("jit(") else fun_name
        if not name or name in self._names:
            return None, None
        found = [pair for pair in self.live() if pair[1].label == name]
        if len(found) != 1:
            return None, None
        variants = found[0][0].variants()
        return found[0][1], _records.notes_of(variants[0]).spent if len(variants) == 1 else None

    # ---- the traces ----

    def work(self, record: Record, variant: _core.Variant) -> _Work:
        """From now on, until the call under way is over, JAX works for this variant."""
        stack = self._thread.stack
        work = _Work(record, _records.notes_of(variant))
        variant.defer(lambda: self._end(stack, work))
        stack.append(work)
        return work

    @contextlib.contextmanager
    def tracing(self, record: Record, variant: _core.Variant) -> Iterator[None]:
        """Around each trace. What JAX does until the end of the call is counted as its too."""
        if self._thread.idle:
            raise _WouldCompileError
        stack = self._thread.stack
        work = self.work(record, variant)
        work.open = True
        traced = 0
        try:
            yield
            traced = 1
        finally:
            work.taken = time.perf_counter() - work.start
            work.open = False
            self._count_inner(work.taken)
            self._add(work, Spent(traces=traced, tracing=max(0.0, work.taken - work.inner)))
            if traced and len(stack) == 1:
                work.job = watcher.job(_shown_name(record))
                watcher.begin(work.job)

    def _end(self, stack: list[_Work], work: _Work) -> None:
        with contextlib.suppress(ValueError):
            stack.remove(work)
        work.record.look()
        watcher.end(work.job)
        work.job = None

    def settled(self, variant: _core.Variant, outputs: Sequence[Any]) -> None:
        """After the first call of a program that was just traced."""
        stack = self._thread.stack
        if self.timed and stack and stack[-1].compiled is not None:
            try:
                jax.block_until_ready(outputs)
            except Exception:
                return  # it is raised where the call waits
            self._add(stack[-1], Spent(first_run=time.perf_counter() - stack[-1].compiled))

    def look_at(self, variant: _core.Variant, arrays: Sequence[Any], found: Any) -> None:
        """Looks at a program that was just traced, and says what it captured."""
        stack = self._thread.stack
        if not stack:
            return
        record = stack[-1].record
        try:
            program = _program.look_at(found)
            if program.captured is not None:
                names = _program.names_of_captured(variant.arguments(tuple(arrays))[0])
                named = dataclasses.replace(program.captured, names=names)
                program = dataclasses.replace(program, captured=named)
        except Exception:  # of what is not as we know it: the call is not to fail
            logger.debug("a program could not be looked at", exc_info=True)
            return
        if (captured := program.captured) is not None:
            said, record.captured = record.captured, captured
            if said is None:
                logger.warning("%s %s", _shown_name(record), _captures(captured))
        _records.notes_of(variant).program = program

    @contextlib.contextmanager
    def without_compiling(self) -> Iterator[None]:
        """Where what has to be traced, lowered or compiled raises instead."""
        thread = self._thread
        try:
            thread.idle = True
            yield
            thread.idle = False
        except BaseException:
            thread.idle = False
            raise


def _captures(captured: _program.Captured) -> str:
    how = "Pass them as arguments, or in a Module that is an argument."
    if "self" in captured.names:
        how = "A bound method holds its object: jit the object itself, or pass it as an argument."
    return (
        f"captures {captured}: they are constants of each of its programs, which makes these slow "
        f"to compile and keeps a copy in each. {how}"
    )


recorder = _Recorder()


def _shown_name(record: Record) -> str:
    if record.place is None:
        return record.name
    return f"{record.name} ({os.path.basename(record.place[0])}:{record.place[1]})"


def _code_of(fun: Any) -> types.CodeType | None:
    """The code of the function at the bottom of wrappers, partials and methods."""
    for _ in range(100):
        for name in ("__wrapped__", "__func__", "func"):
            inner = getattr(fun, name, None)
            if callable(inner):
                fun = inner
                break
        else:
            break
    code = getattr(fun, "__code__", None) or getattr(
        getattr(type(fun), "__call__", None),  # noqa: B004
        "__code__",
        None,
    )
    return code if isinstance(code, types.CodeType) else None


# ---- what is asked ----


class CacheInfo(NamedTuple):
    """Of one function: calls that traced nothing, all other calls, the programs' static
    structures, how many of these there can be, and the bytes of the executables where known."""

    hits: int
    misses: int
    variants: int
    maxsize: int
    bytes: int | None


def cache_info(cache: _core.Cache) -> CacheInfo:
    variants = cache.variants()
    calls, hits = cache.calls, cache.hits
    size = _sum_of_known(map(_bytes_of, variants))
    return CacheInfo(hits, max(0, calls - hits), len(variants), cache.maxsize, size)


def clear(cache: _core.Cache) -> None:
    """Forgets the compiled programs of one function, the one too that is its wrapper's guess."""
    variants = cache.variants()
    cache.clear()
    for variant in variants:
        forget = getattr(variant.call, "clear_cache", None)
        if forget is not None:
            forget()


def clear_caches() -> None:
    """Forgets the compiled programs of all functions. ``jax.clear_caches`` and
    ``equinox.clear_caches`` do this too."""
    recorder.clear()


def time_calls(on: bool = True) -> None:
    """Whether calls are timed for the report: each hit, until it returns, and the first
    execution of each program, which is waited for. A clock on each hit costs some 50 ns."""
    recorder.time(bool(on))


def keep_functions() -> None:
    """Keeps functions for the report that would be gone by then, the last `_KEPT`."""
    recorder.kept = collections.deque(maxlen=_KEPT)


def report() -> Report:
    """Where the time of all jitted functions went so far."""
    functions = [_function(records) for records in recorder.groups()]
    return Report(functions, recorder.timed, _times(recorder.others))


def report_of(cache: _core.Cache) -> Report:
    """Where the time of one jitted function went so far."""
    return Report([_function([cache.record])], recorder.timed)


def _sum_of_known(sizes: Iterable[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if known else None


def _bytes_of(variant: _core.Variant) -> int | None:
    """Bytes of a variant's executables: of their code, or where the device does not tell (the
    CPU), serialised. None where JAX has forgotten them, or does not tell what it would do."""
    notes = _records.notes_of(variant)
    when = len(notes.traces), notes.spent.compiles
    if notes.size[0] != when:
        notes.size = when, _sum_of_known(_bytes_of_trace(variant, t) for t in notes.traces)
    return notes.size[1]


def _bytes_of_trace(variant: _core.Variant, trace: _records.TraceNotes) -> int | None:
    if not hasattr(jax.monitoring, "register_scalar_listener"):
        return None  # looking would compile what is not there any more
    places = trace.placements or (None,) * len(trace.avals)
    avals = [
        _jax_compat.spec_of(aval, place[0] if place is not None and place[1] else None)
        for aval, place in zip(trace.avals, places, strict=True)
    ]
    try:
        with recorder.without_compiling():
            compiled = variant.call.trace(*avals).lower().compile()
        executable = compiled.runtime_executable()
        return executable.size_of_generated_code_in_bytes() or len(executable.serialize())
    except Exception:
        return None


def _dispatch(nanoseconds: int, spent: Spent) -> float:
    """Seconds of hits, without what JAX compiled in them."""
    return max(0.0, nanoseconds * 1e-9 - spent.in_hits)


def _times(spent: Spent) -> dict[str, Any]:
    return {name: getattr(spent, name) for name in ("traces", "compiles", "from_disk", *MAKING)}


_NOT_ON_DISK = (
    "calls back into Python, as `eqx.error_if` and `jax.debug.print` do, so JAX does not keep it in "
    "its persistent compilation cache: each process compiles it."
)


def _variant(variant: _core.Variant, timed: bool) -> dict[str, Any]:
    notes = _records.notes_of(variant)
    program = notes.program or _program.Program(0)
    loop, captured = program.loop, program.captured
    remarks = [] if loop is None else [str(loop)]
    if program.callbacks and getattr(jax.config, "jax_compilation_cache_dir", None):
        remarks.append(_NOT_ON_DISK)
    return {
        "arguments": repr(variant.structure).removeprefix("Structure(").removesuffix(")"),
        "arrays": [str(aval) for aval in notes.traces[-1].avals] if notes.traces else [],
        "hits": variant.hits,
        "dispatch": _dispatch(variant.hit_time, notes.spent) if timed else None,
        **_times(notes.spent),
        "bytes": _bytes_of(variant),
        "equations": program.equations or None,
        "lines": [{"file": f, "line": n, "equations": count} for f, n, count in program.lines],
        "loop": None if loop is None else dataclasses.asdict(loop),
        "captured": None if captured is None else dataclasses.asdict(captured),
        "callbacks": program.callbacks,
        "remarks": remarks,
    }


def _function(records: list[Record]) -> dict[str, Any]:
    """Functions of one name and place, summed up."""
    whole = Record(records[0].name, records[0].label, records[0].place, functions=0)
    variants = []
    for record in records:
        cache = record.look()
        whole.add(record)
        if cache is not None:
            variants += [_variant(v, record.dispatch is not None) for v in cache.variants()]
    remarks = list(dict.fromkeys(text for v in variants for text in v["remarks"]))
    if whole.captured is not None:
        remarks.append(_captures(whole.captured))
    file, line = whole.place or (None, None)
    return {
        "name": whole.name,
        "file": file,
        "line": line,
        "functions": whole.functions,
        "calls": whole.calls,
        "hits": whole.hits,
        "dispatch": whole.dispatch,
        **_times(whole.spent),
        "bytes": _sum_of_known(v["bytes"] for v in variants),
        "variants": sorted(variants, key=total, reverse=True),
        "remarks": remarks,
    }
