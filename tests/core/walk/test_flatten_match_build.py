"""Flattening, matching and building each kind of node; the attributes of a Structure."""

import collections
import copy
import math
import random
import weakref
from collections.abc import Callable
from typing import Any

import core_support as cs
import pytest
from core_support import Array, Box, Described, Linear, core, identical, nodes_of, testing
from outcome_support import raised
from statics_support import ByIdentity, Factory, MyInt, MyStr, check_all_differ, equal_copy
from trees_support import trees


@pytest.mark.parametrize("name", trees())
def test_round_trip(registry: Any, name: str) -> None:
    for _ in range(3):  # the first match finds the places of attributes
        tree = trees()[name]
        arrays, structure = core.flatten(registry, tree)
        assert structure.num_leaves == len(arrays)
        built = structure.unflatten(arrays)
        assert cs.same(built, tree)
        for one in (tree, built):
            assert identical(testing.match(structure, one), arrays)
            again, other = core.flatten(registry, one)
            assert identical(again, arrays)
            assert other == structure and hash(other) == hash(structure)
            assert repr(other) == repr(structure) and nodes_of(other) == nodes_of(structure)


def test_all_kinds_are_told_apart(registry: Any) -> None:
    """Each tree matches its own structure and no other."""
    alike = ("array", "other_array", "maybe_array")
    others = [tree for name, tree in trees().items() if name not in alike]
    for name in alike:
        array = trees()[name]
        check_all_differ(registry, [array, *others], [trees()["array"], *others])
        assert testing.match(core.flatten(registry, Array())[1], array) == (array,)


@pytest.mark.parametrize("cls", [cs.Point, cs.LoudPoint])
def test_a_built_namedtuple_has_the_hash_of_its_items(registry: Any, cls: Any) -> None:
    """Python 3.14 keeps the hash of a tuple in it."""
    _, structure = core.flatten(registry, cls(Array(), "static"))
    built = structure.unflatten([1])
    assert hash(built) == hash(cls(1, "static")) and built in {cls(1, "static")}
    unhashable = structure.unflatten([[]])
    with pytest.raises(TypeError, match="unhashable"):
        hash(unhashable)


def test_build_puts_new_arrays_in_their_places(registry: Any) -> None:
    _, structure = core.flatten(registry, {"b": Array(), "a": [Array(), 5]})
    built = structure.unflatten([1, "two"])
    assert built == {"a": [1, 5], "b": "two"} and list(built) == ["a", "b"]


def test_namedtuples_that_are_filled_directly_are_not_called(registry: Any) -> None:
    arrays, structure = core.flatten(registry, cs.LoudPoint(Array(), 1))
    before = cs.LoudPoint.made
    assert structure.unflatten(arrays) == cs.LoudPoint(arrays[0], 1)
    assert cs.LoudPoint.made == before + 2
    _, direct = core.flatten(registry, cs.Point(Array(), 1))
    assert type(direct.unflatten((5,))) is cs.Point


def test_policies_share_kinds() -> None:
    asked: list[type] = []

    def ask(cls: type, x: Any) -> Any:
        asked.append(cls)
        return cs.classify(cls, x)

    registry = cs.make_registry(classify=ask)
    numbers = registry.with_policy(traced=(int, float))
    tree = [1, 2.0, True, "a", Array(), Linear()]
    for _ in range(2):
        counts = [len(core.flatten(r, tree)[0]) for r in (registry, numbers, registry)]
        assert counts == [1, 3, 1]
    assert len(asked) == len(set(asked))
    assert (registry.kind(1), numbers.kind(1), numbers.kind(True)) == ("static", "array", "static")
    _, structure = core.flatten(numbers, tree)
    array = tree[4]
    assert testing.match(structure, [3, 4.0, True, "a", array, tree[5]]) == (3, 4.0, array)
    assert testing.match(structure, [3, 4.0, False, "a", array, tree[5]]) is None
    assert core.flatten(registry, tree)[1] != structure
    numbers.missing = None
    assert registry.missing is None and registry.with_policy().missing is None


