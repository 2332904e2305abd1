"""The oracle: a second implementation of the exact equality of trees.

`exact` turns a tree into nested tuples. Two of these are equal exactly if the two trees may share a
compiled program: if they have the same nodes, types, keys and static values (all that is not an
array), by the rules of docs/statics.md. Nothing here uses the C core. Nothing keeps objects alive that
are compared by identity, so the address of a dead object can be reused while a test runs.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import functools
import itertools
import struct
import types
import uuid
import weakref
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np

import filterjit
from filterjit._jit._filter_jit import BoundFilterJit
from filterjit._trees import _static_keys
from filterjit.types import PartialFilterJit
from support.modules import Deeper, Layer, Shell
from support.nodes import Bag, Box, ListSubclass, Point, PointWithNew, Registered
from support.statics import (
    Coarse,
    Constant,
    DictOfOwn,
    Double,
    Inherited,
    Integer,
    Level,
    ListOfOwn,
    Other,
    Pair,
    Text,
    Value,
    Variable,
)

# ---- identity ----

_serials: dict[int, tuple[weakref.ref[Any], int]] = {}
_numbers = itertools.count(1)


def serial(x: Any) -> int:
    """Returns a number that is unique to this object for the whole run."""
    entry = _serials.get(id(x))
    if entry is None or entry[0]() is not x:
        entry = _serials[id(x)] = weakref.ref(x), next(_numbers)
    return entry[1]


def forget_the_dead() -> None:
    for address, (ref, _) in list(_serials.items()):
        if ref() is None:
            _serials.pop(address, None)


# ---- the types that trees are made of ----

# The attributes of a function that a Module can carry. The list is Equinox's, and the same in all
# versions of Python; `functools.WRAPPER_ASSIGNMENTS` is not.
WRAPPER = ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__")


class Bomb:
    """A value that makes the functions under test raise."""


class Seen:
    """Part of a function's result: the key of its arguments and the number of its trace."""

    def __init__(self, key: Any, number: int) -> None:
        self.key, self.number = key, number


# ---- nodes ----

Split = Callable[[Any], tuple[list[tuple[Any, Any]], list[Any]]]
Build = Callable[[Any, list[Any], list[Any]], Any]


@dataclasses.dataclass(frozen=True)
class Kind:
    """How to split nodes of a type into named static values and children, and to rebuild them."""

    name: str
    split: Split
    build: Build


def _items(x: Any) -> list[Any]:
    """Returns the keys of a dict in JAX's order."""
    return list(x) if type(x) is collections.OrderedDict else sorted(x)


def _split_dict(x: Any) -> tuple[list[tuple[Any, Any]], list[Any]]:
    keys = _items(x)
    aux = [("key", key) for key in keys]
    if type(x) is collections.defaultdict:
        aux.append(("factory", x.default_factory))
    return aux, [x[key] for key in keys]


def _build_dict(x: Any, aux: list[Any], children: list[Any]) -> Any:
    order = {key: i for i, key in enumerate(_items(x))}
    items = {aux[order[key]]: children[order[key]] for key in x}
    if type(x) is collections.defaultdict:
        return collections.defaultdict(x.default_factory, items)
    return type(x)(items)


def attributes_of(x: Any) -> dict[str, Any]:
    """Returns a node's attributes. The ``__dict__`` of a `Layer` is not asked for, since that would
    move its attributes to another place in memory."""
    if type(x) in (Layer, Deeper):
        found = {}
        for name in type(x).__dataclass_fields__:
            try:
                found[name] = object.__getattribute__(x, name)
            except AttributeError:
                pass
        return found
    return object.__getattribute__(x, "__dict__")  # type: ignore[no-any-return]


@functools.cache
def _fields(cls: Any) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Returns the names of the dynamic fields, the static fields, and a function's attributes."""
    fields = dataclasses.fields(cls)
    static = tuple(f.name for f in fields if f.metadata.get("static", False))
    dynamic = tuple(f.name for f in fields if f.name not in static)
    return dynamic, static, tuple(n for n in WRAPPER if n not in dynamic + static)


def _split_module(x: Any) -> tuple[list[tuple[Any, Any]], list[Any]]:
    dynamic, static, wrapper = _fields(type(x))
    attributes = attributes_of(x)
    aux = [(name, attributes[name]) for name in static if name in attributes]
    if len(attributes) != len(dynamic) + len(static):
        aux += [
            (name, attributes[name])
            for name in wrapper
            if name in attributes and type(attributes[name]).__name__ != "_Missing"
        ]
    there = tuple(name for name in dynamic if name in attributes)
    return [("dynamic", there), *aux], [attributes[name] for name in there]


