"""The entries that JAX keeps by identity for NumPy arrays and functions that a trace has used.

JAX converts an array to a JAX dtype once. It reuses the result as long as a program holds it, even
if the array has been changed in place since. If 64 bits become 32, the result is a copy. JAX does
not notice a change of ``jax_enable_x64`` either.

JAX traces a function that is given to `jax.lax.scan`, ``jax.jit``, `jax.lax.reduce` and others once
for the same shapes, even if an object that it holds has been changed in place.
"""

import contextlib
import functools
import weakref
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from . import _jax_compat, _private

_canonicalize = _private.private("jax._src.dtypes", "canonicalize_value")

# All caches that JAX has registered, of which those count that refer weakly to what they are asked for;
# and some by their names: two of these, and of the others, those that are asked for a function.
_caches = _private.private("jax._src.util", "_caches")
_WEAK = (
    ("jax._src.interpreters.partial_eval", "trace_to_jaxpr"),
    ("jax._src.ad_checkpoint", "_trace_to_jaxpr"),
)
_STRONG = (
    ("jax._src.lax.lax", "_reduction_jaxpr"),
    ("jax._src.lax.lax", "_variadic_reduction_jaxpr"),
)

_strong_caches = [
    cache for names in _STRONG if hasattr(cache := _private.private(*names), "cache_clear")
]
# In JAX 0.10, whose caches do not tell their keys, the trace of what is dropped here may be found for
# another object, where that gets its address. So no more is dropped than a function's own traces.
_is_old = not all(hasattr(cache, "cache_keys") for cache in _strong_caches)


def _weak_caches() -> list[Any]:
    try:
        caches = [] if _is_old else list(_caches)
    except (TypeError, RuntimeError):  # there is no such name, or another thread adds one
        caches = []
    caches = caches or [_private.private(*names) for names in _WEAK]
    return [cache for cache in caches if hasattr(cache, "evict_weakref")]


def _may_know(cache: Any, function: Any) -> bool:
    """Whether a cache may have been asked for a function."""
    return _is_old or any(x is function for _, args, _ in cache.cache_keys() for x in args)


_also: list[Callable[[Any], object]] = []


def when_traced_again(forget: Callable[[Any], object]) -> None:
    """Lets `trace_again` call a function too: what gives JAX another object in the place of a
    user's function drops that object."""
    _also.append(forget)


def _conversion(x: np.ndarray) -> Any:
    """Returns what JAX keeps of an array; if that is nothing, it converts it.

    Fallback: the constant of a program.
    """
    if _canonicalize is not None:
        return _canonicalize(x)
    closed = jax.make_jaxpr(lambda: x)()
    return closed.consts[0] if closed.consts else closed.jaxpr.outvars[0].val


@functools.cache
def _forget() -> Callable[[Any], object] | None:
    """Returns the callback of JAX's weak references to arrays, which makes it forget a conversion.

    It is called with the reference when an array dies. Fallback: None.
    """
    x = np.zeros(1)
    kept = _conversion(x)
    found = [reference.__callback__ for reference in weakref.getweakrefs(x)]
    del kept
    return found[0] if len(found) == 1 else None


def convert_again(x: np.ndarray) -> None:
    """Makes JAX convert a NumPy array again, unless what it keeps of it is right.

    Fallback: the conversion gets the values that the array has now. Then an older program that is
    lowered again has them too.
    """
    if not weakref.getweakrefcount(x):
        return  # JAX keeps nothing of it
    with np.errstate(all="ignore"):  # of casts to 32 bits
        try:
            kept = _conversion(x)
        except (TypeError, ValueError):
            return  # it can be in no program
        if not isinstance(kept, np.ndarray) or _is_current(kept, x):
            return
        forget = _forget()
        for reference in weakref.getweakrefs(x):
            if forget is not None and reference.__callback__ is forget:
                forget(reference)
        if _conversion(x) is kept:
            np.copyto(kept, x, casting="unsafe")


def _is_current(kept: np.ndarray, x: np.ndarray) -> bool:
    if kept.dtype != jax.dtypes.canonicalize_dtype(x.dtype):
        return False  # jax_enable_x64 was another
    if np.may_share_memory(kept, x):
        return True
    return bool(np.asarray(x).astype(kept.dtype).tobytes() == kept.tobytes())


def trace_again(function: Any) -> None:
    """Makes JAX trace a function, or another callable object, again.

    Fallback: what ``jax.jit`` has for that.
    """
    for forget in _also:
        forget(function)
    with contextlib.suppress(Exception):  # it has no hash, say, and JAX keeps nothing of it
        for cache in _strong_caches:
            if _may_know(cache, function):
                cache.cache_clear()  # of all functions: each is traced again
        if weakref.getweakrefcount(function):
            caches = _weak_caches()
            for cache in caches:
                cache.evict_weakref(function)
            if not caches:
                _jax_compat.jit(function).clear_cache()
