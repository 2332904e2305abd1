"""The decorator `filterjit.nnx.jit`, and the type `NNXJit`."""

import collections
import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, overload

import jax

from .. import _core
from .._base._call_hooks import Failure
from .._base._checks import NOT_GIVEN
from .._base._errors import failed_operation
from .._base._generic import _P, _S, _T, takes_specs
from .._base._package import advising, public
from .._base._rooms import import_room
from .._call._as_in_jax import MISFIT, NO_KEY, AsInJax, hand_over
from .._call._caches import MAXSIZE, copied_attributes
from .._call._donation import Donation
from .._call._selection import ArgumentSelection, HandOver, is_sure, named_by, without_iterators
from .._call._settings import OnRetrace, Settings
from .._call._signature import ANY
from .._compat import _jax_compat
from .._compat import _nnx_compat as compat
from .._jit._filter_jit import FilterJit, is_pickled_by_name, own_options
from .._jit._plain import OF_FILTER_JIT, OptionsOfJit, settings_as_in_jax
from ._trace import ONCE, GraphFunction, Prefixes, TracedFunction, TreeFunction, registry

if TYPE_CHECKING:
    from .._observe._causes import Explanation
    from .._observe._report import CacheInfo
    from .._observe._report_output import Report


_Q = ParamSpec("_Q")
_R = TypeVar("_R")


