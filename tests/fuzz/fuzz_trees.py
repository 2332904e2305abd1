"""Random trees of every kind of node, with static values that are easily taken for each other.

Everything draws from a ``random.Random``. If that is Hypothesis's, failures shrink.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import functools
import math
import random
import struct
import types
import uuid
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from fuzz_flax import Slotted, change_flax, draw_flax
from fuzz_oracle import WRAPPER, copy, is_array, kind_of, remember, twin, walk

from filterjit.types import PartialFilterJit
from support.modules import Deeper, Layer, Shell
from support.nodes import Bag, Box, ListSubclass, Point, PointWithNew, Registered
from support.statics import (
    Coarse,
    Colour,
    Constant,
    DictOfOwn,
    Double,
    Inherited,
    Integer,
    Level,
    ListOfOwn,
    Other,
    OwnArray,
    Pair,
    Text,
    Thing,
    Value,
    Variable,
)

# ---- statics ----


def plain(x: Any, y: Any = 1) -> Any:
    return x


def _closure(value: Any) -> Any:
    return lambda: value


def _defaults(value: Any) -> Any:
    def inner(x: Any = value) -> Any:
        return x

    return inner


def _tagged(value: Any) -> Any:
    def inner() -> None: ...

    inner.__dict__["tag"] = value
    return inner


def _recursive(value: Any) -> Any:
    def inner() -> Any:
        return inner, value

    return inner


def _sharing(value: Any) -> Any:
    one = _closure(value)
    return functools.partial(one, one)


def _not_sharing(value: Any) -> Any:
    return functools.partial(_closure(value), _closure(value))


def _local_class() -> type:
    class Local:
        pass

    return Local


_NEGATIVE_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000000))[0]
_THINGS = [Thing(), Thing()]
_KEPT = [_closure(1), _closure(1), _defaults(1), functools.partial(plain, 1), _local_class()]
_TREEDEFS = [jtu.tree_structure(x) for x in ((1,), [1], {"a": 1})]
NUMBERS: list[Any] = [0, 1, 2, -1, -2, True, False, 0.0, -0.0, 1.0, -1.0, 1 + 0j, 0j, -0j]
NUMBERS += [complex(-0.0, 0.0), math.nan, _NEGATIVE_NAN, math.inf, 2**61 - 1, 2**64, 10**30]
NUMBERS += [Integer(1), Double(1.0), Double(-0.0), Level.LOW, Level.HIGH]
ATOMS: list[Any] = [*NUMBERS, "1", "", "a", b"1", b"", Text("1"), ..., NotImplemented]
ATOMS += [Colour.RED, Colour.BLUE, len, plain, int, bool, Integer, *_KEPT, *_THINGS, *_TREEDEFS]
ATOMS += [np.dtype("float32"), np.dtype("int32"), jnp.float32, np.float32, np.dtype("<f4")]
ATOMS += [range(2), range(0, 3, 2), range(0, 4, 2), slice, type(None)]
_HOUR = datetime.timezone(datetime.timedelta(hours=1))
_NOON = datetime.datetime(2020, 1, 1, 12, tzinfo=datetime.UTC)
ATOMS += [decimal.Decimal("1"), decimal.Decimal("1.0"), _NOON, _NOON.astimezone(_HOUR)]
ATOMS += [_HOUR, datetime.timezone(datetime.timedelta(hours=1), "CET"), int | str, str | int]
ATOMS += [uuid.UUID(int=1), uuid.UUID(int=1, is_safe=uuid.SafeUUID.safe)]
_MAKERS: list[Callable[[Any], Any]] = [
    lambda x: (x,),
    lambda x: (x, (x,)),
    lambda x: Pair((x,)),
    lambda x: frozenset([x]),
    lambda x: frozenset([(x,), "a"]),
    Constant,
    Inherited,
    Other,
    lambda x: Constant((x,)),
]
_FUNCTIONS: list[Callable[[Any], Any]] = [
    _closure,
    _defaults,
    _tagged,
    _recursive,
    _sharing,
    _not_sharing,
    lambda x: functools.partial(plain, x),
    lambda x: functools.partial(plain, y=x),
    lambda x: functools.partial(_closure(x), 1),
    lambda x: _closure(_closure(x)),
    lambda x: _closure([x]),
]
# Hold values that can be hashed.
_KEYED: list[Callable[[Any], Any]] = [
    lambda x: {x: 1} if x == x else {1: x},
    lambda x: {x},
]
# Hold any value.
_FIELDS: list[Callable[[Any], Any]] = [
    lambda x: [x],
    lambda x: [[x], x],
    lambda x: {"a": x, "b": 1},
    lambda x: {"b": 1, "a": x},
    lambda x: ([x], 1),
    Variable,
    lambda x: Variable([x]),
    lambda x: Constant([x]),
    lambda x: Inherited([x]),
    lambda x: ListOfOwn([x]),
    lambda x: DictOfOwn(a=x),
    lambda x: collections.OrderedDict([("a", x), ("b", 1)]),
    lambda x: collections.OrderedDict([("b", 1), ("a", x)]),
    lambda x: collections.defaultdict(list, a=x),
    lambda x: collections.deque([x]),
    lambda x: types.SimpleNamespace(a=x),
    lambda x: bytearray(b"a"),
]


def draw_leaf_static(rng: random.Random) -> Any:
    """Draws a static value that can be hashed."""
    die = rng.randrange(10)
    if die < 5:
        return twin(rng.choice(ATOMS))
    if die < 7:
        return rng.choice(_MAKERS)(twin(rng.choice(NUMBERS)))
    if die == 7:
        return rng.choice(_FUNCTIONS)(twin(rng.choice(NUMBERS)))
    if die == 8:
        return rng.choice([Coarse, Value])(rng.randrange(4))
    return rng.choice([Thing, _local_class, lambda: Thing().method, lambda: _THINGS[0].method])()


def draw_field(rng: random.Random) -> Any:
    if rng.randrange(2):
        return draw_leaf_static(rng)
    die = rng.randrange(5)
    if die == 0:
        held = draw_static_array(rng)
        return rng.choice([lambda x: x, *_HOLDING, *_FIELDS])(held)
    held = draw_leaf_static(rng) if die < 3 else twin(rng.choice(NUMBERS))
    return rng.choice([*_FIELDS, *_KEYED])(held)


# NumPy arrays and scalars, which are static values in fields only.
_DTYPES: list[Any] = ["f4", "f8", ">f4", "i4", "i8", "u1", "?", "c8", "M8[s]", "M8[m]", "U1", "S1"]
_DTYPES += ["O", "O", [("a", "i4"), ("b", "f4")], [("a", "i4"), ("c", "f4")], [("a", "O")]]
_DTYPES += [np.dtype("i4", metadata={"unit": 1}), jnp.bfloat16]
_SHAPES: list[tuple[int, ...]] = [(), (0,), (1,), (2,), (1, 2), (2, 1), (2, 2), (2, 3)]
_HOLDING: list[Callable[[Any], Any]] = [
    *(lambda x: (x,), lambda x: ((x, 1), x), Constant, Inherited, Other),
    *(lambda x: Pair([x]), lambda x: [1, (x,)], lambda x: Constant([x])),
]


def draw_static_array(rng: random.Random) -> Any:
    if rng.randrange(6) == 0:
        found = np.zeros((), rng.choice(_DTYPES))
        _fill(rng, found)
        return found[()]  # a scalar, or the object
    made = np.zeros(rng.choice(_SHAPES), rng.choice(_DTYPES))
    _fill(rng, made)
    return _laid_out(rng, made)


def _laid_out(rng: random.Random, x: Any) -> Any:
    """Returns an array of the same contents, maybe in another order, a view, or of a subclass."""
    match rng.randrange(8):
        case 0 | 5:
            return np.asfortranarray(x) if x.flags.c_contiguous else np.ascontiguousarray(x)
        case 1 if x.ndim:
            return np.repeat(x, 2, axis=0)[::2]
        case 2 if x.ndim:
            return x[::-1].copy()[::-1]
        case 3:
            return x.view(OwnArray)
        case 4:
            x.setflags(write=False)
    return x


def lay_out_again(rng: random.Random, x: Any) -> Any:
    made = twin(x)
    return _laid_out(rng, made) if isinstance(x, np.ndarray) else made


def _fill(rng: random.Random, x: Any, at: Any = ...) -> None:
    """Writes random values into an array, or into one place of it."""
    if x.dtype.names is not None:
        for name in x.dtype.names:
            _fill(rng, x[name], at)
    elif x.dtype.hasobject:
        if not x.ndim:
            x.fill(twin(rng.choice(NUMBERS)))
            return
        for place in np.ndindex(x.shape) if at is ... else [at]:
            held = draw_static_array(rng) if rng.randrange(8) == 0 else twin(rng.choice(NUMBERS))
            x[place] = held if rng.randrange(3) else [held]
    elif x.dtype.kind in "US":
        x[at] = rng.choice(["", "a", "1"])
    elif x.dtype.kind == "M":
        x[at] = np.datetime64(rng.choice([0, 1, 60]), "m")
    else:
        number = rng.choice([0, 1, 2, -0.0, 1.0, 7])
        if x.dtype.kind == "c":
            number = rng.choice([number, complex(number, -0.0)])
        elif x.dtype.kind in "fV" and rng.randrange(4) == 0:
            number = rng.choice([math.nan, _NEGATIVE_NAN, -1.0, -2.0])
        elif x.dtype.kind == "i" and rng.randrange(2):
            number = rng.choice([-1, -2])
        x[at] = number


def change_array(rng: random.Random, x: Any) -> bool:
    """Changes a NumPy array in place. Returns False if it is empty."""
    if not x.size:
        return False
    writeable = x.flags.writeable
    if not writeable:
        x.setflags(write=True)
    _fill(rng, x, tuple(rng.randrange(n) for n in x.shape) if x.ndim else ...)
    x.setflags(write=writeable)
    return True


def draw_holder(rng: random.Random, leaf: Any) -> tuple[Any, list[Any]]:
    """Draws a node with this leaf and with NumPy arrays in static places, and the arrays."""
    arrays = []
    while not arrays:
        drawn = [draw_static_array(rng) for _ in range(2)]
        arrays = [x for x in drawn if isinstance(x, np.ndarray)]
    one, two = (rng.choice([lambda x: x, *_HOLDING, *_FIELDS])(x) for x in drawn)
    make = rng.choice(
        [
            lambda: make_layer(leaf, 1, one, two),
            lambda: Registered(leaf, None, [one, two]),
            lambda: Box([leaf], (one, two)),
            lambda: [Bag([leaf, 1], one), Box([], two)],
        ]
    )
    return make(), arrays


def _confuse_array(rng: random.Random, x: Any) -> Any:
    """Returns an array that is nearly, or exactly, the same."""
    match rng.randrange(6):
        case 0:
            return _laid_out(rng, twin(x))
        case 1:
            return twin(x).reshape(rng.choice([x.shape[::-1], (*x.shape, 1), (x.size,)]))
        case 2 if not x.dtype.hasobject:
            alike = [dtype for dtype in _DTYPES if np.dtype(dtype).itemsize == x.dtype.itemsize]
            alike = [dtype for dtype in alike if not np.dtype(dtype).hasobject]
            return np.ascontiguousarray(x).view(rng.choice(alike)) if alike else twin(x)
        case 3:
            return twin(x.tolist()) if x.dtype.names is None else twin(x)
        case 4 if x.size:
            return x.reshape(-1)[0]
    made = twin(x)
    change_array(rng, made)
    return made


def confuse(rng: random.Random, x: Any) -> Any:
    """Returns a static value that ``==`` or ``hash`` takes for `x`, or one like it, if there is one."""
    cls = type(x)
    if isinstance(x, np.ndarray):
        return _confuse_array(rng, x)
    if isinstance(x, np.generic):
        return draw_static_array(rng) if rng.randrange(2) else x.item()
    if cls in (tuple, Pair, list, ListOfOwn) and len(x) > 0:
        if rng.randrange(4) == 0:
            mutable = [tuple, Pair, list, ListOfOwn]
            return rng.choice(mutable if isinstance(x, list) else [tuple, Pair])(x)
        at = rng.randrange(len(x))
        return cls([confuse(rng, y) if i == at else twin(y) for i, y in enumerate(x)])
    if cls in (set, frozenset):
        return cls([confuse(rng, y) for y in x])
    if cls in (dict, DictOfOwn, collections.OrderedDict):
        if len(x) > 1 and rng.randrange(2):
            return cls(reversed(x.items()))
        return cls({twin(k): confuse(rng, v) for k, v in x.items()})
    if cls is collections.deque:
        return cls([confuse(rng, y) for y in x])
    if cls is types.SimpleNamespace:
        return cls(**{k: confuse(rng, v) for k, v in vars(x).items()})
    if cls in (Constant, Inherited, Other):
        return rng.choice([cls, cls, Constant, Inherited, Other])(confuse(rng, x.value))
    if cls is Variable:
        return Variable(confuse(rng, x.value))
    if isinstance(x, (int, float, complex)):
        alike = [y for y in NUMBERS if y == x or hash(y) == hash(x) or (x != x and y != y)]
        return twin(rng.choice(alike)) if alike else x
    if isinstance(x, (str, bytes)):
        return rng.choice(["1", b"1", Text("1"), 1])
    if cls is types.FunctionType and x.__qualname__.startswith("_"):
        return rng.choice(_FUNCTIONS)(twin(rng.choice([1, True, 1.0])))
    if cls is type and x.__name__ == "Local":
        return _local_class()
    return rng.choice(ATOMS)


# ---- arrays ----

_ARRAYS: list[Any] = [
    *(jnp.asarray(x, jnp.float32) for x in (0.5, 1.5, 2.5)),
    *(jnp.asarray(x, jnp.int32) for x in (1, 2)),
    jnp.asarray(2.0),  # weak
    jnp.array(True),
    jnp.arange(2.0),
]
for _array in _ARRAYS:
    remember(_array)


def draw_array(rng: random.Random) -> Any:
    if rng.randrange(3):
        return _ARRAYS[rng.randrange(3)]
    die = rng.randrange(4)
    if die == 0:
        return np.float32(rng.randrange(3))
    if die == 1:
        return np.full((), rng.randrange(3), np.float64)
    if die == 2:
        return draw_numpy_leaf(rng)
    return rng.choice(_ARRAYS)


_LEAF_FORMS: list[tuple[Any, tuple[int, ...]]] = [
    *(("f4", ()), ("f4", (2,)), ("f8", (2, 3)), ("i8", (2, 3)), ("i4", ()), ("?", (2,))),
    *(("f4", (0,)), ("c8", (1, 2)), (jnp.bfloat16, (2,))),
]


def draw_numpy_leaf(rng: random.Random) -> Any:
    """Draws a NumPy array that JAX can trace."""
    dtype, shape = rng.choice(_LEAF_FORMS)
    made = np.zeros(shape, dtype)
    _fill(rng, made)
    return _laid_out(rng, made)


def draw_untraceable(rng: random.Random) -> Any:
    """Draws a NumPy array that JAX refuses."""
    made = np.zeros((2,), rng.choice(["O", ">f4", "M8[s]", "U1", [("a", "i4")]]))
    _fill(rng, made)
    return made


# ---- trees ----

_KEYS = [["a", "b", "c"], [0, 1, 2], [True, -1, 2.0], [1.0, 0], [-0.0, 1], [(1, 2), (0, True)]]


def _keys(rng: random.Random) -> list[Any]:
    keys = list(rng.choice(_KEYS))
    rng.shuffle(keys)
    return keys[: rng.randrange(len(keys) + 1)]


def make_layer(weight: Any, bias: Any, size: Any, activation: Any) -> Any:
    """Makes a `Layer` without Equinox's warning of arrays in static fields."""
    made = object.__new__(Layer)
    fields = {"weight": weight, "bias": bias, "size": size, "activation": activation}
    for name, x in fields.items():
        object.__setattr__(made, name, x)
    return made


