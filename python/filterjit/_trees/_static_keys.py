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

*Attributes* are an instance's ``__dict__`` and slots, without results of
``functools.cached_property``. An instance has *hidden memory* if a C base class outside this table
makes it larger (`is_known`).

The descriptions of functions (`_functions`) use the same contents and attributes.
"""

import argparse
import array
import builtins
import collections
import collections.abc
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import gc
import inspect
import itertools
import operator
import pathlib
import struct
import sys
import types
import typing
import uuid
import weakref
from collections.abc import Callable, Collection
from typing import Any

import jax
import jax.tree_util as jtu
import numpy as np

from .. import _core
from .._compat import _equinox_compat

Key = Callable[[Any], Any]

STANDARD_LIBRARY = sys.stdlib_module_names - {"__main__"}

# ---- contents ----


def _treedef_contents(treedef: Any) -> Any:
    children = treedef.children()
    return treedef.node_data(), tuple(map(_treedef_contents, children)) if children else ()


def _dtype_contents(dtype: np.dtype[Any]) -> Any:
    metadata = dict(dtype.metadata) if dtype.metadata else None
    number = dtype.type, dtype.num, dtype.str
    if dtype.names is None and dtype.subdtype is None:
        return *number, metadata
    fields: Any = dtype.fields or {}
    return (
        *number,
        dtype.subdtype,
        tuple((name, *fields[name]) for name in dtype.names or ()),
        dtype.itemsize,
        dtype.isalignedstruct,
        metadata,
    )


def _scalar_contents(x: np.generic) -> Any:
    return x.dtype, x.item() if x.dtype.hasobject else x.tobytes()


def _ndarray_contents(x: np.ndarray[Any, Any]) -> Any:
    # With strides, because they affect `ravel("K")` and `tobytes("A")`.
    plain = np.asarray(x)
    contents = plain.tolist() if plain.dtype.hasobject else plain.tobytes()
    return plain.dtype, plain.shape, plain.strides, plain.flags.writeable, contents


_flat = itertools.chain.from_iterable


def _items(cls: Any) -> Key:
    items = cls.items
    return lambda x: tuple(_flat(items(x)))


def _elements(cls: Any, kind: Any) -> Key:
    iterate = cls.__iter__
    return lambda x: kind(iterate(x))


def _read(cls: Any, *names: str) -> Key:
    """Reads attributes by the descriptors of `cls`, ignoring subclasses."""
    if len(names) == 1:
        return vars(cls)[names[0]].__get__  # type: ignore[no-any-return]
    get = [vars(cls)[name].__get__ for name in names]
    return lambda x: tuple([g(x) for g in get])


def _state(cls: Any) -> Key:
    """Returns the pickled state of a `cls`."""
    reduce = cls.__reduce_ex__
    return lambda x: reduce(x, 4)[1]


def _nothing(_: Any) -> Any:
    return ()


def _names_in_order(x: Any) -> Any:
    return tuple(dict_of(x))


def _proxied(x: Any) -> Any:
    # The mapping itself, which might have a default, and its items, if the mapping has no contents.
    return *gc.get_referents(x), *_flat(types.MappingProxyType.items(x))


# The mutable types of `CONTENTS`.
MUTABLE: dict[type, Key] = {
    list: _elements(list, tuple),
    set: _elements(set, frozenset),
    dict: _items(dict),
    collections.Counter: _items(dict),
    collections.OrderedDict: _items(collections.OrderedDict),
    collections.defaultdict: lambda x: (_default_factory(x), *_flat(dict.items(x))),
    collections.deque: lambda x: (_maxlen(x), *collections.deque.__iter__(x)),
    collections.UserDict: _nothing,
    collections.UserList: _nothing,
    collections.UserString: _nothing,
    collections.ChainMap: _nothing,
    types.SimpleNamespace: _names_in_order,  # visible in `vars`
    argparse.Namespace: _names_in_order,
    types.MappingProxyType: _proxied,
    bytearray: lambda x: bytes(bytearray.copy(x)),
    array.array: lambda x: (_typecode(x), array.array.tobytes(x)),
    memoryview: lambda x: (x.format, x.shape, x.strides, x.readonly, x.tobytes()),
    np.ndarray: _ndarray_contents,
}
_default_factory: Key = _read(collections.defaultdict, "default_factory")
_maxlen: Key = _read(collections.deque, "maxlen")
_typecode: Key = _read(array.array, "typecode")

# A value's contents besides its attributes: a tuple, a frozenset or a single value. Finding them
# runs no code of subclasses.
CONTENTS: dict[type, Key] = {
    int: int.__int__,
    float: float.__float__,
    complex: complex.__complex__,
    str: str.__str__,
    bytes: bytes.__bytes__,
    tuple: _elements(tuple, tuple),
    frozenset: _elements(frozenset, frozenset),
    range: operator.attrgetter("start", "stop", "step"),
    slice: operator.attrgetter("start", "stop", "step"),
    decimal.Decimal: decimal.Decimal.as_tuple,
    fractions.Fraction: _read(fractions.Fraction, "numerator", "denominator"),
    datetime.date: datetime.date.toordinal,
    datetime.datetime: _state(datetime.datetime),
    datetime.time: _state(datetime.time),
    datetime.timedelta: _read(datetime.timedelta, "days", "seconds", "microseconds"),
    datetime.timezone: datetime.timezone.__getinitargs__,  # type: ignore[attr-defined]
    uuid.UUID: _read(uuid.UUID, "int", "is_safe"),
    pathlib.PurePath: pathlib.PurePath.__str__,
    pathlib.Path: pathlib.PurePath.__str__,
    inspect.Parameter: _read(inspect.Parameter, "name", "kind", "default", "annotation"),
    inspect.Signature: lambda x: (*_parameters(x).values(), _return_annotation(x)),
    types.GenericAlias: _read(types.GenericAlias, "__origin__", "__args__", "__unpacked__"),
    types.UnionType: operator.attrgetter("__args__"),
    types.MethodType: lambda x: (x.__func__, _core.identity(x.__self__)),
    jtu.DictKey: operator.attrgetter("key"),
    jtu.PyTreeDef: _treedef_contents,
    np.dtype: _dtype_contents,
    **dict.fromkeys((np.generic, *np.sctypeDict.values()), _scalar_contents),
    **MUTABLE,
}
if (_frozendict := getattr(builtins, "frozendict", None)) is not None:  # Python 3.15
    CONTENTS[_frozendict] = _items(_frozendict)
_parameters: Key = _read(inspect.Signature, "parameters")
_return_annotation: Key = _read(inspect.Signature, "return_annotation")
# Types of `CONTENTS` with an exact ``==`` (between direct instances).
_EXACT = {int, float, complex, str, bytes, tuple, frozenset, datetime.date, datetime.timedelta}
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
}.difference(CONTENTS)


def base_of(cls: Any) -> Any:
    """Returns the base of a class that is in `CONTENTS`, otherwise `object`."""
    return next((base for base in cls.__mro__ if base in CONTENTS), object)


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


# ---- attributes ----

OWN_ATTRIBUTES = "__filterjit_"  # the prefix of filterjit's attributes


def dict_of(x: Any) -> Any:
    try:
        return object.__getattribute__(x, "__dict__")
    except AttributeError:
        return {}


def _slots(cls: Any, base: Any) -> list[tuple[str, Key]]:
    """Returns (name, getter) for the slots that a class adds to a base."""
    return [
        (name, value.__get__)
        for c in cls.__mro__
        if c not in base.__mro__ and "__slots__" in c.__dict__
        for name, value in c.__dict__.items()
        if type(value) is types.MemberDescriptorType
    ]


def attributes_of(cls: Any, base: Any = object, omitted: Collection[str] = ()) -> Key | None:
    """Returns a function from an instance to its (name, value) pairs, sorted by name, without slots
    of a base in `CONTENTS`. Returns None if instances can't have attributes."""
    names = {}
    for c in reversed(cls.__mro__):
        names.update(c.__dict__)
    left_out = {name for name, x in names.items() if isinstance(x, functools.cached_property)}
    left_out.update(omitted)
    slots = [(name, get) for name, get in _slots(cls, base) if name not in omitted]
    if not cls.__dictoffset__ and not slots:
        return None

    def attributes(x: Any) -> Any:
        found = [
            (name, value)
            for name, value in dict(dict_of(x)).items()
            if name not in left_out and not str(name).startswith(OWN_ATTRIBUTES)
        ]
        for name, get in slots:
            try:
                found.append((name, get(x)))
            except AttributeError:
                pass
        try:
            found.sort(key=_first)
        except TypeError:  # a name isn't a str
            found.sort(key=_name_of)
        return tuple(found)

    return attributes


