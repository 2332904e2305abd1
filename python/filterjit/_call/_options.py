"""The miss: a variant's flat function, jitted. And what a call asks for off the hot path."""

import contextlib
import os
import sys
import threading
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from .. import _core
from .._aot import _stages
from .._base import _errors, _jax_compat
from .._observe import (
    _causes,
    _explain,
    _functions,
    _program,
    _records,
    _report,
    _retraces,
    _screens,
)
from .._observe._recorder import recorder
from .._trees import _registry
from . import _running, _signature

_jax_compat.hide_from_tracebacks(__file__)
_jax_compat.hide_from_tracebacks(_signature.__file__)

# As many as JAX's own cache of compiled functions holds.
MAXSIZE = 4096
_CACHES = "__filterjit_caches__"
# Held for one look-up and one store. An RLock: the garbage collector may run meanwhile, and what
# it finalizes may call.
_changing = threading.RLock()


class _Caches:
    """The caches of one function, kept in its ``__dict__`` so that they die with it.

    ``functools.wraps`` copies a ``__dict__``, so what is found there may be another's: `owner`
    tells. Copies and pickles are empty.
    """

    __slots__ = ("by_key", "owner")

    def __init__(self, owner: Any = None) -> None:
        self.owner = None if owner is None else weakref.ref(owner)
        self.by_key: dict[Any, _core.Cache] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return _Caches, ()


def _anchor(fun: Any) -> Any:
    """The object whose ``__dict__`` keeps the caches of `fun`: `fun` itself where it is a leaf,
    else the function that it leads to. None where there is no such place."""
    for _ in range(100):
        if type(fun) is types.FunctionType:
            return fun
        if isinstance(fun, (types.MethodType, staticmethod)):
            fun = fun.__func__
        elif jax.tree_util.all_leaves((fun,)):
            break
        else:
            for name in ("__wrapped__", "__func__", "func"):
                inner = getattr(fun, name, None)
                if inner is not None and inner is not fun:
                    fun = inner
                    break
            else:
                break
    call = getattr(type(fun), "__call__", None)  # noqa: B004
    if type(call) is types.FunctionType:
        return call
    if type(fun).__weakrefoffset__ and isinstance(getattr(fun, "__dict__", None), dict):
        return fun
    return None


def _caches_of(fun: Any) -> dict[Any, _core.Cache] | None:
    anchor = _anchor(fun)
    if anchor is None:
        return None
    caches = _Caches(anchor)
    while True:
        found: _Caches = anchor.__dict__.setdefault(_CACHES, caches)  # one of several threads'
        if found.owner is not None and found.owner() is anchor:
            return found.by_key
        with _changing:
            if anchor.__dict__.get(_CACHES) is found:
                anchor.__dict__[_CACHES] = caches


def _names(fun: Any) -> tuple[str, str]:
    """``__name__`` and ``__qualname__`` of what is at the bottom of wrappers and partials."""
    while True:
        if hasattr(fun, "__wrapped__"):
            fun = fun.__wrapped__
        elif hasattr(fun, "func") and hasattr(fun, "keywords"):
            fun = fun.func
        else:
            break
    if hasattr(fun, "__name__") and hasattr(fun, "__qualname__"):
        return fun.__name__, fun.__qualname__
    return type(fun).__name__, type(fun).__qualname__