def _build_module(x: Any, aux: list[Any], children: list[Any]) -> Any:
    made = object.__new__(type(x))
    names = [name for name, _ in _split_module(x)[0]][1:]
    values = {**dict(zip(aux[0], children, strict=True)), **dict(zip(names, aux[1:], strict=True))}
    for name in attributes_of(x):
        if name in values:
            object.__setattr__(made, name, values[name])
    return made


def _sequence(make: Callable[[Any, list[Any]], Any]) -> tuple[Split, Build]:
    return lambda x: ([], list(x)), lambda x, _, children: make(x, children)


def _options(f: Any) -> Any:
    return f._hooks.settings.donate.mode, f._hooks.settings.functions


KINDS: dict[type, Kind] = {
    type(None): Kind("None", lambda x: ([], []), lambda x, aux, children: None),
    tuple: Kind("tuple", *_sequence(lambda x, c: tuple(c))),
    list: Kind("list", *_sequence(lambda x, c: list(c))),
    ListSubclass: Kind("registered list", *_sequence(lambda x, c: ListSubclass(c))),
    Point: Kind("named tuple", *_sequence(lambda x, c: Point(*c))),
    PointWithNew: Kind("named tuple with __new__", *_sequence(lambda x, c: PointWithNew(*c))),
    dict: Kind("dict", _split_dict, _build_dict),
    collections.OrderedDict: Kind("OrderedDict", _split_dict, _build_dict),
    collections.defaultdict: Kind("defaultdict", _split_dict, _build_dict),
    Registered: Kind(
        "registered dataclass",
        lambda x: ([("meta", x.meta)], [x.a, x.b]),
        lambda x, aux, children: Registered(*children, *aux),
    ),
    Box: Kind(
        "custom node with keys",
        lambda x: ([("aux", x.aux)], list(x.children)),
        lambda x, aux, children: Box(children, aux[0]),
    ),
    Bag: Kind(
        "custom node",
        lambda x: ([("aux", x.aux)], list(x.children)),
        lambda x, aux, children: Bag(children, aux[0]),
    ),
    jtu.Partial: Kind(
        "jtu.Partial",
        lambda x: ([("func", x.func)], [x.args, x.keywords]),
        lambda x, aux, children: jtu.Partial(aux[0], *children[0], **children[1]),
    ),
    filterjit.types.FilterJit: Kind(
        "filter_jit",
        # Wrappers are equal if they share a Cache: one for each function and options.
        lambda x: ([("wrapped", Same(x.__wrapped__)), ("options", _options(x))], []),
        lambda x, aux, children: x,
    ),
    PartialFilterJit: Kind(
        "f.partial",
        lambda x: ([], [x.func, x.args, x.keywords]),
        lambda x, aux, children: PartialFilterJit(*children),
    ),
    BoundFilterJit: Kind(
        "bound filter_jit",
        lambda x: ([], [x.__func__, x.__self__]),
        lambda x, aux, children: BoundFilterJit(*children),
    ),
}
_MODULES = {
    Layer: "Module",
    Deeper: "Module subclass",
    Shell: "wrapper Module",
    eqx.Partial: "eqx.Partial",
}


class Same:
    """Wraps an object that is compared by identity, whatever the rule for functions is."""

    def __init__(self, value: Any) -> None:
        self.value = value


_leaf_types: set[type] = {bool, int, float, complex, str, bytes, Seen}


def kind_of(x: Any) -> Kind | None:
    cls = type(x)
    if cls in _leaf_types:
        return None
    kind = KINDS.get(cls)
    if kind is None and isinstance(x, eqx.Module):
        name = _MODULES.get(cls, "bound method of a Module")
        kind = KINDS[cls] = Kind(name, _split_module, _build_module)
    return kind


_array_types: dict[type, bool] = {}


def is_array(x: Any) -> bool:
    found = _array_types.get(type(x))
    if found is None:
        found = _array_types[type(x)] = isinstance(x, (jax.Array, np.ndarray, np.generic))
    return found


# ---- exact equality ----


# Types whose contents the oracle takes from the library's own table of types.
TABLE: tuple[type, ...] = (
    collections.OrderedDict,
    collections.defaultdict,
    collections.Counter,
    collections.deque,
    types.SimpleNamespace,
    types.UnionType,
    bytearray,
    datetime.datetime,
    datetime.timezone,
    decimal.Decimal,
    uuid.UUID,
    DictOfOwn,
    ListOfOwn,
)
# The same of their subclasses.
TABLE_BASES = np.ndarray, np.generic, np.dtype
STRINGS = np.str_, np.bytes_


