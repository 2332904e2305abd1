"""Static values: an oracle of which are equal, random ones that are easily taken for each other, and
changes of them in place.

Everything draws from a ``random.Random``. If that is Hypothesis's, failures shrink. Nothing keeps
objects alive that are compared by identity, so the address of a dead object can be reused while a test
runs.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import functools
import itertools
import math
import random
import struct
import types
import uuid
import weakref
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np

from filterjit._trees import _static_keys
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

Make = Callable[[Any], Any]

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


# ---- contents ----

_MAPPINGS = dict, DictOfOwn, collections.OrderedDict, collections.defaultdict
_CHANGING = (
    *(list, dict, set, Value, Variable, types.FunctionType, types.MethodType, functools.partial),
    *(collections.deque, types.SimpleNamespace, bytearray, np.ndarray),
)


def contents(x: Any) -> tuple[list[Any], Make] | None:
    """Returns what a static value holds, and a function that makes one of its type from others;
    None if it holds nothing that another value could stand for."""
    cls = type(x)
    if cls in (tuple, Pair, list, ListOfOwn, collections.deque, set, frozenset):
        return list(x), cls
    if cls in _MAPPINGS:
        factory = (x.default_factory,) if cls is collections.defaultdict else ()
        return [*x, *x.values()], lambda new: cls(
            *factory, zip(new[: len(x)], new[len(x) :], strict=True)
        )
    if cls is types.SimpleNamespace:
        return [*vars(x).values()], lambda new: cls(**dict(zip(vars(x), new, strict=True)))
    if cls in (Constant, Inherited, Other, Variable):
        return [x.value], lambda new: cls(*new)
    return None


def may_change(x: Any) -> bool:
    """Whether a static value can change in place such that it equals other values."""
    return isinstance(x, _CHANGING) or any(map(may_change, (contents(x) or [()])[0]))


_array_types: dict[type, bool] = {}


def is_array(x: Any) -> bool:
    found = _array_types.get(type(x))
    if found is None:
        found = _array_types[type(x)] = isinstance(x, (jax.Array, np.ndarray, np.generic))
    return found


# ---- exact equality ----

# Types whose contents the oracle takes from the library's own table of types.
TABLE: tuple[type, ...] = (
    types.UnionType,
    bytearray,
    datetime.datetime,
    datetime.timezone,
    decimal.Decimal,
    uuid.UUID,
)
# The same of their subclasses.
TABLE_BASES = np.ndarray, np.generic, np.dtype
_BY_EQUALITY = (int, bool, str, bytes, Integer, Text, Level, datetime.timedelta, np.str_, np.bytes_)


class Same:
    """Wraps an object that is compared by identity, whatever the rule for functions is."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Exact:
    """Makes keys of static values; with `structure`, functions are compared by structure."""

    def __init__(self, structure: bool) -> None:
        self.structure = structure
        self._functions: dict[int, int] = {}
        self._cells: dict[int, int] = {}

    def key(self, x: Any) -> Any:
        cls = type(x)
        found = contents(x)
        if found is not None:
            held = tuple(map(self.key, found[0]))
            factory = self.key(x.default_factory) if cls is collections.defaultdict else None
            return serial(cls), factory, frozenset(held) if cls in (set, frozenset) else held
        if cls in _BY_EQUALITY:
            return serial(cls), x
        if x is None or x is ... or x is NotImplemented:
            return "constant", repr(x)
        if cls in (float, Double):
            return serial(cls), struct.pack("<d", x)
        if cls is complex:
            return serial(cls), struct.pack("<dd", x.real, x.imag)
        if cls is decimal.DecimalTuple:
            return serial(cls), tuple(map(self.key, x))
        if cls in (Coarse, Value):
            return serial(cls), x.value // 2 if cls is Coarse else x.value
        if cls is Same:
            return "same", serial(x.value)
        if cls is range or cls is slice:
            return cls.__name__, tuple(map(self.key, (x.start, x.stop, x.step)))
        if cls in (type(jnp.float32), jtu.PyTreeDef):
            return serial(cls), repr(x)
        if cls is types.MethodType:
            return "method", self.key(x.__func__), serial(x.__self__)
        if self.structure and cls is types.FunctionType:
            return self.function(x)
        if self.structure and cls is functools.partial:
            return "partial", *map(self.key, (x.func, x.args, x.keywords))
        if cls in TABLE or issubclass(cls, TABLE_BASES):
            return serial(cls), self.key(_static_keys.static_key(cls)(x))  # type: ignore[misc]
        return "identity", serial(x)

    def function(self, f: Any) -> Any:
        if id(f) in self._functions:
            return "function again", self._functions[id(f)]
        self._functions[id(f)] = len(self._functions)
        held = [cell.cell_contents for cell in f.__closure__ or ()]
        cells = [self._cells.setdefault(id(cell), len(self._cells)) for cell in f.__closure__ or ()]
        attributes = {k: v for k, v in f.__dict__.items() if not k.startswith("__filterjit")}
        key = serial(f.__code__), f.__qualname__, tuple(cells)
        parts = self.key(f.__defaults__), self.key(attributes), tuple(map(self.key, held))
        return "function", key, parts, list in map(type, held) and serial(f)