def _module(rng: random.Random, inner: Callable[[], Any]) -> Any:
    cls = rng.choice([Layer, Layer, Deeper])
    made = object.__new__(cls)
    fields = {"weight": inner(), "bias": inner()}
    fields |= {"size": draw_field(rng), "activation": draw_field(rng)}
    if cls is Deeper:
        fields["extra"] = inner()
    if rng.randrange(8) == 0:
        fields.pop(rng.choice(list(fields)))
    for name, x in fields.items():
        object.__setattr__(made, name, x)
    return made


def _shell(rng: random.Random, inner: Callable[[], Any]) -> Any:
    made = Shell(inner())
    if rng.randrange(2):
        for name in WRAPPER:
            object.__setattr__(made, name, rng.choice(["one", "two", None]))
    return made


def _children(rng: random.Random, inner: Callable[[], Any]) -> list[Any]:
    return [inner() for _ in range(rng.randrange(4))]


def draw_tree(rng: random.Random, wrapped: list[Any], depth: int = 3) -> Any:
    """Draws a tree. The jitted functions in `wrapped` may stand in it."""
    if depth == 0 or rng.randrange(4) == 0:
        return draw_array(rng) if rng.randrange(5) < 2 else draw_leaf_static(rng)

    def inner() -> Any:
        return draw_tree(rng, wrapped, depth - 1)

    def dict_of(make: Callable[[Any], Any]) -> Any:
        return make({key: inner() for key in _keys(rng)})

    match rng.randrange(22):
        case 0 | 1:
            return tuple(_children(rng, inner))
        case 2 | 3:
            return _children(rng, inner)
        case 4:
            return dict_of(dict)
        case 5:
            return dict_of(collections.OrderedDict)
        case 6:
            factory = rng.choice([None, int, list])
            return dict_of(lambda x: collections.defaultdict(factory, x))
        case 7:
            return None
        case 8:
            return Point(inner(), inner()) if rng.randrange(2) else PointWithNew(inner(), inner())
        case 9 | 10 | 11:
            return _module(rng, inner)
        case 12:
            return _shell(rng, inner)
        case 13:
            return Registered(inner(), inner(), draw_field(rng))
        case 14:
            return rng.choice([Box, Bag])(_children(rng, inner), draw_field(rng))
        case 15:
            return ListSubclass(_children(rng, inner))
        case 16:
            make = rng.choice([eqx.Partial, jtu.Partial])
            return make(plain, inner(), y=inner())
        case 17 | 18 | 19 | 20:
            field, leaf = lambda: draw_field(rng), lambda: draw_leaf_static(rng)
            return draw_flax(rng, inner, field, leaf, lambda: dict_of(dict))
        case _:
            if wrapped and rng.randrange(2):
                f = rng.choice(wrapped)
                return rng.choice(
                    [lambda: f, lambda: _partial(f, inner), lambda: _bound(f, inner)]
                )()
            return make_layer(inner(), inner(), draw_field(rng), draw_field(rng)).method


