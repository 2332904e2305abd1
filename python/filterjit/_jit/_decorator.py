"""The decorator."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, Literal, ParamSpec, TypeVar, overload

from .. import _core
from .._call._options import _CACHES, MAXSIZE, Options
from .._call._signature import inspect_signature
from .._observe._retraces import OnRetrace, Watch, check_on_retrace

_P = ParamSpec("_P")
_T = TypeVar("_T")
Donate = Literal["all", "all-except-first", "warn", "warn-except-first", "none"]
Functions = Literal["identity", "structure"]


class _NotGiven:
    def __repr__(self) -> str:
        return "<not given>"


_NOT_GIVEN = _NotGiven()
_FUNCTIONS = ("identity", "structure")
_DONATE = ("all", "all-except-first", "warn", "warn-except-first", "none")
_REFUSED = (
    "static_argnums",
    "static_argnames",
    "donate_argnums",
    "in_shardings",
    "out_shardings",
)
_DEPRECATED = ("default", "fn", "args", "kwargs", "out")
_PLAIN = {donate: Options(donate, {}) for donate in _DONATE}


def _attributes(fun: Any) -> dict[str, Any]:
    """What ``functools.update_wrapper`` would copy."""
    found: dict[str, Any] = dict(getattr(fun, "__dict__", None) or {}) if callable(fun) else {}
    if not isinstance(fun, type(lambda: None)):
        found = {}  # of other objects the __dict__ is their state, not attributes of a function
    found.pop(_CACHES, None)
    found.pop("__wrapped__", None)
    for name in functools.WRAPPER_ASSIGNMENTS:
        try:
            found[name] = getattr(fun, name)
        except AttributeError:
            pass
    return found


@overload
def filter_jit(
    *,
    donate: Donate = "none",
    functions: Functions = "identity",
    on_retrace: OnRetrace = None,
    max_traces: int | None = None,
    maxsize: int = MAXSIZE,
) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]: ...


@overload
def filter_jit(
    fun: Callable[_P, _T],
    *,
    donate: Donate = "none",
    functions: Functions = "identity",
    on_retrace: OnRetrace = None,
    max_traces: int | None = None,
    maxsize: int = MAXSIZE,
) -> Callable[_P, _T]: ...


def filter_jit(
    fun: Any = _NOT_GIVEN,
    *,
    donate: str = "none",
    functions: str = "identity",
    on_retrace: Any = None,
    max_traces: int | None = None,
    maxsize: int = MAXSIZE,
    **jitkwargs: Any,
) -> Any:
    """Jits a function over any pytrees: arrays are traced, all else is static.

    A drop-in replacement for ``equinox.filter_jit``, dispatched in C.

    Arguments:
        fun: the function; any callable, itself a pytree or not. Without it, a decorator is
            returned.
        donate: which arrays' memory the program may reuse: ``"all"``, ``"all-except-first"``
            (all but those in the first argument), the same with warnings where a buffer could
            not be used (``"warn"``, ``"warn-except-first"``), or ``"none"``.
        functions: when two functions among the static values, lambdas, ``functools.partial`` and
            bound methods included, share a program. ``"identity"``: when they are one object.
            ``"structure"``: also when they cannot behave differently, so that Modules that are
            made anew with the same lambdas are not traced anew. They need the same code and
            globals, and equal defaults, closures, attributes and global variables that they read;
            a change of these is seen, in the very same function too. What is reached through an
            object or by calling a global function is not looked at, and a traced ``is`` between
            functions sees those that were traced.
        on_retrace: what to do when the function is traced again: ``"log"`` why, to the logger
            ``"filterjit"``; ``"warn"`` with a ``RetraceWarning``; ``"raise"`` a ``RetraceError``; or
            a function that is called with the `Explanation`. The first trace is none again.
        max_traces: how many traces there may be, the first included; the next one raises a
            ``RetraceError`` that says why it would have been needed.
        maxsize: how many programs there may be for different static values; of more, the one used
            longest ago is dropped.
        jitkwargs: passed on to ``jax.jit``.

    Returns:
        A callable with the parameters of `fun`. Static values compare exactly, by type and
        value: ``1``, ``True`` and ``1.0`` are compiled apart.

    Raises:
        ValueError: for jitkwargs that only make sense for positional arguments of ``jax.jit``,
            and for an unknown `donate` or `functions`.
        TypeError: where `fun` cannot be called.
    """
    if fun is _NOT_GIVEN:
        return functools.partial(
            filter_jit,
            donate=donate,
            functions=functions,
            on_retrace=on_retrace,
            max_traces=max_traces,
            maxsize=maxsize,
            **jitkwargs,
        )
    if jitkwargs:
        for name in _DEPRECATED:
            if name in jitkwargs:
                raise ValueError(
                    f"{name} is deprecated as of Equinox version 0.10.0. Please see the "
                    "release notes on GitHub for details on how to upgrade:\n"
                    "https://github.com/patrick-kidger/equinox/releases/tag/v0.10.0"
                )
        if any(name in jitkwargs for name in _REFUSED):
            raise ValueError(
                "`jitkwargs` cannot contain 'static_argnums', 'static_argnames', "
                "'donate_argnums', 'in_shardings', or 'out_shardings'."
            )
    if donate not in _DONATE:
        raise ValueError(
            "`filter_jit(..., donate=...)` must be one of 'all', 'all-except-first', "
            "'warn', 'warn-except-first', or 'none'."
        )
    if functions not in _FUNCTIONS:
        raise ValueError(
            "`filter_jit(..., functions=...)` must be one of 'identity' or 'structure'."
        )
    if not isinstance(maxsize, int) or isinstance(maxsize, bool) or maxsize < 1:
        raise ValueError(f"`filter_jit(..., maxsize=...)` must be a positive int, not {maxsize!r}.")
    watch = None
    if on_retrace is not None or max_traces is not None:
        check_on_retrace(on_retrace, max_traces)
        watch = Watch(on_retrace, max_traces)
    return make_filter_jit(
        fun, donate, jitkwargs, inspect_signature(fun), watch, functions, maxsize
    )


def make_filter_jit(
    fun: Any,
    donate: str,
    jitkwargs: dict[str, Any],
    signature: inspect.Signature | None,
    watch: Watch | None = None,
    functions: str = "identity",
    maxsize: int = MAXSIZE,
) -> _core.FilterJit:
    """A FilterJit from checked options; `signature` as `inspect_signature` gives it."""
    plain = not jitkwargs and (watch, functions, maxsize) == (None, "identity", MAXSIZE)
    options = _PLAIN[donate] if plain else Options(donate, jitkwargs, watch, functions, maxsize)
    return _core.FilterJit(fun, options, signature, _attributes(fun))