@pytest.mark.parametrize("own_eq", [False, True])
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: (1, x), lambda x: {"a": [x]}])
def test_a_static_that_becomes_an_array(
    registry: Any, own_eq: bool, wrap: Callable[[Any], Any]
) -> None:
    cls = type("Equal", (cs.Maybe,), {"__eq__": lambda x, y: True, "__hash__": lambda x: 1})
    make = cls if own_eq else cs.Maybe
    first = make(False)
    tree = wrap(first)
    arrays, structure = core.flatten(registry, tree)
    hash(structure)
    assert arrays == testing.match(structure, tree) == ()
    other = wrap(make(False))
    assert testing.match(structure, other) == (() if own_eq else None)
    assert (core.flatten(registry, other)[1] == structure) is own_eq
    for traced in (True, False):
        first.traced = traced
        assert testing.match(structure, tree) == (None if traced else ())
        # The structure's own value is what a function would be given.
        assert (testing.match(structure, other) == ()) is (own_eq and not traced)
        [_, again] = core.flatten(registry, other)
        hash(again)
        assert (structure == again) is (own_eq and not traced)
    first.hook = lambda: 1 // 0
    with pytest.raises(ZeroDivisionError):
        testing.match(structure, tree)


def test_constant_tuples(registry: Any) -> None:
    """Tuples of inert statics are kept, and matched by identity."""
    constant = (1, "two", (3.0, None, "last"))
    arrays, structure = core.flatten(registry, [Array(), constant, 4])
    for tree in (structure.unflatten(arrays), structure.unflatten([Array()])):
        assert tree[1] is constant and tree[2] == 4
        assert len(testing.match(structure, tree)) == 1


def test_tuples_that_are_not_constant(registry: Any) -> None:
    """What is in them may change, and arrays are not kept."""
    for inner, change in (
        ([1], lambda x: x.append(2)),
        ({"k": 1}, lambda x: x.update(k=2)),
        (Linear(weight=1), lambda x: setattr(x, "weight", 2)),
    ):
        tree: Any = (0, (inner, "x"))
        _, structure = core.flatten(registry, tree)
        assert testing.match(structure, tree) == ()
        change(inner)
        assert testing.match(structure, tree) is None
    tree = (1, (Array(), 2), 3)
    dead = weakref.ref(tree[1][0])
    structure = core.flatten(registry, tree)[1]
    del tree
    assert dead() is None and structure.num_leaves == 1


def test_missing_can_be_replaced_and_not_deleted(registry: Any) -> None:
    arrays, structure = core.flatten(registry, Linear(weight=Array(), __name__="f"))
    with pytest.raises(AttributeError, match="cannot be deleted"):
        del registry.missing
    assert registry.missing is cs.missing
    registry.missing = other = Array("missing")
    assert registry.missing is other
    assert structure.unflatten(arrays).__doc__ is other


def reordered(names: list[str], order: str) -> list[str]:
    if order == "reversed":
        return names[::-1]
    if order == "rotated":
        return names[3:] + names[:3]
    return random.Random(1).sample(names, len(names)) if order == "shuffled" else names


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("same_keys", [True, False])
@pytest.mark.parametrize("order", ["sorted", "reversed", "rotated", "shuffled"])
@pytest.mark.parametrize("count", [4, 100, 300])
def test_dicts_with_keys_in_any_order(count: int, order: str, same_keys: bool, held: bool) -> None:
    registry = cs.make_registry()
    names = [f"name {i:03}" for i in range(count)]
    arrays = tuple(Array(i) for i in range(count))
    values = dict(zip(names, arrays, strict=True))
    first: Any = Box([], 1) if held else None  # its registered function is Python
    flat, structure = core.flatten(registry, [first, {name: values[name] for name in names}])
    hash(structure)
    assert identical(flat, arrays)
    keys = reordered(names if same_keys else ["".join(list(name)) for name in names], order)
    other = {key: values[key] for key in keys}
    for mapping in (other, collections.OrderedDict(other)):
        found = testing.match(structure, [first, mapping])
        assert identical(found, arrays) if mapping is other else found is None
    other["name 000"] = other.pop("name 001")
    assert testing.match(structure, [first, other]) is None


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize(
    "child", [[Array(1)], (Array(1),), {"a": Array(1)}, Linear(weight=Array(1))]
)
def test_containers_with_other_children(child: Any, held: bool) -> None:
    registry = cs.make_registry()
    first: Any = Box([], 1) if held else None
    _, structure = core.flatten(registry, [first, child, None])
    hash(structure)
    assert len(testing.match(structure, [first, child, None])) >= 1
    x = Array(1)
    lists, dicts = ([], [1], [x, x]), ({}, {"b": x}, {"a": 1}, {"a": x, "b": x})
    modules = Linear(weight=1), Linear(weight=x, bias=x)
    for other in (*lists, *map(tuple, lists), *dicts, *modules, None, 1, x):
        assert testing.match(structure, [first, other, None]) is None


