"""`CallOptions`: what the C core asks for on the path of a call, above all on a miss.

A miss creates a variant: a ``jax.jit`` of a flat function, which takes the arrays of the arguments
and returns those of the result. The static values (all that is not an array) belong to the
variant.
"""

import contextlib
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from .. import _core
from .._base import _errors, _jax_compat
from .._base._hooks import CallHooks
from .._observe import _explain, _program, _records, _retraces
from .._observe._recorder import recorder
from .._trees import _registry
from . import _direct, _processes, _running, _signature
from ._caches import MAXSIZE, caches_of, function_of, names_of
from ._shardings import Entry, ShardedCall, Shardings

_jax_compat.hide_from_tracebacks(__file__)
_jax_compat.hide_from_tracebacks(_signature.__file__)


def registry_for(functions: str) -> _core.Registry:
    """Returns the registry of arguments, for filter_jit's option `functions`."""
    if functions == "structure":
        from .._trees import _function_keys

        return _function_keys.registry
    return _registry.registry


def _tracing_for(
    functions: str,
) -> Callable[[_core.Variant], contextlib.AbstractContextManager[Any]]:
    """Returns the context manager around each trace, for filter_jit's option `functions`."""
    if functions == "structure":
        from .._trees import _function_keys

        return _function_keys.tracing
    return contextlib.nullcontext


