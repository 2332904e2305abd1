"""What is known of code and of types, for the keys of functions (`_function_keys`).

Code is read once for each code object, and a type is looked at once, when a value of it is met for
the first time.
"""

import array
import collections
import datetime
import decimal
import dis
import enum
import fractions
import functools
import inspect
import itertools
import operator
import pathlib
import re
import struct
import sys
import types
import uuid
import weakref
import zoneinfo
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.tree_util as jtu
import numpy as np

from .. import _core

# ---- code ----

Names = dict[str, "Names"]
"""Names that code reads, each with the names of the attributes that it reads from the value:
``a.b.c + a.d`` gives ``{"a": {"b": {"c": {}}, "d": {}}}``."""


class Code:
    """Facts about a code object.

    Attributes:
        names: the variables that it reads, or that functions defined in it read.
        globals: those of them that may be globals.
        parameters: the names that it reads from each positional parameter, the last one first.
        distrusted: the indices of the parts to leave out of the keys of its functions.
        ref: a weak reference to the code object.
    """

    __slots__ = ("distrusted", "globals", "names", "parameters", "ref")

    def __init__(self, code: types.CodeType) -> None:
        address, forget = id(code), _codes.pop
        self.ref = weakref.ref(code, lambda _: forget(address, None))
        self.names: Names = {}
        global_names: set[str] = set()
        _read_names(code, self.names, global_names)
        self.globals = tuple((name, self.names[name]) for name in sorted(global_names))
        parameters = reversed(code.co_varnames[: code.co_argcount])
        self.parameters = tuple(self.names.get(name, {}) for name in parameters)
        self.distrusted: frozenset[int] = frozenset()


_codes: dict[int, Code] = {}  # by address, because hashing a code object reads all of it


def of_code(code: types.CodeType) -> Code:
    facts = _codes.get(id(code))
    if facts is None or facts.ref() is not code:
        facts = _codes[id(code)] = Code(code)
    return facts


def _read_names(code: types.CodeType, names: Names, global_names: set[str]) -> None:
    """Adds the variables that `code` reads, and the attributes that it reads from them."""
    top: Names | None = None  # of the value on top of the stack, if it was read by name
    for i in dis.get_instructions(code):
        argument = i.argval[-1] if isinstance(i.argval, tuple) and i.argval else i.argval
        if i.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            top = None if top is None else top.setdefault(argument, {})
        elif "LOAD" in i.opname and any(
            kind in i.opname for kind in ("GLOBAL", "NAME", "DEREF", "FAST")
        ):
            top = names.setdefault(argument, {})
            if "GLOBAL" in i.opname or "NAME" in i.opname:
                global_names.add(argument)
        elif i.opname not in ("EXTENDED_ARG", "CACHE", "NOP", "COPY", "DUP_TOP"):
            top = None
    for constant in code.co_consts:
        if type(constant) is types.CodeType:
            _read_names(constant, names, global_names)


# ---- types ----

Elements = Callable[[Any], Iterable[Any]]


def _none(_: Any) -> Iterable[Any]:
    return ()


def _chained(items: Elements) -> Elements:
    return lambda x: itertools.chain.from_iterable(items(x))


def _attribute(cls: type, name: str) -> Callable[[Any], Any]:
    return vars(cls)[name].__get__  # type: ignore[no-any-return]


def _preceded(first: Callable[[Any], Any], elements: Elements) -> Elements:
    return lambda x: (first(x), *elements(x))


def _buffer(x: Any) -> Iterable[Any]:
    return (bytes(memoryview(x)),)