class Both(tuple[Any, ...], cs.Object):  # type: ignore[misc]
    """Its attributes are children; its items are not."""

    layout = cs.layout(("x", "y"), mode="call")

    def __new__(cls, x: Any, y: Any) -> Any:
        return tuple.__new__(cls, (Array("item"), y))

    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y = x, y


@pytest.mark.parametrize("held", [False, True])
def test_an_object_that_is_also_a_tuple(held: bool) -> None:
    registry = cs.make_registry()
    first: Any = Box([], 1) if held else None
    both = Both(Array(1), Array(2))
    _, structure = core.flatten(registry, [first, both])
    hash(structure)
    assert identical(testing.match(structure, [first, both]), (both.x, both.y))
    both.x = "static"
    assert testing.match(structure, [first, both]) is None


X, Y = Array("x"), Array("y")
FIELDS = {"weight": X, "bias": Y, "size": 1, "activation": 2}
DICTS: list[dict[Any, Any]] = [
    *({}, {"a": X}, {"a": X, "b": Y}, {"a": X, "c": Y}, {"a": X, "b": Y, "c": 1}),
    *({"a": X, "b": 1}, {MyStr("a"): X, "b": Y}, {f"key {i}": Array(i) for i in range(6)}),
    *({1: X, 0: Y}, {True: X, False: Y}, {1: X, False: Y}, {True: X, 0: Y}, {1.0: X, 0: Y}),
    *({1: X, 2: Y}, {"1": X, "0": Y}, {1: X, 0: Y, 2: 1}, {math.nan: X}),
    *({2**70: X, -(2**70): Y}, {2**70: X, -(2**70) - 1: Y}),
]
# Most are equal by ==.
VALUES: list[Any] = [
    *(1, True, 1.0, complex(1), MyInt(1), "1", b"1", MyStr("1"), 0, False, 0.0, -0.0, 2**70),
    *(0j, complex(0.0, -0.0), complex(-0.0, 0.0), math.nan, math.inf),
    *(..., int, len, ByIdentity(), frozenset(), frozenset([1]), frozenset([True])),
]
DIFFERENT: dict[str, list[Any]] = {
    "leaves": [[value] for value in VALUES],
    "static fields": [Linear(weight=X, size=value) for value in (*VALUES, None, (), [1], [True])],
    "dicts": DICTS,
    "dict fields": [cs.Frozen(items) for items in DICTS],
    "ordered": [
        *(collections.OrderedDict(a=1, b=2), collections.OrderedDict(b=2, a=1), {"a": 1, "b": 2}),
        collections.OrderedDict(a=1, b=True),
    ],
    "factories": [
        collections.defaultdict(factory, a=X)
        for factory in (int, list, None, Factory(1), Factory(2))
    ],
    "constant tuples": [*((1, "two", (3.0, None, last)) for last in ("last", "lost", None, ())),
        *((1, "two"), [1, "two", (3.0, None)], (True, "two", (3.0, None, "last"))),
        (1, "two", (3, None, "last"))],
    "fields": [
        *(Linear(), Linear(weight=X), Linear(bias=X), Linear(size=3), Linear(weight=X, bias=Y)),
        *(Linear(weight=None), Linear(**FIELDS), Linear(**FIELDS | {"size": 2, "activation": 1})),
        Linear(**FIELDS | {"size": 4}),
    ],
    "wrappers": [
        Linear(**FIELDS, **attributes)
        for attributes in (
            *({}, {"__name__": "f"}, {"__name__": "f", "__doc__": None}),
            *({"__name__": "g", "__doc__": None}, {"__doc__": ["a", "list"]}),
            {"__name__": "f", "__doc__": None, "__module__": "m"},
        )
    ],
    "described": [Described(("x",), x=X, y="y", tag=1), Described(("x",), x=X, y="y", tag=2),
        Described(("x",), x=X, y="y"), Described(("x",), x=X, y="y", tag=1, more=1),
        Described(("x", "y"), x=X, y="y", tag=1), Described((), x=1, y="y", tag=1),
        Described(("x",), x=X, z="y", tag=1), Described(("x",), x=1, y="y", tag=1)],
}  # fmt: skip


