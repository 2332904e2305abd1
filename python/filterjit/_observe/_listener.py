"""What this package does at the events of the core."""

import contextlib
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import jax

from .. import _core
from .._call._events import Listener, Trace
from . import _compiled_in, _forbid, _records, _retraces
from ._function_records import functions
from ._misses import Made
from ._recorder import recorder


class _Observer(Listener):
    def made(
        self,
        cache: _core.Cache,
        label: str,
        fun: Any,
        name: str = "",
        f: _core.FilterJit | None = None,
    ) -> None:
        recorder.listen()
        functions.register(cache, label, fun, name)
        if f is not None:
            cache.record.jitted = weakref.ref(f)

    def cleared(self, cache: _core.Cache) -> None:
        cache.record.made = Made()

    @contextlib.contextmanager
    def tracing(self, trace: Trace) -> Iterator[None]:
        _forbid.refuse_at_once()
        if trace.cache is None:
            yield
            return
        variant = trace.variant
        with (
            _records.tracing(variant, trace.arrays) as trace.record,
            recorder.tracing(trace.cache.record, variant),
        ):
            trace.record.wanted = trace.wanted
            yield

    def ahead_of_time(self, cache: _core.Cache, variant: _core.Variant) -> None:
        recorder.work(cache.record, variant, on_purpose=True)

    def calls(self, trace: Trace) -> None:
        hooks = trace.hooks
        if trace.cache is None or jax.config.jax_disable_jit:
            return
        on_retrace = hooks.settings.on_retrace
        _retraces.before_trace(on_retrace, trace.cache, trace.fun, trace.variant, trace.record)
        if hooks.decorator == "filter_jit":
            _compiled_in.warn_of_objects(trace.variant)

    def ran(self, variant: _core.Variant, arrays: Sequence[Any], outputs: Sequence[Any]) -> None:
        recorder.record_first_run(outputs)
        _records.record_placements(variant, arrays)

    def inspected(self, variant: _core.Variant, arrays: Sequence[Any], contents: Any) -> None:
        recorder.record_program(variant, arrays, contents)

    def placed(self, variant: _core.Variant, positions: Sequence[int]) -> None:
        _records.record_of(variant).placed.update(positions)

    def handed_over(self, cache: _core.Cache, counts: Counter[str]) -> None:
        cache.record.handed_over = counts

    def refused(self, cache: _core.Cache) -> None:
        cache.record.refuse()

    def error_of(self, error: BaseException | str) -> BaseException | str:
        return _forbid.of_callback(error)


listener = _Observer()
