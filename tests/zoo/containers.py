"""Containers of Python and of the standard library, their subclasses, arrays."""

import argparse
import array
import builtins
import collections
import collections.abc
import configparser
import functools
import itertools
import types
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np

from support import statics
from support.nodes import Static as RegisteredStatic
from support.statics import Constant, DictOfOwn, FrozenSetOfOwn, ListOfOwn, SetOfOwn, TupleOfOwn
from zoo.zoo_support import Static, attributed, fields, of_numbers, set_to


def item(key: Any, value: Any) -> Callable[[Any], object]:
    return lambda x: x.__setitem__(key, value)


class EqualLists(list[Any]):
    """Says that all of its instances are equal."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EqualLists)

    def __hash__(self) -> int:
        return 1


class DistinctLists(list[Any]):
    """Says that no two of its instances are equal."""

    def __eq__(self, other: object) -> bool:
        return self is other


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


class Attributes(dict[str, Any]):
    """A dict whose keys are attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    __setattr__ = dict.__setitem__


WithSlot: Any = type("WithSlot", (list,), {"__slots__": ("note",)})
Grouped: Any = type("Grouped", (collections.defaultdict,), {})
OWNERS: list[tuple[Any, dict[str, Any]]] = []  # of the views


def view(take: Callable[[Any], Any], value: Any) -> Any:
    owner = {"lr": value}
    found = take(owner)
    OWNERS.append((found, owner))
    return found


def change_owner(found: Any) -> None:
    next(owner for one, owner in OWNERS if one is found)["lr"] = -2


def parser(value: str) -> Any:
    found = configparser.ConfigParser()
    found["a"] = {"b": value}
    return found


def read_only(x: Any) -> Any:
    x.flags.writeable = False
    return x


ordered, default, namespace = (
    collections.OrderedDict,
    collections.defaultdict,
    types.SimpleNamespace,
)
FILLED = itertools.cycle([(0, 8), (8, 0)])  # they collide
KEPT = [Constant(-1), Constant(-2)]
SINGLE = np.ones(1, [("a", "i4")])
LARGE = np.zeros(1 << 15, np.float32)