def in_another_order(tree: Any) -> Any:
    """An equal tree, in which other objects are equal, and dicts have another order."""
    if type(tree) is dict:
        return {equal_copy(key): in_another_order(x) for key, x in reversed(tree.items())}
    if isinstance(tree, (Linear, Described, cs.Frozen)):
        new = copy.copy(tree)
        vars(new).clear()
        vars(new).update(in_another_order(vars(tree)))
        return new
    if type(tree) is list:
        return [in_another_order(x) for x in tree]
    if isinstance(tree, collections.defaultdict):
        made = tree.default_factory
        same_one = Factory(made.value) if isinstance(made, Factory) else made
        return collections.defaultdict(same_one, in_another_order(dict(tree)))
    return equal_copy(tree)


def test_trees_that_differ(registry: Any) -> None:
    for alike in DIFFERENT.values():
        again = [in_another_order(tree) for tree in alike]
        check_all_differ(registry, alike, again)
        for tree, other in zip(alike, again, strict=True):
            arrays, structure = core.flatten(registry, tree)
            assert identical(testing.match(structure, other), arrays)
            if not isinstance(tree, Linear):  # built without a field, it is a wrapper
                assert cs.same(structure.unflatten(arrays), tree)


def test_a_dict_that_held_a_subclass_of_str(registry: Any) -> None:
    """The subclass is equal, with an equal hash, so a dict finds one for the other."""
    _, structure = core.flatten(registry, {"a": X})
    was: dict[Any, Any] = {MyStr("b"): 1, "a": X}
    del was["b"]
    assert testing.match(structure, was) == (X,)


@pytest.mark.parametrize(
    "keys", [(1, "a"), (None, 1), (object(), object()), ((1, "a"), (1, 2)), (1j, 2j)]
)
def test_keys_that_cannot_be_sorted(registry: Any, keys: tuple[Any, ...]) -> None:
    bad = dict.fromkeys(keys, 0)
    tree = [0, {"k": Linear(weight=Array(), bias=bad)}]
    with pytest.raises(TypeError, match="not supported") as info:
        core.flatten(registry, tree)
    operation, path, value = info.value.__filterjit_error_context__  # type: ignore[attr-defined]
    assert (operation, path) == ("sort", [(1,), ("k",), "bias"]) and value is bad
    error = raised(TypeError, core.tree_flatten, registry, tree, True, None)
    assert error.__notes__ == ["(while sorting the keys of the dict `[1]['k'].bias`)"]
    # An OrderedDict keeps its own order, which matters.
    own = collections.OrderedDict(bad)
    structure = core.flatten(registry, own)[1]
    assert testing.match(structure, own) == ()
    assert list(structure.unflatten(())) == list(keys)
    own.move_to_end(keys[0])
    assert testing.match(structure, own) is None
    # A match does not sort.
    _, structure = core.flatten(registry, {1: 0, 2: 0})
    assert testing.match(structure, bad) is None
