"""Where the time of a program's jitted functions went: kept only where it was asked for."""

import contextlib
import dataclasses
import threading
import time
from collections.abc import Iterator
from typing import Any

import jax

from . import _core

# JAX's monitoring events, and where their durations go. Tracing is timed by ourselves: JAX's
# event tells of inner functions as well, which the outer one's time includes.
_EVENTS = {
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lowering",
    "/jax/core/compile/backend_compile_duration": "compiling",
}


@dataclasses.dataclass
class Record:
    """What is known of one jitted function; times in seconds."""

    cache: _core.Cache
    name: str
    traces: int = 0
    tracing: float = 0.0
    lowering: float = 0.0
    compiling: float = 0.0

    @property
    def dispatch(self) -> float:
        """Seconds that hits took until they returned, JAX's own dispatch included."""
        return self.cache.hit_time * 1e-9

    @property
    def total(self) -> float:
        return self.dispatch + self.tracing + self.lowering + self.compiling


class _Recorder:
    def __init__(self) -> None:
        self.on = False
        self.records: list[Record] = []
        self._under_way = threading.local()

    def start(self) -> None:
        if not self.on:
            self.on = True
            jax.monitoring.register_event_duration_secs_listener(self._on_event)

    def _stack(self) -> list[Record]:
        if not hasattr(self._under_way, "stack"):
            self._under_way.stack = []
        stack: list[Record] = self._under_way.stack
        return stack

    def _on_event(self, event: str, duration: float, **_: Any) -> None:
        field = _EVENTS.get(event)
        stack = self._stack()
        if field is not None and stack:
            setattr(stack[0], field, getattr(stack[0], field) + duration)

    def watch(self, cache: _core.Cache) -> None:
        """Begins a record for a new cache, where records are kept."""
        if self.on:
            cache.timed = 1
            module = cache.attributes.get("__module__", "?")
            name = cache.attributes.get("__qualname__") or repr(cache.function)
            cache.notes = Record(cache, f"{module}.{name}")
            self.records.append(cache.notes)

    @contextlib.contextmanager
    def tracing(self, record: Record | None, variant: _core.Variant) -> Iterator[None]:
        """Around each trace. What JAX does until the end of the call goes to the outermost."""
        if record is None:
            yield
            return
        stack = self._stack()
        stack.append(record)
        variant.defer(stack.pop)
        start = time.perf_counter()
        try:
            yield
        finally:
            record.traces += 1
            record.tracing += time.perf_counter() - start


recorder = _Recorder()


def format_report() -> str:
    """The records as a table in plain text, worst first; functions of one name together."""
    rows: dict[str, list[float]] = {}
    for r in recorder.records:
        row = rows.setdefault(r.name, [0.0] * 8)
        values = (
            r.cache.calls,
            r.cache.hits,
            r.traces,
            len(r.cache.variants()),
            r.dispatch,
            r.tracing,
            r.lowering,
            r.compiling,
        )
        rows[r.name] = [x + y for x, y in zip(row, values, strict=True)]
    heads = ["calls", "hits", "traces", "variants", "dispatch", "tracing", "lowering", "compiling"]
    lines = [f"{'function':40s}" + "".join(f"{head:>11s}" for head in heads)]
    for name, row in sorted(rows.items(), key=lambda item: -sum(item[1][4:])):
        counts = "".join(f"{int(x):11d}" for x in row[:4])
        times = "".join(f"{x:9.3f} s" for x in row[4:])
        shown = name if len(name) <= 40 else "..." + name[-37:]
        lines.append(f"{shown:40s}{counts}{times}")
    if not rows:
        lines.append("(no jitted function was called)")
    return "\n".join(["filterjit: where the time of jitted functions went, worst first", *lines])
