"""The decorator `jit`, a replacement for ``jax.jit``."""

import dataclasses
import functools
import sys
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar, Unpack, overload

import jax

from .._base._checks import NOT_GIVEN, known_options, option_names
from .._base._package import public
from .._base._rooms import import_room
from .._call import _selection
from .._call._as_in_jax import PlainHooks
from .._call._caches import MAXSIZE, copied_attributes
from .._call._donation import Donation
from .._call._selection import NO_ARGUMENTS, ArgumentSelection, HandOver
from .._call._settings import OnRetrace, OptionsOfJax, Settings
from .._call._signature import ANY
from .._compat import _jax_compat
from ._filter_jit import FilterJit, own_options

_P = ParamSpec("_P")
_T = TypeVar("_T")

_jax_compat.hide_from_tracebacks(__file__)

# Modules that get the original ``jax.jit`` after `jit` has replaced it: JAX's public modules use
# the public name; ours jit flat functions; Equinox and Flax build other decorators on it.
_OF_JAX = ("jax.", "jaxlib.", "filterjit.", "equinox.", "flax.nnx.transforms.")

_PASSED_ON = {
    "keep_unused": False, "device": None, "backend": None, "inline": False, "compiler_options": None
}  # fmt: skip
"""Options for the ``jax.jit`` of a flat function, with their defaults."""
_OWN = {"on_retrace": None, "maxsize": MAXSIZE}
_COVERED = {*_PASSED_ON, *_selection.NAMING, "in_shardings", "out_shardings"}
OF_FILTER_JIT = {
    "donate": "Use `donate_argnames`.",
    "traced": "Leave it out: numbers are traced, unless `static_argnames` names their argument.",
    **dict.fromkeys(("functions", "mesh", "same_on_all_processes"), "`filter_jit` has it."),
    **dict.fromkeys(("fun", "func", "function", "f"), "Pass the function by position."),
}


class OptionsOfJit(OptionsOfJax, total=False):
    in_shardings: Any
    out_shardings: Any
    static_argnums: int | Iterable[int] | None
    static_argnames: str | Iterable[str] | None
    donate_argnums: int | Iterable[int] | None
    donate_argnames: str | Iterable[str] | None
    on_retrace: OnRetrace
    maxsize: int


@overload
def jit(fun: Callable[_P, _T], /, **options: Unpack[OptionsOfJit]) -> FilterJit[_P, _T]: ...


@overload
def jit(**options: Unpack[OptionsOfJit]) -> Callable[[Callable[_P, _T]], FilterJit[_P, _T]]: ...


@public
def jit(
    fun: Callable[_P, _T] = NOT_GIVEN,
    /,
    *,
    on_retrace: OnRetrace = None,
    maxsize: int = MAXSIZE,
    **options: Any,
) -> Any:
    """Compiles a function like ``jax.jit``, with the dispatch in C.

    The options have the defaults and meaning of ``jax.jit``. JAX arrays, NumPy arrays and Python
    numbers in the arguments are traced, numbers weakly typed. The function compiles once for each
    combination of static arguments, which must be hashable. Any other leaf, in the arguments or in
    the result, is a ``TypeError``.

    The jitted function is a `FilterJit`, with ``explain``, ``report``, ``warm_up`` and its other
    methods. ``lower``, ``trace`` and ``eval_shape`` are ``jax.jit``'s own. ``compile`` returns a
    `Compiled`, which can be saved.

    Static arguments are compared as in `filter_jit`, by type and value: ``(1,)`` and ``(True,)``
    differ here, unlike in ``jax.jit``.

    Unsupported calls fall back to ``jax.jit``, which also raises the errors of arguments and
    results. ``f.report()`` says how many calls fell back, and why.

    Arguments:
        fun: the function. If omitted, `jit` returns a decorator.
        on_retrace: see `filter_jit`.
        maxsize: see `filter_jit`.
        options: options of ``jax.jit``. With unsupported ones, all calls fall back to ``jax.jit``.

    Returns:
        A `FilterJit`. Without `fun`, a decorator.

    Raises:
        ValueError: for an invalid `on_retrace` or `maxsize`. ``jax.jit`` raises its own errors for
            the other options.

    Examples:
        >>> @filterjit.jit(static_argnames="n")
        ... def scale(x, by, n):
        ...     return x * by**n
        >>> scale(jnp.ones(2), 3.0, n=2)
        Array([9., 9.], dtype=float32)
        >>> y = scale(jnp.ones(2), 4.0, n=2)  # `by` is traced: the same program
        >>> scale.cache_info()[:2]
        (1, 1)
    """
    if f"{sys._getframe(1).f_globals.get('__name__')}.".startswith(_OF_JAX):
        return _jax_compat.jit(*(() if fun is NOT_GIVEN else (fun,)), **options)
    own = own_options("jit", on_retrace, maxsize)
    if options:
        known_options("jit", options, [*_names(), *own], OF_FILTER_JIT)
    if fun is NOT_GIVEN:
        return functools.partial(jit, **options, **own)
    return _make(fun, options, own)