def _partial(f: Any, inner: Callable[[], Any]) -> Any:
    held = inner()
    return f if has_missing_fields(held) else f.partial(held)


def _bound(f: Any, inner: Callable[[], Any]) -> Any:
    return f.__get__(Layer(inner(), inner(), 1, len))


def draw_nearly(rng: random.Random, tree: Any, wrapped: list[Any]) -> Any:
    """Returns a copy with another static value or array in one place, mostly one that is easily
    taken for the original."""
    target = rng.randrange(_count(tree) or 1)
    seen = -1

    def change(x: Any, field: bool) -> Any:
        nonlocal seen
        seen += 1
        if seen != target:
            return twin(x)
        if is_array(x) and not field:
            return draw_array(rng)
        if rng.randrange(4):
            return confuse(rng, x)
        return draw_field(rng) if field else draw_leaf_static(rng)

    def go(x: Any) -> Any:
        kind = None if is_array(x) else kind_of(x)
        if kind is None:
            return change(x, False)
        aux, children = kind.split(x)
        made = [change(v, True) if _is_free(x, name) else twin(v) for name, v in aux]
        return kind.build(x, made, [go(c) for c in children])

    return draw_tree(rng, wrapped, 1) if tree is None else go(tree)


def _is_free(node: Any, name: Any) -> bool:
    """Whether any other static value may stand in this place."""
    return name in ("size", "activation", "meta") or (name == "aux" and type(node) in (Box, Bag))


