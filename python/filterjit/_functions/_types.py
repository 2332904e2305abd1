"""What is known of types, for the descriptions of functions (`_describe`).

`_static_keys` tells the contents and the attributes of values. A type is looked at once, when a
value of it is met for the first time.
"""

import collections
import dataclasses
import enum
import functools
import logging
import operator
import re
import threading
import types
import weakref
import zoneinfo
from typing import Any

import jax
import jax.tree_util as jtu
import numpy as np

from .. import _core
from .._trees import _static_keys
from .._trees._static_keys import OWN_ATTRIBUTES
from ._packages import is_library

LRU_CACHE: Any = functools._lru_cache_wrapper

# Values that cannot change, or that behave as they did when they were traced first.
_BY_IDENTITY: tuple[type, ...] = (
    object,
    types.CodeType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    np.ufunc,
    type(np.sum),
    type(threading.Lock()),
    type(threading.RLock()),
    type(collections.namedtuple("_", "a").a),  # type: ignore[attr-defined]
)

# Types that hold nothing that the walk could look at. They are compared as static values.
_BY_VALUE: frozenset[type] = frozenset(
    {
        zoneinfo.ZoneInfo,
        re.Pattern,
        jtu.PyTreeDef,
        jax.ShapeDtypeStruct,
        jax.sharding.Mesh,
        jax.sharding.PartitionSpec,
        jax.sharding.NamedSharding,
        jax.sharding.SingleDeviceSharding,
    }
)

# What Python itself and libraries put into classes, and what follows from the rest.
_NOT_OF_CLASSES = frozenset(
    {"__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__firstlineno__"}
    | {"__static_attributes__", "__abstractmethods__", "_abc_impl", "__annotations_cache__"}
    | {"__dataclass_params__", "__pydantic_core_schema__", "__pydantic_validator__"}
    | {"__pydantic_serializer__", "__pydantic_complete__", "__pydantic_decorators__"}
    | {"__pydantic_parent_namespace__", "__protocol_attrs__", "__non_callable_proto_members__"}
)

CALLABLES = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)

# What objects around functions consist of.
PARTS: dict[type, tuple[str, ...]] = {
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    property: ("fget", "fset", "fdel"),
    functools.cached_property: ("func",),
    functools.partialmethod: ("func", "args", "keywords"),
    functools.singledispatchmethod: ("func", "dispatcher"),
    functools.partial: ("func", "args", "keywords"),
}

_RULES: dict[type, str] = {
    types.FunctionType: "function",
    types.MethodType: "method",
    types.BuiltinFunctionType: "built_in",
    types.MethodWrapperType: "built_in",
    types.CellType: "cell",
    LRU_CACHE: "wrapper",
    type(jax.jit(lambda: None)): "wrapper",
    jax.custom_jvp: "wrapper",
    jax.custom_vjp: "wrapper",
    _core.Getattribute: "wrapper",
    dataclasses.Field: "field",
    operator.attrgetter: "reduced",
    operator.itemgetter: "reduced",
    operator.methodcaller: "reduced",
    **dict.fromkeys(_BY_IDENTITY, "identity"),
    **dict.fromkeys(_BY_VALUE, "value"),
}
_RULES_OF_SUBCLASSES: dict[type, str] = {
    type: "cls",
    types.ModuleType: "module",
    np.ndarray: "array",
    np.void: "unknown",
    memoryview: "unknown",
    np.dtype: "value",
    _core.FilterJit: "wrapper",
    _core.BoundMethod: "method",
    logging.Logger: "logger",
    **dict.fromkeys(PARTS, "parts"),
}

_JAX = ("jax", "jaxlib")  # whose objects are compared by identity


class Type:
    """What the values of a type contribute to a key.

    Attributes:
        rule: the name of the method of the walk that returns the part for a value.
        contents: returns the contents of a value, if it is known by them.
        attributes: returns the attributes of a value; None if it cannot have any.
        mutable: whether a value can change in place: "no", "yes", or "attributes", if it has any.
        is_complete: whether the contents and the attributes are all that there is in a value.
        is_library: whether the type, with all that it inherits, is of an installed package.
        ref: a weak reference to the type.
    """

    __slots__ = (
        "_described",
        "_names",
        "attributes",
        "contents",
        "is_complete",
        "is_library",
        "mutable",
        "ref",
        "rule",
    )

    def __init__(self, cls: Any) -> None:
        address, forget = id(cls), known.pop
        self.ref = weakref.ref(cls, lambda _: forget(address, None))
        base = _static_keys.base_of(cls)
        self.contents = _static_keys.CONTENTS.get(base, nothing)
        self.attributes = _static_keys.attributes_of(cls, base)
        frozen = cls.__setattr__ is not object.__setattr__ or issubclass(cls, enum.Enum)
        if base in _static_keys.MUTABLE or (base is object and not frozen):
            self.mutable = "yes"
        else:
            self.mutable = "no" if frozen else "attributes"
        self.is_complete = _static_keys.is_known(cls, base)
        meant = self.is_complete and _is_meant(cls, base)
        self.rule = _rule(cls, cls.__mro__) or ("contents" if meant else "unknown")
        self.is_library = all(is_library(module_of(c)) for c in cls.__mro__)
        self._names: tuple[Any, ...] = ()
        self._described: tuple[Any, ...] = ()

    def described(self, members: Any) -> tuple[Any, ...]:
        """Returns the names of the members of the type that its description has."""
        names = tuple(members)
        if names != self._names:
            self._described = tuple(
                name
                for name in names
                if name not in _NOT_OF_CLASSES and not str(name).startswith(OWN_ATTRIBUTES)
            )
            self._names = names
        return self._described


def nothing(_: Any) -> Any:
    return ()


known: dict[int, Type] = {}  # by address, because a metaclass can define ``__hash__``


def of_type(cls: type) -> Type:
    facts = known.get(id(cls))
    if facts is None or facts.ref() is not cls:
        facts = known[id(cls)] = Type(cls)
    return facts


def _rule(cls: type, mro: tuple[type, ...]) -> str | None:
    if cls in _RULES:
        return _RULES[cls]
    for base, rule in _RULES_OF_SUBCLASSES.items():
        if base in mro:
            return rule
    if cls.__module__ == "typing":
        return "value"
    if cls.__module__ == "dataclasses":  # a Field and what is in it
        return "contents"
    if issubclass(cls, jax.Array) or str(cls.__module__).partition(".")[0] in _JAX:
        return "identity"
    return None


def _is_meant(cls: Any, base: Any) -> bool:
    """Whether the contents and attributes of an instance are meant to be its value.

    An object of an ordinary class often has state that its users do not mean to be a part of its
    value, such as a counter of steps. So in a process these objects are not known by their contents.
    """
    return base is not object or any(
        c is enum.Enum or not {"__dataclass_fields__", "__attrs_attrs__"}.isdisjoint(vars(c))
        for c in cls.__mro__
    )


# What there is in a class, without running code of its metaclass.
module_of = type.__dict__["__module__"].__get__
qualname_of = type.__dict__["__qualname__"].__get__
mro_of = type.__dict__["__mro__"].__get__
members_of = type.__dict__["__dict__"].__get__