STATICS = {
    "list": Static(lambda: [[-1], [True], [1], [1.0], [[1]], [()]], item(0, -2)),
    "list that grows": Static(lambda: [[1, [2]], [True, [2]]], lambda x: x[1].append(3)),
    "tuple": Static(lambda: [(n, (m, ())) for n in (1, True) for m in (2, 2.0)] + [[1, [2, []]]]),
    "dict": Static(lambda: [{"a": -1}, {"a": 1}, {"a": True}, {1: 2}, {True: 2}, {1: 2.0},
        {1.0: 2}], item("a", -2)),
    "dict in another order": Static(lambda: [{"a": 1, "b": 2}, {"b": 2, "a": 1}],
        lambda x: x.update(c=x.pop("a")), fields),
    "set": Static(lambda: [{-1, 2}, {1, 2}, {True, 2}, {1.0, 2}],
        lambda x: (x.remove(-1), x.add(-2))),
    "frozenset": Static(lambda: [*(frozenset([n, "a"]) for n in (1, 1.0, True, statics.Integer(1))),
        frozenset("a")]),
    "sets that were filled in another order": Static(lambda: [set(next(FILLED)), {1}]),
    # ---- the standard library ----
    "OrderedDict": Static(lambda: [ordered(a=-1, b=2), ordered(a=-1.0, b=2), ordered(b=2, a=-1),
        {"a": -1, "b": 2}], item("a", -2)),
    "OrderedDict in another order": Static(lambda: [ordered(a=1, b=2)],
        lambda x: x.move_to_end("a")),
    "defaultdict": Static(
        lambda: [default(f, a=n) for f in (int, list, None) for n in (-1, 1, True)], item("a", -2)),
    "another default": Static(lambda: [default(int, a=1)], set_to("default_factory", list)),
    "Counter": Static(
        lambda: [collections.Counter(a=n, **m) for n in (-1, 1, True) for m in ({}, {"b": 0})],
        lambda x: x.update(a=-1)),
    "deque": Static(
        lambda: [collections.deque(*a) for a in (([-1, 2],), ([1],), ([True],), ([1], 2))],
        item(0, -2)),
    "deque that is rotated": Static(lambda: [collections.deque([1, 2])], lambda x: x.rotate()),
    "ChainMap": Static(
        lambda: [collections.ChainMap({"a": n}, {"b": 2}) for n in (-1, 1, True)]
        + [collections.ChainMap({"a": 1, "b": 2})],
        lambda x: x.maps[1].update(b=3),
    ),
    "UserDict": of_numbers(lambda n: collections.UserDict(a=n), item("a", -2)),
    "UserList": of_numbers(lambda n: collections.UserList([n]), item(0, -2)),
    "UserString": Static(lambda: [collections.UserString(s) for s in "ab"], set_to("data", "c"), apart=2),
    "SimpleNamespace": Static(lambda: [*(namespace(n=n) for n in (-1, 1, True, 1.0)),
        namespace(a=1, b=2), namespace(b=2, a=1)], set_to("n", -2)),
    "argparse.Namespace": Static(
        lambda: [argparse.Namespace(**d) for d in ({"a": -1, "b": 2}, {"b": 2, "a": -1}, {"a": 1})],
        set_to("a", -2)),
    "mappingproxy": Static(
        lambda: [
            types.MappingProxyType(mapping({1: 2}))
            for mapping in (dict, functools.partial(default, int),
                            functools.partial(default, list), ordered, DictOfOwn)
        ] + [types.MappingProxyType({1: 2.0})],
        apart=6,
    ),
    "a proxy of a dict that changes": of_numbers(lambda n: view(types.MappingProxyType, n),
        change_owner),
    "views of dicts": Static(
        lambda: [
            d.keys() for d in ({1: 2}, {True: 2}, {1: 2, 3: 4}, {3: 4, 1: 2})
        ] + [d.items() for d in ({1: 2}, {1: 2, 3: 4}, {3: 4, 1: 2}, {1: [2]})],
        None, fields,
    ),
    "bytearray": Static(lambda: [bytearray(b"a"), bytearray(b"b"), b"a"], item(0, 7)),
    "array": Static(
        lambda: [array.array(*a) for a in (("i", [-1]), ("l", [-1]), ("d", [-1]), ("i", [2]))],
        item(0, -2)),
    "memoryview": Static(lambda: [memoryview(bytearray(b"ab")),
        *map(memoryview, (b"ab", b"ac", b"aaa")), *(memoryview(b"ab").cast(kind) for kind in "bc"),
        memoryview(b"aaaaa")[::2]], item(0, 7), opaque=True),
    "WeakSet": Static(lambda: [weakref.WeakSet(KEPT[:1])], lambda x: x.add(KEPT[1]), fields,
        opaque=True),
    "ConfigParser": Static(lambda: [parser("-1"), parser("1")], lambda x: x["a"].update(b="-2"),
        fields, opaque=True),
    # ---- subclasses ----
    "list of own": Static(lambda: [*(ListOfOwn([n]) for n in (-1, 1, True)),
        attributed(ListOfOwn([-1]), n=1), [-1]], item(0, -2)),
    "attribute of a list": of_numbers(lambda n: attributed(ListOfOwn([1]), n=n), set_to("n", -2)),
    "slot of a list": of_numbers(lambda n: attributed(WithSlot([1]), note=n), set_to("note", -2)),
    "long list": Static(lambda: [[0.0] * 5000], item(4000, -0.0)),
    "tuples like keys": Static(lambda: [("function", 0), ("cell", 0, 1), ("seen", 0), "function",
        ((),), (None,)]),
    "list with a hash": of_numbers(lambda n: EqualLists([n]), item(0, -2), apart=4),
    "lists that say they differ": Static(lambda: [DistinctLists([1]), DistinctLists([2])],
        item(0, -2), fields, shared=False, apart=2),
    "dict of own": of_numbers(lambda n: DictOfOwn(a=n), item("a", -2)),
    "dict of attributes": Static(
        lambda: [Attributes(lr=n, net=m(d=1)) for n in (-1, -1.0) for m in (Attributes, dict)],
        set_to("lr", -2)),
    "defaultdict of own": Static(
        lambda: [Grouped(f, {"a": [n]}) for f in (list, tuple) for n in (1, True)],
        lambda x: x["a"].append(2)),
    "set of own": Static(lambda: [SetOfOwn([-1]), SetOfOwn([1]), SetOfOwn([True]), {-1}],
        lambda x: (x.remove(-1), x.add(-2))),
    "frozenset of own": Static(lambda: [FrozenSetOfOwn([1]), FrozenSetOfOwn([True]), frozenset([1]),
        attributed(FrozenSetOfOwn([1]), n=1)], apart=1),
    "frozenset with an __iter__": Static(lambda: [Few([1, 10]), Few([1, 11]), Few([True, 11])]),
    "tuple of own": Static(lambda: [TupleOfOwn([1]), TupleOfOwn([True]),
        *(attributed(TupleOfOwn([1]), n=n) for n in (1, True))], set_to("n", 2), apart=2),
    "mapping": of_numbers(lambda n: Frozen(a=n), lambda x: x._items.update(a=-2), opaque=True),
    # ---- arrays ----
    "arrays of NumPy": Static(lambda: [np.array([-1.0]), np.zeros(2), -np.zeros(2),
        np.zeros(2, "f4"), np.zeros((1, 2)), np.array([1, 2]), np.array([1, 2]).view(np.recarray),
        np.array([1, 2]).view(statics.OwnArray), np.ones((2, 2)), np.ones((2, 2), order="F"),
        np.ones((4, 2))[::2], read_only(np.zeros(2)), SINGLE,
        SINGLE.view(np.dtype((np.record, [("a", "i4")])))], item(0, -2.0), fields, apart=13),
    "large array": Static(lambda: [LARGE], None, fields, opaque=True),
    "arrays of objects": of_numbers(lambda n: np.array([n, None]), item(0, -2), fields,
        opaque=True),
    "arrays of JAX": Static(lambda: [jnp.ones(2), jnp.zeros(2), jnp.ones(2, "i4"), jnp.asarray(1.0),
        jnp.float32(1.0), jax.random.key(0), jax.random.key(1), [jnp.ones(3)]], None, fields,
        apart=1),
    # ---- registered, and treedefs ----
    "registered as static": of_numbers(lambda n: RegisteredStatic([n]), lambda x: x.value.append(2),
        fields),
    "treedefs of lists": of_numbers(lambda n: jtu.tree_structure({"k": RegisteredStatic([n])}),
        lambda x: x.children()[0].node_data()[1].value.append(2), fields),
}  # fmt: skip

if (frozendict := getattr(builtins, "frozendict", None)) is not None:  # Python 3.15

    class FrozenDictOfOwn(frozendict): ...  # type: ignore[misc, valid-type]

    class SlotsInATuple(tuple[Any, ...]):
        __slots__ = ("__dict__", "n")

    # As a leaf, a frozendict is a node of JAX's.
    STATICS |= {
        "frozendict": Static(
            lambda: [frozendict(d) for d in ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": True})],
            None, fields,
        ),
        "frozendict of own": Static(
            lambda: [FrozenDictOfOwn(a=1), FrozenDictOfOwn(a=1.0),
                     *(attributed(FrozenDictOfOwn(a=1), n=n) for n in (1, True))],
        ),
        "tuple with slots": Static(
            lambda: [attributed(SlotsInATuple([1]), n=n) for n in (1, True)], set_to("n", 2)
        ),
    }  # fmt: skip
