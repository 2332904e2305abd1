"""How static values are compared: leaves other than arrays, static fields, and aux data.

Two of them should share a program only if the traced function can't tell them apart. The ``==`` of
many types is coarser: a dataclass with 1 equals one with True.

The C core has rules for a few built-in types (``fj_static_rule`` in ``structure/statics.h``). For
any other type it asks `static_key`, once. The *key* of a type is a function that returns a value's
contents (`_values`). The core compares these in place of the value, by the same rules, down to the
built-in types. It reads the contents on each call, or checks that they are the same objects, and so
notices changes in place.

A leaf must be hashable, as for ``jax.jit``. In a static field or aux data, a value whose
``__hash__`` raises is compared by identity if its type has no key.

*Fixed* values are never compared with themselves: enum members, classes, JAX's shardings,
meshes and ufuncs, NumPy's own dtypes, and Flax's mapping of attributes that are data.

For some types, the core sees by addresses that a value hasn't changed, and compares two values
field by field (``structure/snapshot.h``): lists, dicts, dataclasses, attrs classes, bound methods,
PyTreeDefs, tuple subclasses without attributes, and an ``nnx.GraphDef``, which consists of these. A
value with a hash generated from its fields is also seen to be unchanged, but two of them are
compared by ``__eq__``. The core uses keys only if it can't see that two values are equal, and
without a GIL. The `static_contents` of a type must therefore agree with its key. The core remembers
the last other value that was equal, until that changes.
"""

import collections.abc
import dataclasses
import enum
import operator
import sys
import types
import typing
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.tree_util as jtu
import numpy as np

from .. import _core
from .._compat import _equinox_compat
from . import _values
from ._values import ROWS, Facts, Key, bytes_of, definer_of, facts_of, reader_of_attributes

# The classes of `typing` objects, which keep everything in their ``__dict__``.
_ALIASES = {
    type(alias)
    for alias in (
        typing.List[int],  # noqa: UP006
        typing.Callable[[int], int],
        typing.Union[int, str],  # noqa: UP007
        typing.Literal[1],
        typing.Annotated[int, 1],
    )
}.difference(ROWS)
_STANDARD_LIBRARY = sys.stdlib_module_names - {"__main__"}


class Compared:
    """Compares values by `is_equal`. An exception means unequal."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def is_equal(self, other: Any) -> bool:
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        try:
            return self.value is other.value or self.is_equal(other)
        except Exception:
            return False

    def __hash__(self) -> int:
        return id(type(self.value))


class OwnEquality(Compared):
    """Compares values by their own ``==``."""

    __slots__ = ()

    def is_equal(self, other: Any) -> bool:
        return bool(self.value == other.value)


class _Array(Compared):
    """Compares JAX arrays by aval, sharding and contents. Unreadable ones equal themselves."""

    __slots__ = ()

    def is_equal(self, other: Any) -> bool:
        x, y = self.value, other.value
        return _placed_aval(x) == _placed_aval(y) and bytes_of(x) == bytes_of(y)

    def __hash__(self) -> int:
        return hash((self.value.shape, str(self.value.dtype)))


def _placed_aval(x: Any) -> Any:
    more = getattr(x, "weak_type", False), getattr(x, "committed", True)
    return x.shape, str(x.dtype), x.sharding, more


def _both(first: Key, second: Key | None) -> Key:
    return first if second is None else lambda x: (first(x), second(x))


def _or_identity(key: Key) -> Key:
    """Guards a key: if it raises, the value equals only itself."""

    def guarded(x: Any) -> Any:
        try:
            return key(x)
        except Exception:
            return _core.identity(x)

    return guarded


_ABSENT = object()  # an unset field


def _fields(names: list[str]) -> Key:
    if not names:
        return lambda x: ()
    get = operator.attrgetter(*names)
    get_some = _or_identity(lambda x: tuple([getattr(x, name, _ABSENT) for name in names]))

    def fields(x: Any) -> Any:
        try:
            return get(x)
        except AttributeError:
            return get_some(x)
        except Exception:  # from a property: the value equals only itself
            return _core.identity(x)

    return fields


@dataclasses.dataclass(unsafe_hash=True)
class _Example:
    """An example of the methods that `dataclasses` generates."""

    x: int


def is_like_generated(function: Any, name: str) -> bool:
    """True if `dataclasses` generates such a method. (A missing file proves nothing.)"""
    code, example = getattr(function, "__code__", None), getattr(_Example, name).__code__
    return isinstance(code, types.CodeType) and (
        (code.co_qualname, code.co_filename) == (example.co_qualname, example.co_filename)
    )


def _generated_fields(
    cls: Any, definer: Any, method: str = "__eq__"
) -> list[tuple[str, bool]] | None:
    """Returns (field, is compared) if `definer` has a generated `method`, otherwise None."""
    function = definer.__dict__[method]
    if "__dataclass_fields__" in definer.__dict__ and is_like_generated(function, method):
        return [(f.name, f.compare) for f in dataclasses.fields(cls)]
    if "__attrs_attrs__" in definer.__dict__ and str(
        getattr(getattr(function, "__code__", None), "co_filename", "")
    ).startswith("<attrs generated"):
        return [(f.name, bool(f.eq)) for f in cls.__attrs_attrs__]
    return None


def _generated_key(cls: Any, definer: Any) -> Key | None:
    """Returns the key of a class with a generated ``__eq__``, otherwise None."""
    fields = _generated_fields(cls, definer)
    if fields is None:
        return None
    compared = _fields([name for name, compare in fields if compare])
    if definer is cls:
        return compared
    return _both(compared, reader_of_attributes(cls, omitted=[name for name, _ in fields]))


def _library_key(cls: Any, definer: Any) -> Key | None:
    """Returns the key of a library's class, in which 1 equals True, or None."""
    equinox = _equinox_compat.equinox()
    if equinox is not None and definer is equinox.Module:
        return reader_of_attributes(cls)
    match definer.__module__.partition(".")[0]:
        case "pydantic" if hasattr(cls, "__pydantic_fields__"):
            more = operator.attrgetter(
                "__pydantic_extra__", "__pydantic_private__", "__pydantic_fields_set__"
            )
            return _or_identity(_both(lambda x: _sorted_items(vars(x)), more))
        case "ml_collections":
            return reader_of_attributes(cls)
        case "omegaconf" if issubclass(cls, collections.abc.Mapping):
            # Items are interpolated; the repr shows which.
            return _or_identity(lambda x: (tuple(x.items()), repr(x), OwnEquality(x)))
    return None