class Options(_running.Running):
    """How a function is jitted, and what the C core asks of Python.

    `donate` is one of `filter_jit`'s five words, `jitkwargs` what goes to ``jax.jit`` as it is,
    `watch` what is to be done when a function is traced again, `functions` how functions among
    the statics compare, `maxsize` how many variants there are at most.
    """

    def __init__(
        self,
        donate: str,
        jitkwargs: Mapping[str, Any],
        watch: _retraces.Watch | None = None,
        functions: str = "identity",
        maxsize: int = MAXSIZE,
    ) -> None:
        self.donate = donate
        self.maxsize = maxsize
        self.functions = functions
        self.watch = watch or _retraces.Watch()
        self.jitkwargs = dict(jitkwargs)
        self.tracing: Callable[..., contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
        self.registry = _registry.registry  # of the arguments; the function's own is always that
        if functions == "structure":
            from .._trees import _function_keys

            self.registry = _function_keys.registry
            self.tracing = _function_keys.tracing
        self.quiet = donate in ("all", "all-except-first")
        if jitkwargs:
            jax.jit(lambda: None, **jitkwargs)  # raises at once for those that it does not know

    def __str__(self) -> str:
        functions = None if self.functions == "identity" else self.functions
        maxsize = None if self.maxsize == MAXSIZE else self.maxsize
        given = {"donate": self.donate, "functions": functions, "maxsize": maxsize}
        given |= {**vars(self.watch), **self.jitkwargs}
        return ", ".join(f"{name}={value!r}" for name, value in given.items() if value is not None)

    def _key(self, structure: _core.Structure) -> Any:
        jitkwargs = tuple(sorted(self.jitkwargs.items()))
        return structure, self.donate, self.functions, self.watch, self.maxsize, jitkwargs

    # ---- called by the C core ----

    def prepare(self, f: _core.FilterJit) -> tuple[_core.Cache, tuple[Any, ...]]:
        """The cache that `f` shares with all wrappers of an equal function, and the arrays in
        the function itself. Called once, by the first call."""
        fun = f.__wrapped__
        try:
            arrays, structure = _core.flatten(_registry.registry, fun)
            hash(structure)
        except Exception as e:
            blame = e.__dict__.get("__filterjit_error_context__")
            if blame is not None:
                blame[1].insert(0, "the function")
            raise _errors.add_path(e) from None
        caches = _caches_of(fun)
        key = self._key(structure)
        try:
            cache = None if caches is None else caches.get(key)
        except TypeError:  # jitkwargs that cannot be hashed: not shared
            caches = cache = None
        if cache is None:
            signature = _signature.core_signature(fun, f._given_signature)
            cache = _core.Cache(
                self.registry, structure, signature, self, self.maxsize, dict(f.__dict__)
            )
            recorder.register(cache, _names(fun)[0], fun)
            _explain.register(_anchor(fun), cache)
            if caches is not None:
                cache = caches.setdefault(key, cache)
                for old in list(caches)[: max(0, len(caches) - MAXSIZE)]:
                    caches.pop(old, None)
        return cache, arrays

    def became_method(self, f: _core.FilterJit, owner: type) -> None:
        """`f` is among the attributes of a new class: Modules look theirs up in Python, which
        costs a tenth of a call (csrc/call/getattribute.c)."""
        del f
        original = _jax_compat.module_getattribute()
        inherited: Any = getattr(owner, "__getattribute__", None)
        if isinstance(inherited, _core.Getattribute):  # of a base class
            inherited = inherited.__wrapped__
        if original is None or inherited is not original or "__getattribute__" in vars(owner):
            return
        type.__setattr__(owner, "__getattribute__", _core.Getattribute(owner, original))

    def compile(self, f: _core.FilterJit, variant: _core.Variant) -> Callable[..., _core.Output]:
        """The callable of a variant: ``jax.jit`` of a function from arrays to an Output.

        The function holds the variant weakly: JAX's caches may keep it, and must not keep the
        user's objects.
        """
        cache, _ = f._parts()
        signature = cache.signature
        name, qualname = _names(f.__wrapped__)
        this = weakref.ref(variant)
        jit_id = os.urandom(16)
        record = cache.record
        registry = self.registry
        the_cache = weakref.ref(cache)

        def flat(*arrays: Any) -> _core.Output:
            __tracebackhide__ = True
            __equinox_jit_id__ = jit_id  # noqa: F841 (eqx.error_if looks for it in the frames)
            variant = this()
            assert variant is not None
            self.before_raising_call(variant)
            if self.quiet:
                _running.ignore_donation(variant)
            with (
                _records.tracing(variant, arrays) as trace,
                recorder.tracing(record, variant),
                self.tracing(variant),
            ):
                fun, slots = variant.arguments(arrays)
                cache = the_cache()
                if cache is not None:
                    self.watch.before_trace(cache, _anchor(fun), variant, trace)
                out = _signature.call_with_arguments(fun, signature, slots, registry)
                return variant.finish(out, lambda: jnp.array(0))

        flat.__name__, flat.__qualname__ = name, qualname
        flat.__dict__["jit_id"] = jit_id
        donated = self._donated(variant, signature)
        call: Callable[..., _core.Output] = jax.jit(flat, donate_argnums=donated, **self.jitkwargs)
        return call

    def _donated(self, variant: _core.Variant, signature: _core.Signature) -> tuple[int, ...]:
        own = variant.function.num_leaves
        total = own + variant.structure.num_leaves
        if self.donate == "none":
            return ()
        if self.donate in ("all", "warn") or not (signature.positional or signature.varargs == 0):
            return tuple(range(total))
        path = (0,) if signature.positional else (0, 0)
        try:
            first, count = variant.structure._span(*path)
        except IndexError:  # *args without any
            first, count = 0, 0
        kept = range(own + first, own + first + count)
        return tuple(i for i in range(total) if i not in kept)

    def raise_binding_error(
        self, f: _core.FilterJit, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Raises the TypeError of arguments that do not fit the signature."""
        _signature.raise_binding_error(f.__wrapped__, f._given_signature, args, kwargs)

    def translate_error(
        self,
        f: _core.FilterJit,
        exception: BaseException,
        variant: _core.Variant | None,
        arrays: Sequence[Any],
    ) -> BaseException:
        """The exception to raise in the place of the one that a call met."""
        del f
        return _errors.translate(exception, variant, arrays, _errors.jit_id_of(variant))

    def inspect_new_trace(
        self, variant: _core.Variant, arrays: Sequence[Any], outputs: Sequence[Any]
    ) -> bool | None:
        """Whether the program that was just traced can raise while it runs; None where that
        cannot be asked yet, since this call was itself being traced."""
        if any(isinstance(x, jax.core.Tracer) for x in (*outputs, *arrays)):
            return None
        recorder.record_first_run(outputs)
        _records.record_placements(variant, arrays)
        try:
            found = _program.contents(variant.call.trace(*arrays).jaxpr)
            raises = found.callbacks
        except Exception:
            return True  # JAX does not tell: wait, to be on the safe side
        recorder.record_program(variant, arrays, found)
        return raises

    def partial(self, f: _core.FilterJit, /, *args: Any, **kwargs: Any) -> _core.PartialFilterJit:
        """The function with these arguments given once; those it donates cannot be."""
        partial = _core.PartialFilterJit(f, args, kwargs)
        if self.donate != "none":
            given = [f"argument {i}" for i in range(len(args))] + [f"`{k}`" for k in kwargs]
            if self.donate.endswith("-except-first"):
                signature = f._parts()[0].signature
                first = [f"`{name}`" for name in signature.names[: min(signature.positional, 1)]]
                given = given[1:] if args else [x for x in given if x not in first]
            if given:
                raise ValueError(
                    f"{given[0]} of `partial` would be donated by the first call, and be gone "
                    f"for the second: this function was jitted with donate={self.donate!r}."
                )
        return partial

    def trace(self, f: _core.FilterJit, /, *args: Any, **kwargs: Any) -> _stages.Traced:
        return _stages.trace(f, args, kwargs)

    def lower(self, f: _core.FilterJit, /, *args: Any, **kwargs: Any) -> _stages.Lowered:
        return _stages.trace(f, args, kwargs).lower()

    def eval_shape(self, f: _core.FilterJit, /, *args: Any, **kwargs: Any) -> Any:
        return _stages.eval_shape(f, args, kwargs)

    def warm_up(
        self,
        f: _core.FilterJit | _core.BoundFilterJit,
        /,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        from .._aot._warm_up import warm_up

        return warm_up(f, *args, **kwargs)

    def explain(self, f: _core.FilterJit, /, *args: Any, **kwargs: Any) -> _causes.Explanation:
        return _explain.explain(f, _anchor(f.__wrapped__), args, kwargs)

    def report(self, f: _core.FilterJit) -> _screens.Report:
        return _report.report_of(f._parts()[0])

    def cache_info(self, f: _core.FilterJit) -> _report.CacheInfo:
        return _report.cache_info(f._parts()[0])

    def clear_cache(self, f: _core.FilterJit) -> None:
        _functions.clear(f._parts()[0])

    def variants(self, f: _core.FilterJit) -> list[_core.Variant]:
        return f._parts()[0].variants()

    def reduce(self, f: _core.FilterJit) -> Any:
        """For pickle and copy: a decorated function goes by its name, as functions do."""
        module = sys.modules.get(getattr(f, "__module__", None) or "")
        found: Any = module
        for name in getattr(f, "__qualname__", "").split("."):
            found = getattr(found, name, None)
        if found is f:
            return f.__qualname__
        options = {"donate": self.donate, "functions": self.functions, "maxsize": self.maxsize}
        return _rebuild, (f.__wrapped__, options | vars(self.watch) | self.jitkwargs)


def _rebuild(fun: Any, options: dict[str, Any]) -> Any:
    from .._jit._decorator import filter_jit

    return filter_jit(fun, **options)
