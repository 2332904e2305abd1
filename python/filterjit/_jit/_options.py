"""`Options`: how a function is jitted, with the methods of a jitted function."""

import functools
import inspect
import sys
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .. import _core
from .._aot import _stages, _warm_up
from .._base import _jax_compat
from .._base._hooks import MethodHooks
from .._call._caches import CACHES_ATTRIBUTE, function_of
from .._call._hooks import FunctionHooks
from .._call._settings import Settings
from .._call._signature import inspect_signature
from .._observe import _causes, _explain, _functions, _report, _report_output

_jax_compat.hide_from_tracebacks(__file__)

DONATE = ("all", "all-except-first", "warn", "warn-except-first", "none")


class Options(FunctionHooks, MethodHooks):
    """How a function is jitted, and the hooks of its calls and methods.

    The C core forwards the methods of a FilterJit `f` to the methods below; see `MethodHooks`.
    """

    def partial(self, f: _core.FilterJit, /, *args: Any, **kwargs: Any) -> _core.PartialFilterJit:
        """Returns `f` with some arguments given; these must not be arrays that it donates."""
        partial = _core.PartialFilterJit(f, args, kwargs)
        self.check_given(f, "partial", args, kwargs)
        return partial

    def check_given(
        self, f: _core.FilterJit, method: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        """Raises ValueError if `f` donates one of the arguments that were given to a method."""
        if self.settings.donate == "none":
            return
        given = [f"argument {i}" for i in range(len(args))] + [f"`{k}`" for k in kwargs]
        if self.settings.spares_first:
            signature = f._parts()[0].signature
            first = [f"`{name}`" for name in signature.names[: min(signature.positional, 1)]]
            given = given[1:] if args else [x for x in given if x not in first]
        if given:
            raise ValueError(
                f"{given[0]} of `{method}` would be donated by the first call, and be deleted "
                f"before the second: this function was jitted with donate={self.settings.donate!r}."
            )

    def freeze(
        self, f: _core.FilterJit, /, *args: Any, max_bytes: float | None = None, **kwargs: Any
    ) -> _core.FilterJit:
        """Returns `f` with some arguments given, whose arrays are constants."""
        from . import _freeze

        return _freeze.freeze(f, args, kwargs, max_bytes)

    def trace(self, f: _core.FilterJit, /, *args: Any, **kwargs: Any) -> _stages.Traced[..., Any]:
        return _stages.trace(f, args, kwargs)

    def lower(self, f: _core.FilterJit, /, *args: Any, **kwargs: Any) -> _stages.Lowered[..., Any]:
        return _stages.trace(f, args, kwargs).lower()

    def eval_shape(self, f: _core.FilterJit, /, *args: Any, **kwargs: Any) -> Any:
        return _stages.eval_shape(f, args, kwargs)

    def warm_up(
        self,
        f: _core.FilterJit | _core.BoundFilterJit,
        /,
        signatures: Iterable[tuple[Sequence[Any], Mapping[str, Any]]],
        *,
        threads: int | None = None,
    ) -> _warm_up.WarmUp:
        return _warm_up.warm_up(f, signatures, threads=threads)

    def explain(self, f: _core.FilterJit, /, *args: Any, **kwargs: Any) -> _causes.Explanation:
        def wanted(variant: _core.Variant, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
            signature = f._parts()[0].signature
            if self.settings.shardings is None:
                return (None,) * len(arrays)
            return self.settings.shardings.specs_of_inputs(variant, signature, arrays)

        return _explain.explain(f, function_of(f.__wrapped__), args, kwargs, wanted)

    def report(self, f: _core.FilterJit, /) -> _report_output.Report:
        return _report.report_of(f._parts()[0])

    def cache_info(self, f: _core.FilterJit, /) -> _report.CacheInfo:
        return _report.cache_info(f._parts()[0])

    def clear_cache(self, f: _core.FilterJit, /) -> None:
        _functions.clear(f._parts()[0])

    def variants(self, f: _core.FilterJit, /) -> list[_core.Variant]:
        return f._parts()[0].variants()

    def reduce(self, f: _core.FilterJit, /) -> str | tuple[Any, ...]:
        """Pickles `f` by its name if that leads to `f`, as functions are pickled, else by what it
        wraps."""
        module = sys.modules.get(getattr(f, "__module__", None) or "")
        found: Any = module
        for name in getattr(f, "__qualname__", "").split("."):
            found = getattr(found, name, None)
        if found is f:
            return f.__qualname__  # type: ignore[no-any-return]
        return _rebuild, (f.__wrapped__, self.settings)


_DEFAULT_OPTIONS = {Settings(donate): Options(Settings(donate)) for donate in DONATE}
"""The options of functions that are given nothing else than `donate`; they share one object."""


def make_filter_jit(
    fun: Any, settings: Settings, signature: inspect.Signature | None
) -> _core.FilterJit:
    """Returns a FilterJit; `signature` is the result of `inspect_signature`."""
    options = None if settings.jitkwargs else _DEFAULT_OPTIONS.get(settings)
    return _core.FilterJit(fun, options or Options(settings), signature, attributes(fun))


def _rebuild(fun: Any, settings: Settings) -> _core.FilterJit:
    """Returns the FilterJit for which `Options.reduce` returned these arguments."""
    return make_filter_jit(fun, settings, inspect_signature(fun))


def attributes(fun: Any) -> dict[str, Any]:
    """Returns the attributes that ``functools.update_wrapper`` would copy."""
    found: dict[str, Any] = {}
    if isinstance(fun, types.FunctionType):  # of other objects, the __dict__ is their state
        found.update(fun.__dict__)
    found.pop(CACHES_ATTRIBUTE, None)
    found.pop("__wrapped__", None)
    for name in functools.WRAPPER_ASSIGNMENTS:
        try:
            found[name] = getattr(fun, name)
        except AttributeError:
            pass
    return found
