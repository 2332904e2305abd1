"""The caches of a function. They are stored on the function itself, or on the object whose method
it is."""

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
"""How many variants a cache holds at most, by default: as many as JAX's own cache of compiled
functions."""

CACHES_ATTRIBUTE = "__filterjit_caches__"

# Held for one look-up and one store. It is an RLock because the garbage collector may run while it
# is held, and a finalizer may call a jitted function.
_lock = RLock()


class Owned:
    """A value in the ``__dict__`` of its owner, such as the caches of a function.

    So the value dies with the owner. The value refers to the owner, and only a reference from the
    owner makes this a cycle that the garbage collector can free.

    ``functools.wraps`` and ``copy.copy`` copy a ``__dict__``, so an object may have the Owned of
    another one. `owner` tells whose it is. In a pickle or a deep copy, None stands for it, so that
    the pickle can be loaded without filterjit.
    """

    __slots__ = ("owner", "value")

    def __init__(self, owner: Any, value: Any) -> None:
        self.owner = weakref.ref(owner)
        self.value = value

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


def _way_down(fun: Any) -> Iterator[Any]:
    """Yields `fun` and the callables that it wraps, down to a Python function or a leaf."""
    for inner in unwrap_chain(fun, "__func__", "__wrapped__", "func"):
        yield inner
        if type(inner) is types.FunctionType:
            return
        is_method = isinstance(inner, (types.MethodType, staticmethod))
        if not is_method and jax.tree_util.all_leaves((inner,)):
            return


def _call_of_class(x: Any) -> Any:
    """Returns the Python function that is the ``__call__`` of the class of `x`, or None."""
    *_, call = _way_down(getattr(type(x), "__call__", None))  # noqa: B004
    return call if type(call) is types.FunctionType else None


def _attributes(x: Any) -> dict[str, Any] | None:
    """Returns the ``__dict__`` of `x`, or None if caches cannot be stored there.

    The ``__dict__`` of a pytree may be a part of it: the function that flattens it may go through
    all attributes, as Flax's does.
    """
    if isinstance(x, type) or not type(x).__weakrefoffset__:
        return None
    try:
        attributes = object.__getattribute__(x, "__dict__")
    except AttributeError:
        return None
    is_plain = type(attributes) is dict and jax.tree_util.all_leaves((x,))
    return attributes if is_plain else None


def _equals_only_itself(x: Any) -> bool:
    cls: Any = type(x)
    return cls.__eq__ is object.__eq__ and cls.__hash__ is object.__hash__


def owner_of(fun: Any) -> Any:
    """Returns the object whose ``__dict__`` holds the caches of `fun`, or None if there is none.

    It lives no longer than `fun` is useful, and at least as long as an equal callable may be
    created: the instance that a method is bound to, a Python function, or a callable object that
    equals only itself. These cannot hold caches if they have no ``__dict__`` or are pytrees. Then,
    and for callable objects with an ``__eq__`` of their own, it is the Python function in the
    class, so equal objects share their caches.
    """
    for inner in _way_down(fun):
        # Two bound methods of Python are equal if their instances are the same object.
        is_method = type(inner) is types.MethodType or (
            isinstance(inner, _core.BoundMethod) and _equals_only_itself(inner.__self__)
        )
        if is_method and _attributes(inner.__self__) is not None:
            return inner.__self__
    if type(inner) is types.FunctionType:
        return inner
    call = _call_of_class(inner)
    if _attributes(inner) is not None and (call is None or _equals_only_itself(inner)):
        return inner
    return call


def caches_of(fun: Any) -> dict[Any, _core.Cache] | None:
    """Returns the caches of a function, or of one object's methods, by the function's Structure and
    options. None if there is no object to store them on."""
    owner = owner_of(fun)
    if owner is None:
        return None
    caches = Owned(owner, {})
    attributes: dict[str, Any] = object.__getattribute__(owner, "__dict__")
    while True:
        # `setdefault` is atomic: threads that arrive at once all find the same object.
        found = attributes.setdefault(CACHES_ATTRIBUTE, caches)
        if type(found) is Owned and found.owner() is owner:
            by_key: dict[Any, _core.Cache] = found.value
            return by_key
        with _lock:
            if attributes.get(CACHES_ATTRIBUTE) is found:
                attributes[CACHES_ATTRIBUTE] = caches


def names_of(fun: Any) -> tuple[str, str]:
    """Returns the ``__name__`` and ``__qualname__`` of the function below wrappers and partials."""
    for inner in unwrap_chain(fun, "__wrapped__", "func"):
        is_partial = hasattr(inner, "func") and hasattr(inner, "keywords")
        if not hasattr(inner, "__wrapped__") and not is_partial:
            break
    if hasattr(inner, "__name__") and hasattr(inner, "__qualname__"):
        return inner.__name__, inner.__qualname__
    return type(inner).__name__, type(inner).__qualname__


def attributes_of(fun: Any) -> dict[str, Any]:
    """Returns the attributes that ``functools.update_wrapper`` would copy."""
    found: dict[str, Any] = {}
    if isinstance(fun, types.FunctionType):  # the __dict__ of other objects is their state
        found.update(fun.__dict__)
    found.pop(CACHES_ATTRIBUTE, None)
    found.pop("__wrapped__", None)
    for name in functools.WRAPPER_ASSIGNMENTS:
        try:
            found[name] = getattr(fun, name)
        except AttributeError:
            pass
    return found