def static_key(x: Any, structure: bool = False) -> Any:
    return Exact(structure).key(x)


def arrays_in(x: Any) -> list[Any]:
    """Returns the NumPy arrays in a static value."""
    if isinstance(x, np.ndarray):
        return [x]
    found = contents(x)
    return [] if found is None else [array for held in found[0] for array in arrays_in(held)]


def in_memory(x: Any) -> Any:
    """Returns what a function may see of a static array, whatever the table of types says."""
    contents = repr(x.ravel("K")) if x.dtype.hasobject else x.tobytes("A")
    return type(x), x.dtype, x.shape, x.strides, contents


# ---- copies ----


_COPIES: dict[type, Make] = {
    int: lambda x: int(str(x)),
    float: lambda x: struct.unpack("<d", struct.pack("<d", x))[0],
    str: lambda x: "".join(list(x)),
    bytes: lambda x: bytes(bytearray(x)),
    types.MethodType: lambda x: types.MethodType(x.__func__, x.__self__),
    **{cls: lambda x: type(x)(x) for cls in (Integer, Double, Text)},
    **{cls: lambda x: type(x)(x.value) for cls in (Coarse, Value)},
    **dict.fromkeys((*TABLE, range, slice), deepcopy),
}


def twin(x: Any) -> Any:
    """Returns another object that is exactly equal, if there can be one."""
    held = contents(x)
    if held is not None:
        return held[1]([twin(y) for y in held[0]])
    if isinstance(x, np.ndarray):
        return _twin_of_array(x)
    return _COPIES.get(type(x), lambda x: x)(x)


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


