"""The recorder: measures JAX's work for each jitted function while it traces and compiles.

JAX's monitoring events give the time of traces, lowering and compilations, but not the function.
The recorder therefore has a stack of traces for each thread. From the beginning of a trace to the
end of its call, an event belongs to the innermost trace on the stack, and each second counts once.
If JAX compiles without a trace, for example for a new sharding, the event belongs to JAX's current
call.

Hits don't reach this code. If `switches.time_calls` is on, the C core times them itself.
"""

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax

from .. import _core
from .._base._later import LazyModule
from .._call import _running
from .._call._events import Trace, users_line
from .._call._trace import Contents
from .._compat import _jax_compat
from .._terminal._progress import Job, job_of
from ._records import Cost, FunctionRecord, TraceRecord, functions, held_by, record_of

if TYPE_CHECKING:
    from . import _captured
else:
    _captured = LazyModule("_observe._captured")

logger = logging.getLogger("filterjit")

_TRACED = "/jax/core/compile/jaxpr_trace_duration"
_LOWERED = "/jax/core/compile/jaxpr_to_mlir_module_duration"
_COMPILED = "/jax/core/compile/backend_compile_duration"
_FROM_DISK = "/jax/compilation_cache/cache_hits"

_LEAST = 1 << 20  # bytes; smaller captures aren't reported
_MOST_LINES = 10_000


@dataclasses.dataclass(eq=False)
class _Work:
    """JAX's work for a call: a trace and everything after it until the call ends; or compilations
    of a thread without a trace.

    Attributes:
        record: the traced function's record; None without a trace.
        costs: the costs to add to: the function's and the variant's.
        on_purpose: True for `warm_up`, `lower` and `trace`, False for a call.
        tracing: True while the user's function runs.
        counted: seconds of the trace that are counted elsewhere.
    """

    record: FunctionRecord | None = None
    costs: Sequence[Cost] = ()
    on_purpose: bool = False
    tracing: bool = False
    counted: float = 0.0
    job: Job | None = None
    started_at: float = dataclasses.field(default_factory=time.perf_counter)

    def show(self, record: FunctionRecord) -> None:
        """Shows that a function compiles, until `hide`."""
        self.job = job_of(record.name_and_place)
        if self.job is not None:
            self.job.begin()

    def hide(self) -> None:
        if self.job is not None:
            self.job.end()
        self.job = None


class _Thread(threading.local):
    """A thread's current traces, innermost last, and its compilations without a trace."""

    def __init__(self) -> None:
        self.stack: list[_Work] = []
        self.untraced = _Work()

    @property
    def work(self) -> _Work:
        """The owner of JAX's current event."""
        return self.stack[-1] if self.stack else self.untraced


def call_under_way() -> tuple[FunctionRecord | None, _core.Variant | None, tuple[Any, ...]]:
    """Returns the record and variant of the function that JAX compiles in this thread without a
    trace, and the call's arrays; None for an unknown function."""
    fun, arrays = _jax_compat.jit_call_under_way() or (None, ())
    observed = getattr(fun, "observed", None)
    cache, variant = (None, None) if observed is None else observed()
    return (None, None, ()) if cache is None else (cache.record, variant, arrays)


