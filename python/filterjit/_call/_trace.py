"""A trace: the flat function of a variant, from the arrays of a call to an Output, and the equations and
constants of the result."""

import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, cast

import jax.numpy as jnp
import numpy as np

from .. import _core
from .._base import _errors
from .._base._call_hooks import CallHooks
from .._base._unwrap import code_of
from .._compat import _jax_compat
from . import _direct, _events, _running, _signature
from ._caches import names_of

_jax_compat.hide_from_tracebacks(__file__)


class TracedHooks(CallHooks, Protocol):
    """The hooks a trace uses; see `_miss.FunctionHooks`."""

    def check_result(self, out: Any) -> Any: ...
    def silence(self, call: _running.Running) -> None: ...


class TracedProgram(Protocol):
    """Brackets a trace; see `_shardings._sharded_call.ShardedProgram`."""

    def before_trace(self, arrays: tuple[Any, ...]) -> None: ...
    def after_trace(self, out: Any, output: _core.Output, arrays: tuple[Any, ...]) -> None: ...


class FlatFunction:
    """Traces one variant.

    JAX's caches can keep a flat function for long. It must not keep user objects alive, and refers
    to the variant, the hooks and the cache weakly. A call that traces holds all of them. The hooks
    come from the cache, because the FilterJit that compiles a variant can die first.

    Attributes:
        jit_id: identifies errors of ``eqx.error_if``; see ``_errors.jit_id_of``.
        donated: the positions of the donated arrays.
        order: the order in which its ``jax.jit`` takes the arrays, see `_direct.arrange`.
        before_run: returns a context for a call, see `_processes.Comparison`.
    """

    before_run: _direct.Before | None = None

    def __init__(
        self,
        f: _core.FilterJit,
        variant: _core.Variant,
        donated: tuple[int, ...],
        order: tuple[int, ...],
    ) -> None:
        cache, _ = f._parts()
        hooks = cast(TracedHooks, cache.hooks)
        self.name, self.qualname = names_of(f._function)
        self.jit_id = os.urandom(16)
        self._hooks = weakref.ref(hooks)
        self._variant = weakref.ref(variant)
        self._cache = weakref.ref(cache)
        self.signature = cache.signature
        self.registry = hooks.registry
        self.donated, self.order = donated, order
        self._code = code_of(f._function)
        paths = _errors.array_paths(variant.function, variant.structure)
        self._paths = _direct.arrange([*map(_errors.format_path, paths)], order)

    def make(self, program: TracedProgram | None = None) -> Callable[..., _core.Output]:
        """Returns a new function for ``jax.jit``, which caches traces by function."""

        def flat(*arrays: Any) -> _core.Output:
            __tracebackhide__ = True
            return self._trace(_direct.restore(arrays, self.order), program)

        flat.__name__, flat.__qualname__ = self.name, self.qualname
        flat.__dict__["observed"] = self.observed
        _jax_compat.name_arguments(flat, self.name, self._code, self._paths)
        return flat

    def observed(self) -> tuple[_core.Cache | None, _core.Variant | None]:
        """Returns the cache and the variant, for listeners."""
        return self._cache(), self._variant()

    def callable_of(self, jitted: Any) -> Callable[..., _core.Output]:
        """Returns the variant's `call`: `jitted` or, in direct calls, its executable."""
        found: Callable[..., _core.Output] = _direct.wrap(jitted, before=self.before_run)
        return found

    def _trace(self, arrays: tuple[Any, ...], program: TracedProgram | None) -> _core.Output:
        __tracebackhide__ = True
        __equinox_jit_id__ = self.jit_id  # noqa: F841 (eqx.error_if looks for it in the frames)
        variant, hooks = self._variant(), self._hooks()
        assert variant is not None and hooks is not None
        call = _running.under_way(variant)
        if call is None:  # C made the call; its hook `finish` ends this Running
            call = _running.Running(variant, begun_by_trace=True)
            call.begin()
            hooks.silence(call)
        call.is_tracing = True
        try:
            return self._trace_in_call(arrays, program, variant, hooks)
        finally:
            call.is_tracing = False

    def _trace_in_call(
        self,
        arrays: tuple[Any, ...],
        program: TracedProgram | None,
        variant: _core.Variant,
        hooks: TracedHooks,
    ) -> _core.Output:
        __tracebackhide__ = True
        if program is not None:
            program.before_trace(arrays)
        trace = _events.Trace(self._cache(), variant, arrays, hooks)
        with _events.tracing(trace):
            out = hooks.check_result(self._call_function(trace))
            with _errors.paths_in("result"):
                output = variant._finish(out, lambda: jnp.array(0))
            if program is not None:
                program.after_trace(out, output, arrays)
            return output

    def _call_function(self, trace: _events.Trace) -> Any:
        __tracebackhide__ = True
        variant = trace.variant
        trace.fun, trace.arguments = variant._arguments(trace.arrays)
        for structure in (variant.function, variant.structure):
            for array in structure._inside_statics(np.ndarray):
                _jax_compat.convert_again(array)
        _events.notify("calls", trace)

        def call() -> Any:
            __tracebackhide__ = True
            args, kwargs = _signature.unbind(self.signature, trace.arguments, self.registry)
            return trace.fun(*args, **kwargs)

        return call() if trace.cache is None else _events.call_watched(call, trace)


# ---- the equations and constants of a trace ----


class Contents(NamedTuple):
    """The equations and constants of a closed jaxpr and its nested jaxprs, each counted once."""

    equations: list[Any]
    constants: list[Any]

    @property
    def callbacks(self) -> bool:
        """True if the program calls back into Python."""
        return any("callback" in equation.primitive.name for equation in self.equations)


def contents(closed: Any) -> Contents:
    equations: list[Any] = []
    constants: dict[int, Any] = {id(x): x for x in getattr(closed, "consts", ())}
    for jaxpr, consts in _jaxprs(closed):
        equations += jaxpr.eqns
        constants.update((id(x), x) for x in consts)
    return Contents(equations, list(constants.values()))


# Types of most equation parameters, which never hold a jaxpr.
_WITHOUT_JAXPRS = frozenset({type(None), bool, int, float, str})


def _jaxprs(root: Any) -> Iterator[tuple[Any, Sequence[Any]]]:
    """Yields each jaxpr in `root` once, with its constants."""
    seen: dict[int, Any] = {}  # by id; holding the objects prevents reuse
    todo = [root]
    while todo:
        item = todo.pop()
        if type(item) in _WITHOUT_JAXPRS:
            continue
        if isinstance(item, Mapping):
            todo.extend(item.values())
        elif isinstance(item, (list, tuple)):
            todo.extend(item)
        elif id(item) not in seen and (hasattr(item, "eqns") or hasattr(item, "jaxpr")):
            seen[id(item)] = item
            jaxpr = getattr(item, "jaxpr", item)
            if not hasattr(jaxpr, "eqns"):
                todo.append(jaxpr)
            elif jaxpr is item or id(jaxpr) not in seen:
                seen[id(jaxpr)] = jaxpr
                yield jaxpr, getattr(item, "consts", ())
                for equation in jaxpr.eqns:
                    if equation.params:
                        todo.extend(equation.params.values())
