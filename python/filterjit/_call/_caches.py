"""The caches of a function, which are stored on the function itself."""

import threading
import types
import weakref
from typing import Any

import jax

from .. import _core
from .._base._unwrap import layers

MAXSIZE = 4096
"""How many variants a cache holds at most, by default: as many as JAX's own cache of compiled
functions."""

CACHES_ATTRIBUTE = "__filterjit_caches__"

# Held for one look-up and one store. It is an RLock because the garbage collector may run while it
# is held, and a finalizer may call a jitted function.
_lock = threading.RLock()


class FunctionCaches:
    """The caches of one function, by the function's Structure and the options.

    It is stored in the function's ``__dict__``, so that the caches die with the function.
    ``functools.wraps`` copies a ``__dict__``, so a function may have the FunctionCaches of another
    function, which `owner` tells. Copies and pickles are empty.
    """

    __slots__ = ("by_key", "owner")

    def __init__(self, owner: Any = None) -> None:
        self.owner = None if owner is None else weakref.ref(owner)
        self.by_key: dict[Any, _core.Cache] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return FunctionCaches, ()


def owner_of(fun: Any) -> Any:
    """Returns the object whose ``__dict__`` holds the caches of `fun`, or None if there is none.

    It is the first Python function among `fun` and the callables that it wraps. If there is none, it
    is the ``__call__`` of the innermost callable's class if that is a Python function, or the
    innermost callable itself if it has a ``__dict__`` and can be referenced weakly.
    """
    for inner in layers(fun, "__func__", "__wrapped__", "func"):
        if type(inner) is types.FunctionType:
            return inner
        is_method = isinstance(inner, (types.MethodType, staticmethod))
        if not is_method and jax.tree_util.all_leaves((inner,)):
            break
    call = getattr(type(inner), "__call__", None)  # noqa: B004
    if type(call) is types.FunctionType:
        return call
    if type(inner).__weakrefoffset__ and isinstance(getattr(inner, "__dict__", None), dict):
        return inner
    return None


def caches_of(fun: Any) -> dict[Any, _core.Cache] | None:
    """Returns the caches of a function, or None if there is no object to store them on."""
    owner = owner_of(fun)
    if owner is None:
        return None
    caches = FunctionCaches(owner)
    while True:
        # `setdefault` is atomic: threads that arrive at once all find the same object.
        found: FunctionCaches = owner.__dict__.setdefault(CACHES_ATTRIBUTE, caches)
        if found.owner is not None and found.owner() is owner:
            return found.by_key
        with _lock:
            if owner.__dict__.get(CACHES_ATTRIBUTE) is found:
                owner.__dict__[CACHES_ATTRIBUTE] = caches


def names_of(fun: Any) -> tuple[str, str]:
    """Returns the ``__name__`` and ``__qualname__`` of the function below wrappers and partials."""
    for inner in layers(fun, "__wrapped__", "func"):
        is_partial = hasattr(inner, "func") and hasattr(inner, "keywords")
        if not hasattr(inner, "__wrapped__") and not is_partial:
            break
    if hasattr(inner, "__name__") and hasattr(inner, "__qualname__"):
        return inner.__name__, inner.__qualname__
    return type(inner).__name__, type(inner).__qualname__
