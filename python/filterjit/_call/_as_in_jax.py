"""The hooks of `filterjit.jit` and `filterjit.nnx.jit`, which behave like ``jax.jit``."""

import collections
import functools
import re
import types
from collections.abc import Callable
from typing import Any

import jax

from .. import _core
from .._base import _errors
from .._base._call_hooks import Failure
from .._compat import _jax_compat
from .._trees._registry import is_traced
from . import _events, _running
from ._miss import FunctionHooks
from ._selection import HandOver
from ._settings import Settings

_jax_compat.hide_from_tracebacks(__file__)

_OPEN = object()  # stands for each open leaf


class AsInJax(FunctionHooks):
    """Raises a program's errors unchanged, and never waits for the device."""

    def silence(self, call: _running.Running) -> None:
        if self.settings.donate.is_quiet:
            _running.ignore_donation(call)

    def inspect(
        self, variant: _core.Variant, arrays: tuple[Any, ...], outputs: tuple[Any, ...]
    ) -> bool | None:
        super().inspect(variant, arrays, outputs)
        return False

    def translate(self, failure: Failure) -> BaseException | str:
        return _errors.name_deleted(failure)


class _Opaque:
    """A callable as a static value, equal only to itself."""

    __slots__ = ("fun",)

    def __init__(self, fun: Any) -> None:
        self.fun = fun

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        return self.fun(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return type(other) is _Opaque and self.fun is other.fun

    def __hash__(self) -> int:
        return id(self.fun)


_PLAIN_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)
NO_KEY = "the arguments cannot be a key of compiled programs"
MISFIT = "the arguments do not fit the parameters"
_NOT_TRACED = "a leaf of the {} is neither an array nor a number"


class PlainHooks(AsInJax):
    """The hooks of a function of `filterjit.jit`.

    Attributes:
        upstream: the ``jax.jit`` of the same function and options. Unsupported calls
            fall back to it, and it raises the errors of arguments and results.
        reason: why all calls fall back, or "".
        handed_over: the number of calls that fell back, by reason.
    """

    decorator = "jit"

    def __init__(self, settings: Settings, made_of: tuple[Any, ...], reason: str = "") -> None:
        super().__init__(settings)
        self.reason = reason
        self._made_of = made_of
        self.handed_over: collections.Counter[str] = collections.Counter()

    @functools.cached_property
    def upstream(self) -> Any:
        _, (fun, options, _) = self._made_of
        return _jax_compat.jit(fun, **options)

    def reduce(self, f: _core.FilterJit) -> tuple[Any, ...]:
        return self._made_of

    def function(self, f: _core.FilterJit) -> Any:
        fun = f._function
        return fun if isinstance(fun, _PLAIN_FUNCTIONS) else _Opaque(fun)

    def check_result(self, out: Any) -> Any:
        if jax.config.jax_disable_jit:
            return out
        try:
            leaves = jax.tree_util.tree_leaves(out)
        except ValueError:
            with _errors.paths_in("result"):
                _core.flatten(self.registry, out)  # raises a better error if keys can't be sorted
            raise
        if not all(map(is_traced, leaves)):
            raise HandOver(_NOT_TRACED.format("result"))
        if self.settings.shardings is not None:
            # The specs match arrays one to one.
            return jax.tree_util.tree_map(jax.numpy.asarray, out)
        return out

    def compile(self, f: _core.FilterJit, variant: _core.Variant, /) -> Any:
        if reason := self.reason_to_hand_over(variant.structure):
            raise HandOver(reason)
        return super().compile(f, variant)

    def reason_to_hand_over(self, structure: _core.Structure) -> str:
        if self.reason or all(leaf is _OPEN for leaf in structure._leaves(_OPEN)):
            return self.reason
        return _NOT_TRACED.format("arguments")

    def translate(self, failure: Failure) -> BaseException | str:
        exception = failure.exception
        if isinstance(exception, HandOver):
            return str(exception)
        if _errors.failed_operation(exception) == "sort":
            return _errors.add_path(exception)
        if failure.variant is None:
            # Flattening the arguments or hashing a static one failed.
            if isinstance(exception, RecursionError | MemoryError):
                return exception
            return MISFIT if failure.misfits else NO_KEY
        if str(exception).startswith(_OF_ARGUMENTS):
            return "an argument is none that JAX takes"
        return super().translate(failure)

    def other(self, f: _core.FilterJit, reason: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            return hand_over(f, self.upstream, self.handed_over, reason, args, kwargs)

        return call


def hand_over(
    f: _core.FilterJit,
    upstream: Callable[..., Any],
    handed_over: collections.Counter[str],
    reason: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Passes a call to `upstream`, and counts it. Adds notes to errors."""
    __tracebackhide__ = True
    handed_over[reason] += 1
    _events.notify("handed_over", f._parts()[0], handed_over)
    try:
        return upstream(*args, **kwargs)
    except (TypeError, ValueError) as e:
        takes = "takes" * ("problematic value is of type" in str(e)) or "returns" * (
            "not a valid JAX type" in str(e)
        )
        if takes and "<class 'numpy." not in str(e):
            but = ", but does not update Variables" * getattr(f._hooks, "updates_modules", False)
            if re.search(r"of type <class '\w+\.", str(e)) and takes == "takes":
                but += ": it doesn't see later changes to an object's attributes"
            e.add_note(
                f"(`filterjit.filter_jit` {takes} values that are not arrays, as static{but})"
            )
        raise


# JAX raises these before the function runs, and names arguments of the flat function.
_OF_ARGUMENTS = (
    "An overflow was encountered while parsing an argument",
    "Error interpreting argument to",
)
