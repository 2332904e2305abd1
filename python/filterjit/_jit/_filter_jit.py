"""The types of jitted functions and methods. Their base classes in C make the calls."""

import contextlib
import inspect
import os
import sys
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, final

from jax import tree_util as jtu

from .. import _core
from .._base._checks import positive_int
from .._base._generic import _P, _S, _T, takes_specs
from .._base._later import LazyModule
from .._base._rooms import import_room
from .._call import _programs
from .._call._caches import copied_attributes
from .._call._miss import FunctionHooks
from .._call._settings import OnRetrace, Settings, check_on_retrace
from .._call._signature import inspect_signature
from .._compat import _equinox_compat, _jax_compat
from .._trees._registry import registry

if TYPE_CHECKING:
    from .._aot import _save, _stages, _warm_up
    from .._observe import _causes, _explain, _report, _report_output
    from .._shardings import _options
else:  # not needed for calls
    _stages, _warm_up = LazyModule("_aot._stages"), LazyModule("_aot._warm_up")
    _save = LazyModule("_aot._save")
    _options = LazyModule("_shardings._options")
    _explain, _report = LazyModule("_observe._explain"), LazyModule("_observe._report")

_jax_compat.hide_from_tracebacks(__file__)


class _Signature:
    """For ``inspect.getfullargspec``, which ignores ``__wrapped__``."""

    def __get__(self, f: Any, owner: Any) -> inspect.Signature:
        if f is None:
            raise AttributeError("__signature__")  # the class has its constructor's
        try:
            return inspect.signature(f._function)
        except (TypeError, ValueError) as e:
            raise AttributeError("__signature__") from e


class _Annotations:
    """For Python 3.14, where wrappers copy only ``__annotate__``."""

    def __get__(self, f: Any, owner: Any) -> Any:
        return {} if f is None else f._function.__annotations__