class _Recorder:
    def __init__(self) -> None:
        self.other_programs = Cost()  # of programs outside filterjit
        # By line: operations outside jitted functions.
        self.operations: dict[tuple[str, int], Cost] = {}
        # Called before JAX traces or compiles, with (is a trace, name). Can raise to end the call.
        self.guard: Callable[[bool, str], None] = lambda is_trace, name: None
        self._listening = False
        self._thread = _Thread()

    # ---- JAX's events ----

    def listen(self) -> None:
        """Starts listening to JAX's events (idempotent)."""
        if self._listening:
            return
        self._listening = True
        jax.monitoring.register_event_duration_secs_listener(self._on_duration)
        jax.monitoring.register_event_listener(self._on_event)
        _jax_compat.listen_to_begins(self._on_begin)

    def _on_event(self, event: str, **_: Any) -> None:
        if event == _FROM_DISK and not self._thread.work.tracing:
            self._add(self._attributed()[1], Cost(from_disk=1))

    def _on_begin(self, event: str, _value: Any = None, *, fun_name: str = "", **_: Any) -> None:
        """Called when JAX begins to trace, lower or compile."""
        if event in (_TRACED, _COMPILED):
            # Not for lowering: an error there would make JAX compile in each later call.
            self.guard(event == _TRACED, fun_name)
        if event not in (_LOWERED, _COMPILED):
            return
        work = self._thread.work
        if work.job is None and (record := self._attributed()[0]) is not None:
            work.show(record)

    def _on_duration(self, event: str, duration: float, **_: Any) -> None:
        """Called when JAX has lowered or compiled."""
        if event not in (_LOWERED, _COMPILED):
            return
        work, is_compiled = self._thread.work, event == _COMPILED
        is_untraced = work.record is None
        record, costs = self._attributed()
        cost = Cost(compiling=duration)
        if is_untraced and functions.timed:
            cost.in_hits = duration
        if is_compiled and not work.tracing:  # otherwise the trace itself uses the program
            cost.compiles = 1
            if is_untraced:
                self._record_compiled()
        if record is None and not work.tracing and _jax_compat.operation_under_way():
            place = users_line()
            if place in self.operations or len(self.operations) < _MOST_LINES:
                costs = [*costs, self.operations.setdefault(place, Cost())]
        self._add(costs, cost)
        self._exclude_from_trace(duration)
        if is_compiled or is_untraced or work.tracing:
            work.hide()

    def _exclude_from_trace(self, seconds: float) -> None:
        """Excludes counted seconds from the innermost open trace."""
        for work in reversed(self._thread.stack):
            if work.tracing:
                work.counted += seconds
                break

    @staticmethod
    def _add(costs: Sequence[Cost], cost: Cost) -> None:
        with functions.lock:
            for one in costs:
                one.add(cost)

    def _attributed(self) -> tuple[FunctionRecord | None, Sequence[Cost]]:
        """Returns the record of JAX's current function, if known, and the costs to add to."""
        work = self._thread.work
        if work.record is not None:
            return work.record, work.costs
        record, variant, _ = call_under_way()
        if record is None:
            return None, [self.other_programs]
        costs = [record.cost] if variant is None else [record.cost, record_of(variant).cost]
        return record, costs

    def _record_compiled(self) -> None:
        """Records the placements of a call that JAX compiles without a trace."""
        _, variant, arrays = call_under_way()
        if variant is not None:
            record_of(variant).compiled.append(TraceRecord.of(arrays, placed=True))

    # ---- the traces ----

    def work(
        self, record: FunctionRecord, variant: _core.Variant, on_purpose: bool = False
    ) -> _Work:
        """Attributes JAX's work in this thread to `variant`, until the current call ends.

        `on_purpose` marks work ahead of time, which isn't a retrace."""
        stack = self._thread.stack
        work = _Work(record, (record.cost, record_of(variant).cost), on_purpose)
        _running.defer(lambda: self._end(stack, work))
        stack.append(work)
        return work

    @contextlib.contextmanager
    def tracing(self, trace: Trace) -> Iterator[None]:
        """Surrounds a trace. JAX's work after it, until the call ends, belongs to the variant too.

        Removes the record if the trace fails.
        """
        assert trace.cache is not None
        record, variant = trace.cache.record, trace.variant
        traces = record_of(variant).traces
        trace.record = new = TraceRecord.of(trace.arrays)
        traces.append(new)
        work, is_done = None, False
        try:
            work = self.work(record, variant)
            work.costs = (*work.costs, new.cost)
            work.tracing = True
            yield
            functions.traced[record.key] = held_by(trace.fun)
            record.signatures.add(variant.structure, new)
            is_done = True
        finally:
            if not is_done:
                traces[:] = [other for other in traces if other is not new]
            if work is not None:
                self._end_trace(work, int(is_done))

    def _end_trace(self, work: _Work, traces: int) -> None:
        seconds = time.perf_counter() - work.started_at
        work.tracing = False
        self._exclude_from_trace(seconds)
        self._add(work.costs, Cost(traces=traces, tracing=max(0.0, seconds - work.counted)))

    def is_on_purpose(self) -> bool:
        """True if this thread is tracing ahead of time, not for a call."""
        return any(work.on_purpose for work in self._thread.stack)

    def _end(self, stack: list[_Work], work: _Work) -> None:
        with contextlib.suppress(ValueError):
            stack.remove(work)
        work.hide()

    def record_program(
        self, variant: _core.Variant, arrays: Sequence[Any], contents: Contents
    ) -> None:
        """Records the contents of a new program, and logs captured arrays."""
        record, of_variant = self._thread.work.record, record_of(variant)
        if record is None:
            return
        captured = ""
        try:
            of_variant.waits = contents.callbacks
            of_variant.equations = len(contents.equations)
            if sum(getattr(x, "nbytes", 0) for x in contents.constants) >= _LEAST:
                fun = variant._arguments(tuple(arrays))[0]
                captured = _captured.captured(contents.constants, fun)
        except Exception:  # an unexpected jaxpr must not fail the call
            logger.debug("a program could not be inspected", exc_info=True)
        if captured and not record.captured:
            logger.warning("%s %s", record.name_and_place, captured)
        record.captured = captured or record.captured

    def depth(self) -> int:
        """Returns the number of this thread's calls that trace."""
        return len(self._thread.stack)


recorder = _Recorder()
