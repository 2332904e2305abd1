"""The hooks that the C core calls: the Python code of a call, above all of a miss.

In the order of a function's first call:

1. `FunctionHooks.prepare` finds or makes the cache of the function;
2. `FunctionHooks.compile` makes the ``jax.jit`` of a new variant: of a flat function from arrays to
   arrays (`_trace`). The variant holds the static values;
3. `RunningHooks.run` makes the call that traces and compiles it, and each call of a program that can
   raise. If JAX retraces in any other call, `RunningHooks.finish` follows it;
4. `FunctionHooks.inspect` finds out if the new program can raise;
5. `RunningHooks.failed` turns an exception into the user's error, or falls back.
"""

import inspect
import time
import types
from collections.abc import Callable
from typing import Any, cast

import jax

from .. import _core
from .._base import _errors
from .._base._call_hooks import CallHooks, Failure
from .._base._rooms import room_for
from .._compat import _jax_compat
from .._trees import _registry
from . import _direct, _events, _programs, _signature
from ._caches import MAXSIZE, caches_of, names_of
from ._programs import Programs, programs_of
from ._running import Running, end_begun_by_traces, ignore_callbacks, ignore_donation, running
from ._selection import check_names
from ._settings import Settings
from ._trace import FlatFunction, contents

_jax_compat.hide_from_tracebacks(__file__)


def registry_for(settings: Settings) -> _core.Registry:
    if settings.functions == "structure":
        keys = room_for("functions='structure'")
        found: _core.Registry = keys.with_numbers_in_some if settings.traced else keys.registry
        return found
    if settings.traced:
        return _registry.with_numbers_in_some
    return _registry.with_numbers if settings.numbers_traced else _registry.registry


def marked(parameters: _signature.Parameters, settings: Settings) -> _signature.Parameters:
    if settings.traced:
        return settings.traced.mark(parameters)
    static = settings.static
    return static.mark(parameters, _core.STATIC_ARGUMENT) if static else parameters


class RunningHooks(CallHooks):
    """The hooks of failed calls, and of calls that aren't plain hits; see `CallHooks`."""

    settings: Any

    # ---- methods of subclasses ----

    misfit: Callable[[_core.FilterJit, tuple[Any, ...], dict[str, Any]], TypeError]
    """Returns the error of arguments that don't fit the signature."""

    translate: Callable[[Failure], BaseException | str]
    """Returns the exception to raise, or a reason to fall back to `other`."""

    other: Callable[[_core.FilterJit, str], Callable[..., Any]]
    """Returns the function to fall back to."""

    inspect: Callable[[_core.Variant, tuple[Any, ...], tuple[Any, ...]], bool | None]
    """Returns True if the new program can raise; None if it's too early to tell."""

    # ---- called by the C core ----

    def run(
        self,
        f: _core.FilterJit,
        variant: _core.Variant,
        arrays: tuple[Any, ...],
        failed: Exception | None,
        /,
    ) -> _core.Output | None:
        __tracebackhide__ = True
        if failed is not None and not _calls_again(variant, failed, arrays):
            return None
        with running(variant) as call:
            self.silence(call)
            try:
                out: _core.Output = variant._call(*arrays)
            except Exception as e:
                if not _calls_again(variant, e, arrays):
                    raise
                out = variant._call(*arrays)
            self.inspect_and_wait(variant, arrays, out)
        return out

    def silence(self, call: Running) -> None:
        """Silences JAX's own messages until `call` ends."""
        ignore_callbacks(call)
        if self.settings.donate.is_quiet:
            ignore_donation(call)

    def finish(
        self, variant: _core.Variant, arrays: tuple[Any, ...], output: _core.Output | None, /
    ) -> None:
        try:
            if output is not None:
                self.inspect_and_wait(variant, arrays, output)
            end_begun_by_traces(variant)
        except BaseException:
            end_begun_by_traces(variant)
            raise

    def inspect_and_wait(
        self, variant: _core.Variant, arrays: tuple[Any, ...], output: _core.Output
    ) -> None:
        """Inspects the program of a new trace. If it can raise, waits for it."""
        if type(output) is not _core.Output or output.trace < 0:  # jax_disable_jit
            return
        may_raise = variant._may_raise(output.trace)
        if may_raise is None:
            may_raise = self.inspect(variant, arrays, output.arrays)
            if may_raise is not None:
                variant._set_may_raise(output.trace, may_raise)
        if may_raise:
            for x in output.arrays:
                if isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer):
                    start = time.perf_counter_ns()
                    x.block_until_ready()
                    output.waited = time.perf_counter_ns() - start
                    break

    def failed(
        self,
        f: _core.FilterJit,
        exception: Exception | None,
        variant: _core.Variant | None,
        arrays: tuple[Any, ...],
        given: tuple[tuple[Any, ...], dict[str, Any]] | None,
        is_call: bool,
        /,
    ) -> BaseException | Callable[..., Any]:
        if given is not None:
            try:
                exception = self.misfit(f, *given)
            except Exception as e:  # evaluating the signature's annotations
                exception = e
        assert exception is not None
        answer = _events.error_of(
            self.translate(Failure(f, exception, variant, arrays, given is not None))
        )
        if isinstance(answer, BaseException):
            return answer
        return self.other(f, answer) if is_call else exception


def _calls_again(variant: _core.Variant, exception: Exception, arrays: tuple[Any, ...]) -> bool:
    """True if another program, for example for other shardings, must repeat a failed call."""
    programs = variant._programs  # None after the garbage collector cleared it
    return programs is not None and programs.switch_program(exception, arrays)


_RUN_LATER = (types.CoroutineType, types.GeneratorType, types.AsyncGeneratorType)