class CallOptions(_running.RunningHooks, CallHooks):
    """How a function is jitted, and the hooks of its calls; see `CallHooks`.

    Attributes:
        donate, functions, maxsize: as in `filter_jit`.
        jitkwargs: passed on to ``jax.jit``.
        retraces: what to do when the function is traced again.
        registry: classifies the arguments. The function itself is always classified by
            ``_registry.registry``.
        shardings: the options for shardings, or None.
        same_on_all_processes: whether to compare each new trace with other processes; None where
            it has `shardings`.
        quiet: whether to silence JAX's warning about donated buffers that it could not use.
    """

    def __init__(
        self,
        donate: str,
        jitkwargs: Mapping[str, Any],
        retraces: _retraces.RetraceOptions | None = None,
        functions: str = "identity",
        maxsize: int = MAXSIZE,
        shardings: Shardings | None = None,
        same_on_all_processes: bool | None = None,
    ) -> None:
        self.donate = donate
        self.maxsize = maxsize
        self.functions = functions
        self.retraces = retraces or _retraces.RetraceOptions()
        self.jitkwargs = dict(jitkwargs)
        self.shardings = shardings
        self.same_on_all_processes = same_on_all_processes
        self._sharded: weakref.WeakKeyDictionary[_core.Variant, ShardedCall] = (
            weakref.WeakKeyDictionary()
        )
        self.registry = registry_for(functions)
        self._tracing = _tracing_for(functions)
        self.quiet = donate in ("all", "all-except-first")
        if jitkwargs:
            jax.jit(lambda: None, **jitkwargs)  # raises now if it does not know one of them

    def __str__(self) -> str:
        functions = None if self.functions == "identity" else self.functions
        maxsize = None if self.maxsize == MAXSIZE else self.maxsize
        given = {"donate": self.donate, "functions": functions, "maxsize": maxsize}
        given |= {**vars(self.retraces), **self.jitkwargs}
        shown = [f"{name}={value!r}" for name, value in given.items() if value is not None]
        return ", ".join(shown + [repr(self.shardings)] * (self.shardings is not None))

    def _key(self, structure: _core.Structure) -> Any:
        """Returns the key of a cache among those of one function."""
        jitkwargs = tuple(sorted(self.jitkwargs.items()))
        return (
            structure, self.donate, self.functions, self.retraces, self.maxsize, jitkwargs,
            self.shardings, self.same_on_all_processes,
        )  # fmt: skip

    frozen: tuple[int, int] = (0, 0)
    """The number of arrays that `freeze` made constants, and their size in bytes."""

    def contents(self, closed: Any) -> _program.Contents:
        """Returns what a program contains, for reports."""
        return _program.contents(closed)

    # ---- called by the C core ----

    def prepare(self, f: _core.FilterJit, /) -> tuple[_core.Cache, tuple[Any, ...]]:
        """Returns the cache that `f` shares with the FilterJits of equal functions with equal
        options, and the arrays in the function itself."""
        fun = f.__wrapped__
        try:
            arrays, structure = _core.flatten(_registry.registry, fun)
            hash(structure)
        except Exception as e:
            context = e.__dict__.get("__filterjit_error_context__")
            if context is not None:
                context[1].insert(0, "the function")
            raise _errors.add_path(e) from None
        caches = caches_of(fun)
        # Two wrappers of one function can differ in their parameters, as its `__signature__`, its
        # defaults or its code may have been set in between.
        parameters = _signature.parameters_of(fun, f._given_signature)
        key = self._key(structure), parameters
        try:
            cache = None if caches is None else caches.get(key)
        except TypeError:  # one of the jitkwargs is not hashable: the cache is not shared
            caches = cache = None
        if cache is None:
            signature = _core.Signature(*parameters)
            if self.shardings is not None:
                self.shardings.check_names(signature)
            cache = _core.Cache(
                self.registry, structure, signature, self, self.maxsize, dict(f.__dict__)
            )
            recorder.register(cache, names_of(fun)[0], fun)
            _explain.register(function_of(fun), cache)
            if caches is not None:
                cache = caches.setdefault(key, cache)
                for old in list(caches)[: max(0, len(caches) - MAXSIZE)]:
                    caches.pop(old, None)
        return cache, arrays

    def compile(self, f: _core.FilterJit, variant: _core.Variant, /) -> Callable[..., _core.Output]:
        """Returns ``jax.jit`` of a flat function, from arrays to an Output.

        The flat function holds the variant and the cache weakly: JAX's caches may hold the flat
        function, and must not keep the user's objects alive.
        """
        cache, _ = f._parts()
        signature = cache.signature
        name, qualname = names_of(f.__wrapped__)
        variant_ref = weakref.ref(variant)
        jit_id = os.urandom(16)
        record = cache.record
        registry = self.registry
        cache_ref = weakref.ref(cache)

        def trace(arrays: tuple[Any, ...], entry: Entry | None) -> _core.Output:
            __tracebackhide__ = True
            __equinox_jit_id__ = jit_id  # noqa: F841 (eqx.error_if looks for it in the frames)
            variant = variant_ref()
            assert variant is not None
            if entry is not None:
                entry.before_trace(arrays)
            self._compare_processes(
                qualname, variant, arrays, () if entry is None else entry.inputs
            )
            # Whether the new program can raise is known only after its first run.
            self.before_raising_call(variant)
            if self.quiet:
                _running.ignore_donation(variant)
            with (
                _records.tracing(variant, arrays) as traced,
                recorder.tracing(record, variant),
                self._tracing(variant),
            ):
                traced.wanted = () if entry is None else entry.inputs
                fun, arguments = variant.arguments(arrays)
                cache = cache_ref()
                if cache is not None:
                    self.retraces.before_trace(cache, function_of(fun), variant, traced)
                out = _signature.call_with_arguments(fun, signature, arguments, registry)
                output = variant.finish(out, lambda: jnp.array(0))
                if entry is not None:
                    entry.after_trace(out, output, arrays)
                return output

        def make_flat(entry: Entry | None) -> Callable[..., _core.Output]:
            def flat(*arrays: Any) -> _core.Output:
                __tracebackhide__ = True
                _direct.before_trace()
                return trace(arrays, entry)

            flat.__name__, flat.__qualname__ = name, qualname
            flat.__dict__["jit_id"] = jit_id
            return flat

        donated = self._donated(variant, signature)
        call: Callable[..., _core.Output]
        if self.shardings is None:
            jitted = jax.jit(make_flat(None), donate_argnums=donated, **self.jitkwargs)
            call = _direct.wrap(jitted)
        else:
            warns = self.donate.startswith("warn")
            call = self._sharded[variant] = ShardedCall(
                self.shardings,
                variant,
                signature,
                donated,
                warns,
                self.jitkwargs,
                make_flat,
                jit_id,
                qualname,
            )
        return call

    def _compare_processes(
        self, name: str, variant: _core.Variant, arrays: Sequence[Any], specs: Sequence[Any]
    ) -> None:
        """Compares a program that is about to be traced with those of other processes."""
        compares = self.same_on_all_processes
        if (self.shardings is None if compares is None else not compares) or (
            jax.process_count() == 1
        ):
            return
        given = None if self.shardings is None else self.shardings.mesh
        mesh = given or _jax_compat.concrete_mesh()
        processes = _processes.participants(mesh, specs)
        if compares and not processes:
            processes = tuple(range(jax.process_count()))
        if len(processes) > 1:
            lines = _processes.lines_of(name, variant, arrays, specs, mesh)
            _processes.compare(name, lines, processes)

    def traceable(self, variant: _core.Variant) -> Any:
        """Returns the object whose methods `trace` and `eval_shape` take the arrays of a call."""
        return self._sharded.get(variant) or _direct.jitted_of(variant.call)

    def call_again(
        self, variant: _core.Variant, exception: Exception, arrays: tuple[Any, ...], /
    ) -> bool:
        """Returns whether a failed call was made with the shardings of other arrays."""
        sharded = self._sharded.get(variant)
        return sharded is not None and sharded.call_again(exception, arrays)

    def _donated(self, variant: _core.Variant, signature: _core.Signature) -> tuple[int, ...]:
        """Returns the positions of the arrays that a variant donates; arrays in the function
        itself come first."""
        own = variant.function.num_leaves
        total = own + variant.structure.num_leaves
        if self.donate == "none":
            return ()
        if self.donate in ("all", "warn") or not (signature.positional or signature.varargs == 0):
            return tuple(range(total))
        path = (0,) if signature.positional else (0, 0)
        try:
            first, count = variant.structure._span(*path)
        except IndexError:  # *args is empty
            first, count = 0, 0
        excepted = range(own + first, own + first + count)
        return tuple(i for i in range(total) if i not in excepted)

    def raise_binding_error(
        self, f: _core.FilterJit, args: tuple[Any, ...], kwargs: dict[str, Any], /
    ) -> None:
        """Raises the TypeError of arguments that do not fit the signature."""
        _signature.raise_binding_error(f.__wrapped__, f._given_signature, args, kwargs)

    def translate_error(
        self,
        f: _core.FilterJit,
        exception: BaseException,
        variant: _core.Variant | None,
        arrays: tuple[Any, ...],
        /,
    ) -> BaseException:
        """Returns the exception to raise in the place of `exception`."""
        return _errors.translate(exception, variant, arrays, _errors.jit_id_of(variant))

    def inspect_new_trace(
        self, variant: _core.Variant, arrays: tuple[Any, ...], outputs: tuple[Any, ...], /
    ) -> bool | None:
        """Returns whether the program that was just traced can raise while it runs.

        None means that it cannot be known yet, because this call was itself being traced.
        """
        if any(isinstance(x, jax.core.Tracer) for x in (*outputs, *arrays)):
            return None
        recorder.record_first_run(outputs)
        _records.record_placements(variant, arrays)
        try:
            found = self.contents(self.traceable(variant).trace(*arrays).jaxpr)
            raises = found.callbacks
        except Exception:
            return True  # JAX does not tell; waiting is always correct
        recorder.record_program(variant, arrays, found)
        return raises