def _count(tree: Any) -> int:
    kind = None if is_array(tree) else kind_of(tree)
    if kind is None:
        return 1
    aux, children = kind.split(tree)
    return sum(_is_free(tree, name) for name, _ in aux) + sum(map(_count, children))


def draw_large(rng: random.Random) -> Any:
    """Draws a model that is large enough for a record, and of node types that a record accepts."""

    def row(i: int) -> Any:
        layer = Layer(_ARRAYS[0], (_ARRAYS[1], i), rng.choice(NUMBERS), f"name {i}")
        forms: list[Callable[[], Any]] = [
            lambda: layer,
            lambda: [layer, None],
            lambda: Point(layer, i),
            lambda: {"layer": layer, "i": i},
            lambda: Slotted(layer, i),
        ]
        return rng.choice(forms)()

    return Layer([row(i) for i in range(9)], _ARRAYS[2], "root", len)


def change_large(rng: random.Random, model: Any) -> None:
    """Replaces something in one place of the model, maybe by an object at the same address."""
    owner = rng.choice([x for x in walk(model) if type(x) in (Layer, list, dict, Slotted)])
    if type(owner) in (dict, Slotted):
        put: Any = {"i": twin(rng.choice(NUMBERS)), "layer": draw_array(rng)}
        if type(owner) is dict:
            key = rng.choice(list(owner))
            owner[key] = copy(owner.pop(key)) if rng.randrange(2) else put[key]
        elif rng.randrange(2):
            owner.meta = put["i"]
        else:
            owner.a = copy(owner.a)
        return
    if type(owner) is list:
        place = rng.randrange(len(owner))
        if place and rng.randrange(3) == 0:
            owner[place] = owner[place - 1]
        else:
            owner[place] = copy(owner[place])
        return
    name = rng.choice(["weight", "bias", "size", "activation"])
    if owner is model and name == "weight":
        return
    if name in ("weight", "bias"):
        put = rng.choice([draw_array, lambda rng: (draw_array(rng), twin(rng.choice(NUMBERS)))])
    else:
        put = rng.choice([lambda rng: twin(rng.choice(NUMBERS)), lambda _: Thing(), draw_field])
    object.__setattr__(owner, name, None)
    object.__setattr__(owner, name, put(rng))


