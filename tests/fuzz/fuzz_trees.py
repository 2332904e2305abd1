"""Random trees of every kind of node: an oracle of which are equal, copies that differ in one place, and
changes in place.

`exact` turns a tree into nested tuples. Two of these are equal exactly if the two trees may share a
compiled program: if they have the same nodes, types, keys and static values (all that is not an
array), by the rules of docs/statics.md. Nothing in it uses the C core.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import random
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from flax import nnx
from flax.core import FrozenDict
from flax.nnx.pytreelib import PytreeState
from flax.typing import HashableMapping
from fuzz_statics import (
    BUILTIN,
    Same,
    arrays_in,
    change_array,
    change_dict,
    change_list,
    change_static,
    confuse,
    draw_field,
    draw_leaf_static,
    draw_numpy_leaf,
    draw_static_array,
    hold,
    is_array,
    plain,
    serial,
    static_key,
    twin,
)

import filterjit
from filterjit._jit._filter_jit import BoundFilterJit
from support.modules import Deeper, Layer, Shell
from support.nodes import Bag, Box, ListSubclass, Point, PointWithNew, Registered
from support.statics import Thing

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


@jtu.register_dataclass
@dataclasses.dataclass(slots=True)
class Slotted:
    a: Any
    meta: Any = dataclasses.field(metadata={"static": True}, default="meta")


class Parameter(nnx.Variable):
    """A Variable whose metadata may be anything."""


class Net(nnx.Module):
    """A Module with any attributes. `flip` is data in one instance and static in another."""


# ---- nodes ----

Named = list[tuple[Any, Any]]
Split = Callable[[Any], tuple[Named, list[Any]]]
Build = Callable[[Any, list[Any], list[Any]], Any]


@dataclasses.dataclass(frozen=True)
class Kind:
    """How to split nodes of a type into named static values and children, and to rebuild them."""

    name: str
    split: Split
    build: Build


def set_all(made: Any, attributes: dict[str, Any]) -> Any:
    for name, value in attributes.items():
        object.__setattr__(made, name, value)
    return made


def _sequence(name: str, make: Callable[[list[Any]], Any]) -> Kind:
    return Kind(name, lambda x: ([], list(x)), lambda x, aux, children: make(children))


def _fields(name: str, data: tuple[str, ...], static: tuple[str, ...] = ()) -> Kind:
    """Of a class that takes its children by position, and its static values by name."""
    return Kind(
        name,
        lambda x: ([(n, getattr(x, n)) for n in static], [getattr(x, n) for n in data]),
        lambda x, aux, children: type(x)(*children, **dict(zip(static, aux, strict=True))),
    )


def _box(name: str) -> Kind:
    return Kind(
        name,
        lambda x: ([("aux", x.aux)], list(x.children)),
        lambda x, aux, children: type(x)(children, aux[0]),
    )


def _mapping(name: str, held: Callable[[Any], Any], make: Callable[[Any], Any]) -> Kind:
    """Of a type that holds a dict, whose keys are sorted."""

    def split(x: Any) -> tuple[Named, list[Any]]:
        keys = sorted(held(x))
        return [("key", key) for key in keys], [held(x)[key] for key in keys]

    return Kind(name, split, lambda x, aux, children: make(dict(zip(aux, children, strict=True))))


def _items(x: Any) -> list[Any]:
    """Returns the keys of a dict in JAX's order."""
    return list(x) if type(x) is collections.OrderedDict else sorted(x)


def _split_dict(x: Any) -> tuple[Named, list[Any]]:
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
def _names_of(cls: Any) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Returns the names of the dynamic fields, the static fields, and a function's attributes."""
    fields = dataclasses.fields(cls)
    static = tuple(f.name for f in fields if f.metadata.get("static", False))
    dynamic = tuple(f.name for f in fields if f.name not in static)
    return dynamic, static, tuple(n for n in WRAPPER if n not in dynamic + static)