class Exact:
    """Makes keys of static values; with `structure`, functions are compared by structure."""

    def __init__(self, structure: bool) -> None:
        self.structure = structure
        self._functions: dict[int, int] = {}
        self._cells: dict[int, int] = {}
        self._doubt = False

    def top(self, x: Any) -> Any:
        key = self.key(x)
        return (key, serial(x)) if self._doubt else key

    def key(self, x: Any) -> Any:
        cls = type(x)
        if cls in (int, bool, str, bytes, Integer, Text, Level, datetime.timedelta, *STRINGS):
            return serial(cls), x
        if x is None or x is ... or x is NotImplemented:
            return "constant", repr(x)
        if cls in (float, Double):
            return serial(cls), struct.pack("<d", x)
        if cls is complex:
            return serial(cls), struct.pack("<dd", x.real, x.imag)
        if cls in (tuple, Pair, list, decimal.DecimalTuple):
            return serial(cls), tuple(map(self.key, x))
        if cls in (set, frozenset):
            return serial(cls), frozenset(map(self.key, x))
        if cls is dict:
            return serial(cls), tuple((self.key(k), self.key(v)) for k, v in x.items())
        if cls in (Constant, Inherited, Other, Variable):
            return serial(cls), self.key(x.value)
        if cls is Coarse:
            return serial(cls), x.value // 2
        if cls is Value:
            return serial(cls), x.value
        if cls is Same:
            return "same", serial(x.value)
        if cls is range or cls is slice:
            return cls.__name__, tuple(map(self.key, (x.start, x.stop, x.step)))
        if cls is type(jnp.float32):
            return serial(cls), repr(x)
        if cls is jtu.PyTreeDef:
            return serial(cls), str(x)
        if cls is types.MethodType:
            return "method", self.key(x.__func__), serial(x.__self__)
        if self.structure and cls is types.FunctionType:
            return self.function(x)
        if self.structure and cls is functools.partial:
            parts = self.key(x.func), self.key(x.args)
            return "partial", *parts, tuple((k, self.key(v)) for k, v in x.keywords.items())
        if cls in TABLE or issubclass(cls, TABLE_BASES):
            return serial(cls), self.key(_static_keys.static_key(cls)(x))  # type: ignore[misc]
        return "identity", serial(x)

    def function(self, f: Any) -> Any:
        if id(f) in self._functions:
            return "function again", self._functions[id(f)]
        self._functions[id(f)] = len(self._functions)
        cells = []
        doubt = False
        for cell in f.__closure__ or ():
            number = self._cells.setdefault(id(cell), len(self._cells))
            held = cell.cell_contents
            doubt |= type(held) is list
            cells.append((number, self.key(held)))
        attributes = tuple(
            (k, self.key(v)) for k, v in f.__dict__.items() if not k.startswith("__filterjit")
        )
        key = (
            serial(f.__code__),
            f.__qualname__,
            self.key(f.__defaults__),
            attributes,
            tuple(cells),
        )
        return "function", key, doubt and serial(f)


def static_key(x: Any, structure: bool = False) -> Any:
    return Exact(structure).top(x)


def exact(tree: Any, structure: bool = False) -> Any:
    """Returns the key of a tree, which leaves out the arrays' values."""
    if is_array(tree):
        return "array"
    kind = kind_of(tree)
    if kind is None:
        if type(tree) is Seen:
            return "seen", tree.key
        return "static", static_key(tree, structure)
    aux, children = kind.split(tree)
    return (
        serial(type(tree)),
        tuple((name, static_key(value, structure)) for name, value in aux),
        tuple(exact(child, structure) for child in children),
    )


def walk(tree: Any) -> list[Any]:
    """Returns all nodes and leaves of a tree, the root first."""
    found: list[Any] = []
    _walk(tree, found)
    return found


def _walk(tree: Any, found: list[Any]) -> None:
    found.append(tree)
    kind = None if is_array(tree) else kind_of(tree)
    if kind is not None:
        for child in kind.split(tree)[1]:
            _walk(child, found)


def arrays(tree: Any) -> list[Any]:
    return [x for x in walk(tree) if is_array(x)]


def statics(tree: Any) -> list[Any]:
    """Returns the static leaves, fields and aux data of a tree."""
    found = []
    for x in walk(tree):
        kind = None if is_array(x) else kind_of(x)
        if kind is not None:
            found += [value for _, value in kind.split(x)[0]]
        elif not is_array(x):
            found.append(x)
    return found


