"""The rule for the equality of statics, type by type: python/filterjit/_trees/_static_keys.py has it.

Each type is tried wherever a static can stand: as a leaf, in a static field, in aux data, in
containers and dataclasses. Two values that a function can tell apart have a program each, equal
copies share one, and a value that is changed in place is noticed.
"""

import argparse
import array
import collections
import configparser
import copy
import dataclasses
import datetime
import decimal
import fractions
import functools
import http.cookies
import inspect
import itertools
import pathlib
import pickle
import re
import statistics
import time
import types
import typing
import uuid
import weakref
from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import filterjit
from support.comparison import Traces
from support.modules import Holder
from support.nodes import Custom
from support.statics import (
    Clock,
    Colour,
    Constant,
    DictOfOwn,
    Double,
    FrozenSetOfOwn,
    Integer,
    Level,
    ListOfOwn,
    Money,
    SetOfOwn,
    Stamp,
    Text,
    TupleOfOwn,
)
from support.trees import ONE

pytestmark = pytest.mark.filterwarnings("ignore:A JAX array is being set as static")

# ---- types ----


@dataclasses.dataclass(frozen=True)
class Config:
    n: Any


class Inherited(Config):
    pass


@dataclasses.dataclass(frozen=True)
class Acting:
    n: Any

    def __call__(self, *args: Any) -> Any:
        return self.n


@dataclasses.dataclass(frozen=True, eq=False)
class Redecorated(Config):
    more: Any = 0


class WithMore(Config):
    def __init__(self, n: Any, more: Any) -> None:
        super().__init__(n)
        object.__setattr__(self, "more", more)


# A user's own __eq__ that is not in a file, as under `python -c`.
_names: dict[str, Any] = {"dataclasses": dataclasses}
exec(
    "@dataclasses.dataclass(frozen=True)\n"
    "class Own:\n"
    "    n: object\n"
    "    def __eq__(self, other): return abs(self.n) == abs(other.n)\n"
    "    def __hash__(self): return hash(abs(self.n))\n",
    _names,
)
Own = _names["Own"]


class Sub(eqx.Module):
    n: Any = eqx.field(static=True)


class Weights(eqx.Module):
    w: Any


class Day(datetime.datetime):
    """Says less of itself than there is."""

    def isoformat(self, *_: Any) -> str:
        return "today"

    def replace(self, *_: Any, **__: Any) -> Any:
        return self


class Hours(datetime.timedelta):
    days = property(lambda self: 0)


class Short(pathlib.PurePosixPath):
    def __str__(self) -> str:
        return self.name


class Lazy(Config):
    @functools.cached_property
    def n_twice(self) -> Any:
        return 2 * self.n


class NotLazy(Lazy):
    __slots__ = ("n_twice",)

    def __init__(self, n_twice: Any) -> None:
        super().__init__(1)
        object.__setattr__(self, "n_twice", n_twice)


class EqualPartials(functools.partial[Any]):
    """Has memory that is not in its attributes."""

    def __new__(cls, *args: Any) -> Any:
        return super().__new__(cls, *args)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EqualPartials) and self.args == other.args


class Elsewhere:
    """Has attributes that are not in its `__dict__`."""

    __slots__ = ("_n",)
    __dict__ = property(lambda self: {})  # type: ignore[assignment]

    def __init__(self, n: Any) -> None:
        self._n = n

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Elsewhere) and bool(self._n == other._n)


class MyOrdered(collections.OrderedDict[Any, Any]):
    def items(self) -> Any:
        return ()