def _split_module(x: Any) -> tuple[Named, list[Any]]:
    dynamic, static, wrapper = _names_of(type(x))
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
    names = [name for name, _ in _split_module(x)[0]][1:]
    values = {**dict(zip(aux[0], children, strict=True)), **dict(zip(names, aux[1:], strict=True))}
    kept = {name: values[name] for name in attributes_of(x) if name in values}
    return set_all(object.__new__(type(x)), kept)


def _split_net(x: Any) -> tuple[Named, list[Any]]:
    nodes, names = x._pytree__nodes, sorted(vars(x))
    data = tuple(n for n in names if nodes.get(n))
    static = [n for n in names if not nodes.get(n) and n != "_pytree__nodes"]
    aux = [("data", data), ("nodes", tuple(sorted(nodes.items())))]
    return aux + [(n, vars(x)[n]) for n in static], [vars(x)[n] for n in data]


def make_net(nodes: Any, attributes: dict[str, Any]) -> Any:
    mapping = HashableMapping(dict(nodes))
    return set_all(object.__new__(Net), {"_pytree__nodes": mapping, **attributes})


def _build_net(x: Any, aux: list[Any], children: list[Any]) -> Any:
    static = [name for name, _ in _split_net(x)[0][2:]]
    values = [*zip(aux[0], children, strict=True), *zip(static, aux[2:], strict=True)]
    return make_net(aux[1], dict(values))


def _split_parameter(x: Any) -> tuple[Named, list[Any]]:
    metadata = object.__getattribute__(x, "_var_metadata")
    names = tuple(sorted(metadata))
    aux = [("names", names), *((name, metadata[name]) for name in names)]
    return aux, [object.__getattribute__(x, "_raw_value")]


def _options(f: Any) -> Any:
    return f._hooks.settings.donate.mode, f._hooks.settings.functions


KINDS: dict[type, Kind] = {
    type(None): Kind("None", lambda x: ([], []), lambda x, aux, children: None),
    tuple: _sequence("tuple", tuple),
    list: _sequence("list", list),
    ListSubclass: _sequence("registered list", ListSubclass),
    Point: _sequence("named tuple", lambda children: Point(*children)),
    PointWithNew: _sequence("named tuple with __new__", lambda children: PointWithNew(*children)),
    dict: Kind("dict", _split_dict, _build_dict),
    collections.OrderedDict: Kind("OrderedDict", _split_dict, _build_dict),
    collections.defaultdict: Kind("defaultdict", _split_dict, _build_dict),
    Registered: _fields("registered dataclass", ("a", "b"), ("meta",)),
    Slotted: _fields("dataclass with slots", ("a",), ("meta",)),
    Box: _box("custom node with keys"),
    Bag: _box("custom node"),
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
    BoundFilterJit: _fields("bound filter_jit", ("__func__", "__self__")),
    FrozenDict: _mapping(
        "FrozenDict", lambda x: x._dict, lambda d: FrozenDict(d, __unsafe_skip_copy__=True)
    ),
    nnx.State: _mapping("State", lambda x: x._mapping, nnx.State),
    PytreeState: _fields("PytreeState", (), ("initializing", "is_setup")),
    Parameter: Kind(
        "Variable",
        _split_parameter,
        lambda x, aux, children: Parameter._new(
            children[0], dict(zip(aux[0], aux[1:], strict=True))
        ),
    ),
    Net: Kind("NNX Module", _split_net, _build_net),
}
_MODULES = {
    Layer: "Module",
    Deeper: "Module subclass",
    Shell: "wrapper Module",
    eqx.Partial: "eqx.Partial",
}


_leaf_types: set[type] = {bool, int, float, complex, str, bytes, Seen}


def kind_of(x: Any) -> Kind | None:
    """Returns the kind of a node, or None of a leaf."""
    cls = type(x)
    if cls in _leaf_types:
        return None
    kind = KINDS.get(cls)
    if kind is None and isinstance(x, eqx.Module):
        name = _MODULES.get(cls, "bound method of a Module")
        kind = KINDS[cls] = Kind(name, _split_module, _build_module)
    return kind


