"""What is known of code and of types, for the keys of functions (`_function_keys`).

`_static_keys` tells the contents and the attributes of values. Code is read once for each code
object, and a type is looked at once, when a value of it is met for the first time.
"""

import dis
import enum
import functools
import operator
import re
import types
import weakref
import zoneinfo
from typing import Any

import jax
import jax.tree_util as jtu
import numpy as np

from .. import _core
from .._trees import _static_keys

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
        imports: whether it imports a module of which anything may change.
        distrusted: the indices of the parts to leave out of the keys of its functions.
        ref: a weak reference to the code object.
    """

    __slots__ = ("distrusted", "globals", "imports", "names", "parameters", "ref")

    def __init__(self, code: types.CodeType) -> None:
        address, forget = id(code), _codes.pop
        self.ref = weakref.ref(code, lambda _: forget(address, None))
        self.names: Names = {}
        global_names: set[str] = set()
        imports: set[str] = set()
        _read_names(code, self.names, global_names, imports)
        self.imports = not all(map(is_library, imports))
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


def _read_names(
    code: types.CodeType, names: Names, global_names: set[str], imports: set[str]
) -> None:
    """Adds the variables that `code` reads, and the attributes that it reads from them; and the
    modules that it imports, with a dot for each level of a relative import."""
    top: Names | None = None  # of the value on top of the stack, if it was read by name
    constants: list[Any] = []
    for i in dis.get_instructions(code):
        argument = i.argval[-1] if isinstance(i.argval, tuple) and i.argval else i.argval
        if i.opname in ("LOAD_CONST", "LOAD_SMALL_INT"):
            constants.append(i.argval)
        elif i.opname == "IMPORT_NAME":  # of the level and the names to import
            imports.add("." * constants[-2] + i.argval)
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
            _read_names(constant, names, global_names, imports)


# ---- types ----

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

_RULES: dict[type, str] = {
    types.FunctionType: "function_number",
    types.MethodType: "method",
    types.BuiltinFunctionType: "built_in",
    types.MethodWrapperType: "built_in",
    types.CellType: "cell",
    _LRU_CACHE: "wrapper",
    jax.custom_jvp: "wrapper",
    jax.custom_vjp: "wrapper",
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
    np.void: "unknown",
    memoryview: "unknown",
    np.dtype: "value",
    functools.partial: "partial",
    _core.FilterJit: "identity",
    _core.BoundMethod: "method",
}


# Packages whose own functions and objects are taken as fixed.
_JAX = frozenset({"jax", "jaxlib"})
_LIBRARIES = _JAX | {"equinox", "filterjit", "numpy"} | _static_keys.STANDARD_LIBRARY


def is_library(module: Any, libraries: frozenset[str] = _LIBRARIES) -> bool:
    """Whether a module of this name belongs to a library whose code is taken as fixed."""
    return type(module) is str and module.partition(".")[0] in libraries


class Type:
    """What the values of a type contribute to a key.

    Attributes:
        rule: the name of the method of the walk that returns the part for a value.
        contents: returns the contents of a value, if it is known by them.
        attributes: returns the attributes of a value; None if it cannot have any.
        mutable: whether a value can change in place: "no", "yes", or "attributes", if it has any.
        ref: a weak reference to the type.
    """

    __slots__ = ("attributes", "contents", "mutable", "ref", "rule")

    def __init__(self, cls: Any) -> None:
        address, forget = id(cls), _types.pop
        self.ref = weakref.ref(cls, lambda _: forget(address, None))
        base = _static_keys.base_of(cls)
        self.contents = _static_keys.CONTENTS.get(base, _nothing)
        self.attributes = _static_keys.attributes_of(cls, base)
        frozen = cls.__setattr__ is not object.__setattr__ or issubclass(cls, enum.Enum)
        if base in _static_keys.MUTABLE or (base is object and not frozen):
            self.mutable = "yes"
        else:
            self.mutable = "no" if frozen else "attributes"
        self.rule = _rule(cls, cls.__mro__) or ("contents" if _is_known(cls, base) else "unknown")


def _nothing(_: Any) -> Any:
    return ()


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


def _is_known(cls: Any, base: Any) -> bool:
    """Whether the contents and attributes of an instance are all of it, and are meant to be.

    An object of an ordinary class often has state that its users do not mean to be a part of its
    value, such as a counter of steps. So these objects are not known by their contents.
    """
    meant = base is not object or any(
        c is enum.Enum or not {"__dataclass_fields__", "__attrs_attrs__"}.isdisjoint(vars(c))
        for c in cls.__mro__
    )
    return meant and _static_keys.is_known(cls, base)
