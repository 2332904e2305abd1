"""What values consist of, type by type.

`ROWS` has the types with known contents, and `facts_of` everything known about a type. `_keys` uses
the facts for hits, `_functions` for ``functions="structure"``, `_digests` and `_codes` for files. To
add a type, add a row. docs/statics.md has a table of the rules by type.

*Attributes* are an instance's ``__dict__`` and slots, without results of
``functools.cached_property``. An instance has *hidden memory* if a C base class outside `ROWS`
makes it larger.
"""

import argparse
import array
import builtins
import collections
import collections.abc
import datetime
import decimal
import enum
import fractions
import functools
import gc
import inspect
import itertools
import logging
import operator
import pathlib
import re
import struct
import threading
import types
import uuid
import weakref
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import jax
import jax.tree_util as jtu
import numpy as np

from .. import _core
from .._base._package import is_library

Key = Callable[[Any], Any]

# ---- contents ----


def _treedef_contents(treedef: Any) -> Any:
    children = treedef.children()
    return treedef.node_data(), tuple(map(_treedef_contents, children)) if children else ()


def _scalar_contents(x: np.generic) -> Any:
    return x.dtype, x.item() if x.dtype.hasobject else x.tobytes()


def _ndarray_contents(x: np.ndarray[Any, Any]) -> Any:
    # With strides, because they affect `ravel("K")` and `tobytes("A")`.
    plain = np.asarray(x)
    contents = plain.tolist() if plain.dtype.hasobject else plain.tobytes()
    return plain.dtype, plain.shape, plain.strides, plain.flags.writeable, contents


def bytes_of(x: Any) -> bytes:
    """Returns the contents of an array, or of the data of an array of random keys."""
    is_key = jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)
    data: bytes = np.asarray(jax.random.key_data(x) if is_key else x).tobytes()
    return data


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


def _nothing(_: Any) -> Any:
    return ()


def _proxied(x: Any) -> Any:
    # The mapping itself, which might have a default, and its items, if the mapping has no contents.
    return *gc.get_referents(x), *_flat(types.MappingProxyType.items(x))


def _partial(x: Any) -> Any:
    return x.func, len(x.args), *x.args, *_flat(x.keywords.items())


def columns(x: Any) -> list[Any]:
    """Returns a mapping's keys, followed by its values."""
    return [*x, *x.values()]


def pairs(columns: collections.abc.Sequence[Any]) -> collections.abc.Iterator[tuple[Any, Any]]:
    half = len(columns) // 2
    return zip(columns[:half], columns[half:], strict=True)


class Row(NamedTuple):
    """The contents of a type's values.

    Attributes:
        contents: a function from a value to its contents besides its attributes: a tuple, a
            frozenset or a single value. It runs no code of subclasses.
        make: makes a value from its parts in a file. None if files don't hold such values.
        parts: a function from a value to its parts in a file, if they aren't the contents.
        is_mutable: True if the contents can change in place.
        is_exact: True if ``==`` between direct instances compares the contents exactly.
        is_around: True for objects around functions, which hits compare by their own rules.
    """

    contents: Key
    make: Callable[..., Any] | None = None
    parts: Key | None = None
    is_mutable: bool = False
    is_exact: bool = False
    is_around: bool = False


_exact = functools.partial(Row, is_exact=True)
_mutable = functools.partial(Row, is_mutable=True)
_around = functools.partial(Row, is_around=True)
_slice = operator.attrgetter("start", "stop", "step")
_of_method = operator.attrgetter("__func__", "__self__")
_of_built_in = operator.attrgetter("__name__", "__self__")
_reduced = operator.methodcaller("__reduce__")
_default_factory: Key = _read(collections.defaultdict, "default_factory")
_maxlen: Key = _read(collections.deque, "maxlen")
_typecode: Key = _read(array.array, "typecode")
_parameters: Key = _read(inspect.Signature, "parameters")
_return_annotation: Key = _read(inspect.Signature, "return_annotation")

