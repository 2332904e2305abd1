"""What the library is held against: exact equality of trees, written down a second time.

`exact` turns a tree into nested tuples that compare with ``==`` exactly where two trees may share
a compiled program: the same nodes, types, keys and statics, by the rules of the README. Nothing
in here asks the C core, and nothing keeps alive what counts by its identity, so that the address
of an object that died can be given to another while a test runs.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import itertools
import struct
import types
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np

from filterjit import _core

# ---- identity ----

_serials: dict[int, tuple[weakref.ref[Any], int]] = {}
_numbers = itertools.count(1)


def serial(x: Any) -> int:
    """A number that no other object has had or will have."""
    known = _serials.get(id(x))
    if known is None or known[0]() is not x:
        known = _serials[id(x)] = weakref.ref(x), next(_numbers)
    return known[1]


def forget_the_dead() -> None:
    for address, (ref, _) in list(_serials.items()):
        if ref() is None:
            _serials.pop(address, None)


# ---- the types that trees are made of ----


class Point(NamedTuple):
    x: Any
    y: Any


class Checked(collections.namedtuple("Checked", ["a", "b"])):
    """A named tuple that has to be called."""

    def __new__(cls, a: Any, b: Any = None) -> Checked:
        return super().__new__(cls, a, b)


class Layer(eqx.Module):
    weight: Any
    bias: Any
    size: Any = eqx.field(static=True)
    activation: Any = eqx.field(static=True)

    def method(self, x: Any) -> Any:
        return self.weight, x


class Deeper(Layer):
    extra: Any


class Shell(eqx.Module):
    """A Module that may carry the attributes of a function."""

    inner: Any


@dataclasses.dataclass
class Record:
    data: Any
    other: Any
    tag: Any


jtu.register_dataclass(Record, data_fields=["data", "other"], meta_fields=["tag"])


class Box:
    """A node that says what the keys of its children are."""

    def __init__(self, children: Any, aux: Any) -> None:
        self.children, self.aux = list(children), aux


class Bag(Box):
    """One that does not."""


jtu.register_pytree_with_keys(
    Box,
    lambda x: ([(jtu.SequenceKey(i), c) for i, c in enumerate(x.children)], x.aux),
    lambda aux, children: Box(children, aux),
)
jtu.register_pytree_node(
    Bag, lambda x: (tuple(x.children), x.aux), lambda aux, children: Bag(children, aux)
)


class Listed(list[Any]):
    """Registered, though a builtin's subclass."""


jtu.register_pytree_node(Listed, lambda x: (tuple(x), None), lambda _, xs: Listed(xs))

WRAPPER = functools.WRAPPER_ASSIGNMENTS

# ---- the types of statics ----


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Integer(int):
    pass


class Double(float):
    pass


class Pair(tuple[Any, ...]):
    pass


class Text(str):
    pass


@dataclasses.dataclass(frozen=True)
class Constant:
    """Whose own ``==`` takes ``Constant(1)`` for ``Constant(True)``."""

    value: Any


@dataclasses.dataclass(frozen=True)
class Other:
    value: Any


@dataclasses.dataclass
class Variable:
    """Without a hash: in static fields alone."""

    value: Any


class Coarse:
    """Equal more often than it should be, which is its own decision."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Coarse) and self.value // 2 == other.value // 2

    def __hash__(self) -> int:
        return 5


class Value:
    """Equal by value, and mutable."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Value) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)


class Thing:
    """Equal to nothing else, with a method."""

    def method(self) -> None:
        pass


class Bomb:
    """What the functions under test refuse to be traced with."""


class Unhashable:
    __hash__ = None  # type: ignore[assignment]


class Seen:
    """What a function saw, as it says in its result, and in which trace it was."""

    def __init__(self, key: Any, number: int) -> None:
        self.key, self.number = key, number


# ---- nodes ----

Split = Callable[[Any], tuple[list[tuple[Any, Any]], list[Any]]]
Build = Callable[[Any, list[Any], list[Any]], Any]


@dataclasses.dataclass(frozen=True)
class Kind:
    """How nodes of a type come apart into named statics and children, and are built of both."""

    name: str
    split: Split
    build: Build


def _items(x: Any) -> list[Any]:
    """The keys of a dict, in the order in which JAX knows them."""
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
    """Of a `Layer` without asking for its ``__dict__``: it would not be where it was after."""
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
    """Names of the dynamic and the static fields, and of the attributes of a function."""
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
    return f._options.donate, f._options.functions