# ---- exact equality ----


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


# ---- what is in a tree ----


def _walk(tree: Any, found: list[tuple[Any, Kind | None]]) -> list[tuple[Any, Kind | None]]:
    kind = None if is_array(tree) else kind_of(tree)
    found.append((tree, kind))
    for child in () if kind is None else kind.split(tree)[1]:
        _walk(child, found)
    return found


def walk(tree: Any) -> list[Any]:
    """Returns all nodes and leaves of a tree, the root first."""
    return [x for x, _ in _walk(tree, [])]


def names(tree: Any) -> list[str]:
    """Returns what each node and leaf of a tree is."""
    return [
        "array" if is_array(x) else "static" if kind is None else kind.name
        for x, kind in _walk(tree, [])
    ]


def arrays(tree: Any) -> list[Any]:
    return [x for x in walk(tree) if is_array(x)]


def statics(tree: Any) -> list[Any]:
    """Returns the static leaves, fields and aux data of a tree."""
    found = []
    for x, kind in _walk(tree, []):
        if kind is not None:
            found += [value for _, value in kind.split(x)[0]]
        elif not is_array(x):
            found.append(x)
    return found


@functools.cache
def _dtype(dtype: Any) -> Any:
    """Returns the dtype that JAX uses in the place of this one."""
    return jax.dtypes.canonicalize_dtype(dtype)


def aval(x: Any) -> Any:
    """Returns the properties of an array that JAX traces for."""
    weak = isinstance(x, jax.Array) and x.weak_type
    return x.shape, str(_dtype(x.dtype)), weak


def value(x: Any) -> Any:
    """Returns an array's value, in the dtype that JAX gives it."""
    return aval(x), np.asarray(x).astype(_dtype(x.dtype)).tobytes()


# ---- copies ----


def is_free(node: Any, name: Any) -> bool:
    """Whether any other static value may stand in this place."""
    return name in ("size", "activation", "meta") or (name == "aux" and type(node) in (Box, Bag))


def copy(
    tree: Any, change: Callable[[Any], Any] = twin, field: Callable[[Any], Any] | None = None
) -> Any:
    """Returns an exactly equal tree of other nodes and static values, or one with `change` applied to
    each static value and array. With `field`, only that is applied to the static values of nodes, and
    only where any other may stand."""
    kind = None if is_array(tree) else kind_of(tree)
    if kind is None:
        return change(tree)
    aux, children = kind.split(tree)
    made = [
        change(v) if field is None else field(v) if is_free(tree, name) else twin(v)
        for name, v in aux
    ]
    return kind.build(tree, made, [copy(c, change, field) for c in children])


def snapshot(tree: Any) -> Any:
    """Recreates the nodes with the same static values and arrays."""
    return copy(tree, lambda x: x)


# ---- drawing arrays ----

_ARRAYS: list[Any] = [
    *(jnp.asarray(x, jnp.float32) for x in (0.5, 1.5, 2.5)),
    *(jnp.asarray(x, jnp.int32) for x in (1, 2)),
    jnp.asarray(2.0),  # weak
    jnp.array(True),
    jnp.arange(2.0),
]

_ALIKE = [_ARRAYS[0], _ARRAYS[5]]  # but for the weak type


def draw_array(rng: random.Random) -> Any:
    if rng.randrange(3):
        return _ARRAYS[rng.randrange(3)]
    match rng.randrange(4):
        case 0:
            return np.float32(rng.randrange(3))
        case 1:
            return np.full((), rng.randrange(3), np.float64)
        case 2:
            return draw_numpy_leaf(rng)
    return rng.choice(_ARRAYS)


def fresh_arrays(tree: Any) -> Any:
    """Returns a copy with arrays of its own, which can be donated."""
    return copy(tree, lambda x: jnp.array(x) if isinstance(x, jax.Array) else twin(x))


# ---- drawing trees ----

_KEYS = [["a", "b", "c"], [0, 1, 2], [True, -1, 2.0], [1.0, 0], [-0.0, 1], [(1, 2), (0, True)]]