# The types in C whose instances are known by their elements and attributes, with functions that
# return the elements and run no code of a subclass.
_IMMUTABLE: dict[type, Elements] = {
    tuple: tuple.__iter__,
    frozenset: frozenset.__iter__,
    str: lambda x: (str.__str__(x),),
    bytes: _buffer,
    int: lambda x: (int.__int__(x),),
    float: lambda x: (float.__float__(x),),
    complex: lambda x: (complex.__complex__(x),),
}
_MUTABLE: dict[type, Elements] = {
    list: list.__iter__,
    set: set.__iter__,
    dict: _chained(dict.items),
    types.MappingProxyType: _chained(types.MappingProxyType.items),
    collections.OrderedDict: _chained(collections.OrderedDict.items),
    collections.defaultdict: _preceded(
        _attribute(collections.defaultdict, "default_factory"), _chained(dict.items)
    ),
    collections.deque: _preceded(
        _attribute(collections.deque, "maxlen"), collections.deque.__iter__
    ),
    bytearray: _buffer,
    array.array: _preceded(_attribute(array.array, "typecode"), _buffer),
    types.SimpleNamespace: _none,
}
_ELEMENTS: dict[type, Elements] = {**_IMMUTABLE, **_MUTABLE, object: _none}

# Classes in Python whose instances are known by their attributes, as those of dataclasses are.
_MUTABLE_CLASSES: tuple[type, ...] = (
    collections.ChainMap,
    collections.UserDict,
    collections.UserList,
    collections.UserString,
)
_IMMUTABLE_CLASSES: tuple[type, ...] = (
    fractions.Fraction,
    uuid.UUID,
    enum.Enum,
)

_LRU_CACHE: type = functools._lru_cache_wrapper
FUNCTIONS: frozenset[type] = frozenset(
    {types.FunctionType, jax.custom_jvp, jax.custom_vjp, _LRU_CACHE}
)
"""The types of functions that are compared by identity where a name gives them: as the value of a
global variable, or of an attribute of a module or class."""

# Values that cannot change, or that behave as they did when they were traced first.
_BY_IDENTITY: tuple[type, ...] = (
    object,
    types.CodeType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    staticmethod,
    classmethod,
    property,
    np.ufunc,
    type(np.sum),
    _core.FilterJit,
)

# Types whose ``==`` is exact, by the rules for static values.
_BY_VALUE: frozenset[type] = frozenset(
    {
        decimal.Decimal,
        datetime.date,
        datetime.timedelta,
        datetime.timezone,
        zoneinfo.ZoneInfo,
        re.Pattern,
        types.UnionType,
        pathlib.PurePosixPath,
        pathlib.PureWindowsPath,
        type(pathlib.Path()),
        jtu.PyTreeDef,
        jax.ShapeDtypeStruct,
        jax.sharding.Mesh,
        jax.sharding.PartitionSpec,
        jax.sharding.NamedSharding,
        jax.sharding.SingleDeviceSharding,
    }
)

_RULES: dict[type, str] = {
    types.FunctionType: "function_number",
    types.MethodType: "method",
    _core.BoundFilterJit: "method",
    types.BuiltinFunctionType: "built_in",
    types.MethodWrapperType: "built_in",
    types.CellType: "cell",
    _LRU_CACHE: "wrapper",
    jax.custom_jvp: "wrapper",
    jax.custom_vjp: "wrapper",
    inspect.Signature: "signature",
    range: "range",
    slice: "range",
    datetime.datetime: "time",
    datetime.time: "time",
    operator.attrgetter: "reduced",
    operator.itemgetter: "reduced",
    operator.methodcaller: "reduced",
    **dict.fromkeys(_BY_IDENTITY, "identity"),
    **dict.fromkeys(_BY_VALUE, "value"),
}
_RULES_OF_SUBCLASSES: dict[type, str] = {
    type: "named",
    types.ModuleType: "named",
    np.ndarray: "unknown",
    types.GenericAlias: "value",
    np.generic: "scalar",
    np.dtype: "value",
    functools.partial: "partial",
}


# Packages whose own functions and objects are taken as fixed.
_JAX = frozenset({"jax", "jaxlib"})
_LIBRARIES = _JAX | {"equinox", "filterjit", "numpy"} | sys.stdlib_module_names - {"__main__"}


def is_library(module: Any, libraries: frozenset[str] = _LIBRARIES) -> bool:
    """Whether a module of this name belongs to a library whose code is taken as fixed."""
    return type(module) is str and module.partition(".")[0] in libraries