def _sorted_items(x: Any) -> tuple[Any, ...]:
    return tuple(sorted(x.items(), key=_values.by_name))


def _pickled(x: Any) -> Any:
    """Returns the pickled state of a value with hidden memory."""
    reduced = x.__reduce_ex__(4)
    return reduced if isinstance(reduced, str) else reduced[:3]  # the rest are iterators


def _contents_key(cls: Any, definer: Any, facts: Facts) -> Key | None:
    """Returns the key of a type of `ROWS`, or of a subclass."""
    numpy = issubclass(facts.base, (np.dtype, np.generic, np.ndarray))
    attributes = facts.attributes
    if not numpy and not facts.is_complete:
        attributes = _both(_pickled, attributes)
    key = _or_identity(_both(ROWS[facts.base].contents, attributes))
    # NumPy's == compares elements, and 1 equals True. The contents say more.
    if definer is not facts.base and issubclass(definer, facts.base) and not numpy:
        return _both(key, OwnEquality)
    return None if ROWS[facts.base].is_exact and attributes is None else key


def _abstract_key(cls: Any) -> Key | None:
    """Returns the key of a container that defines ``__eq__``, otherwise None."""
    is_view = issubclass(cls, (collections.abc.KeysView, collections.abc.ItemsView))
    read: Key
    if issubclass(cls, collections.abc.Mapping):
        read = _sorted_items
    elif issubclass(cls, collections.abc.Set) and not is_view:
        read = frozenset
    elif is_view or issubclass(cls, collections.abc.Sequence):
        read = tuple
    else:
        return None
    return _or_identity(_both(read, OwnEquality))


def static_key(cls: Any) -> Key | None:
    """Returns the key of a type: a function from a value to the contents compared in its place.
    None for types compared by the C core's own rules, or by their ``__eq__`` and ``__hash__``."""
    if issubclass(cls, jax.Array) and cls.__module__.partition(".")[0] in ("jax", "jaxlib"):
        return _Array  # including arrays of `jax.random` keys
    if issubclass(cls, _core.BoundMethod):
        return operator.methodcaller("_key")
    if cls is types.MethodType:
        return lambda x: (x.__func__, _core.identity(x.__self__))
    definer = definer_of(cls)
    if definer is object:
        return None
    if issubclass(cls, (enum.Enum, type, weakref.ref, *weakref.ProxyTypes)):
        return _core.identity
    if definer in _ALIASES:
        return reader_of_attributes(cls)
    key = _generated_key(cls, definer) or _library_key(cls, definer)
    if key is not None:
        return key
    facts = facts_of(cls)
    if facts.base is not object and not ROWS[facts.base].is_around:
        return _contents_key(cls, definer, facts)
    key = _abstract_key(cls)
    if key is None and facts.base is object and facts.is_complete:
        if cls.__hash__ is None:
            return facts.attributes
        package = str(definer.__module__).partition(".")[0]
        if facts.attributes is not None and package in _STANDARD_LIBRARY:
            return _or_identity(_both(facts.attributes, OwnEquality))
    return key


def fixed_of(cls: type) -> Callable[[Any], bool] | None:
    """Returns a predicate for fixed values of the type, or None if none are known. Dtypes made by
    programs, unlike those of NumPy and ml_dtypes, change through `names` and `__setstate__`."""
    is_dtype = issubclass(cls, np.dtype)
    return (lambda x: bool(x.isbuiltin) and x.metadata is None) if is_dtype else None


def static_contents(cls: Any) -> tuple[str, ...] | bool | None:
    """Returns the names of attributes that decide equality: equal attributes, equal values.

    The C core then reads them itself, and calls the key only if it can't. If there's no key, a
    value equals itself while these attributes do. Returns True if values have no attributes and
    never change, though the parts in their key might; None if neither is known.
    """
    if cls in (types.MethodType, jtu.PyTreeDef):
        return True
    definer = definer_of(cls)
    fields = _generated_fields(cls, definer)
    if fields is None and issubclass(cls, tuple):
        return (facts_of(cls).is_complete and not _values.slots_of(cls, tuple)) or None
    names = [name for name, compare in fields or () if compare]
    if fields is None and static_key(cls) is None:  # the fields in its hash show changes
        fields = _generated_fields(cls, definer_of(cls, "__hash__"), "__hash__")
        names = [name for name, _ in fields or ()]
    elif definer is not cls:
        return None
    if fields is None or any(type(name) is not str for name in names):
        return None
    return tuple(names)