@dataclasses.dataclass
class Draw:
    """Draws trees of these nodes, leaves and static values. The jitted functions in `wrapped` may stand
    in them."""

    rng: random.Random
    wrapped: list[Any] = dataclasses.field(default_factory=list)
    nodes: list[Callable[[Draw], Any]] | None = None  # all
    leaf: Callable[[random.Random], Any] = lambda rng: (
        draw_array(rng) if rng.randrange(5) < 2 else draw_leaf_static(rng)
    )
    field_of: Callable[[random.Random], Any] = draw_field
    depth: int = 3

    def tree(self, depth: int = 3) -> Any:
        if depth == 0 or self.rng.randrange(4) == 0:
            return self.leaf(self.rng)
        before, self.depth = self.depth, depth - 1
        made = self.rng.choice(self.nodes or NODES)(self)
        self.depth = before
        return made

    def inner(self) -> Any:
        return self.tree(self.depth)

    def children(self) -> list[Any]:
        return [self.inner() for _ in range(self.rng.randrange(4))]

    def items(self) -> dict[Any, Any]:
        keys = list(self.rng.choice(_KEYS))
        self.rng.shuffle(keys)
        return {key: self.inner() for key in keys[: self.rng.randrange(len(keys) + 1)]}

    def field(self) -> Any:
        return self.field_of(self.rng)

    def of(self, *makes: Callable[..., Any]) -> Callable[..., Any]:
        return self.rng.choice(makes)


def make_layer(weight: Any, bias: Any, size: Any, activation: Any) -> Any:
    """Makes a `Layer` without Equinox's warning of arrays in static fields."""
    fields = {"weight": weight, "bias": bias, "size": size, "activation": activation}
    return set_all(object.__new__(Layer), fields)


def _layer(d: Draw) -> Any:
    return make_layer(d.inner(), d.inner(), d.field(), d.field())


def _module(d: Draw) -> Any:
    """Returns a Module that may lack a field."""
    cls = d.rng.choice([Layer, Deeper])
    fields = {"weight": d.inner(), "bias": d.inner(), "size": d.field(), "activation": d.field()}
    if cls is Deeper:
        fields["extra"] = d.inner()
    if d.rng.randrange(4) == 0:
        fields.pop(d.rng.choice(list(fields)))
    return set_all(object.__new__(cls), fields)


def _shell(d: Draw) -> Any:
    made = Shell(d.inner())
    if d.rng.randrange(2):
        set_all(made, {name: d.rng.choice(["one", "two", None]) for name in WRAPPER})
    return made


def _variable(d: Draw) -> Any:
    names = [name for name in ("meta", "size") if d.rng.randrange(2)]
    return Parameter._new(d.inner(), {name: d.field() for name in names})


def _net(d: Draw) -> Any:
    nodes = {"_pytree__state": True, "a": True, "b": True, "flip": bool(d.rng.randrange(2))}
    attributes = {"_pytree__state": PytreeState(), "a": d.inner(), "meta": d.field()}
    attributes["flip"] = draw_leaf_static(d.rng)
    if d.rng.randrange(2):
        attributes["b"] = d.inner()
    if d.rng.randrange(2):
        nodes["meta"] = False
    return make_net(nodes, attributes)


def _method(d: Draw) -> Any:
    """Returns a jitted function or a bound method."""
    if not d.wrapped or d.rng.randrange(2):
        return _layer(d).method
    f = d.rng.choice(d.wrapped)
    return f.__get__(Layer(d.inner(), d.inner(), 1, len)) if d.rng.randrange(3) else f


