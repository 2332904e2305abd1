"""What static values are compared by, type by type.

Static values are the leaves of a pytree that are not arrays, the values of static fields, and aux
data. Two of them should share a compiled program only if the traced function cannot tell them
apart. The ``==`` of many types is coarser than that: a dataclass with 1 equals one with True.

The C core has a rule for a few built-in types (``fj_static_rule`` in ``structure/statics.h``). For
any other type it asks `static_key`, once. The *key* of a type is a function. It returns the
contents of a value, which the core compares instead of the value, by the same rules, down to the
built-in types. On each call, the core takes the contents, or looks whether they are the same
objects. So it notices changes in place.

The first row that fits holds:

===========================================  =======================================================
type                                         compared
===========================================  =======================================================
None, bool, int, str, bytes                  the value
float, complex                               the bits: 0.0 and -0.0 differ, and a NaN equals itself
tuple, list, dict                            the elements, the items, in order
frozenset, set                               the elements, in any order
a type without an ``__eq__`` of its own      identity: a function, an object
a class; a member of an enum; a weak         identity
reference
a dataclass, an attrs class                  the fields that its generated ``__eq__`` compares;
                                             where this ``__eq__`` is inherited, all attributes
a pydantic model, a ml_collections or        the items, and how they are written down
an omegaconf configuration
an Equinox Module                            all fields, static or not
a JAX array                                  dtype, weak type, shape, sharding and contents
a type of `CONTENTS`, or a subclass          the contents that are named there, and the attributes
                                             of a subclass; its ``==`` too if it defines
                                             ``__eq__``; its pickle too if it has other memory
any other Mapping, Set or Sequence           the items (of a Mapping or a Set in any order, of a
                                             view of keys or items in order), and its ``==``
another class with ``__eq__``, no hash       its attributes, if it has no other memory
another class of the standard library        its attributes and its ``==``
any other type                               its ``__eq__`` and its hash
===========================================  =======================================================

A leaf must be hashable, as for ``jax.jit``. In a static field or aux data, a value of the last row
that raises in ``__hash__`` is compared by identity.

Some values are *immutable*, and are not compared with themselves again: an enum member, a class, a
sharding, mesh or ufunc of JAX, a dtype of NumPy's own, and the mapping in which Flax says which
attributes are data.

For other types, the core sees by addresses that a value has not changed, and compares two values
field by field (``structure/snapshot.h``): lists, dicts, dataclasses, attrs classes, bound methods,
PyTreeDefs, tuples of a subclass without attributes, and an ``nnx.GraphDef``, which consists of such
values. It sees the same of a value whose hash was generated from its fields, but compares two of
these by their ``__eq__``.

The core takes the keys only if it does not see that two values are equal, and without a GIL. So
`static_contents` and the key of a type have to agree. The core remembers the last other value that
was equal, until it changes.

*Attributes* are the ``__dict__`` and the slots of an instance, without the results of
``functools.cached_property``. An instance has *other memory* if a base in C, which is not in the
table, makes it larger (`is_known`).

The descriptions of functions (`_functions`) have the same contents and attributes.
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
    # The strides, because they decide what `ravel("K")` and `tobytes("A")` return.
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
    """Returns attributes as the class `cls` tells them, whatever a subclass says."""
    if len(names) == 1:
        return vars(cls)[names[0]].__get__  # type: ignore[no-any-return]
    get = [vars(cls)[name].__get__ for name in names]
    return lambda x: tuple([g(x) for g in get])


def _state(cls: Any) -> Key:
    """Returns what `pickle` keeps of an instance of `cls`."""
    reduce = cls.__reduce_ex__
    return lambda x: reduce(x, 4)[1]


def _nothing(_: Any) -> Any:
    return ()


def _names_in_order(x: Any) -> Any:
    return tuple(dict_of(x))


def _proxied(x: Any) -> Any:
    # The mapping itself, which may have a default, and the items of one that has no contents.
    return *gc.get_referents(x), *_flat(types.MappingProxyType.items(x))


# The types of `CONTENTS`, below, whose instances can change in place.
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
    types.SimpleNamespace: _names_in_order,  # `vars` tells it
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

# The contents of a value, besides its attributes: a tuple, a frozenset or one value. No code
# of a subclass runs to find them. Subclasses are compared in the same way.
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
# Types of `CONTENTS` with an ``==`` that compares all that there is in an instance of the type
# itself.
_EXACT = {int, float, complex, str, bytes, tuple, frozenset, datetime.date, datetime.timedelta}
# The classes of such `typing` objects. They keep everything in their ``__dict__``.
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
    """Returns the type of `CONTENTS` that tells the contents of a class; `object` for others."""
    return next((base for base in cls.__mro__ if base in CONTENTS), object)


class OwnEquality:
    """Equals another one if their values are equal by their own ``==``, and it does not raise."""

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
    """Equals another one if its JAX array has the same aval, sharding and contents. An array that
    cannot be read, because it is deleted or on the devices of another process, equals itself."""

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

OWN_ATTRIBUTES = "__filterjit_"  # the prefix of attributes that filterjit sets


def dict_of(x: Any) -> Any:
    try:
        return object.__getattribute__(x, "__dict__")
    except AttributeError:
        return {}


def _slots(cls: Any, base: Any) -> list[tuple[str, Key]]:
    """Returns the slots that a class adds to those of a base: their names, and functions that read
    them."""
    return [
        (name, value.__get__)
        for c in cls.__mro__
        if c not in base.__mro__ and "__slots__" in c.__dict__
        for name, value in c.__dict__.items()
        if type(value) is types.MemberDescriptorType
    ]


def attributes_of(cls: Any, base: Any = object, omitted: Collection[str] = ()) -> Key | None:
    """Returns a function from an instance to its attributes, as pairs that are sorted by name.

    The slots of a base in `CONTENTS` are not among them, because the contents tell what is in them.
    Returns None if an instance cannot have attributes.
    """
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
        except TypeError:  # a name that is no string
            found.sort(key=_name_of)
        return tuple(found)

    return attributes


def has_other_dict(cls: Any) -> bool:
    """Whether a class has a ``__dict__`` of its own making, so that attributes may be elsewhere."""
    own = cls.__dict__
    return "__dict__" in own and type(own["__dict__"]) is not types.GetSetDescriptorType


def is_known(cls: Any, base: Any) -> bool:
    """Whether the contents that a base has, and the attributes, are all that there is in an
    instance of a class: its memory has no room for more. When in doubt, they are not."""
    pointers = len(_slots(cls, base))
    for was, offset in (
        (base.__dictoffset__, cls.__dictoffset__),
        (base.__weakrefoffset__, cls.__weakrefoffset__),
    ):  # other negative offsets are before the instance's memory
        pointers += offset != was and (offset > 0 or offset == -_POINTER)
    return cls.__basicsize__ == base.__basicsize__ + pointers * _POINTER and not any(
        has_other_dict(c)
        or "n_unnamed_fields" in c.__dict__  # such as `time.struct_time`, a tuple with hidden items
        for c in cls.__mro__
        if c not in base.__mro__
    )


_POINTER = struct.calcsize("P")
_first = operator.itemgetter(0)


def _name_of(item: tuple[Any, Any]) -> str:
    return str(item[0])


class _Absent:
    """The type of what stands for a field that is not set."""


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


# ---- equality that was generated ----


@dataclasses.dataclass(unsafe_hash=True)
class _Example:
    """Has the methods that `dataclasses` generates."""

    x: int


def is_like_generated(function: Any, name: str) -> bool:
    """Whether `dataclasses` generates such methods of this name; not whether the function is in a
    file, since the functions of ``python -c`` are not either."""
    code, example = getattr(function, "__code__", None), getattr(_Example, name).__code__
    return isinstance(code, types.CodeType) and (
        (code.co_qualname, code.co_filename) == (example.co_qualname, example.co_filename)
    )


def _generated_fields(
    cls: Any, definer: Any, method: str = "__eq__"
) -> list[tuple[str, bool]] | None:
    """Returns the fields of a class of which a method, which `definer` has, was generated, and
    whether its ``__eq__`` compares them; None for other classes."""
    function = definer.__dict__[method]
    if "__dataclass_fields__" in definer.__dict__ and is_like_generated(function, method):
        return [(f.name, f.compare) for f in dataclasses.fields(cls)]
    if "__attrs_attrs__" in definer.__dict__ and str(
        getattr(getattr(function, "__code__", None), "co_filename", "")
    ).startswith("<attrs generated"):
        return [(f.name, bool(f.eq)) for f in cls.__attrs_attrs__]
    return None


def _generated_key(cls: Any, definer: Any) -> Key | None:
    """Returns the key of a class whose ``__eq__`` was generated; None for other classes."""
    fields = _generated_fields(cls, definer)
    if fields is None:
        return None
    compared = _fields([name for name, compare in fields if compare])
    if definer is cls:
        return compared
    return _both(compared, attributes_of(cls, omitted=[name for name, _ in fields]))


def _library_key(cls: Any, definer: Any) -> Key | None:
    """Returns the key of a configuration of one of these libraries, whose ``__eq__`` takes 1 for
    True; None for other classes."""
    match definer.__module__.partition(".")[0]:
        case "pydantic" if hasattr(cls, "__pydantic_fields__"):
            more = operator.attrgetter(
                "__pydantic_extra__", "__pydantic_private__", "__pydantic_fields_set__"
            )
            return _or_identity(lambda x: (tuple(sorted(vars(x).items(), key=_name_of)), more(x)))
        case "ml_collections":
            return attributes_of(cls)
        case "omegaconf" if issubclass(cls, collections.abc.Mapping):
            # The items are interpolated; the repr tells which of them are.
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
    """Returns what `pickle` keeps of a value, which has memory that is not in its attributes."""
    reduced = x.__reduce_ex__(4)
    return reduced if isinstance(reduced, str) else reduced[:3]  # the rest are iterators


def _or_identity(key: Key) -> Key:
    """Returns a key for types whose methods may raise: such a value equals itself alone."""

    def guarded(x: Any) -> Any:
        try:
            return key(x)
        except Exception:
            return _core.identity(x)

    return guarded


def _definer_of_eq(cls: Any) -> Any:
    """Returns the class whose ``__eq__`` a class has."""
    return _definer(cls, "__eq__")


def _definer(cls: Any, method: str) -> Any:
    return next(base for base in cls.__mro__ if method in base.__dict__)


def _contents_key(cls: Any, definer: Any, base: Any) -> Key | None:
    """Returns the key of a type that is `base`, a type of `CONTENTS`, or a subclass of it."""
    numpy = issubclass(base, (np.dtype, np.generic, np.ndarray))
    attributes = attributes_of(cls, base)
    if not numpy and not is_known(cls, base):
        attributes = _both(_pickled, attributes)
    key = _or_identity(_both(CONTENTS[base], attributes))
    # NumPy's == compares elements and takes 1 for True. The contents tell more.
    if definer is not base and issubclass(definer, base) and not numpy:
        return _both(key, OwnEquality)
    return None if base in _EXACT and attributes is None else key


def _abstract_key(cls: Any) -> Key | None:
    """Returns the key of a container that defines its own ``__eq__``."""
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
    """Returns the key of a type: a function from a value to what is compared in its place.

    Returns None if values of the type are compared by the C core's own rule or by their own
    ``__eq__`` and ``__hash__``. The module's docstring has the table.
    """
    if issubclass(cls, jax.Array) and cls.__module__.partition(".")[0] in ("jax", "jaxlib"):
        return _Array  # also an array of keys of `jax.random`
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


# ---- what cannot change ----


def _is_builtin_dtype(x: np.dtype[Any]) -> bool:
    # A dtype of NumPy or ml_dtypes, which is one shared object. `names` and `__setstate__`
    # change dtypes that a program has made.
    return bool(x.isbuiltin) and x.metadata is None


def immutable_of(cls: type) -> Callable[[Any], bool] | None:
    """Returns a function that tells whether nothing can change what a value of the type is equal
    to; None if that is not known of any value."""
    return _is_builtin_dtype if issubclass(cls, np.dtype) else None


def static_contents(cls: Any) -> tuple[str, ...] | bool | None:
    """Returns the names of attributes such that two values of the type are equal if these are.

    The C core then reads them itself, and calls the key only where it cannot. If there is no key,
    one value equals itself as long as these attributes do. Returns True if nothing changes a value
    without attributes itself, but perhaps what is in its key; None if neither is known.
    """
    if cls in (types.MethodType, jtu.PyTreeDef):
        return True
    definer = _definer_of_eq(cls)
    fields = _generated_fields(cls, definer)
    if fields is None and base_of(cls) is tuple:
        return (is_known(cls, tuple) and not _slots(cls, tuple)) or None
    names = [name for name, compare in fields or () if compare]
    if fields is None and static_key(cls) is None:  # its hash tells whether a value has changed
        fields = _generated_fields(cls, _definer(cls, "__hash__"), "__hash__")
        names = [name for name, _ in fields or ()]
    elif definer is not cls:
        return None
    if fields is None or any(type(name) is not str for name in names):
        return None
    return tuple(names)