@final
class BoundFilterJit(_core.BoundMethod[_S, _P, _T], metaclass=_jax_compat.SeenAsJitted):
    """A `FilterJit` bound to an instance, the first argument of each call.

    It has the attributes and methods of the `FilterJit`. As a pytree, it has two children: the
    `FilterJit` and the instance.
    """

    __slots__ = ()
    __module__ = "filterjit.types"
    __signature__ = _Signature()

    @property
    def __wrapped__(self) -> Any:
        """The wrapped function, bound to the instance."""
        return types.MethodType(self.__func__.__wrapped__, self.__self__)

    @property
    def _function(self) -> Any:
        return types.MethodType(self.__func__._function, self.__self__)

    @takes_specs
    def lower(
        self, /, *args: _P.args, **kwargs: _P.kwargs
    ) -> "_stages.Lowered[Concatenate[_S, _P], _T]":
        """Traces and lowers the method for these arguments. Returns a `Lowered`; see
        FilterJit.lower."""
        return self.__func__.lower(self.__self__, *args, **kwargs)  # type: ignore[return-value]

    @takes_specs
    def trace(
        self, /, *args: _P.args, **kwargs: _P.kwargs
    ) -> "_stages.Traced[Concatenate[_S, _P], _T]":
        """Traces the method for these arguments. Returns a `Traced`; see FilterJit.trace."""
        return self.__func__.trace(self.__self__, *args, **kwargs)  # type: ignore[return-value]

    @takes_specs
    def compile(
        self, /, *args: _P.args, **kwargs: _P.kwargs
    ) -> "_stages.Compiled[Concatenate[_S, _P], _T]":
        """Compiles the method for these arguments. Returns a `Compiled`; see FilterJit.compile."""
        return self.__func__.compile(self.__self__, *args, **kwargs)  # type: ignore[return-value]

    @takes_specs
    def eval_shape(self, /, *args: _P.args, **kwargs: _P.kwargs) -> Any:
        """Returns the result of a call, with jax.ShapeDtypeStruct in place of arrays."""
        return self.__func__.eval_shape(self.__self__, *args, **kwargs)

    @takes_specs
    def warm_up(self, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        """Compiles the method for these arguments, to make calls with them hits; see
        FilterJit.warm_up."""
        self.__func__.warm_up(self.__self__, *args, **kwargs)

    def warm_up_all(
        self,
        /,
        signatures: Iterable[tuple[Sequence[Any], Mapping[str, Any]]],
        *,
        threads: int | None = None,
    ) -> dict[int, Exception]:
        """Compiles the method for many signatures, to make calls with them hits.

        Each signature is a pair ``(args, kwargs)`` without the instance. XLA compiles `threads` of
        them in parallel. Returns the errors by signature number; see FilterJit.warm_up_all.
        """
        return _warm_up.warm_up_all(self.__func__, (self.__self__,), signatures, threads)

    def explain(self, /, *args: _P.args, **kwargs: _P.kwargs) -> "_causes.Explanation":
        """Predicts whether a call with these arguments is a hit, or explains why it compiles.
        Returns an `Explanation`. Traces and runs nothing."""
        return self.__func__.explain(self.__self__, *args, **kwargs)

    if TYPE_CHECKING:  # attributes of the FilterJit

        def report(self) -> _report_output.Report: ...
        def save(self, path: str | os.PathLike[str]) -> int: ...
        def cache_info(self) -> _report.CacheInfo: ...
        def clear_cache(self) -> None: ...
        @property
        def variants(self) -> list[_core.Variant]: ...

    def _statics(self) -> _core.Structure | None:
        """Returns the instance's structure. None if it holds an array or something unhashable."""
        arrays, structure = _core.flatten(registry, self.__self__)
        if not arrays:
            with contextlib.suppress(TypeError):
                hash(structure)
                return structure
        return None

    def _key(self) -> tuple[Any, Any]:
        """Returns the parts to compare if it's a static value."""
        return self.__func__, self._statics() or _core.identity(self.__self__)

    def __eq__(self, other: object) -> bool:
        """True if the functions are equal and the instances are the same object or, as in Equinox,
        equal and without arrays."""
        if type(other) is not BoundFilterJit:
            return NotImplemented
        if self.__self__ is other.__self__ or self.__func__ != other.__func__:
            return self.__func__ == other.__func__
        statics = self._statics()
        return statics is not None and statics == other._statics()

    def __hash__(self) -> int:
        return hash((self.__func__, self._statics() or id(self.__self__)))

    def __repr__(self) -> str:
        return f"<bound {self.__func__!r} of {self.__self__!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return BoundFilterJit, (self.__func__, self.__self__)


class _OfUpstream:
    """An attribute of the results of ``jax.jit`` that libraries read."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, f: Any, owner: Any) -> Any:
        return self if f is None else getattr(f._hooks.upstream, self._name)


@final
class FilterJit(_core.FilterJit[_P, _T], metaclass=_jax_compat.SeenAsJitted):
    """A jitted function, returned by `filterjit.filter_jit` and `filterjit.jit`.

    In annotations, ``FilterJit[[int, str], bool]`` has parameters like
    ``Callable[[int, str], bool]``.
    """

    __slots__ = ()
    __module__ = "filterjit.types"
    _bound_type = BoundFilterJit

    __signature__ = _Signature()
    if not TYPE_CHECKING and sys.version_info >= (3, 14):
        __annotations__ = _Annotations()

    _fun, _jit_info = _OfUpstream(), _OfUpstream()

    if TYPE_CHECKING:

        @property
        def _hooks(self) -> FunctionHooks: ...

    @property
    def __wrapped__(self) -> Any:
        """The wrapped function or callable pytree, unless something else was set."""
        found = self.__dict__.get("__wrapped__", self)
        return self._function if found is self else found

    @__wrapped__.setter
    def __wrapped__(self, value: Any) -> None:  # functools.wraps sets it
        self.__dict__["__wrapped__"] = value

    @__wrapped__.deleter
    def __wrapped__(self) -> None:
        if "__wrapped__" not in self.__dict__:
            raise AttributeError("__wrapped__")
        del self.__dict__["__wrapped__"]

    def __repr__(self) -> str:
        return f"<{self._hooks.decorator} of {self._function!r}>"

    @takes_specs
    def lower(self, /, *args: _P.args, **kwargs: _P.kwargs) -> "_stages.Lowered[_P, _T]":
        """Traces and lowers the function for these arguments, without running it.

        ``jax.ShapeDtypeStruct`` can replace any array. Returns a `Lowered`; its ``compile`` returns
        a callable. A function of `filterjit.jit` returns ``jax.jit``'s result.
        Examples:
            >>> f = filter_jit(lambda x, n: n * x)
            >>> compiled = f.lower(jax.ShapeDtypeStruct((2,), jnp.float32), 3).compile()
            >>> compiled(jnp.ones(2), 3)
            Array([3., 3.], dtype=float32)
        """
        if (upstream := self._hooks.upstream) is not None:
            lowered: _stages.Lowered[_P, _T] = upstream.lower(*args, **kwargs)
            return lowered
        return _stages.trace(self, args, kwargs).lower()

    @takes_specs
    def trace(self, /, *args: _P.args, **kwargs: _P.kwargs) -> "_stages.Traced[_P, _T]":
        """Traces the function for these arguments, without running it.

        Takes the same arguments as `lower`, and returns a `Traced`. A function of `filterjit.jit`
        returns ``jax.jit``'s result.
        """
        if (upstream := self._hooks.upstream) is not None:
            traced: _stages.Traced[_P, _T] = upstream.trace(*args, **kwargs)
            return traced
        return _stages.trace(self, args, kwargs)

    @takes_specs
    def compile(self, /, *args: _P.args, **kwargs: _P.kwargs) -> "_stages.Compiled[_P, _T]":
        """Compiles the function for these arguments, without running it.

        Takes the same arguments as `lower`, and returns a `Compiled`, which can be called. In
        `filterjit.jit`, arguments and results that only ``jax.jit`` supports raise ``ValueError``.
        Examples:
            >>> f = filterjit.jit(lambda x, n: x * n, static_argnames='n')
            >>> f.compile(jnp.ones(2), 3)(jnp.ones(2), 3)
            Array([3., 3.], dtype=float32)
        """
        return _stages.compile(self, args, kwargs)

    @takes_specs
    def eval_shape(self, /, *args: _P.args, **kwargs: _P.kwargs) -> Any:
        """Returns the result of a call, with jax.ShapeDtypeStruct in place of arrays.

        Takes the same arguments as `lower`. Compiles and runs nothing.
        Examples:
            >>> filter_jit(lambda x: {'sum': x.sum(), 'n': 1}).eval_shape(jnp.ones((2, 3)))
            {'n': 1, 'sum': ShapeDtypeStruct(shape=(), dtype=float32)}
        """
        if (upstream := self._hooks.upstream) is not None:
            return upstream.eval_shape(*args, **kwargs)
        return _stages.eval_shape(self, args, kwargs)

    @takes_specs
    def warm_up(self, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        """Compiles the function for these arguments, to make calls with them hits.

        Takes the same arguments as `lower`. Raises any error of the trace or the compilation.
        `report` has the times.
        Examples:
            >>> f = filter_jit(lambda x, n: n * x)
            >>> f.warm_up(jax.ShapeDtypeStruct((2,), jnp.float32), 3)
        """
        _stages.begin(self, args, kwargs)()

    def warm_up_all(
        self,
        /,
        signatures: Iterable[tuple[Sequence[Any], Mapping[str, Any]]],
        *,
        threads: int | None = None,
    ) -> dict[int, Exception]:
        """Compiles the function for many signatures, to make calls with them hits.

        Each signature is a pair ``(args, kwargs)`` for `lower`. XLA compiles `threads` of them in
        parallel, by default one per core. If a signature fails, its error is logged and the rest
        still compiles. Returns the errors by signature number; empty if all compiled.
        Examples:
            >>> f = filter_jit(lambda x: x + 1)
            >>> sizes = [jax.ShapeDtypeStruct((n,), jnp.float32) for n in (1, 8)]
            >>> f.warm_up_all([((x,), {}) for x in sizes])
            {}
        """
        return _warm_up.warm_up_all(self, (), signatures, threads)

    def save(self, path: str | os.PathLike[str]) -> int:
        """Saves every program that the function has compiled to a file, for `filterjit.load`.

        These are the programs of calls, ``compile``, ``warm_up`` and ``warm_up_all``. An existing
        file is replaced in one step: even after a crash, it is the old or the new one. Arrays in
        the function itself are written as they are now.

        A signature isn't written if a file can't hold one of its static values, or if its program
        calls back into Python. One warning names each of these. Returns the number of signatures
        in the file.

        Arguments:
            path: the path of the file.

        Raises:
            ValueError: if nothing can be written; the old file stays. Or if an array in the
                function itself was donated.
            RuntimeError: if JAX is older than 0.7.2.
        Examples:
            >>> f = filter_jit(lambda x: x + 1)
            >>> f.warm_up(jax.ShapeDtypeStruct((2,), jnp.float32))
            >>> f.save('add.jit')
            1
            >>> filterjit.load('add.jit')(jnp.ones(2))
            Array([2., 2.], dtype=float32)
        """
        return _save.save(self, path)

    def explain(self, /, *args: _P.args, **kwargs: _P.kwargs) -> "_causes.Explanation":
        """Predicts whether a call with these arguments is a hit, or explains why it compiles.

        Returns an `Explanation`. Traces and runs nothing.
        Examples:
            >>> @filter_jit
            ... def scale(x, by):
            ...     return by * x
            >>> y = scale(jnp.ones(2), 2)
            >>> print(scale.explain(jnp.ones(2), 3))
            `scale`: compiles again because
              `by`: different static value: was the int 2, is the int 3
              -> ...
        """
        return _explain.explain(self, self._function, args, kwargs)

    def report(self) -> "_report_output.Report":
        """Returns a `Report` of the time that calls took, by variant."""
        return _report.report_of(self._parts()[0])

    def cache_info(self) -> "_report.CacheInfo":
        """Returns CacheInfo(hits, misses, variants, maxsize, programs).

        Examples:
            >>> f = filter_jit(lambda x: x + 1)
            >>> ys = [f(jnp.ones(2)) for _ in range(3)]
            >>> f.cache_info()
            CacheInfo(hits=2, misses=1, variants=1, maxsize=4096, programs=1)
        """
        return _report.cache_info(self._parts()[0])

    def _cache_size(self) -> int:
        """Returns the number of programs, like ``_cache_size`` of ``jax.jit``."""
        return _programs.count(self._parts()[0])

    def clear_cache(self) -> None:
        """Drops all compiled programs of the function, which it shares with equal functions jitted
        with equal settings."""
        _programs.clear(self._parts()[0])

    _clear_cache = clear_cache
    """The same under ``jax.jit``'s private name."""

    @property
    def _cached(self) -> "FilterJit[_P, _T]":
        """Equinox's private name for the ``jax.jit`` of a function, of which tests use these two."""
        return self

    @property
    def variants(self) -> list[_core.Variant]:
        """The list of its variants, one per static structure in the cache."""
        return self._parts()[0].variants()

    def __set_name__(self, owner: type, name: str) -> None:
        """Gives a subclass of equinox.Module a ``__getattribute__`` in C: Equinox looks up methods
        in Python, which costs a tenth of a call (csrc/call/getattribute.c)."""
        original = _equinox_compat.module_getattribute()
        inherited: Any = getattr(owner, "__getattribute__", None)
        if isinstance(inherited, _core.Getattribute):  # from a base class
            inherited = inherited.__wrapped__
        if original is None or inherited is not original or "__getattribute__" in vars(owner):
            return
        type.__setattr__(owner, "__getattribute__", _core.Getattribute(owner, original))

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Pickles by name if possible, like a function; otherwise by the wrapped function."""
        if is_pickled_by_name(self, sys._getframe(1)):
            return str(self.__qualname__)
        hooks = self._hooks
        return hooks.reduce(self) or (_rebuild, (self._function, hooks.settings))


jtu.register_pytree_node(FilterJit, lambda f: f._parts()[::-1], FilterJit._rebuild)
jtu.register_pytree_with_keys(
    BoundFilterJit,
    lambda f: (
        ((jtu.GetAttrKey("__func__"), f.__func__), (jtu.GetAttrKey("__self__"), f.__self__)),
        None,
    ),
    lambda _, children: BoundFilterJit(*children),
    lambda f: ((f.__func__, f.__self__), None),
)


def own_options(function: str, on_retrace: OnRetrace, maxsize: int) -> dict[str, Any]:
    """Checks the options that ``jax.jit`` lacks. `function` names the decorator."""
    check_on_retrace(function, on_retrace)
    if on_retrace is not None:
        import_room("_observe._listener", "`on_retrace`")
    positive_int(f"{function}(..., maxsize=...)", maxsize)
    return {"on_retrace": on_retrace, "maxsize": maxsize}


NO_OPTIONS = Settings()
_SHARED_HOOKS = FunctionHooks(NO_OPTIONS)


def make_filter_jit(fun: Any, settings: Settings, signature: inspect.Signature | None) -> FilterJit:
    """Returns a FilterJit. `signature` comes from `inspect_signature`."""
    if settings is NO_OPTIONS:
        return FilterJit(fun, _SHARED_HOOKS, signature, copied_attributes(fun))
    hooks = FunctionHooks(settings)
    made = FilterJit(fun, hooks, signature, copied_attributes(fun))
    hooks.check_names(_core.Signature(*hooks.parameters(made)))
    return made


def is_pickled_by_name(function: Any, frame: types.FrameType) -> bool:
    """True if a function's module and qualified name lead to it wherever the pickle is loaded.

    cloudpickle loads functions of the main script in processes that run another one (joblib, ray).
    Its pickler overrides how functions are pickled, and calls ``__reduce__`` from its `frame`.
    """
    module = getattr(function, "__module__", None) or ""
    if module == "__main__" and hasattr(frame.f_locals.get("self"), "reducer_override"):
        return False
    found: Any = sys.modules.get(module)
    for name in getattr(function, "__qualname__", "").split("."):
        found = getattr(found, name, None)
    return found is function


def _rebuild(fun: Any, settings: Settings) -> FilterJit:
    return make_filter_jit(fun, settings, inspect_signature(fun))
