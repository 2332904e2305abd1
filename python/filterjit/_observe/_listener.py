"""The room's listener to events of the core."""

import contextlib
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from .. import _core
from .._call._events import Listener, Trace
from . import _forbid, _plain_objects, _retraces
from ._recorder import recorder
from ._records import CompiledSignatures, functions, record_of


class _Observer(Listener):
    def created(
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
        cache.record.signatures = CompiledSignatures()

    @contextlib.contextmanager
    def tracing(self, trace: Trace) -> Iterator[None]:
        is_recorded = trace.cache is not None and not jax.config.jax_disable_jit
        with recorder.tracing(trace) if is_recorded else contextlib.nullcontext():
            yield

    def ahead_of_time(self, cache: _core.Cache, variant: _core.Variant) -> None:
        recorder.work(cache.record, variant, on_purpose=True)

    def calls(self, trace: Trace) -> None:
        hooks = trace.hooks
        if trace.cache is None or jax.config.jax_disable_jit:
            return
        on_retrace = hooks.settings.on_retrace
        _retraces.before_trace(on_retrace, trace.cache, trace.fun, trace.variant, trace.record)
        if hooks.decorator in ("filter_jit", "jit"):
            _plain_objects.warn_of_arguments(trace.variant)

    def watches(self, trace: Trace) -> Callable[[Any], None] | None:
        decorator = trace.hooks.decorator
        if decorator not in ("filter_jit", "jit") or jax.config.jax_disable_jit:
            return None

        def end(out: Any) -> None:
            if decorator == "filter_jit":
                _plain_objects.warn_of_result(trace.fun, out)
            _plain_objects.warn_of_leaks(trace.variant)

        return end

    def ran(self, variant: _core.Variant, arrays: Sequence[Any]) -> None:
        for trace in record_of(variant).traces[-1:]:
            trace.record_placements(arrays)

    def inspected(self, variant: _core.Variant, arrays: Sequence[Any], contents: Any) -> None:
        recorder.record_program(variant, arrays, contents)

    def handed_over(self, cache: _core.Cache, counts: Counter[str]) -> None:
        cache.record.handed_over = counts

    def error_of(self, error: BaseException | str) -> BaseException | str:
        return _forbid.of_callback(error)


listener = _Observer()