# ---- changes in place ----


def _change_static(rng: random.Random, x: Any, done: list[str]) -> Any:
    """Changes a static value in place if possible. Returns the value to put in its place."""
    cls = type(x)
    number = twin(rng.choice(NUMBERS))
    if cls in (list, ListOfOwn):
        where = rng.randrange(len(x)) if x else 0
        if x and isinstance(x[where], list) and rng.randrange(2):
            return _change_static(rng, x[where], done)
        if x and rng.randrange(2) and type(x[where]) in (int, bool, float, complex):
            x[where] = confuse(rng, x[where])
        elif x and isinstance(x[where], np.ndarray) and rng.randrange(2):
            _change_static(rng, x[where], done)
        elif x and rng.randrange(2):
            x[where] = number if rng.randrange(2) else Thing()  # maybe at the old one's address
        elif x and rng.randrange(2):
            x.pop()
        else:
            x.append(number)
    elif isinstance(x, dict):
        key = rng.choice(list(x)) if x else "a"
        if x and isinstance(x[key], np.ndarray) and rng.randrange(2):
            _change_static(rng, x[key], done)
        elif rng.randrange(2):
            x[key] = number
        else:  # the same items in another order
            held = x.pop(key, 1)
            x[key] = held
    elif cls is set:
        if x and rng.randrange(2):
            x.pop()
        x.add(number)
    elif cls is Variable:
        x.value = confuse(rng, x.value)
    elif cls is collections.deque:
        x[0] = confuse(rng, x[0])
    elif cls is types.SimpleNamespace:
        x.a = confuse(rng, x.a)
    elif cls is bytearray:
        x[0] = (x[0] + 1) % 3
    elif isinstance(x, np.ndarray):
        if x.dtype == object and x.size and rng.randrange(2):
            held = x.reshape(-1)[0]
            if isinstance(held, (list, np.ndarray)):
                return _change_static(rng, held, done)
        if not change_array(rng, x):
            return x
    elif cls is Value:
        x.value = (x.value + 1) % 4
    elif cls in (tuple, Pair) and x and isinstance(x[0], (list, Value, np.ndarray)):
        _change_static(rng, x[0], done)
        return x
    elif cls in (Constant, Inherited) and isinstance(x.value, (list, Value, np.ndarray)):
        _change_static(rng, x.value, done)
        return x
    elif cls is functools.partial:
        return _change_static(rng, x.func, done)
    elif cls is types.FunctionType and not any(x is y for y in ATOMS):
        if x.__closure__ and type(x.__closure__[0].cell_contents) in (int, bool, float):
            x.__closure__[0].cell_contents = number
        elif x.__closure__ and type(x.__closure__[0].cell_contents) is list:
            x.__closure__[0].cell_contents.append(number)
        elif x.__defaults__:
            x.__defaults__ = (number,)
        else:
            x.__dict__["tag"] = number
    else:
        return x
    done.append(cls.__name__)
    return x