# What is known of a large argument, so that it is not walked again, may consist of these.
KNOWN: list[Callable[[Draw], Any]] = [
    lambda d: tuple(d.children()),
    lambda d: d.children(),
    lambda d: dict(zip("abc", d.children(), strict=False)),
    lambda d: None,
    lambda d: Point(d.inner(), d.inner()),
    _layer,
    lambda d: Slotted(d.inner(), d.field()),
]
NODES: list[Callable[[Draw], Any]] = [
    *2 * KNOWN,
    lambda d: d.items(),
    lambda d: collections.OrderedDict(d.items()),
    lambda d: collections.defaultdict(d.rng.choice([None, int, list]), d.items()),
    lambda d: PointWithNew(d.inner(), d.inner()),
    _module,
    _shell,
    lambda d: Registered(d.inner(), d.inner(), d.field()),
    lambda d: d.of(Box, Bag)(d.children(), d.field()),
    lambda d: ListSubclass(d.children()),
    lambda d: d.of(eqx.Partial, jtu.Partial)(plain, d.inner(), y=d.inner()),
    lambda d: d.of(lambda x: FrozenDict(x, __unsafe_skip_copy__=True), nnx.State)(d.items()),
    _variable,
    _net,
    _method,
]


def draw_large(rng: random.Random) -> Any:
    """Draws how the parts of a model are drawn, and one that is large enough for a record, whose walk
    runs no Python code."""
    field = lambda rng: twin(rng.choice(BUILTIN)) if rng.randrange(3) else Thing()
    leaf = lambda rng: rng.choice(_ARRAYS) if rng.randrange(2) else field(rng)
    draw = Draw(rng, [], KNOWN, leaf, field)
    return draw, Layer([draw.tree(2) for _ in range(24)], _ARRAYS[2], "root", "name")


def draw_holder(rng: random.Random) -> Any:
    """Draws a small tree with NumPy arrays as leaves and in static places."""
    field = lambda rng: hold(rng, draw_static_array(rng))
    draw = Draw(rng, [], NODES, draw_numpy_leaf, field, depth=1)
    return draw.of(_layer, lambda d: Registered(d.inner(), None, [d.field(), d.field()]))(draw)


def has_missing_fields(tree: Any) -> bool:
    """Whether a Module in the tree lacks fields: Equinox leaves a mark in Modules rebuilt from it."""
    return any(
        type(x) in (Layer, Deeper, Shell) and len(vars(x)) != len(type(x).__dataclass_fields__)
        for x in walk(tree)
    )


# ---- trees that are nearly the same ----


def draw_nearly(draw: Draw, tree: Any) -> Any:
    """Returns a copy with another static value or array in one place, mostly one that is easily
    taken for the original."""
    if tree is None:
        return draw.tree(1)
    rng = draw.rng
    target = rng.randrange(_count(tree) or 1)
    seen = -1

    def change(x: Any, other: Callable[[random.Random], Any]) -> Any:
        nonlocal seen
        seen += 1
        if seen != target:
            return twin(x)
        if is_array(x) and other is draw_leaf_static:
            return draw_array(rng) if rng.randrange(2) else rng.choice(_ALIKE)
        return confuse(rng, x) if rng.randrange(4) else other(rng)

    return copy(tree, lambda x: change(x, draw_leaf_static), lambda x: change(x, draw.field_of))


def _count(tree: Any) -> int:
    kind = None if is_array(tree) else kind_of(tree)
    if kind is None:
        return 1
    aux, children = kind.split(tree)
    return sum(is_free(tree, name) for name, _ in aux) + sum(map(_count, children))


# ---- changes in place ----

# The list or the dict that a node is, or has,
HELD: dict[type, Callable[[Any], Any]] = {
    **dict.fromkeys((list, ListSubclass), lambda x: x),
    **dict.fromkeys((dict, collections.OrderedDict, collections.defaultdict), lambda x: x),
    **dict.fromkeys((Box, Bag), lambda x: x.children),
    FrozenDict: lambda x: x._dict,
    nnx.State: lambda x: x._mapping,
}
# and the names of its attributes that hold children, and static values.
ATTRIBUTES: dict[type, tuple[list[str], list[str]]] = {
    **{cls: (["weight", "bias"], ["size", "activation"]) for cls in (Layer, Deeper)},
    **{cls: (["a"], ["meta"]) for cls in (Registered, Slotted)},
    **{cls: ([], ["aux"]) for cls in (Box, Bag)},
    Shell: (["inner"], []),
    Parameter: (["_raw_value"], []),
    Net: (["a", "b"], ["meta", "size"]),
}
MAY_LACK = {Layer: ["weight", "bias"], Deeper: ["weight"], Net: ["a", "b", "meta", "size"]}