@functools.cache
def _names() -> list[str]:
    return option_names(_jax_compat.jit)


def _make(fun: Any, options: dict[str, Any], own: dict[str, Any]) -> FilterJit:
    options = _selection.without_iterators(options)
    upstream = None
    if not _selection.is_sure(fun, options):
        upstream = _jax_compat.jit(fun, **options)  # raises for invalid options
    reason = ""
    try:
        static, donated, signature = _selection.named_by(fun, options)
        shardings = _shardings(options.get("in_shardings"), options.get("out_shardings"), static)
        if others := options.keys() - _COVERED:
            raise HandOver(f"{min(others)} is given")
        settings = settings_as_in_jax(options, own, static, donated, shardings)
    except HandOver as e:
        settings, signature = Settings(**own, numbers_traced=True), ANY
        reason = str(e)
    hooks = PlainHooks(settings, (_make, (fun, options, own)), reason)
    attributes = copied_attributes(fun)
    if upstream is not None:
        hooks.upstream = upstream
        attributes = (
            copied_attributes(upstream) | attributes
        )  # JAX names partials and other objects
    return FilterJit(fun, hooks, signature, attributes)


def settings_as_in_jax(
    options: dict[str, Any],
    own: dict[str, Any],
    static: ArgumentSelection,
    donated: ArgumentSelection,
    shardings: Any,
) -> Settings:
    """Returns the settings of a function that behaves like ``jax.jit`` with these options."""
    passed_on = tuple(
        (name, options[name])
        for name, default in _PASSED_ON.items()
        if name in options and options[name] != default
    )
    usual = _usual_settings(static)
    if not (passed_on or donated or shardings) and own == _OWN:
        return usual
    more = {"donate": Donation(arguments=donated), "shardings": shardings, "jitkwargs": passed_on}
    return dataclasses.replace(usual, **own, **more)


@functools.lru_cache
def _usual_settings(static: ArgumentSelection) -> Settings:
    return Settings(
        donate=Donation(arguments=NO_ARGUMENTS),
        same_on_all_processes=False,
        numbers_traced=True,
        static=static,
    )


def _shardings(inputs: Any, outputs: Any, static: ArgumentSelection) -> Any:
    inputs, outputs = (None if _jax_compat.is_unspecified(x) else x for x in (inputs, outputs))
    if inputs is None and outputs is None:
        return None
    is_value = import_room("_shardings._place", "`in_shardings`").is_value
    inputs = tuple(inputs) if isinstance(inputs, list) else inputs
    for name, value in (("in_shardings", inputs), ("out_shardings", outputs)):
        if not all(map(is_value, jax.tree_util.tree_leaves(value, is_leaf=is_value))):
            raise HandOver(f"{name} has a leaf that is no sharding")
    # Copy the containers: ``jax.jit`` flattens them right away too.
    inputs, outputs = (
        jax.tree_util.tree_map(lambda leaf: leaf, x, is_leaf=is_value) for x in (inputs, outputs)
    )
    if isinstance(inputs, tuple):
        rest = list(inputs)  # one per traced positional argument
        for i in sorted(static.positions):
            rest[i:i] = [None] * (i <= len(rest))
        inputs = tuple(rest)
    elif not is_value(inputs):
        raise HandOver("in_shardings is neither a tuple nor a sharding")
    return import_room("_shardings._options", "`in_shardings`").Shardings(inputs, outputs, None)
