"""How static values are compared, type by type.

Static values are leaves other than arrays, static fields, and aux data. Two of them should share a
program only if the traced function can't tell them apart. The ``==`` of many types is coarser: a
dataclass with 1 equals one with True.

The C core has rules for a few built-in types (``fj_static_rule`` in ``structure/statics.h``). For
any other type it asks `static_key`, once. The *key* of a type is a function that returns a value's
contents. The core compares these in place of the value, by the same rules, down to the built-in
types. It reads the contents on each call, or checks that they are the same objects, and so notices
changes in place.

The first matching row applies:

===========================================  =======================================================
type                                         compared by
===========================================  =======================================================
None, bool, int, str, bytes                  value
float, complex                               bits: 0.0 and -0.0 differ, a NaN equals itself
tuple, list, dict                            elements or items, in order
frozenset, set                               elements, in any order
a type without its own ``__eq__``            identity: functions, plain objects
a class, an enum member, a weak reference    identity
a jitted method                              the jitted function and the instance: with an array in
                                             it by identity, otherwise like a static value
a dataclass, an attrs class                  the fields in its generated ``__eq__``; if inherited,
                                             all attributes
a pydantic model, a configuration of         items, and how they are written
ml_collections or omegaconf
an Equinox Module                            all fields, static or not
a JAX array                                  dtype, weak type, shape, sharding and contents
a type of `CONTENTS`, or a subclass          the contents listed there, plus a subclass's attributes,
                                             its ``==`` if it defines ``__eq__``, and its pickle if
                                             it has hidden memory
any other Mapping, Set or Sequence           ``==`` and items (in any order for a Mapping or a Set,
                                             except a view of keys or items)
another class with ``__eq__``, no hash       attributes, if it has no hidden memory
another class of the standard library        attributes and ``==``
any other type                               its ``__eq__`` and its hash
===========================================  =======================================================

A leaf must be hashable, as for ``jax.jit``. In a static field or aux data, a value of the last row
is compared by identity if its ``__hash__`` raises.

*Immutable* values are never compared with themselves: enum members, classes, JAX's shardings,
meshes and ufuncs, NumPy's own dtypes, and Flax's mapping of attributes that are data.

For the following types, the core sees by addresses that a value hasn't changed, and compares two
values field by field (``structure/snapshot.h``): lists, dicts, dataclasses, attrs classes, bound
methods, PyTreeDefs, tuple subclasses without attributes, and an ``nnx.GraphDef``, which consists of
these. A value with a hash generated from its fields is also seen to be unchanged, but two of them
are compared by ``__eq__``.

The core uses keys only if it can't see that two values are equal, and without a GIL. The
`static_contents` of a type must therefore agree with its key. The core remembers the last other
value that was equal, until that changes.

`_contents` has `CONTENTS`, and defines attributes and hidden memory.
"""

import collections
import collections.abc
import dataclasses
import enum
import operator
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.tree_util as jtu
import numpy as np

from .. import _core
from .._compat import _equinox_compat
from ._contents import (
    ALIASES,
    CONTENTS,
    EXACT,
    Key,
    attributes_of,
    base_of,
    is_known,
    name_of,
    nothing,
    slots_of,
)

STANDARD_LIBRARY = sys.stdlib_module_names - {"__main__"}


class OwnEquality:
    """Compares values by their own ``==``. An exception means unequal."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OwnEquality):
            return NotImplemented
        try:
            return self.value is other.value or bool(self.value == other.value)
        except Exception:
            return False

    def __hash__(self) -> int:
        return id(type(self.value))


class _Array:
    """Compares JAX arrays by aval, sharding and contents. Unreadable ones equal themselves."""

    __slots__ = ("array",)

    def __init__(self, array: Any) -> None:
        self.array = array

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Array):
            return NotImplemented
        x, y = self.array, other.array
        if x is y:
            return True
        try:
            return (
                hash(self) == hash(other)
                and getattr(x, "weak_type", False) == getattr(y, "weak_type", False)
                and x.sharding == y.sharding
                and getattr(x, "committed", True) == getattr(y, "committed", True)
                and _bytes_of(x) == _bytes_of(y)
            )
        except Exception:
            return False

    def __hash__(self) -> int:
        return hash((self.array.shape, str(self.array.dtype)))


def _bytes_of(x: Any) -> bytes:
    is_key = jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)
    data: bytes = np.asarray(jax.random.key_data(x) if is_key else x).tobytes()
    return data


class _Absent:
    """The type of the placeholder for an unset field."""


_ABSENT = _Absent()


def _fields(names: list[str]) -> Key:
    if not names:
        return nothing
    get = operator.attrgetter(*names)

    def fields(x: Any) -> Any:
        try:
            try:
                return get(x)
            except AttributeError:
                return tuple([getattr(x, name, _ABSENT) for name in names])
        except Exception:  # from a property: the value equals only itself
            return _core.identity(x)

    return fields


# ---- generated equality ----


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
    return _both(compared, attributes_of(cls, omitted=[name for name, _ in fields]))


def _library_key(cls: Any, definer: Any) -> Key | None:
    """Returns the key of a library's configuration, in which 1 equals True, or None."""
    match definer.__module__.partition(".")[0]:
        case "pydantic" if hasattr(cls, "__pydantic_fields__"):
            more = operator.attrgetter(
                "__pydantic_extra__", "__pydantic_private__", "__pydantic_fields_set__"
            )
            return _or_identity(lambda x: (tuple(sorted(vars(x).items(), key=name_of)), more(x)))
        case "ml_collections":
            return attributes_of(cls)
        case "omegaconf" if issubclass(cls, collections.abc.Mapping):
            # Items are interpolated; the repr shows which.
            return _or_identity(lambda x: (tuple(x.items()), repr(x), OwnEquality(x)))
    return None


