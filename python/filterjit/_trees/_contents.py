"""The contents and attributes of static values, which keys and descriptions consist of.

*Attributes* are an instance's ``__dict__`` and slots, without results of
``functools.cached_property``. An instance has *hidden memory* if a C base class outside `CONTENTS`
makes it larger (`is_known`).

The descriptions of functions (`_functions`) use the same contents and attributes.
"""

import argparse
import array
import builtins
import collections
import collections.abc
import datetime
import decimal
import fractions
import functools
import gc
import inspect
import itertools
import operator
import pathlib
import struct
import types
import typing
import uuid
from collections.abc import Callable, Collection
from typing import Any

import jax.tree_util as jtu
import numpy as np

from .. import _core

Key = Callable[[Any], Any]

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


def nothing(_: Any) -> Any:
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
    collections.UserDict: nothing,
    collections.UserList: nothing,
    collections.UserString: nothing,
    collections.ChainMap: nothing,
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
EXACT = {int, float, complex, str, bytes, tuple, frozenset, datetime.date, datetime.timedelta}
# The classes of `typing` objects, which keep everything in their ``__dict__``.
ALIASES = {
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


# ---- attributes ----

OWN_ATTRIBUTES = "__filterjit_"  # the prefix of filterjit's attributes


def dict_of(x: Any) -> Any:
    try:
        return object.__getattribute__(x, "__dict__")
    except AttributeError:
        return {}


def slots_of(cls: Any, base: Any) -> list[tuple[str, Key]]:
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
    slots = [(name, get) for name, get in slots_of(cls, base) if name not in omitted]
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
            found.sort(key=name_of)
        return tuple(found)

    return attributes


def has_other_dict(cls: Any) -> bool:
    """True if a class defines ``__dict__``, so that its attributes might be elsewhere."""
    own = cls.__dict__
    return "__dict__" in own and type(own["__dict__"]) is not types.GetSetDescriptorType


def is_known(cls: Any, base: Any) -> bool:
    """True if a base's contents and the attributes are certainly everything in an instance."""
    pointers = len(slots_of(cls, base))
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


def name_of(item: tuple[Any, Any]) -> str:
    return str(item[0])