@functools.cache
def _dtype(dtype: Any) -> Any:
    """Returns the dtype that JAX uses in the place of this one."""
    return jax.dtypes.canonicalize_dtype(dtype)


_remembered: dict[int, tuple[Any, Any, Any]] = {}


def remember(x: Any) -> None:
    """Stores the aval and the value of an array that lives forever."""
    _remembered[id(x)] = x, aval(x), value(x)


def aval(x: Any) -> Any:
    """Returns the properties of an array that JAX traces for."""
    if id(x) in _remembered:
        return _remembered[id(x)][1]
    weak = isinstance(x, jax.Array) and x.weak_type
    return x.shape, str(_dtype(x.dtype)), weak


def value(x: Any) -> Any:
    """Returns an array's value, in the dtype that JAX gives it."""
    if id(x) in _remembered:
        return _remembered[id(x)][2]
    return aval(x), np.asarray(x).astype(_dtype(x.dtype)).tobytes()


def in_memory(x: Any) -> Any:
    """Returns what a function may see of a static array, whatever the table of types says."""
    contents = repr(x.ravel("K")) if x.dtype.hasobject else x.tobytes("A")
    return type(x), x.dtype, x.shape, x.strides, contents


_CHANGING = (
    *(list, dict, set, Value, Variable, types.FunctionType, types.MethodType),
    *(collections.deque, types.SimpleNamespace, bytearray, np.ndarray),
)


def may_change(x: Any) -> bool:
    """Whether a static value can change in place such that it equals other values."""
    if isinstance(x, (tuple, frozenset)):
        return any(map(may_change, x))
    if isinstance(x, (Constant, Other)):
        return may_change(x.value)
    if isinstance(x, functools.partial):
        return True
    return isinstance(x, _CHANGING)


# ---- copies ----


def twin(x: Any) -> Any:
    """Returns another object that is exactly equal, if there can be one."""
    cls = type(x)
    if isinstance(x, np.ndarray):
        return _twin_of_array(x)
    if is_array(x):
        return x
    if cls is int:
        return int(str(x))
    if cls in (Integer, Double, Text):
        return cls(x)
    if cls is float:
        return struct.unpack("<d", struct.pack("<d", x))[0]
    if cls is str:
        return "".join(list(x))
    if cls is bytes:
        return bytes(bytearray(x))
    if cls in (tuple, Pair, list, ListOfOwn, collections.deque, set, frozenset):
        return cls([twin(y) for y in x])
    if cls in (dict, DictOfOwn, collections.OrderedDict, collections.Counter):
        return cls({twin(k): twin(v) for k, v in x.items()})
    if cls is collections.defaultdict:
        return cls(x.default_factory, {twin(k): twin(v) for k, v in x.items()})
    if cls is types.SimpleNamespace:
        return cls(**{k: twin(v) for k, v in vars(x).items()})
    if cls in TABLE:
        return deepcopy(x)
    if cls in (Constant, Inherited, Other, Variable, Coarse, Value):
        return cls(x.value)
    if cls is types.MethodType:
        return types.MethodType(x.__func__, x.__self__)
    if cls in (range, slice):
        return cls(x.start, x.stop, x.step)
    return x


def _twin_of_array(x: Any) -> Any:
    """Returns a copy with the same strides and flags."""
    steps = [(n - 1) * stride // x.itemsize for n, stride in zip(x.shape, x.strides, strict=True)]
    whole = np.zeros(max(sum(map(abs, steps)) + 1, 1), x.dtype)
    first = -sum(step for step in steps if step < 0) if x.size else 0
    made = np.lib.stride_tricks.as_strided(whole[first:], x.shape, x.strides)
    made[...] = x
    if x.dtype == object:
        for place in np.ndindex(x.shape):
            made[place] = twin(x[place])
    made = made.view(type(x))
    made.setflags(write=x.flags.writeable)
    return made


def copy(tree: Any, change: Callable[[Any], Any] = twin) -> Any:
    """Returns an exactly equal tree of other nodes and static values, or one with `change` applied to
    each static value and array."""
    kind = None if is_array(tree) else kind_of(tree)
    if kind is None:
        return change(tree)
    aux, children = kind.split(tree)
    return kind.build(tree, [change(v) for _, v in aux], [copy(c, change) for c in children])


def snapshot(tree: Any) -> Any:
    """Recreates the nodes with the same static values and arrays, as `f.partial` does."""
    return copy(tree, lambda x: x)