class Type:
    """What the values of a type contribute to a key.

    Attributes:
        rule: the name of the method of the walk that returns the part for a value.
        elements: returns the elements of a value, if it is known by its contents.
        unordered: whether their order does not count.
        slots: the descriptors of the attributes that are not in ``__dict__``.
        has_dict: whether a value has a ``__dict__``.
        cached: the names in there that hold what ``functools.cached_property`` computed.
        mutable: whether a value can change in place: "no", "yes", or "attributes", if it has any.
        ref: a weak reference to the type.
    """

    __slots__ = (
        "cached",
        "elements",
        "has_dict",
        "mutable",
        "ref",
        "rule",
        "slots",
        "unordered",
    )

    def __init__(self, cls: Any) -> None:
        address, forget = id(cls), _types.pop
        self.ref = weakref.ref(cls, lambda _: forget(address, None))
        mro = cls.__mro__
        base = next(c for c in mro if c in _ELEMENTS)
        own = [vars(c) for c in mro if c not in _ELEMENTS]
        attributes = [(name, x) for names in own for name, x in names.items()]
        self.elements = _ELEMENTS[base]
        self.unordered = base in (set, frozenset)
        self.slots = tuple(x for _, x in attributes if type(x) is types.MemberDescriptorType)
        self.has_dict = cls.__dictoffset__ != 0
        self.cached = frozenset(
            name for name, x in attributes if isinstance(x, functools.cached_property)
        )
        frozen = (
            cls.__setattr__ is not object.__setattr__
            or not _IMMUTABLE_CLASSES_SET.isdisjoint(mro)
            or base is cls
        )
        if base in _MUTABLE or (base is object and not frozen):
            self.mutable = "yes"
        else:
            self.mutable = "no" if frozen else "attributes"
        self.rule = _rule(cls, mro) or (
            "contents" if _is_known(cls, base, attributes, len(self.slots)) else "unknown"
        )


_IMMUTABLE_CLASSES_SET = frozenset(_IMMUTABLE_CLASSES)
_types: dict[int, Type] = {}  # by address, because a metaclass can define ``__hash__``


def of_type(cls: type) -> Type:
    facts = _types.get(id(cls))
    if facts is None or facts.ref() is not cls:
        facts = _types[id(cls)] = Type(cls)
    return facts


def _rule(cls: type, mro: tuple[type, ...]) -> str | None:
    if cls in _RULES:
        return _RULES[cls]
    for base, rule in _RULES_OF_SUBCLASSES.items():
        if base in mro:
            return rule
    if cls.__module__ == "typing":
        return "value"
    if issubclass(cls, jax.Array) or is_library(cls.__module__, _JAX):
        return "identity"
    return None


def _is_known(
    cls: type, base: type, attributes: list[tuple[str, Any]], count_of_slots: int
) -> bool:
    """Whether the elements and attributes of an instance are all of it, and are meant to be.

    An object of an ordinary class often has state that its users do not mean to be a part of its
    value, such as a counter of steps. So these objects are not known by their contents.
    """
    if base is object and not (
        any(name in ("__dataclass_fields__", "__attrs_attrs__") for name, _ in attributes)
        or any(c in _MUTABLE_CLASSES + _IMMUTABLE_CLASSES for c in cls.__mro__)
    ):
        return False
    if any(name == "__dict__" and type(x) is not _DICT for name, x in attributes):
        return False  # its attributes may be elsewhere
    pointers = count_of_slots
    for was, offset in (
        (base.__dictoffset__, cls.__dictoffset__),
        (base.__weakrefoffset__, cls.__weakrefoffset__),
    ):  # other negative offsets: before the instance's memory
        pointers += offset != was and (offset > 0 or offset == -_POINTER)
    # A base in C that is not in `_ELEMENTS` makes instances larger.
    return cls.__basicsize__ == base.__basicsize__ + pointers * _POINTER


_POINTER = struct.calcsize("P")
_DICT = types.GetSetDescriptorType  # the type of the descriptor of ``__dict__`` in usual classes