@functools.partial(public, module="filterjit.nnx")
class NNXJit(_core.VariableJit[_P, _T]):
    """A function returned by `jit`. `upstream` is ``flax.nnx.jit``'s own result for the same
    function and options. `handed_over` counts the calls that `upstream` made, by reason."""

    upstream: Any
    handed_over: collections.Counter[str]
    _traced: TracedFunction
    _made_of: tuple[Any, dict[str, Any], dict[str, Any]]  # the arguments of `_make`

    def __getattr__(self, name: str) -> Any:
        if name == "upstream" and "_made_of" in self.__dict__:
            fun, options, _ = self._made_of
            self.upstream = compat.upstream_jit(fun, **options)
            return self.upstream
        if name in ("upstream", "__wrapped__"):
            raise AttributeError(name)
        if name == "save":
            raise AttributeError(
                "`nnx.jit` has no `save`: split the model (`nnx.split`), and `filter_jit` a function of "
                "its state"
            )
        if name == "compile":
            raise AttributeError(
                "`nnx.jit` has no `compile`: `warm_up` compiles before the first call, and "
                "`lower(...).compile()` behaves as in Flax"
            )
        return getattr(self.upstream, name)

    def __repr__(self) -> str:
        return f"<nnx.jit of {self._traced.fun!r}>"

    def __copy__(self) -> Self:
        """Returns the function itself, as for any function."""
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Pickles by name or by the wrapped function, like `FilterJit`."""
        by_name = is_pickled_by_name(self, sys._getframe(1))
        return str(self.__qualname__) if by_name else (_make, self._made_of)

    @overload
    def __get__(self, instance: None, owner: Any = None, /) -> Self: ...
    @overload
    def __get__(
        self: Callable[Concatenate[_S, _Q], _R], instance: _S, owner: Any = None, /
    ) -> Callable[_Q, _R]: ...
    def __get__(self, instance: Any, owner: Any = None, /) -> Any:
        return self if instance is None else functools.partial(self, instance)

    # ---- called by the C core ----

    def _hand_over(self, reason: str, args: tuple[Any, ...], kwargs: dict[str, Any], /) -> Any:
        __tracebackhide__ = True
        if reason in ONCE and self._reason == reason:
            del self._reason
        return hand_over(self._inner, self._call_upstream, self.handed_over, reason, args, kwargs)

    def _call_upstream(self, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        return self.upstream(*args, **kwargs)

    def _finish(self, answer: Any, args: tuple[Any, ...], kwargs: dict[str, Any], /) -> Any:
        return self._traced.finish(answer, args, kwargs)

    def _settle(self, variables: tuple[Any, ...], /) -> None:
        for variable in variables:
            compat.settle(variable)

    # ---- methods ----

    @takes_specs
    def lower(self, /, *args: _P.args, **kwargs: _P.kwargs) -> Any:
        """Traces and lowers the function for these arguments. Returns ``flax.nnx.jit``'s result."""
        return self.upstream.lower(*args, **kwargs)

    @takes_specs
    def trace(self, /, *args: _P.args, **kwargs: _P.kwargs) -> Any:
        """Traces the function for these arguments. Returns ``flax.nnx.jit``'s result."""
        return self.upstream.trace(*args, **kwargs)

    @takes_specs
    def eval_shape(self, /, *args: _P.args, **kwargs: _P.kwargs) -> Any:
        """Returns ``flax.nnx.jit``'s result, with jax.ShapeDtypeStruct in place of arrays."""
        return self.upstream.eval_shape(*args, **kwargs)

    @takes_specs
    def warm_up(self, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        """Compiles the function for these arguments, to make calls with them hits.

        ``jax.ShapeDtypeStruct`` can replace any array, even in a Module (``nnx.eval_shape``).
        Updates nothing.
        """
        self._inner.warm_up(*args, **kwargs)

    def warm_up_all(
        self,
        /,
        signatures: Iterable[tuple[Sequence[Any], Mapping[str, Any]]],
        *,
        threads: int | None = None,
    ) -> dict[int, Exception]:
        """Compiles the function for many signatures, to make calls with them hits.

        Each signature is a pair ``(args, kwargs)``. XLA compiles `threads` of them in parallel.
        Returns the errors by signature number; see FilterJit.warm_up_all.
        """
        found: dict[int, Exception] = self._inner.warm_up_all(signatures, threads=threads)
        return found

    def explain(self, /, *args: _P.args, **kwargs: _P.kwargs) -> "Explanation":
        """Predicts whether a call with these arguments is a hit, or explains why it compiles.
        Returns an `Explanation`. Traces and runs nothing."""
        found: Explanation = self._inner.explain(*args, **kwargs)
        return found

    def report(self) -> "Report":
        """Returns a `Report` of the time that calls took. It counts the calls that were handed
        over, with reasons, but not their time."""
        found: Report = self._inner.report()
        return found

    def cache_info(self) -> "CacheInfo":
        """Returns the `CacheInfo` of all calls except those handed over."""
        found: CacheInfo = self._inner.cache_info()
        return found

    def clear_cache(self) -> None:
        """Drops all compiled programs of the function."""
        self._inner.clear_cache()
        clear = getattr(self.upstream.jitted_fn, "clear_cache", None)
        if clear is not None:
            clear()


class NNXHooks(AsInJax):
    """The hooks of an `NNXJit`'s FilterJit."""

    decorator = "nnx.jit"
    updates_modules = True

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.registry = registry

    def translate(self, failure: Failure) -> BaseException | str:
        # Flax raises its own errors for these.
        if failure.misfits:
            return HandOver(MISFIT)
        if failure.variant is None and failed_operation(failure.exception) in ("hash", "sort"):
            return HandOver(NO_KEY)
        return super().translate(failure)


class _Options(OptionsOfJit, total=False):
    graph: bool | None
    graph_updates: bool | None


@overload
def jit(fun: Callable[_P, _T], **options: Unpack[_Options]) -> NNXJit[_P, _T]: ...


@overload
def jit(**options: Unpack[_Options]) -> Callable[[Callable[_P, _T]], NNXJit[_P, _T]]: ...


@functools.partial(public, module="filterjit.nnx")
@functools.partial(advising, others=OF_FILTER_JIT)
def jit(
    fun: Callable[_P, _T] = NOT_GIVEN,
    *,
    in_shardings: Any = None,
    out_shardings: Any = None,
    static_argnums: int | Iterable[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Iterable[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    keep_unused: bool = False,
    device: jax.Device | None = None,
    backend: str | None = None,
    inline: bool = False,
    graph: bool | None = None,
    graph_updates: bool | None = None,
    on_retrace: OnRetrace = None,
    maxsize: int = MAXSIZE,
) -> Any:
    """Compiles a function of Modules, Variables and other pytrees, like ``flax.nnx.jit``.

    The options up to `graph_updates` have the defaults and meaning of ``flax.nnx.jit``. Calls
    update the Variables in the arguments. With ``graph=True, graph_updates=True`` they update
    attributes too.

    Unsupported calls, such as calls in a trace, fall back to ``flax.nnx.jit``. The function's
    `handed_over` counts them.

    Arguments:
        fun: the function. If omitted, `jit` returns a decorator.
        in_shardings: placements of the arguments, as in ``flax.nnx.jit``.
        out_shardings: placements of the result, as in ``flax.nnx.jit``.
        static_argnums: positions of the static arguments.
        static_argnames: names of the static arguments.
        donate_argnums: positions of the arguments whose memory the program can reuse.
        donate_argnames: names of the arguments whose memory the program can reuse.
        keep_unused: as in ``jax.jit``.
        device: as in ``jax.jit``.
        backend: as in ``jax.jit``.
        inline: as in ``jax.jit``.
        graph: whether to compare Modules as graphs, with shared parts. None means the default of
            ``flax.nnx.jit``.
        graph_updates: whether to update attributes of Modules too. None means the same.
        on_retrace: see `filterjit.filter_jit`.
        maxsize: see `filterjit.filter_jit`.

    Returns:
        An `NNXJit`. Without `fun`, a decorator.

    Raises:
        ValueError: for an invalid `on_retrace` or `maxsize`.

    Examples:
        >>> from flax import nnx
        >>> @filterjit.nnx.jit
        ... def add(count, n):
        ...     count[...] += n
        >>> count = nnx.Variable(jnp.zeros(2))
        >>> add(count, jnp.ones(2))
        >>> count[...]
        Array([1., 1.], dtype=float32)
    """
    own = own_options("nnx.jit", on_retrace, maxsize)
    modes: dict[str, Any] = {}
    if compat.supported:
        defaults = compat.default_modes()
        modes["graph"] = defaults[0] if graph is None else graph
        modes["graph_updates"] = defaults[1] if graph_updates is None else graph_updates
    options: dict[str, Any] = {
        "in_shardings": in_shardings,
        "out_shardings": out_shardings,
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate_argnums": donate_argnums,
        "donate_argnames": donate_argnames,
        "keep_unused": keep_unused,
        "device": device,
        "backend": backend,
        "inline": inline,
        **modes,
    }
    if fun is NOT_GIVEN:
        return functools.partial(jit, **options, **own)
    return _make(fun, options, own)


def new_jit(cls: Any, inner: _core.FilterJit, traced: TracedFunction, upstream: Any) -> Any:
    """Returns an `NNXJit` of class `cls`. `inner` jits the function of `traced`. An `upstream` of
    None is made when it's needed."""
    jitted = cls(
        inner,
        registry,
        compat.VARIABLE_TYPE,
        _jax_compat.KEY_TYPE or type,
        compat.GUARDS,
        HandOver,
        traced.mode,
    )
    functools.update_wrapper(jitted, traced.fun)
    jitted._traced = traced
    if upstream is not None:
        jitted.upstream = upstream
    return jitted


def _make(fun: Any, options: dict[str, Any], own: dict[str, Any]) -> NNXJit:
    options = without_iterators(options)
    upstream = None
    if not (compat.supported and is_sure(fun, options)):
        upstream = compat.upstream_jit(fun, **options)  # raises for invalid options
    function: Callable[..., Any] = getattr(upstream, "fun", fun)
    reason = None if compat.supported else "this version of Flax or JAX is not supported"
    static = donated = ArgumentSelection()
    prefixes = None
    try:
        static, donated, signature = named_by(function, options)
        if reason is None:
            prefixes = Prefixes.of(upstream, options["in_shardings"], options["out_shardings"])
    except HandOver as e:
        reason, signature = reason or str(e), ANY
    # The traced function's own parameters differ from those of `function`.
    signature = signature or inspect.signature(function, follow_wrapped=False)
    mode = (1 + bool(options.get("graph_updates"))) if options.get("graph") else 0
    cls: type[TracedFunction] = GraphFunction if mode == 2 else TreeFunction
    traced = cls(function, signature, static, Donation(arguments=donated), prefixes, mode)
    target = traced.function()
    functools.update_wrapper(target, function, updated=())
    shardings = None
    if prefixes is not None:
        make = import_room("_nnx._nnx_shardings", "`in_shardings`").NNXShardings
        shardings = make(traced, prefixes)
    settings = settings_as_in_jax(options, own, static, donated, shardings)
    inner = FilterJit(target, NNXHooks(settings), signature, copied_attributes(target))
    jitted: NNXJit = new_jit(NNXJit, inner, traced, upstream)
    jitted._made_of = fun, options, own
    jitted.handed_over = collections.Counter()
    traced.own(jitted)
    if reason is not None:
        jitted._reason = reason
    return jitted