# ---- drawing ----


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
BUILTIN: list[Any] = [0, 1, 2, -1, -2, True, False, 0.0, -0.0, 1.0, -1.0, 1 + 0j, 0j, -0j]
BUILTIN += [complex(-0.0, 0.0), math.nan, _NEGATIVE_NAN, math.inf, 2**61 - 1, 2**64, 10**30]
NUMBERS: list[Any] = [*BUILTIN, Integer(1), Double(1.0), Double(-0.0), Level.LOW, Level.HIGH]
ATOMS: list[Any] = [*NUMBERS, "1", "", "a", b"1", b"", Text("1"), ..., NotImplemented]
ATOMS += [Colour.RED, Colour.BLUE, len, plain, int, bool, Integer, *_KEPT, *_THINGS, *_TREEDEFS]
ATOMS += [np.dtype("float32"), np.dtype("int32"), jnp.float32, np.float32, np.dtype(">f4")]
ATOMS += [range(2), range(0, 3, 2), range(0, 4, 2), slice, type(None)]
_HOUR = datetime.timezone(datetime.timedelta(hours=1))
_NOON = datetime.datetime(2020, 1, 1, 12, tzinfo=datetime.UTC)
ATOMS += [decimal.Decimal("1"), decimal.Decimal("1.0"), _NOON, _NOON.astimezone(_HOUR)]
ATOMS += [_HOUR, datetime.timezone(datetime.timedelta(hours=1), "CET"), int | str, str | int]
ATOMS += [uuid.UUID(int=1), uuid.UUID(int=1, is_safe=uuid.SafeUUID.safe)]
FUNCTIONS: list[Make] = [
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
# Hold values that can be hashed, and can be hashed themselves.
MAKERS: list[Make] = [
    lambda x: (x,),
    lambda x: (x, (x,)),
    lambda x: ((x, 1), x),
    lambda x: Pair((x,)),
    lambda x: frozenset([x]),
    lambda x: frozenset([(x,), "a"]),
    Constant,
    Inherited,
    Other,
    lambda x: Constant((x,)),
]
_KEYED: list[Make] = [
    lambda x: {x: 1} if x == x else {1: x},
    lambda x: {x},
]
# Hold any value.
FIELDS: list[Make] = [
    lambda x: [x],
    lambda x: [[x], x],
    lambda x: [1, (x,)],
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
    lambda x: [bytearray(b"a"), x],
]
_HOLDING: list[Make] = [*MAKERS[:4], *MAKERS[6:], *FIELDS]  # also what has no hash


def draw_number(rng: random.Random) -> Any:
    return twin(rng.choice(NUMBERS))


def draw_leaf_static(rng: random.Random) -> Any:
    """Draws a static value that can be hashed."""
    die = rng.randrange(10)
    if die < 5:
        return twin(rng.choice(ATOMS))
    if die < 7:
        return rng.choice(MAKERS)(draw_number(rng))
    if die == 7:
        return rng.choice(FUNCTIONS)(draw_number(rng))
    if die == 8:
        return rng.choice([Coarse, Value])(rng.randrange(4))
    return rng.choice([Thing, _local_class, lambda: Thing().method, lambda: _THINGS[0].method])()


def draw_field(rng: random.Random) -> Any:
    if rng.randrange(2):
        return draw_leaf_static(rng)
    die = rng.randrange(5)
    if die == 0:
        return hold(rng, draw_static_array(rng))
    held = draw_leaf_static(rng) if die < 3 else draw_number(rng)
    return rng.choice([*FIELDS, *_KEYED])(held)


def hold(rng: random.Random, x: Any) -> Any:
    """Returns a value that need not have a hash, or a field that holds it."""
    return rng.choice([lambda x: x, *_HOLDING])(x)


# ---- NumPy arrays and scalars, which are static values in fields only ----

_DTYPES: list[Any] = ["f4", "f8", ">f4", "i4", "i8", "u1", "?", "c8", "M8[s]", "M8[m]", "U1", "S1"]
_DTYPES += ["O", "O", [("a", "i4"), ("b", "f4")], [("a", "i4"), ("c", "f4")], [("a", "O")]]
_DTYPES += [np.dtype("i4", metadata={"unit": 1}), jnp.bfloat16]
_FLOATS = [0.0, -0.0, 1.0, 2.0, 7.0, -1.0, -2.0, math.nan, _NEGATIVE_NAN]
# By the kind of a dtype; "V" is that of bfloat16.
_VALUES: dict[str, list[Any]] = {
    **dict.fromkeys("fV", _FLOATS),
    **{kind: [0, 1, 2, 7] for kind in "ub"},
    **{kind: ["", "a", "1"] for kind in "US"},
    "i": [0, 1, 2, 7, -1, -2],
    "c": [0, 1, -0.0, complex(-0.0, 1), complex(1, -0.0)],
    "M": [np.datetime64(minutes, "m") for minutes in (0, 1, 60)],
}
_SHAPES: list[tuple[int, ...]] = [(), (0,), (1,), (2,), (1, 2), (2, 1), (2, 2), (2, 3)]
_LEAF_FORMS: list[tuple[Any, tuple[int, ...]]] = [
    *(("f4", ()), ("f4", (2,)), ("f8", (2, 3)), ("i8", (2, 3)), ("i4", ()), ("?", (2,))),
    *(("f4", (0,)), ("c8", (1, 2)), (jnp.bfloat16, (2,))),
]


def _filled(rng: random.Random, shape: tuple[int, ...], dtype: Any) -> Any:
    made = np.zeros(shape, dtype)
    _fill(rng, made)
    return made


def draw_static_array(rng: random.Random) -> Any:
    if rng.randrange(6) == 0:
        return _filled(rng, (), rng.choice(_DTYPES))[()]  # a scalar, or the object
    return lay_out(rng, _filled(rng, rng.choice(_SHAPES), rng.choice(_DTYPES)))


def draw_numpy_leaf(rng: random.Random) -> Any:
    """Draws a NumPy array that JAX can trace."""
    dtype, shape = rng.choice(_LEAF_FORMS)
    return lay_out(rng, _filled(rng, shape, dtype))


def draw_untraceable(rng: random.Random) -> Any:
    """Draws a NumPy array that JAX refuses."""
    return _filled(rng, (2,), rng.choice(["O", ">f4", "M8[s]", "U1", [("a", "i4")]]))


def lay_out(rng: random.Random, x: Any) -> Any:
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
    return lay_out(rng, twin(x)) if isinstance(x, np.ndarray) else twin(x)


def _fill(rng: random.Random, x: Any, at: Any = None) -> None:
    """Writes random values into an array, or into one place of it."""
    if x.dtype.names is not None:
        for name in x.dtype.names:
            _fill(rng, x[name], at)
    elif x.dtype.hasobject and not x.ndim:
        x.fill(draw_number(rng))
    else:
        for place in np.ndindex(x.shape) if at is None else [at]:
            x[place] = _draw_object(rng) if x.dtype.hasobject else rng.choice(_VALUES[x.dtype.kind])


def _draw_object(rng: random.Random) -> Any:
    held = draw_static_array(rng) if rng.randrange(8) == 0 else draw_number(rng)
    return held if rng.randrange(3) else [held]


def change_array(rng: random.Random, x: Any) -> bool:
    """Changes a NumPy array in place. Returns False if it is empty."""
    if not x.size:
        return False
    writeable = x.flags.writeable
    if not writeable:
        x.setflags(write=True)
    _fill(rng, x, tuple(rng.randrange(n) for n in x.shape))
    x.setflags(write=writeable)
    return True


def _confuse_array(rng: random.Random, x: Any) -> Any:
    """Returns an array that is nearly, or exactly, the same."""
    made = lay_out(rng, twin(x))
    match rng.randrange(4):
        case 0:
            return made
        case 1:
            return made.reshape(rng.choice([x.shape[::-1], (*x.shape, 1), (x.size,)]))
        case 2 if not x.dtype.hasobject:
            sizes = [np.dtype(dtype) for dtype in _DTYPES]
            alike = [d for d in sizes if d.itemsize == x.dtype.itemsize and not d.hasobject]
            return np.ascontiguousarray(x).view(rng.choice(alike))
    change_array(rng, made)
    return made


# ---- values that are taken for others ----

_ALIKE = (tuple, Pair), (list, ListOfOwn), (Constant, Inherited, Other)


def confuse(rng: random.Random, x: Any) -> Any:
    """Returns a static value that ``==`` or ``hash`` takes for `x`, or one like it, if there is one."""
    cls = type(x)
    found = contents(x)
    if isinstance(x, np.ndarray):
        return _confuse_array(rng, x)
    if isinstance(x, np.generic):
        return draw_static_array(rng) if rng.randrange(2) else x.item()
    if found is not None and found[0]:
        held, make = found
        types_alike = [types for types in _ALIKE if cls in types]
        if types_alike and rng.randrange(4) == 0:
            return rng.choice(types_alike[0])(*held if cls in _ALIKE[2] else [held])
        keys = len(x) if isinstance(x, dict) else 0  # these come first
        if keys > 1 and rng.randrange(2):
            return make([*reversed(held[:keys]), *reversed(held[keys:])])
        at = rng.randrange(keys, len(held))
        return make([confuse(rng, y) if i == at else twin(y) for i, y in enumerate(held)])
    if isinstance(x, (int, float, complex)):
        alike = [y for y in NUMBERS if y == x or hash(y) == hash(x) or (x != x and y != y)]
        return twin(rng.choice(alike)) if alike else x
    if isinstance(x, (str, bytes)):
        return rng.choice(["1", b"1", Text("1"), 1])
    if cls is types.FunctionType and x.__qualname__.startswith("_"):
        return rng.choice(FUNCTIONS)(twin(rng.choice([1, True, 1.0])))
    if cls is type and x.__name__ == "Local":
        return _local_class()
    return rng.choice(ATOMS)


# ---- changes in place ----


def change_list(rng: random.Random, xs: Any, fresh: Make) -> None:
    """Changes a list in place. `fresh` makes an item from the one in whose place it is put."""
    at = rng.randrange(len(xs)) if xs else 0
    match rng.randrange(4):
        case 0 if xs:
            xs.pop(at)
        case 1 | 2 if xs:
            held, xs[at] = xs[at], None  # what is made may get the address of the old one
            xs[at] = fresh(held)
        case _:
            xs.append(fresh(None))


def change_dict(rng: random.Random, d: Any, fresh: Make, keys: list[Any] | None = None) -> None:
    """Changes a dict in place. `keys` are those that it may have, if not any."""
    key = rng.choice(keys or list(d) or ["a"])
    match rng.randrange(5):
        case 0:
            d.pop(key, None)
        case 1:  # the same items in another order
            d[key] = d.pop(key) if key in d else fresh(None)
        case 2 if type(key) in (int, bool):  # 1 for True
            d[int(key) if type(key) is bool else float(key)] = d.pop(key, 1)
        case _:
            held, d[key] = d.get(key), None
            d[key] = fresh(held)


def _change_held(rng: random.Random, x: Any) -> Any:
    """Returns another value for one that a static value holds."""
    die = rng.randrange(4)
    return confuse(rng, x) if die < 2 else draw_number(rng) if die == 2 else Thing()


def _change_function(rng: random.Random, f: Any) -> None:
    number = draw_number(rng)
    held = f.__closure__[0].cell_contents if f.__closure__ else None
    if type(held) in (int, bool, float):
        f.__closure__[0].cell_contents = number
    elif type(held) is list:
        held.append(number)
    elif f.__defaults__:
        f.__defaults__ = (number,)
    else:
        f.__dict__["tag"] = number


def _held_in(x: Any) -> list[Any]:
    """Returns the values in a static value that may change in place: no keys."""
    match x:
        case np.ndarray():
            return list(x.reshape(-1)) if x.dtype == object else []
        case functools.partial():
            return [x.func]
        case dict():
            return list(x.values())
        case set() | frozenset():
            return []
    found = contents(x)
    return [] if found is None else found[0]


def change_static(rng: random.Random, x: Any) -> str | None:
    """Changes a static value in place, or one that it holds. Returns the name of the type of what
    has changed, or None."""
    held = _held_in(x)
    if held and (rng.randrange(2) or type(x) in (tuple, Pair, Constant, Inherited)):
        found = change_static(rng, rng.choice(held))
        if found is not None:
            return found
    fresh = lambda old: _change_held(rng, old)
    match x:
        case list():
            change_list(rng, x, fresh)
        case dict():
            change_dict(rng, x, fresh)
        case set():
            if x and rng.randrange(2):
                x.pop()
            x.add(draw_number(rng))
        case Variable():
            x.value = fresh(x.value)
        case collections.deque():
            x[0] = fresh(x[0])
        case types.SimpleNamespace():
            x.a = fresh(x.a)
        case bytearray():
            x[0] = (x[0] + 1) % 3
        case np.ndarray() if change_array(rng, x):
            pass
        case Value():
            x.value = (x.value + 1) % 4
        case types.FunctionType() if not any(x is y for y in ATOMS):
            _change_function(rng, x)
        case _:
            return None
    return type(x).__name__
