"""The caches of a function, stored on the function itself or on a method's instance."""

import functools
import types
import weakref
from collections.abc import Iterator
from typing import Any

import jax

from .. import _core
from .._base._locks import RLock
from .._base._unwrap import unwrap_chain

MAXSIZE = 4096
"""The default size of a cache, as large as JAX's own."""

CACHES_ATTRIBUTE = "__filterjit_caches__"

# For one look-up and store. Reentrant: a finalizer can run meanwhile and call a jitted function.
_lock = RLock()


class Owned:
    """A value in the ``__dict__`` of its owner, such as the caches of a function.

    The value refers to its owner. If only the owner refers to the value, the garbage collector
    can free both. ``functools.wraps`` and ``copy.copy`` copy a ``__dict__``, and a function can end
    up with someone else's Owned: compare `owner`. In pickles and deep copies it becomes None, to
    load without filterjit.
    """

    __slots__ = ("owner", "value")

    def __init__(self, owner: Any, value: Any) -> None:
        self.owner = weakref.ref(owner)
        self.value = value

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


def _way_down(fun: Any) -> Iterator[Any]:
    """Yields `fun` and the callables it wraps, down to a Python function or a leaf."""
    for inner in unwrap_chain(fun, "__func__", "__wrapped__", "func"):
        yield inner
        if type(inner) is types.FunctionType:
            return
        is_method = isinstance(inner, (types.MethodType, staticmethod))
        if not is_method and jax.tree_util.all_leaves((inner,)):
            return


def _call_of_class(x: Any) -> Any:
    """Returns the ``__call__`` of the class of `x` if that's a Python function, otherwise None."""
    *_, call = _way_down(getattr(type(x), "__call__", None))  # noqa: B004
    return call if type(call) is types.FunctionType else None


def _dict_for_caches(x: Any) -> dict[str, Any] | None:
    """Returns the ``__dict__`` of `x`, or None if it can't store caches. A pytree's can't, because
    its flatten function might go through all attributes, as Flax's does."""
    if isinstance(x, type) or not type(x).__weakrefoffset__:
        return None
    try:
        attributes = object.__getattribute__(x, "__dict__")
    except AttributeError:
        return None
    is_plain = type(attributes) is dict and jax.tree_util.all_leaves((x,))
    return attributes if is_plain else None


def owner_of(fun: Any) -> Any:
    """Returns the object with the caches of `fun` in its ``__dict__``, or None.

    It dies with `fun`, but not while an equal callable could still be created: the instance of a
    bound method, a Python function, or a callable object that equals only itself. If that's a
    pytree or has no ``__dict__``, or if a callable object defines ``__eq__``, it's the Python
    function in the class. Equal objects therefore share caches.
    """
    for inner in _way_down(fun):
        # Equal bound methods have the same instance.
        is_method = isinstance(inner, (types.MethodType, _core.BoundMethod))
        if is_method and _dict_for_caches(inner.__self__) is not None:
            return inner.__self__
    if type(inner) is types.FunctionType:
        return inner
    cls: Any = type(inner)
    call = _call_of_class(inner)
    if _dict_for_caches(inner) is not None and (
        call is None or (cls.__eq__ is object.__eq__ and cls.__hash__ is object.__hash__)
    ):
        return inner
    return call


def caches_of(fun: Any) -> dict[Any, _core.Cache] | None:
    """Returns the caches of a function or an instance's methods, or None if nothing holds them."""
    owner = owner_of(fun)
    if owner is None:
        return None
    caches = Owned(owner, {})
    attributes: dict[str, Any] = object.__getattribute__(owner, "__dict__")
    while True:
        # `setdefault` is atomic: all threads find the same object.
        found = attributes.setdefault(CACHES_ATTRIBUTE, caches)
        if type(found) is Owned and found.owner() is owner:
            by_key: dict[Any, _core.Cache] = found.value
            return by_key
        with _lock:
            if attributes.get(CACHES_ATTRIBUTE) is found:
                attributes[CACHES_ATTRIBUTE] = caches


def names_of(fun: Any) -> tuple[str, str]:
    """Returns the names of the function inside wrappers and partials."""
    for inner in unwrap_chain(fun, "__wrapped__", "func"):
        is_partial = hasattr(inner, "func") and hasattr(inner, "keywords")
        if not hasattr(inner, "__wrapped__") and not is_partial:
            break
    if hasattr(inner, "__name__") and hasattr(inner, "__qualname__"):
        return inner.__name__, inner.__qualname__
    return type(inner).__name__, type(inner).__qualname__


def copied_attributes(fun: Any) -> dict[str, Any]:
    """Returns the attributes that ``functools.update_wrapper`` copies."""
    found: dict[str, Any] = {}
    if isinstance(fun, types.FunctionType):  # in other objects, the __dict__ is state
        found.update(fun.__dict__)
    found.pop(CACHES_ATTRIBUTE, None)
    found.pop("__wrapped__", None)
    for name in functools.WRAPPER_ASSIGNMENTS:
        try:
            found[name] = getattr(fun, name)
        except AttributeError:
            pass
    return found