KINDS: dict[type, Kind] = {
    type(None): Kind("None", lambda x: ([], []), lambda x, aux, children: None),
    tuple: Kind("tuple", *_sequence(lambda x, c: tuple(c))),
    list: Kind("list", *_sequence(lambda x, c: list(c))),
    Listed: Kind("registered list", *_sequence(lambda x, c: Listed(c))),
    Point: Kind("named tuple", *_sequence(lambda x, c: Point(*c))),
    Checked: Kind("named tuple with __new__", *_sequence(lambda x, c: Checked(*c))),
    dict: Kind("dict", _split_dict, _build_dict),
    collections.OrderedDict: Kind("OrderedDict", _split_dict, _build_dict),
    collections.defaultdict: Kind("defaultdict", _split_dict, _build_dict),
    Record: Kind(
        "registered dataclass",
        lambda x: ([("tag", x.tag)], [x.data, x.other]),
        lambda x, aux, children: Record(*children, *aux),
    ),
    Box: Kind(
        "generic node with keys",
        lambda x: ([("aux", x.aux)], list(x.children)),
        lambda x, aux, children: Box(children, aux[0]),
    ),
    Bag: Kind(
        "generic node",
        lambda x: ([("aux", x.aux)], list(x.children)),
        lambda x, aux, children: Bag(children, aux[0]),
    ),
    jtu.Partial: Kind(
        "jtu.Partial",
        lambda x: ([("func", x.func)], [x.args, x.keywords]),
        lambda x, aux, children: jtu.Partial(aux[0], *children[0], **children[1]),
    ),
    _core.FilterJit: Kind(
        "filter_jit",
        # Its Cache is what counts: one for each function and options.
        lambda x: ([("wrapped", Same(x.__wrapped__)), ("options", _options(x))], []),
        lambda x, aux, children: x,
    ),
    _core.PartialFilterJit: Kind(
        "f.partial",
        lambda x: ([], [x.func, x.args, x.keywords]),
        lambda x, aux, children: _core.PartialFilterJit(*children),
    ),
    _core.BoundFilterJit: Kind(
        "bound filter_jit",
        lambda x: ([], [x.__func__, x.__self__]),
        lambda x, aux, children: _core.BoundFilterJit(*children),
    ),
}
_MODULES = {
    Layer: "Module",
    Deeper: "Module subclass",
    Shell: "wrapper Module",
    eqx.Partial: "eqx.Partial",
}


class Same:
    """An object that counts by its identity, whatever the rule for functions is."""

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


class Exact:
    """Writes a static down; `structure`: functions by what they are made of."""

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
        if cls in (int, bool, str, bytes, Integer, Text, Level):
            return serial(cls), x
        if x is None or x is ... or x is NotImplemented:
            return "constant", repr(x)
        if cls in (float, Double):
            return serial(cls), struct.pack("<d", x)
        if cls is complex:
            return serial(cls), struct.pack("<dd", x.real, x.imag)
        if cls in (tuple, Pair, list):
            return serial(cls), tuple(map(self.key, x))
        if cls in (set, frozenset):
            return serial(cls), frozenset(map(self.key, x))
        if cls is dict:
            return serial(cls), tuple((self.key(k), self.key(v)) for k, v in x.items())
        if cls in (Constant, Other, Variable):
            return serial(cls), self.key(x.value)
        if cls is Coarse:
            return serial(cls), x.value // 2
        if cls is Value:
            return serial(cls), x.value
        if cls is Same:
            return "same", serial(x.value)
        if cls is range or cls is slice:
            return cls.__name__, tuple(map(self.key, (x.start, x.stop, x.step)))
        if isinstance(x, np.dtype) or cls is type(jnp.float32):
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
    """The tree without the values of its arrays."""
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
    """All nodes and leaves of a tree, from the top."""
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
    """The static leaves, fields and aux data."""
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
    """What JAX makes of a dtype."""
    return jax.dtypes.canonicalize_dtype(dtype)


_known: dict[int, tuple[Any, Any, Any]] = {}


def remember(x: Any) -> None:
    """Keeps what is asked of an array that is never to die."""
    _known[id(x)] = x, aval(x), value(x)


def aval(x: Any) -> Any:
    """By what JAX tells two arrays apart."""
    if id(x) in _known:
        return _known[id(x)][1]
    weak = isinstance(x, jax.Array) and x.weak_type
    return x.shape, str(_dtype(x.dtype)), weak


def value(x: Any) -> Any:
    """An array's value, in the dtype that JAX gives it."""
    if id(x) in _known:
        return _known[id(x)][2]
    return aval(x), np.asarray(x).astype(_dtype(x.dtype)).tobytes()


_CHANGING = (list, dict, set, Value, Variable, types.FunctionType, types.MethodType)


def may_change(x: Any) -> bool:
    """Whether what a static equals can come to be another."""
    if isinstance(x, (tuple, frozenset)):
        return any(map(may_change, x))
    if isinstance(x, (Constant, Other)):
        return may_change(x.value)
    if isinstance(x, functools.partial):
        return True
    return isinstance(x, _CHANGING)


# ---- copies ----


def twin(x: Any) -> Any:
    """Another object that is exactly the same, where there can be one."""
    cls = type(x)
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
    if cls in (tuple, Pair, list, set, frozenset):
        return cls([twin(y) for y in x])
    if cls is dict:
        return {twin(k): twin(v) for k, v in x.items()}
    if cls in (Constant, Other, Variable, Coarse, Value):
        return cls(x.value)
    if cls is types.MethodType:
        return types.MethodType(x.__func__, x.__self__)
    if cls in (range, slice):
        return cls(x.start, x.stop, x.step)
    return x


def copy(tree: Any, change: Callable[[Any], Any] = twin) -> Any:
    """A tree of other nodes and statics that is exactly the same; or with `change` done to each
    static and array."""
    kind = None if is_array(tree) else kind_of(tree)
    if kind is None:
        return change(tree)
    aux, children = kind.split(tree)
    return kind.build(tree, [change(v) for _, v in aux], [copy(c, change) for c in children])


def snapshot(tree: Any) -> Any:
    """The nodes anew; the very same statics and arrays. What `f.partial` keeps."""
    return copy(tree, lambda x: x)