def _fresh(draw: Draw, old: Any) -> Any:
    """Returns a child to be put in the place of another one, and maybe at its address."""
    return copy(old) if not draw.rng.randrange(3) else draw.tree(1)


def _change_attribute(draw: Draw, node: Any) -> str | None:
    rng = draw.rng
    data, static = ATTRIBUTES[type(node)]
    name = rng.choice(data + static)
    held = getattr(node, name, None)
    if name in static and rng.randrange(2):
        return change_static(rng, held)
    object.__setattr__(node, name, None)  # the new value may get the address of the old one
    if name in MAY_LACK.get(type(node), ()) and not rng.randrange(5):
        object.__delattr__(node, name)
    elif name in data:
        object.__setattr__(node, name, _fresh(draw, held))
    else:
        made = confuse(rng, held) if rng.randrange(2) else draw.field()
        object.__setattr__(node, name, made)
    return KINDS[type(node)].name


def _change_form(draw: Draw, node: Any) -> bool:
    """Changes what only nodes of its type have. Returns False if there is nothing."""
    rng = draw.rng
    match node:
        case collections.defaultdict():
            node.default_factory = rng.choice([None, int, list])
        case FrozenDict() | nnx.State():  # holds an equal dict
            name = "_dict" if isinstance(node, FrozenDict) else "_mapping"
            object.__setattr__(node, name, dict(object.__getattribute__(node, name)))
        case Parameter():
            metadata = object.__getattribute__(node, "_var_metadata")
            if rng.randrange(3):
                change_dict(rng, metadata, lambda _: draw.field(), ["meta", "size"])
            else:
                object.__setattr__(node, "_var_metadata", dict(reversed(metadata.items())))
        case Net() if rng.randrange(2):
            flipped = {**node._pytree__nodes, "flip": not node._pytree__nodes["flip"]}
            object.__setattr__(node, "_pytree__nodes", HashableMapping(flipped))
        case Net():
            object.__setattr__(node, "__dict__", dict(reversed(vars(node).items())))
        case _:
            return False
    return True


def _mutate_node(draw: Draw, node: Any) -> str | None:
    """Changes a node or leaf in place. Returns the name of what has changed, or None."""
    rng = draw.rng
    if is_array(node):
        return "leaf array" if change_array(rng, node) else None
    kind = kind_of(node)
    if kind is None:
        return change_static(rng, node)
    if not rng.randrange(3) and _change_form(draw, node):
        return kind.name
    held = HELD.get(type(node))
    if type(node) in ATTRIBUTES and (held is None or rng.randrange(2)):
        return _change_attribute(draw, node)
    if held is None:
        return None
    change = change_dict if isinstance(held(node), dict) else change_list
    change(rng, held(node), lambda old: _fresh(draw, old))
    return kind.name


def mutate(draw: Draw, tree: Any) -> list[str]:
    """Changes something in the tree in place. Returns a list with the name of its type, or an empty
    list."""
    nodes = [x for x in walk(tree) if isinstance(x, np.ndarray) or not is_array(x)]
    for _ in range(4 if nodes else 0):
        found = _mutate_node(draw, draw.rng.choice(nodes))
        if found is not None:
            return [found]
    return []


def change_arrays(rng: random.Random, tree: Any) -> list[str]:
    """The same of a NumPy array in the tree, be it a leaf or in a static value."""
    leaves = [x for x in arrays(tree) if isinstance(x, np.ndarray)]
    static = [array for x in statics(tree) for array in arrays_in(x)]
    if not leaves + static:
        return []
    changed = rng.choice(leaves + static)
    name = "static array" if any(changed is x for x in static) else "leaf array"
    return [name] if change_array(rng, changed) else []