ROWS: dict[type, Row] = {
    int: _exact(int.__int__, lambda text: int(text, 16), lambda x: [hex(int.__int__(x))]),
    float: _exact(float.__float__, float.fromhex, lambda x: [float.hex(x)]),
    complex: _exact(complex.__complex__, complex, operator.attrgetter("real", "imag")),
    str: _exact(str.__str__),
    bytes: _exact(bytes.__bytes__, bytes.fromhex, lambda x: [bytes.hex(x)]),
    tuple: _exact(_elements(tuple, tuple), lambda *items: items),
    frozenset: _exact(_elements(frozenset, frozenset), lambda *items: frozenset(items)),
    list: _mutable(_elements(list, tuple), lambda *items: list(items)),
    set: _mutable(_elements(set, frozenset), lambda *items: set(items)),
    dict: _mutable(_items(dict), lambda *columns: dict(pairs(columns)), columns),
    range: Row(_slice, range),
    slice: Row(_slice, slice),
    # ---- the standard library ----
    collections.Counter: _mutable(_items(dict)),
    collections.OrderedDict: _mutable(_items(collections.OrderedDict)),
    collections.defaultdict: _mutable(lambda x: (_default_factory(x), *_flat(dict.items(x)))),
    collections.deque: _mutable(lambda x: (_maxlen(x), *collections.deque.__iter__(x))),
    collections.UserDict: _mutable(_nothing),
    collections.UserList: _mutable(_nothing),
    collections.UserString: _mutable(_nothing),
    collections.ChainMap: _mutable(_nothing),
    # The order of the names is visible in `vars`.
    types.SimpleNamespace: _mutable(lambda x: tuple(dict_of(x))),
    argparse.Namespace: _mutable(lambda x: tuple(dict_of(x))),
    types.MappingProxyType: _mutable(_proxied),
    bytearray: _mutable(lambda x: bytes(bytearray.copy(x))),
    array.array: _mutable(lambda x: (_typecode(x), array.array.tobytes(x))),
    memoryview: _mutable(lambda x: (x.format, x.shape, x.strides, x.readonly, x.tobytes())),
    decimal.Decimal: Row(decimal.Decimal.as_tuple),
    fractions.Fraction: Row(_read(fractions.Fraction, "numerator", "denominator")),
    datetime.date: _exact(datetime.date.toordinal),
    datetime.datetime: Row(lambda x: datetime.datetime.__reduce_ex__(x, 4)[1]),
    datetime.time: Row(lambda x: datetime.time.__reduce_ex__(x, 4)[1]),
    datetime.timedelta: _exact(_read(datetime.timedelta, "days", "seconds", "microseconds")),
    datetime.timezone: Row(datetime.timezone.__getinitargs__),  # type: ignore[attr-defined]
    uuid.UUID: Row(_read(uuid.UUID, "int", "is_safe")),
    pathlib.PurePath: Row(pathlib.PurePath.__str__),
    pathlib.Path: Row(pathlib.PurePath.__str__),
    inspect.Parameter: Row(_read(inspect.Parameter, "name", "kind", "default", "annotation")),
    inspect.Signature: Row(lambda x: (*_parameters(x).values(), _return_annotation(x))),
    types.GenericAlias: Row(_read(types.GenericAlias, "__origin__", "__args__", "__unpacked__")),
    types.UnionType: Row(operator.attrgetter("__args__")),
    # ---- JAX and NumPy ----
    jax.Device: Row(operator.attrgetter("platform", "id", "device_kind")),
    jtu.DictKey: Row(operator.attrgetter("key")),
    jtu.PyTreeDef: Row(_treedef_contents),
    np.dtype: Row(lambda x: (x.type, *x.__reduce__())),
    **dict.fromkeys((np.generic, *np.sctypeDict.values()), Row(_scalar_contents)),
    np.ndarray: _mutable(_ndarray_contents),
    # ---- around functions: equal contents mean equal behaviour ----
    functools.partial: _around(_partial),
    functools.partialmethod: _around(_partial),
    functools.singledispatchmethod: _around(operator.attrgetter("func", "dispatcher")),
    functools.cached_property: _around(operator.attrgetter("func")),
    property: _around(operator.attrgetter("fget", "fset", "fdel")),
    staticmethod: _around(operator.attrgetter("__func__")),
    classmethod: _around(operator.attrgetter("__func__")),
    types.MethodType: _around(_of_method),
    _core.BoundMethod: _around(_of_method),
    types.BuiltinFunctionType: _around(_of_built_in),
    types.MethodWrapperType: _around(_of_built_in),
    operator.attrgetter: _around(_reduced),
    operator.itemgetter: _around(_reduced),
    operator.methodcaller: _around(_reduced),
}
if (_frozendict := getattr(builtins, "frozendict", None)) is not None:  # Python 3.15
    ROWS[_frozendict] = Row(_items(_frozendict))