def mutate(rng: random.Random, tree: Any, wrapped: list[Any]) -> list[str]:
    """Changes something in the tree in place. Returns a list with the name of its type, or an empty
    list."""
    done: list[str] = []
    # A partial owns the nodes that it holds, and nothing else changes them. Those that it copies
    # whenever it is walked stay alive here, so that no other node gets the address of one.
    held = [y for x in walk(tree) if type(x) is PartialFilterJit for y in walk(x)]
    private = set(map(id, held))
    nodes = [x for x in walk(tree) if not is_array(x) and id(x) not in private]
    nodes += [x for x in walk(tree) if isinstance(x, np.ndarray)]
    for _ in range(4 if nodes else 0):
        node = rng.choice(nodes)
        _mutate_node(rng, node, wrapped, done)
        if done:
            break
    return done


def _mutate_node(rng: random.Random, node: Any, wrapped: list[Any], done: list[str]) -> None:
    if is_array(node):
        if change_array(rng, node):
            done.append("leaf array")
        return
    cls = type(node)
    kind = kind_of(node)
    fresh = lambda: draw_tree(rng, wrapped, 1)
    if kind is None:
        _change_static(rng, node, done)
    elif cls in (list, ListSubclass):
        die = rng.randrange(3)
        if die == 0 or not node:
            node.append(fresh())
        elif die == 1:
            node.pop(rng.randrange(len(node)))
        else:
            node[rng.randrange(len(node))] = fresh()
        done.append(kind.name)
    elif isinstance(node, dict):
        if cls is collections.defaultdict and rng.randrange(2):
            node.default_factory = rng.choice([None, int, list])
        elif cls is collections.OrderedDict and node and rng.randrange(2):
            node.move_to_end(rng.choice(list(node)), last=bool(rng.randrange(2)))
        elif node and rng.randrange(3):
            key = rng.choice(list(node))
            held = node.pop(key)
            if rng.randrange(2):
                node[key] = fresh() if rng.randrange(2) else held
            elif type(key) in (int, bool):  # 1 for True
                node[int(key) if type(key) is bool else float(key)] = held
        else:
            node[rng.choice(list(node)) if node else "a"] = fresh()
        done.append(kind.name)
    elif cls in (Layer, Deeper):
        name = rng.choice(["weight", "bias", "size", "activation"])
        if name in ("size", "activation"):
            held = vars(node).get(name)
            if rng.randrange(3):
                _change_static(rng, held, done)
                return
            object.__setattr__(node, name, confuse(rng, held))
        elif name in vars(node) and not rng.randrange(6):
            object.__delattr__(node, name)
        else:
            object.__setattr__(node, name, fresh())
        done.append(kind.name)
    elif cls is Shell:
        object.__setattr__(node, "inner", fresh())
        done.append(kind.name)
    elif cls is Registered:
        if rng.randrange(2):
            _change_static(rng, node.meta, done)
        else:
            setattr(node, *rng.choice([("a", fresh()), ("meta", draw_field(rng))]))
            done.append(kind.name)
    elif cls in (Box, Bag):
        if rng.randrange(2):
            _change_static(rng, node.aux, done)
        else:
            node.children.append(fresh())
            done.append(kind.name)
    elif change_flax(rng, node, fresh, lambda: draw_field(rng)):
        done.append(kind.name)


def has_missing_fields(tree: Any) -> bool:
    """Whether a Module in the tree lacks fields: Equinox leaves a mark in Modules rebuilt from it."""
    return any(
        type(x) in (Layer, Deeper, Shell) and len(vars(x)) != len(type(x).__dataclass_fields__)
        for x in walk(tree)
    )


def fresh_arrays(tree: Any) -> Any:
    """Returns a copy with arrays of its own, which can be donated."""
    return copy(tree, lambda x: jnp.array(x) if isinstance(x, jax.Array) else twin(x))
