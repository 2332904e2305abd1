"""The parts of functions and other values, for `_function_keys`.

Facts about a type are found once. `_contents` defines the contents and attributes of values.
"""

import enum
import functools
import itertools
import logging
import operator
import re
import threading
import types
import weakref
from typing import Any

import jax
import numpy as np

from .. import _core
from .._base._package import is_library
from .._trees import _contents
from .._trees._contents import OWN_ATTRIBUTES, Key, dict_of

ATOMS: frozenset[type] = frozenset(
    {bool, int, float, complex, str, bytes, type(None), type(...), type(NotImplemented)}
)


def _partial(x: Any) -> Any:
    return x.func, len(x.args), *x.args, *itertools.chain.from_iterable(x.keywords.items())


_of_method = operator.attrgetter("__func__", "__self__")
_of_built_in = operator.attrgetter("__name__", "__self__")
_reduced = operator.methodcaller("__reduce__")

# The contents of objects around functions. Equal contents mean equal behaviour.
_PARTS: dict[type, Key] = {
    functools.partial: _partial,
    functools.partialmethod: _partial,
    functools.singledispatchmethod: operator.attrgetter("func", "dispatcher"),
    functools.cached_property: operator.attrgetter("func"),
    property: operator.attrgetter("fget", "fset", "fdel"),
    staticmethod: operator.attrgetter("__func__"),
    classmethod: operator.attrgetter("__func__"),
    types.MethodType: _of_method,
    _core.BoundMethod: _of_method,
    types.BuiltinFunctionType: _of_built_in,
    types.MethodWrapperType: _of_built_in,
    operator.attrgetter: _reduced,
    operator.itemgetter: _reduced,
    operator.methodcaller: _reduced,
}
_CONTENTS = {**_contents.CONTENTS, **_PARTS}

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


class Type:
    """Facts about the values of a type.

    Attributes:
        rule: the method of a walk that handles these values.
        contents: a function from a value to its contents: a tuple, a frozenset, or a single value.
            None if it has only attributes.
        attributes: a function from a value to its attributes; None if it can't have any.
        is_mutable: True if contents can change in place.
        is_frozen: True if attributes can't change.
        is_complete: True if contents and attributes are the whole value.
        is_library: True if the type and its bases belong to installed packages.
        is_fixed: True if values of a library type never change.
        ref: a weak reference to the type.
    """

    def __init__(self, cls: Any) -> None:
        address, forget = id(cls), known.pop
        self.ref = weakref.ref(cls, lambda _: forget(address, None))
        base = next((base for base in cls.__mro__ if base in _CONTENTS), object)
        self.contents = _CONTENTS.get(base)
        has_copies = cls in _PARTS and cls is not functools.partial  # of `functools.wraps`, if any
        self.attributes = None if has_copies else _contents.attributes_of(cls, base)
        self.is_mutable = base in _contents.MUTABLE
        own_setattr = cls.__setattr__ is not object.__setattr__
        self.is_frozen = own_setattr or issubclass(cls, enum.Enum) or base in _PARTS
        self.is_complete = _contents.is_known(cls, base)
        self.is_library = all(is_library(module_of(c)) for c in cls.__mro__)
        package = str(module_of(cls)).partition(".")[0]
        self.is_fixed = package in ("jax", "jaxlib", "typing") or issubclass(cls, _FIXED)
        # The fields of these classes are the value. Ordinary objects often have other state, such
        # as a counter of steps.
        is_meant = base is not object or any(
            c is enum.Enum or not {"__dataclass_fields__", "__attrs_attrs__"}.isdisjoint(vars(c))
            for c in cls.__mro__
        )
        rule = next((rule for of, rule in _RULES.items() if issubclass(cls, of)), None)
        if rule is None and self.is_complete and is_meant and (base in _PARTS or not self.is_fixed):
            rule = "array" if base is np.ndarray else "contents"
        self.rule = rule or ("of_library" if self.is_library else "instance")


known: dict[int, Type] = {}  # by address, because a metaclass can define ``__hash__``


def of_type(cls: type) -> Type:
    facts = known.get(id(cls))
    if facts is None or facts.ref() is not cls:
        facts = known[id(cls)] = Type(cls)
    return facts


# Reads the module of a class without running code of its metaclass.
module_of = type.__dict__["__module__"].__get__


def is_own(name: Any) -> bool:
    """True for the names of attributes that filterjit sets."""
    return type(name) is str and name.startswith(OWN_ATTRIBUTES)


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
        parts += [("default", name, x) for name, x in named]
    if f.__kwdefaults__:
        parts += [("default", name, x) for name, x in f.__kwdefaults__.items()]
    if f.__dict__:
        parts += [("attribute", name, x) for name, x in f.__dict__.items() if not is_own(name)]
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