ATOMS: frozenset[type] = frozenset(
    {bool, int, float, complex, str, bytes, type(None), type(...), type(NotImplemented)}
)

# ---- attributes ----

_OWN_ATTRIBUTES = "__filterjit_"  # the prefix of filterjit's attributes
_POINTER = struct.calcsize("P")


def is_own(name: Any) -> bool:
    """True for the names of attributes that filterjit sets."""
    return type(name) is str and name.startswith(_OWN_ATTRIBUTES)


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


def reader_of_attributes(cls: Any, base: Any = object, omitted: Collection[str] = ()) -> Key | None:
    """Returns a function from an instance to its (name, value) pairs, sorted by name, without slots
    of a base in `ROWS`. Returns None if instances can't have attributes."""
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
            if name not in left_out and not str(name).startswith(_OWN_ATTRIBUTES)
        ]
        for name, get in slots:
            try:
                found.append((name, get(x)))
            except AttributeError:
                pass
        try:
            found.sort(key=_first)
        except TypeError:  # a name isn't a str
            found.sort(key=by_name)
        return tuple(found)

    return attributes


_first = operator.itemgetter(0)


def by_name(item: tuple[Any, Any]) -> str:
    return str(item[0])


def has_other_dict(cls: Any) -> bool:
    """True if a class defines ``__dict__``, so that its attributes might be elsewhere."""
    own = cls.__dict__
    return "__dict__" in own and type(own["__dict__"]) is not types.GetSetDescriptorType


def _is_complete(cls: Any, base: Any) -> bool:
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


# ---- the facts of a type ----

# Library types with unchanging values, besides JAX's and `typing`'s.
_FIXED: tuple[type, ...] = (
    *(types.MethodDescriptorType, types.WrapperDescriptorType, re.Pattern, logging.Logger),
    *(type(threading.Lock()), type(threading.RLock()), np.ufunc, type(np.sum), np.dtype),
)
_RULES: dict[type, str] = {
    types.FunctionType: "function",
    types.CellType: "cell",
    types.CodeType: "code",
    type: "cls",
    types.ModuleType: "module",
    types.MethodType: "method",
    _core.BoundMethod: "method",
    jax.Array: "jax_array",
    # The viewed object can change unnoticed.
    np.void: "instance",
    memoryview: "instance",
}


def definer_of(cls: Any, method: str = "__eq__") -> Any:
    """Returns the class that defines a method of `cls`."""
    return next(base for base in cls.__mro__ if method in base.__dict__)