class EqualLists(list[Any]):
    """Says that all of its instances are equal."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EqualLists)

    def __hash__(self) -> int:
        return 1


class Mutable:
    """Compared by value, so it has no hash."""

    def __init__(self, n: Any) -> None:
        self.n = n

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mutable) and bool(self.n == other.n)


class Slots:
    __slots__ = ("n",)

    def __init__(self, n: Any) -> None:
        self.n = n

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Slots) and bool(self.n == other.n)


class Frozen(collections.abc.Mapping[Any, Any]):
    """A mapping of a user, with the ``__eq__`` that `Mapping` has."""

    def __init__(self, **items: Any) -> None:
        self._items = items

    def __getitem__(self, key: Any) -> Any:
        return self._items[key]

    def __iter__(self) -> Any:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return len(self._items)


class Few(frozenset[Any]):
    """The same memory as a frozenset."""

    __slots__ = ()

    def __iter__(self) -> Any:
        return (x for x in frozenset.__iter__(self) if x < 10)


def read_only(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    x.flags.writeable = False
    return x


OBJECT = object()
CONSTANTS = [Config(1), Config(True), Config(1.0)]


def attributed(x: Any, **attributes: Any) -> Any:
    for name, value in attributes.items():
        setattr(x, name, value)
    return x


zone = datetime.timezone
hour = datetime.timedelta(hours=1)
moment = datetime.datetime(2020, 1, 1, 12, tzinfo=zone.utc)

# Values that differ, many of which are ``==``, for each type; made anew on each call.
HASHABLE: dict[str, Callable[[], list[Any]]] = {
    "dataclass": lambda: [Config(v) for v in (2, 2.0, True, 1, -1, -2, 0.0, -0.0)],
    "inherited dataclass": lambda: [Inherited(v) for v in (2, 2.0, True, 1, -1, -2)],
    "eq=False below eq=True": lambda: [Redecorated(1, v) for v in (2, 2.0, True, -1, -2)],
    "more attributes than the dataclass": lambda: [WithMore(1, v) for v in (2, 2.0, 3)],
    "own __eq__ under exec": lambda: [Own(1), Own(2)],
    "int": lambda: [Integer(1), Integer(2), attributed(Integer(1), unit="m")],
    "float": lambda: [Double(0.0), Double(-0.0), attributed(Double(0.0), unit="m")],
    "str": lambda: [Text("a"), attributed(Text("a"), lang="en"), attributed(Text("a"), lang=1)],
    "tuple": lambda: [TupleOfOwn((1,)), TupleOfOwn((True,)), attributed(TupleOfOwn((1,)), n=1)],
    "frozenset": lambda: [FrozenSetOfOwn([1]), FrozenSetOfOwn([True]), attributed(FrozenSetOfOwn([1]), n=1)],
    "Decimal": lambda: [decimal.Decimal("1.0"), decimal.Decimal("1.00")],
    "subclass of Decimal": lambda: [Money("1.0"), Money("1.00"), Money("1")],
    "Fraction": lambda: [fractions.Fraction(1, 2), fractions.Fraction(1, 3)],
    "datetime": lambda: [moment, moment.astimezone(zone(hour)), moment.replace(fold=1)],
    "subclass of datetime": lambda: [
        Stamp(2020, 1, 1, 12, tzinfo=zone.utc),
        Stamp(2020, 1, 1, 13, tzinfo=zone(hour)),
        Stamp(2020, 1, 1, 13, tzinfo=zone(hour, "CET")),
    ],
    "subclass of time": lambda: [
        Clock(12, tzinfo=zone.utc),
        Clock(13, tzinfo=zone(hour)),
        Clock(13, fold=1, tzinfo=zone(hour)),
    ],
    "own isoformat": lambda: [Day(2020, 1, 1), Day(2020, 1, 1, 1), Day(2020, 1, 1, fold=1)],
    "subclass of timedelta": lambda: [Hours(1), Hours(2)],
    "own __str__ of a path": lambda: [Short("a/b"), Short("c/b")],
    "slot, cached in a base": lambda: [NotLazy(1), NotLazy(True), NotLazy(2)],
    "struct_time": lambda: [
        time.struct_time((2020, 1, 1, 0, 0, 0, 0, 0, 0, zone_name, 0))
        for zone_name in "AB"
    ],
    "timezone": lambda: [zone(hour), zone(hour, "CET"), zone(hour, "MEZ")],
    "union": lambda: [int | str, str | int],
    "typing.Union": lambda: [typing.Union[int, str], typing.Union[str, int]],  # noqa: UP007
    "Literal": lambda: [Literal[1, 2], Literal[2, 1], Literal[True, 2]],
    "Annotated": lambda: [typing.Annotated[int, 1], typing.Annotated[int, True]],
    "alias": lambda: [list[int], list[str], types.GenericAlias(list, (1,)),
                      types.GenericAlias(list, (True,))],
    "typing alias": lambda: [typing.List[int], typing.List[str], typing.Sequence[int]],  # noqa: UP006
    "dtype": lambda: [
        np.dtype("i4"),
        np.dtype("f4"),
        np.dtype("i4", metadata={"a": 1}),
        np.dtype("i4", metadata={"a": True}),
        np.dtype([("a", "i4")]),
        np.dtype([("b", "i4")]),
        np.dtype(">i4"),
        np.dtype("U3"),
        np.dtype("U4"),
        jnp.dtype("bfloat16"),
        np.dtype((np.record, [("a", "i4")])),
        np.dtype(("<i4", {"re": (np.int16, 0), "im": (np.int16, 2)})),
        np.dtype((">i4", {"re": (np.int16, 0), "im": (np.int16, 2)})),
    ],
    "range": lambda: [range(0, 3, 2), range(0, 4, 2), range(0), range(1, 1)],
    "path": lambda: [pathlib.PureWindowsPath("a"), pathlib.PureWindowsPath("A")],
    "UUID": lambda: [
        uuid.UUID(int=1),
        uuid.UUID(int=1, is_safe=uuid.SafeUUID.safe),
        uuid.UUID(int=2),
    ],
    "pattern": lambda: [re.compile("a"), re.compile("a", re.I), re.compile(b"a")],
    "treedef": lambda: [jax.tree.structure({v: 0}) for v in (1, True, 1.0)],
    "enum": lambda: [*Colour, *Level],
    "class": lambda: [int, str, Config, jnp.float32, np.float32],
    "list with a hash": lambda: [EqualLists([1]), EqualLists([2]), EqualLists([True])],
    "mapping": lambda: [Frozen(a=1), Frozen(a=True), Frozen(a=2)],
    "tuple of many": lambda: [(1, (2, Config(v))) for v in (1, 1.0, True)],
    "frozenset with an __iter__": lambda: [Few([1, 10]), Few([1, 11]), Few([True, 11])],
    "key of a path": lambda: [jax.tree_util.DictKey(v) for v in (1, True, 1.0)],
    "bound method of a callable": lambda: [
        types.MethodType(Acting(v), OBJECT) for v in (1, True, 1.0)
    ],
    "weak reference": lambda: [weakref.ref(x) for x in CONSTANTS],
    "class of the standard library": lambda: [
        statistics.NormalDist(0.0), statistics.NormalDist(-0.0), statistics.NormalDist(1.0),
    ],
    "frozenset of many": lambda: [frozenset([v, "a"]) for v in (1, 1.0, True, Integer(1))],
}  # fmt: skip
UNHASHABLE: dict[str, Callable[[], list[Any]]] = {
    "Module": lambda: [Sub(v) for v in (2, 2.0, True, -1, -2, [1], [True], {1: 2}, {True: 2})],
    "Module with arrays": lambda: [
        Weights(v)
        for v in (
            np.ones(2),
            np.zeros(2),
            np.ones(2, "i4"),
            jnp.ones(2),
            jnp.zeros(2),
            jnp.ones(2, "i4"),
            jnp.asarray(1.0),
            jnp.float32(1.0),
            [jnp.ones(3)],
            jax.random.key(0),
            jax.random.key(1),
        )
    ],
    "numpy scalar": lambda: [
        np.float32(0.0),
        np.float32(-0.0),
        np.float64(0.0),
        np.float64(-0.0),
        np.int64(1),
        np.int32(1),
        np.bool_(True),
        np.complex64(0),
        np.complex64(complex(-0.0, 0)),
        np.datetime64("2020"),
        np.datetime64("2020-01"),
        np.timedelta64(1, "h"),
        np.timedelta64(60, "m"),
        np.str_("a"),
        np.bytes_(b"a"),
        jnp.bfloat16(0.0),
        jnp.bfloat16(-0.0),
    ],
    "ndarray": lambda: [
        np.zeros(2),
        -np.zeros(2),
        np.zeros(2, "f4"),
        np.zeros((1, 2)),
        np.array([1, None]),
        np.array([True, None]),
        np.array([1, 2]).view(np.recarray),
        np.ones((2, 2)),
        np.ones((2, 2), order="F"),
        np.ones((4, 2))[::2],
        read_only(np.zeros(2)),
        np.zeros(1, [("a", "i4")]),
        np.zeros(1, [("a", "i4")]).view(np.dtype((np.record, [("a", "i4")]))),
    ],
    "list": lambda: [[1], [True], [1.0], [[1]], ListOfOwn([1]), ListOfOwn([True]),
                     attributed(ListOfOwn([1]), n=1)],
    "dict": lambda: [{1: 2}, {True: 2}, {1: 2.0}, DictOfOwn({1: 2}), DictOfOwn({1: 2.0})],
    "set": lambda: [{1}, {True}, SetOfOwn([1]), SetOfOwn([True])],
    "OrderedDict": lambda: [
        collections.OrderedDict([(1, 2), (3, 4)]),
        collections.OrderedDict([(3, 4), (1, 2)]),
        collections.OrderedDict([(1, 2.0), (3, 4)]),
        MyOrdered({1: 2}),
        MyOrdered({1: 2.0}),
    ],
    "defaultdict": lambda: [
        collections.defaultdict(int, {1: 2}),
        collections.defaultdict(list, {1: 2}),
        collections.defaultdict(int, {1: True}),
    ],
    "Counter": lambda: [collections.Counter(a=1), collections.Counter(a=True),
                        collections.Counter(a=1, b=0)],
    "deque": lambda: [collections.deque([1]), collections.deque([True]), collections.deque([1], 2)],
    "ChainMap": lambda: [collections.ChainMap({1: 2}), collections.ChainMap({1: 2.0}),
                         collections.ChainMap({}, {1: 2})],
    "UserDict": lambda: [collections.UserDict({1: 2}), collections.UserDict({1: 2.0})],
    "UserList": lambda: [collections.UserList([1]), collections.UserList([True])],
    "SimpleNamespace": lambda: [
        *(types.SimpleNamespace(n=v) for v in (1, True, 1.0, -1, -2)),
        types.SimpleNamespace(a=1, b=2),
        types.SimpleNamespace(b=2, a=1),
    ],
    "argparse.Namespace": lambda: [argparse.Namespace(a=1, b=2), argparse.Namespace(b=2, a=1),
                                   argparse.Namespace(a=True, b=2)],
    "mappingproxy": lambda: [
        types.MappingProxyType(mapping({1: 2}))
        for mapping in (dict, functools.partial(collections.defaultdict, int),
                        functools.partial(collections.defaultdict, list),
                        collections.OrderedDict, DictOfOwn)
    ] + [types.MappingProxyType({1: 2.0})],
    "bytearray": lambda: [bytearray(b"a"), bytearray(b"b")],
    "array.array": lambda: [array.array("i", [1]), array.array("l", [1]), array.array("i", [2])],
    "memoryview": lambda: [memoryview(b"a"), memoryview(b"b"), memoryview(bytearray(b"a")),
                           memoryview(b"aaa"), memoryview(b"aaaaa")[::2]],
    "slice": lambda: [slice(1), slice(True), slice(None, 1, None), slice(1, None)][:2],
    "class with __eq__": lambda: [Mutable(v) for v in (1, True, 1.0, -1, -2, [1], [True])],
    "slots with __eq__": lambda: [Slots(v) for v in (1, True, 1.0)],
    "dict views": lambda: [
        {1: 2}.keys(), {True: 2}.keys(), {1: 2, 3: 4}.keys(), {3: 4, 1: 2}.keys(),
        {1: 2}.items(), {1: 2, 3: 4}.items(), {3: 4, 1: 2}.items(), {1: [2]}.items(),
    ],
}  # fmt: skip
TYPES = HASHABLE | UNHASHABLE

FIELDS: dict[str, Callable[[Any], Any]] = {
    "static field": lambda v: Holder(None, v),
    "tuple": lambda v: Holder(None, (1, (v,))),
    "list": lambda v: Holder(None, [v]),
    "value of a dict": lambda v: Holder(None, {"k": [v]}),
    "dataclass": lambda v: Holder(None, Constant(v)),
    "aux data": lambda v: Custom(ONE, label=v),
    "Module": lambda v: Holder(None, Sub(v)),
}
LEAVES: dict[str, Callable[[Any], Any]] = {
    "leaf": lambda v: [v],
    "frozen dataclass": lambda v: Constant((v,)),
    "key of a dict": lambda v: {(v,): ONE} if not isinstance(v, types.GenericAlias) else [v],
    "key in a static field": lambda v: Holder(None, {v: 1}),
}


@pytest.mark.parametrize(
    ("place", "name"),
    [*itertools.product(FIELDS, TYPES), *itertools.product(LEAVES, HASHABLE)],
)
def test_one_program_for_each_value(place: str, name: str) -> None:
    put = (FIELDS | LEAVES)[place]
    traces = Traces()

    @filterjit.filter_jit
    def f(x: Any) -> Any:
        traces.tick()
        return jnp.asarray(0), traces.count

    values = TYPES[name]()
    programs = [f(put(v))[1] for v in values]
    assert len(set(programs)) == len(values), list(zip(values, programs, strict=True))
    # The same objects again, and equal ones: nothing is traced.
    assert [f(put(v))[1] for v in reversed(values)] == programs[::-1]
    assert [f(put(v))[1] for v in TYPES[name]()] == programs
    if place in ("static field", "aux data", "leaf"):
        compiled = f.lower(put(values[0])).compile()
        for v in values[1:]:
            with pytest.raises(filterjit.MismatchError):
                compiled(put(v))
            assert f.explain(put(v)).hit
    structures = [filterjit.flatten(put(v))[1] for v in values]
    again = [filterjit.flatten(put(v))[1] for v in TYPES[name]()]
    for i, x in enumerate(structures):
        assert [x == y for y in again] == [i == k for k in range(len(values))]


# ---- changed in place ----


def _change(x: Any, name: str, value: Any) -> None:
    object.__setattr__(x, name, value)


_KEPT = [Acting(-1), Acting(-2)]


def _parser() -> Any:
    parser = configparser.ConfigParser()
    parser["a"] = {"b": "-1"}
    return parser


IN_PLACE: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "list": (lambda: [-1], lambda x: x.__setitem__(0, -2)),
    "dict": (lambda: {"a": -1}, lambda x: x.__setitem__("a", -2)),
    "set": (lambda: {-1}, lambda x: (x.remove(-1), x.add(-2))),
    "OrderedDict": (lambda: collections.OrderedDict(a=-1), lambda x: x.update(a=-2)),
    "moved in an OrderedDict": (
        lambda: collections.OrderedDict(a=1, b=2),
        lambda x: x.move_to_end("a"),
    ),
    "defaultdict": (lambda: collections.defaultdict(int, a=-1), lambda x: x.update(a=-2)),
    "default_factory": (
        lambda: collections.defaultdict(int, a=-1),
        lambda x: setattr(x, "default_factory", list),
    ),
    "Counter": (lambda: collections.Counter(a=-1), lambda x: x.update(a=-1)),
    "deque": (lambda: collections.deque([-1]), lambda x: x.__setitem__(0, -2)),
    "bytearray": (lambda: bytearray(b"a"), lambda x: x.__setitem__(0, 7)),
    "array.array": (lambda: array.array("i", [-1]), lambda x: x.__setitem__(0, -2)),
    "memoryview": (lambda: memoryview(bytearray(b"a")), lambda x: x.__setitem__(0, 7)),
    "ndarray": (lambda: np.array([-1.0]), lambda x: x.__setitem__(0, -2.0)),
    "ndarray in a Module": (lambda: Weights(np.array([-1.0])), lambda x: x.w.__setitem__(0, -2.0)),
    "ndarray of objects": (lambda: np.array([-1, None]), lambda x: x.__setitem__(0, -2)),
    "WeakSet": (lambda: weakref.WeakSet(_KEPT[:1]), lambda x: x.add(_KEPT[1])),
    "WeakValueDictionary": (
        lambda: weakref.WeakValueDictionary({"a": _KEPT[0]}),
        lambda x: x.update(a=_KEPT[1]),
    ),
    "WeakKeyDictionary": (
        lambda: weakref.WeakKeyDictionary({_KEPT[0]: -1}),
        lambda x: x.update({_KEPT[0]: -2}),
    ),
    "ConfigParser": (_parser, lambda x: x["a"].update(b="-2")),
    "SectionProxy": (lambda: _parser()["a"], lambda x: x.update(b="-2")),
    "SimpleCookie": (lambda: http.cookies.SimpleCookie("a=1"), lambda x: x.load("a=2")),
    "Namespace": (lambda: argparse.Namespace(a=-1), lambda x: setattr(x, "a", -2)),
    "BoundArguments": (
        lambda: inspect.signature(lambda a: a).bind(-1),
        lambda x: x.arguments.update(a=-2),
    ),
    "UserString": (lambda: collections.UserString("a"), lambda x: setattr(x, "data", "b")),
    "items of a dict": (lambda: _Proxied(-1).view, lambda x: _Proxied.change(x)),
    "SimpleNamespace": (lambda: types.SimpleNamespace(n=-1), lambda x: setattr(x, "n", -2)),
    "mappingproxy": (lambda: _Proxied(-1).proxy, lambda x: _Proxied.change(x)),
    "UserDict": (lambda: collections.UserDict(a=-1), lambda x: x.update(a=-2)),
    "UserList": (lambda: collections.UserList([-1]), lambda x: x.__setitem__(0, -2)),
    "ChainMap": (lambda: collections.ChainMap({"a": -1}), lambda x: x.update(a=-2)),
    "subclass of list": (lambda: ListOfOwn([-1]), lambda x: x.__setitem__(0, -2)),
    "attribute of a list": (lambda: attributed(ListOfOwn(), n=-1), lambda x: setattr(x, "n", -2)),
    "subclass of dict": (lambda: DictOfOwn(a=-1), lambda x: x.update(a=-2)),
    "subclass of set": (lambda: SetOfOwn([-1]), lambda x: (x.remove(-1), x.add(-2))),
    "attribute of a float": (lambda: attributed(Double(1), n=-1), lambda x: setattr(x, "n", -2)),
    "list with a hash": (lambda: EqualLists([-1]), lambda x: x.__setitem__(0, -2)),
    "mapping": (lambda: Frozen(a=-1), lambda x: x._items.update(a=-2)),
    "class with __eq__": (lambda: Mutable(-1), lambda x: setattr(x, "n", -2)),
    "deep in a class with __eq__": (lambda: Mutable([{"a": -1}]), lambda x: x.n[0].update(a=-2)),
    "slots with __eq__": (lambda: Slots(-1), lambda x: setattr(x, "n", -2)),
    "Module": (lambda: Sub(-1), lambda x: _change(x, "n", -2)),
    "Module in a Module": (lambda: Sub(Sub(-1)), lambda x: _change(x.n, "n", -2)),
    "dataclass": (lambda: Config(-1), lambda x: _change(x, "n", -2)),
    "inherited dataclass": (lambda: Inherited(-1), lambda x: _change(x, "n", -2)),
    "attribute of an inherited dataclass": (
        lambda: WithMore(1, -1),
        lambda x: _change(x, "more", -2),
    ),
}


class _Proxied:
    made: typing.ClassVar[list["_Proxied"]] = []

    def __init__(self, n: Any) -> None:
        self.items = {"a": n}
        self.proxy, self.view = types.MappingProxyType(self.items), self.items.items()
        self.made.append(self)

    @classmethod
    def change(cls, given: Any) -> None:
        next(p for p in cls.made if given is p.proxy or given is p.view).items["a"] = -2


@pytest.mark.parametrize("place", FIELDS)
@pytest.mark.parametrize("name", IN_PLACE)
def test_changed_in_place(name: str, place: str) -> None:
    make, change = IN_PLACE[name]
    traces = Traces()

    @filterjit.filter_jit
    def f(x: Any) -> Any:
        traces.tick()
        return jnp.asarray(0), traces.count

    value = make()
    tree = FIELDS[place](value)
    assert f(tree)[1] == f(tree)[1] == 1
    compiled = f.lower(tree).compile() if place == "static field" else None
    change(value)
    if compiled is not None:
        with pytest.raises(filterjit.MismatchError):
            compiled(tree)
    assert not f.explain(tree).hit
    assert f(tree)[1] == f(tree)[1] == 2
    # The object that the first program was traced with is not what it was.
    assert f(FIELDS[place](make()))[1] == 3


# ---- classes of the user ----


class OwnEquality:
    def __init__(self, value: float) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OwnEquality)

    __hash__ = None  # type: ignore[assignment]


class OwnHash(OwnEquality):
    def __hash__(self) -> int:  # type: ignore[override]
        return 1


class ChangingHash(OwnEquality):
    def __hash__(self) -> int:  # type: ignore[override]
        return hash(self.value)


class Identity:
    def __init__(self, value: float) -> None:
        self.value = value


@dataclasses.dataclass
class Compared:
    value: float


@dataclasses.dataclass
class NotCompared:
    value: float = dataclasses.field(compare=False)


@dataclasses.dataclass(eq=False)
class WithoutEquality:
    value: float


@pytest.mark.parametrize(
    ("cls", "noticed"),
    [
        (OwnEquality, True),
        (OwnHash, False),
        (ChangingHash, True),
        (Identity, False),
        (Compared, True),
        (NotCompared, False),
        (WithoutEquality, False),
    ],
)
def test_changes_that_are_noticed(cls: Any, noticed: bool) -> None:
    f = filterjit.filter_jit(lambda holder: holder.x * holder.s.value)
    static = cls(2.0)
    tree = Holder(jnp.ones(3), static)
    assert f(tree)[0] == 2
    static.value = 3.0
    assert f(tree)[0] == (3 if noticed else 2)
    # Another object is another static, unless its class says that it is equal.
    assert f(Holder(jnp.ones(3), cls(5.0)))[0] == (2 if cls in (OwnHash, NotCompared) else 5)


# ---- programs that Equinox accepts ----


@dataclasses.dataclass(frozen=True)
class Hyper:
    layers: Any


class UndecoratedBelow(Hyper):
    pass


class RaisingHash:
    def __init__(self, n: int) -> None:
        self.n = n

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RaisingHash) and self.n == other.n

    def __hash__(self) -> int:
        raise TypeError("not hashable today")


ACCEPTED: dict[str, Callable[[], Any]] = {
    "a Module that holds a list": lambda: Sub([1, 2]),
    "a Module that holds an array": lambda: Weights(jnp.ones(2)),
    "equinox.nn.Linear": lambda: eqx.nn.Linear(2, 2, key=jax.random.key(0)),
    "a dataclass with a list": lambda: Hyper([1, 2]),
    "an undecorated dataclass with a list": lambda: UndecoratedBelow([1, 2]),
    "a tuple with a list": lambda: (1, [2]),
}


@pytest.mark.parametrize("name", ACCEPTED)
@pytest.mark.parametrize("lib", [eqx, filterjit], ids=["equinox", "filterjit"])
def test_unhashable_fields_are_accepted(name: str, lib: Any) -> None:
    """With one trace for an equal new object, as in Equinox."""
    traces = Traces()

    @lib.filter_jit
    def f(x: Any) -> Any:
        traces.tick()
        return x.x + 1

    for _ in range(3):
        f(Holder(ONE, ACCEPTED[name]()))
    assert traces.count == 1


def test_a_field_whose_hash_raises_is_compared_by_identity() -> None:
    traces = Traces()

    @filterjit.filter_jit
    def f(x: Any) -> Any:
        traces.tick()
        return x.x + 1

    value = RaisingHash(1)
    for _ in range(3):
        f(Holder(ONE, value))
    assert traces.count == 1
    f(Holder(ONE, RaisingHash(1)))
    assert traces.count == 2
    with pytest.raises(TypeError, match="not hashable today"):
        f(value)


@pytest.mark.parametrize("make", [lambda n: EqualPartials(abs, n), Elsewhere])
def test_a_field_with_other_memory_is_compared_by_identity(make: Callable[[Any], Any]) -> None:
    f = filterjit.filter_jit(lambda x: x.x + 1)
    trees = [Holder(ONE, make(n)) for n in (1, True, 1.0)]
    for tree in trees * 2:
        f(tree)
    assert f.cache_info().misses == 3


def test_arrays_that_cannot_be_read_equal_themselves() -> None:
    deleted = jnp.ones(3)
    deleted.delete()
    tree = Holder(ONE, Weights(deleted))
    f = filterjit.filter_jit(lambda x: x.x + 1)
    f(tree), f(tree)
    assert f.cache_info().misses == 1
    other = jnp.ones(3)
    other.delete()
    f(Holder(ONE, Weights(other)))
    assert f.cache_info().misses == 2


def test_copies_are_equal() -> None:
    """Copies and pickles of hashable statics share the program of the original."""
    traces = Traces()

    @filterjit.filter_jit
    def f(x: Any) -> Any:
        traces.tick()
        return jnp.asarray(0)

    for value in (Config(1), Money("1.0"), moment, zone(hour, "CET"), np.dtype("f4")):
        f(value)
        count = traces.count
        f(copy.deepcopy(value)), f(pickle.loads(pickle.dumps(value)))
        assert traces.count == count


def test_cached_properties_are_no_contents() -> None:
    traces = Traces()

    @filterjit.filter_jit
    def f(x: Any) -> Any:
        traces.tick()
        return jnp.asarray(x.n_twice)

    value = Lazy(3)
    f(value), f(value), f(Lazy(3))
    assert traces.count == 1