class FunctionHooks(RunningHooks):
    """The hooks of a jitted function; see `CallHooks`. `registry` classifies the arguments, and
    ``_registry.registry`` the function itself."""

    def __init__(self, settings: Settings) -> None:
        self.settings: Settings = settings
        self.registry = registry_for(settings)

    decorator: str = "filter_jit"
    """The decorator's name, for reports."""

    updates_modules: bool = False
    """True if calls update the NNX Modules among their arguments."""

    upstream: Any = None
    """The ``jax.jit`` that implements `lower`, `trace` and `eval_shape`; None for our own."""

    def reason_to_hand_over(self, structure: _core.Structure) -> str:
        """Returns why calls with these arguments fall back to `upstream`, or ""."""
        return ""

    def reduce(self, f: _core.FilterJit) -> tuple[Any, ...] | None:
        """Returns how to recreate `f` from a pickle, if function and settings don't suffice."""
        return None

    # ---- called by the C core ----

    def prepare(self, f: _core.FilterJit, /) -> tuple[_core.Cache, tuple[Any, ...]]:
        """Returns the cache, shared by equal functions and options, and the function's arrays."""
        fun = f._function
        try:
            with _errors.paths_in("the function"):
                arrays, structure = _core.flatten(_registry.registry, self.function(f))
                hash(structure)
        except Exception as e:
            raise _errors.add_path(e) from None
        caches = caches_of(fun)
        # With parameters, because a function's `__signature__`, defaults or code can change.
        parameters = self.parameters(f)
        key = type(self), structure, self.settings, parameters
        try:
            cache = None if caches is None else caches.get(key)
        except TypeError:  # an unhashable jitkwarg: don't share the cache
            caches = cache = None
        if cache is None:
            signature = _core.Signature(*parameters)
            self.check_names(signature)  # the parameters might have changed since decoration
            attributes = {k: x for k, x in f.__dict__.items() if k != "__wrapped__"}
            cache = _core.Cache(
                self.registry, structure, signature, self, self.settings.maxsize, attributes
            )
            _events.notify("created", cache, names_of(fun)[0], fun, "", f)
            _programs.add(cache)
            if caches is not None:
                cache = caches.setdefault(key, cache)
                for old in list(caches)[: max(0, len(caches) - MAXSIZE)]:
                    caches.pop(old, None)
        return cache, arrays

    def check_names(self, signature: _core.Signature) -> None:
        """Raises ValueError if an option names an unknown parameter."""
        if self.settings.shardings is not None:
            self.settings.shardings.check_names(signature)
        self.settings.donate.check_names(signature)
        check_names("traced", self.settings.traced.names, signature)

    def parameters(self, f: _core.FilterJit) -> _signature.Parameters:
        """Returns the parameters to bind arguments to."""
        return marked(_signature.parameters_of(f._function, f._given_signature), self.settings)

    def function(self, f: _core.FilterJit) -> Any:
        """Returns the function to put into the Structure, and for traces to call."""
        return f._function

    def check_result(self, out: Any) -> Any:
        """Returns the result of a trace, possibly converted. Raises for an invalid one."""
        if isinstance(out, _RUN_LATER):
            raise _errors.nothing_to_trace(f"the function returned a {type(out).__name__}")
        return out

    def choose(self, f: _core.FilterJit, name: str, argument: Any, /) -> bytes:
        return self.settings.traced.mask(name, argument)

    def compile(self, f: _core.FilterJit, variant: _core.Variant, /) -> Callable[..., _core.Output]:
        """Makes the ``jax.jit`` of a `FlatFunction` and returns the variant's `call`."""
        cache, _ = f._parts()
        settings = self.settings
        if settings.traced:
            settings.traced.check_no_texts(variant.structure)
        donated = settings.donate.positions(variant, cache.signature, self.registry)
        order: tuple[int, ...] = ()
        if settings.shardings is None:
            order = settings.donate.order(variant, cache.signature)
        flat = FlatFunction(f, variant, donated, order)
        if settings.compares_processes and jax.process_count() > 1:
            make = room_for("same_on_all_processes").Comparison
            flat.before_run = make(flat.qualname, variant, settings).before_run
        if settings.shardings is not None:
            call: Any = room_for("in_shardings").ShardedCall(variant, settings, flat)
            variant._programs = call
            return cast(Callable[..., _core.Output], call)
        if order:
            donated = tuple([i for i, position in enumerate(order) if position in donated])
        jitted = _jax_compat.jit(flat.make(), donate_argnums=donated, **dict(settings.jitkwargs))
        variant._programs = Programs(flat, jitted)
        return cast(
            Callable[..., _core.Output], _direct.in_order(variant._programs.calls[0], order)
        )

    def misfit(
        self, f: _core.FilterJit, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> TypeError:
        fun = f._function
        return _signature.misfit(fun, f._given_signature or inspect.signature(fun), args, kwargs)

    def translate(self, failure: Failure) -> BaseException | str:
        return _errors.translate(failure, _errors.jit_id_of(failure.variant))

    def inspect(
        self, variant: _core.Variant, arrays: tuple[Any, ...], outputs: tuple[Any, ...]
    ) -> bool | None:
        """Returns True if the new program can raise; None inside an outer trace."""
        if any(isinstance(x, jax.core.Tracer) for x in (*outputs, *arrays)):
            return None
        _events.notify("ran", variant, arrays)
        try:
            jitted, placed = programs_of(variant).find(arrays)
            # Avals find the same trace as arrays, at half the price.
            traced = jitted.trace(*map(_jax_compat.typeof, placed))
            found = contents(traced.jaxpr)
            raises = found.callbacks
        except Exception:
            return True  # unknown; waiting is always correct
        _events.notify("inspected", variant, arrays, found)
        return raises