class Facts:
    """Facts about the values of a type.

    Attributes:
        base: the first of its classes in `ROWS`; `object` if there is none.
        contents: the function of `base`; None if a value has only attributes.
        attributes: a function from a value to its attributes; None if it can't have any.
        is_mutable: True if contents can change in place.
        is_frozen: True if attributes can't change.
        is_complete: True if contents and attributes are the whole value.
        is_library: True if the type and its bases belong to installed packages.
        is_fixed: True if values of a library type never change.
        rule: the method that handles these values, of a class that walks through functions.
        ref: a weak reference to the type.
    """

    def __init__(self, cls: Any) -> None:
        address, forget = id(cls), known.pop
        self.ref = weakref.ref(cls, lambda _: forget(address, None))
        self.base: Any = next((base for base in cls.__mro__ if base in ROWS), object)
        row = ROWS.get(self.base, Row(_nothing))
        self.contents = None if self.base is object else row.contents
        has_copies = row.is_around and cls is self.base is not functools.partial  # of `wraps`
        findings = ("_inverted_",) if issubclass(cls, enum.Flag) else ()  # of ``~member``
        self.attributes = None if has_copies else reader_of_attributes(cls, self.base, findings)
        self.is_mutable = row.is_mutable
        own_setattr = definer_of(cls, "__setattr__") is not object
        self.is_frozen = own_setattr or issubclass(cls, enum.Enum) or row.is_around
        # A dtype's pickle says everything.
        self.is_complete = _is_complete(cls, self.base) or self.base is np.dtype
        self.is_library = all(is_library(module_of(c)) for c in cls.__mro__)
        package = str(module_of(cls)).partition(".")[0]
        self.is_fixed = package in ("jax", "jaxlib", "typing") or issubclass(cls, _FIXED)
        # The fields of these classes are the value. Ordinary objects often have other state, such
        # as a counter of steps.
        is_meant = self.base is not object or any(
            c is enum.Enum or not {"__dataclass_fields__", "__attrs_attrs__"}.isdisjoint(vars(c))
            for c in cls.__mro__
        )
        rule = next((rule for of, rule in _RULES.items() if issubclass(cls, of)), None)
        if rule is None and self.is_complete and is_meant and (row.is_around or not self.is_fixed):
            rule = "array" if self.base is np.ndarray else "contents"
        self.rule = rule or ("of_library" if self.is_library else "instance")


known: dict[int, Facts] = {}  # by address, because a metaclass can define ``__hash__``


def facts_of(cls: type) -> Facts:
    facts = known.get(id(cls))
    if facts is None or facts.ref() is not cls:
        facts = known[id(cls)] = Facts(cls)
    return facts


# Reads the module of a class without running code of its metaclass.
module_of = type.__dict__["__module__"].__get__

# ---- functions and wrappers ----

# Not copied by `functools.wraps`: JAX's names for the function, and its findings.
_NOT_OF_WRAPPERS = {*functools.WRAPPER_ASSIGNMENTS, "__annotations__", "_fun", "fun", "_jit_info"}


def parts_of_function(f: Any) -> list[tuple[str, Any, Any]]:
    """Returns (kind, name, value) for the parts of a function."""
    code, defaults = f.__code__, f.__defaults__ or ()
    parts = [("code", "", code)]
    if defaults:
        names = code.co_varnames[: code.co_argcount][::-1][: len(defaults)]
        named = itertools.zip_longest(names, defaults[::-1], fillvalue="")
        parts += [("defaults", name, x) for name, x in named]
    if f.__kwdefaults__:
        parts += [("defaults", name, x) for name, x in f.__kwdefaults__.items()]
    if f.__dict__:
        parts += [("attributes", name, x) for name, x in f.__dict__.items() if not is_own(name)]
    if f.__closure__:
        parts += zip(itertools.repeat("closure"), code.co_freevars, f.__closure__)
    return parts


def wraps_function(x: Any) -> bool:
    """True if a library's object wraps a function, like ``jax.jit(f)``."""
    return getattr(x, "__wrapped__", None) is not None


def parts_of_wrapper(x: Any) -> list[tuple[Any, Any]]:
    """Returns the (name, value) pairs of a wrapper."""
    own = {k: v for k, v in dict_of(x).items() if k not in _NOT_OF_WRAPPERS and not is_own(k)}
    return list({"__wrapped__": x.__wrapped__, **own}.items())


def name_in_library(x: Any) -> tuple[str, str] | None:
    """Returns (module, name) of a top-level library function without state, or its wrapper."""
    variables: Any = dict_of(x)
    module, name = variables.get("__module__"), variables.get("__qualname__")
    if type(x) is types.FunctionType:
        module = x.__globals__.get("__name__")
        name = None if x.__closure__ or variables else x.__code__.co_qualname
    is_named = type(name) is str and "<locals>" not in name and is_library(module)
    return (module, name) if is_named else None