def has_other_dict(cls: Any) -> bool:
    """True if a class defines ``__dict__``, so that its attributes might be elsewhere."""
    own = cls.__dict__
    return "__dict__" in own and type(own["__dict__"]) is not types.GetSetDescriptorType


def is_known(cls: Any, base: Any) -> bool:
    """True if a base's contents and the attributes are certainly everything in an instance."""
    pointers = len(_slots(cls, base))
    for was, offset in (
        (base.__dictoffset__, cls.__dictoffset__),
        (base.__weakrefoffset__, cls.__weakrefoffset__),
    ):  # other negative offsets lie before the instance's memory
        pointers += offset != was and (offset > 0 or offset == -_POINTER)
    return cls.__basicsize__ == base.__basicsize__ + pointers * _POINTER and not any(
        has_other_dict(c)
        or "n_unnamed_fields" in c.__dict__  # `time.struct_time`, a tuple with hidden items
        for c in cls.__mro__
        if c not in base.__mro__
    )


_POINTER = struct.calcsize("P")
_first = operator.itemgetter(0)


def _name_of(item: tuple[Any, Any]) -> str:
    return str(item[0])


class _Absent:
    """The type of the placeholder for an unset field."""


_ABSENT = _Absent()


def _fields(names: list[str]) -> Key:
    if not names:
        return _nothing
    get = operator.attrgetter(*names)

    def fields(x: Any) -> Any:
        try:
            return get(x)
        except AttributeError:
            return tuple(getattr(x, name, _ABSENT) for name in names)

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
            return _or_identity(lambda x: (tuple(sorted(vars(x).items(), key=_name_of)), more(x)))
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
    return None if base in _EXACT and attributes is None else key


def _abstract_key(cls: Any) -> Key | None:
    """Returns the key of a container that defines ``__eq__``, otherwise None."""
    if issubclass(cls, collections.abc.Mapping):
        return _or_identity(lambda x: (tuple(sorted(x.items(), key=_name_of)), OwnEquality(x)))
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
    definer = _definer_of_eq(cls)
    if definer is object:
        return None
    if issubclass(cls, (enum.Enum, type, weakref.ref, *weakref.ProxyTypes)):
        return _core.identity
    if definer in _ALIASES:
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
        return (is_known(cls, tuple) and not _slots(cls, tuple)) or None
    names = [name for name, compare in fields or () if compare]
    if fields is None and static_key(cls) is None:  # the fields in its hash show changes
        fields = _generated_fields(cls, _definer(cls, "__hash__"), "__hash__")
        names = [name for name, _ in fields or ()]
    elif definer is not cls:
        return None
    if fields is None or any(type(name) is not str for name in names):
        return None
    return tuple(names)
