"""`CallOptions`: what the C core asks for on the path of a call, above all on a miss.

A miss creates a variant: a ``jax.jit`` of a flat function, which takes the arrays of the arguments
and returns those of the result. The static values (all that is not an array) belong to the
variant.
"""

import contextlib
import os
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from .. import _core
from .._base import _errors, _jax_compat
from .._base._hooks import CallHooks
from .._observe import _explain, _program, _records, _retraces
from .._observe._recorder import recorder
from .._trees import _registry
from . import _running, _signature
from ._caches import MAXSIZE, caches_of, function_of, names_of

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
        quiet: whether to silence JAX's warning about donated buffers that it could not use.
    """

    def __init__(
        self,
        donate: str,
        jitkwargs: Mapping[str, Any],
        retraces: _retraces.RetraceOptions | None = None,
        functions: str = "identity",
        maxsize: int = MAXSIZE,
    ) -> None:
        self.donate = donate
        self.maxsize = maxsize
        self.functions = functions
        self.retraces = retraces or _retraces.RetraceOptions()
        self.jitkwargs = dict(jitkwargs)
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
        return ", ".join(f"{name}={value!r}" for name, value in given.items() if value is not None)

    def _key(self, structure: _core.Structure) -> Any:
        """Returns the key of a cache among those of one function."""
        jitkwargs = tuple(sorted(self.jitkwargs.items()))
        return structure, self.donate, self.functions, self.retraces, self.maxsize, jitkwargs

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

    def became_method(self, f: _core.FilterJit, owner: type, /) -> None:
        """Gives a subclass of equinox.Module a ``__getattribute__`` in C.

        Modules look methods up in Python, which costs a tenth of a call
        (csrc/call/getattribute.c). Other classes stay as they are.
        """
        original = _jax_compat.module_getattribute()
        inherited: Any = getattr(owner, "__getattribute__", None)
        if isinstance(inherited, _core.Getattribute):  # a base class has one already
            inherited = inherited.__wrapped__
        if original is None or inherited is not original or "__getattribute__" in vars(owner):
            return
        type.__setattr__(owner, "__getattribute__", _core.Getattribute(owner, original))

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

        def flat(*arrays: Any) -> _core.Output:
            __tracebackhide__ = True
            __equinox_jit_id__ = jit_id  # noqa: F841 (eqx.error_if looks for it in the frames)
            variant = variant_ref()
            assert variant is not None
            # Whether the new program can raise is known only after its first run.
            self.before_raising_call(variant)
            if self.quiet:
                _running.ignore_donation(variant)
            with (
                _records.tracing(variant, arrays) as trace,
                recorder.tracing(record, variant),
                self._tracing(variant),
            ):
                fun, arguments = variant.arguments(arrays)
                cache = cache_ref()
                if cache is not None:
                    self.retraces.before_trace(cache, function_of(fun), variant, trace)
                out = _signature.call_with_arguments(fun, signature, arguments, registry)
                return variant.finish(out, lambda: jnp.array(0))

        flat.__name__, flat.__qualname__ = name, qualname
        flat.__dict__["jit_id"] = jit_id
        donated = self._donated(variant, signature)
        call: Callable[..., _core.Output] = jax.jit(flat, donate_argnums=donated, **self.jitkwargs)
        return call

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
            found = self.contents(variant.call.trace(*arrays).jaxpr)
            raises = found.callbacks
        except Exception:
            return True  # JAX does not tell; waiting is always correct
        recorder.record_program(variant, arrays, found)
        return raises