def _module_key(cls: Any, definer: Any) -> Key | None:
    equinox = _equinox_compat.equinox()
    if equinox is None or definer is not equinox.Module:
        return None
    return attributes_of(cls)


# ---- the rules ----


def _both(first: Key, second: Key | None) -> Key:
    return first if second is None else lambda x: (first(x), second(x))


def _pickled(x: Any) -> Any:
    """Returns the pickled state of a value with hidden memory."""
    reduced = x.__reduce_ex__(4)
    return reduced if isinstance(reduced, str) else reduced[:3]  # the rest are iterators


def _or_identity(key: Key) -> Key:
    """Guards a key: if it raises, the value equals only itself."""

    def guarded(x: Any) -> Any:
        try:
            return key(x)
        except Exception:
            return _core.identity(x)

    return guarded


def _definer_of_eq(cls: Any) -> Any:
    """Returns the class that defines the ``__eq__`` of `cls`."""
    return _definer(cls, "__eq__")


def _definer(cls: Any, method: str) -> Any:
    return next(base for base in cls.__mro__ if method in base.__dict__)


def _contents_key(cls: Any, definer: Any, base: Any) -> Key | None:
    """Returns the key of `base`, a type of `CONTENTS`, or of a subclass."""
    numpy = issubclass(base, (np.dtype, np.generic, np.ndarray))
    attributes = attributes_of(cls, base)
    if not numpy and not is_known(cls, base):
        attributes = _both(_pickled, attributes)
    key = _or_identity(_both(CONTENTS[base], attributes))
    # NumPy's == compares elements, and 1 equals True. The contents say more.
    if definer is not base and issubclass(definer, base) and not numpy:
        return _both(key, OwnEquality)
    return None if base in EXACT and attributes is None else key


def _abstract_key(cls: Any) -> Key | None:
    """Returns the key of a container that defines ``__eq__``, otherwise None."""
    if issubclass(cls, collections.abc.Mapping):
        return _or_identity(lambda x: (tuple(sorted(x.items(), key=name_of)), OwnEquality(x)))
    if issubclass(cls, (collections.abc.KeysView, collections.abc.ItemsView)):
        return _or_identity(lambda x: (tuple(x), OwnEquality(x)))
    if issubclass(cls, collections.abc.Set):
        return _or_identity(lambda x: (frozenset(x), OwnEquality(x)))
    if issubclass(cls, collections.abc.Sequence):
        return _or_identity(lambda x: (tuple(x), OwnEquality(x)))
    return None


def static_key(cls: Any) -> Key | None:
    """Returns the key of a type: a function from a value to the contents compared in its place.
    None for types compared by the C core's own rules, or by their ``__eq__`` and ``__hash__``."""
    if issubclass(cls, jax.Array) and cls.__module__.partition(".")[0] in ("jax", "jaxlib"):
        return _Array  # including arrays of `jax.random` keys
    if issubclass(cls, _core.BoundMethod):
        return operator.methodcaller("_key")
    definer = _definer_of_eq(cls)
    if definer is object:
        return None
    if issubclass(cls, (enum.Enum, type, weakref.ref, *weakref.ProxyTypes)):
        return _core.identity
    if definer in ALIASES:
        return attributes_of(cls)
    key = _generated_key(cls, definer) or _library_key(cls, definer) or _module_key(cls, definer)
    if key is not None:
        return key
    base = base_of(cls)
    if base is not object:
        return _contents_key(cls, definer, base)
    key = _abstract_key(cls)
    if key is None and is_known(cls, object):
        attributes = attributes_of(cls)
        if cls.__hash__ is None:
            return attributes
        package = str(definer.__module__).partition(".")[0]
        if attributes is not None and package in STANDARD_LIBRARY:
            return _or_identity(_both(attributes, OwnEquality))
    return key


# ---- immutable values ----


def _is_builtin_dtype(x: np.dtype[Any]) -> bool:
    # A shared dtype of NumPy or ml_dtypes. Dtypes made by programs change through `names` and
    # `__setstate__`.
    return bool(x.isbuiltin) and x.metadata is None


def immutable_of(cls: type) -> Callable[[Any], bool] | None:
    """Returns a predicate for immutable values of the type, or None if none are known."""
    return _is_builtin_dtype if issubclass(cls, np.dtype) else None


def static_contents(cls: Any) -> tuple[str, ...] | bool | None:
    """Returns the names of attributes that decide equality: equal attributes, equal values.

    The C core then reads them itself, and calls the key only if it can't. If there's no key, a
    value equals itself while these attributes do. Returns True if values have no attributes and
    never change, though the parts in their key might; None if neither is known.
    """
    if cls in (types.MethodType, jtu.PyTreeDef):
        return True
    definer = _definer_of_eq(cls)
    fields = _generated_fields(cls, definer)
    if fields is None and base_of(cls) is tuple:
        return (is_known(cls, tuple) and not slots_of(cls, tuple)) or None
    names = [name for name, compare in fields or () if compare]
    if fields is None and static_key(cls) is None:  # the fields in its hash show changes
        fields = _generated_fields(cls, _definer(cls, "__hash__"), "__hash__")
        names = [name for name, _ in fields or ()]
    elif definer is not cls:
        return None
    if fields is None or any(type(name) is not str for name in names):
        return None
    return tuple(names)
