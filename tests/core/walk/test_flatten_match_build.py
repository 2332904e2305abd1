"""Flattening, matching and building each kind of node; the attributes of a Structure."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from core_support import (
    Array,
    Linear,
    LoudPoint,
    Maybe,
    Point,
    classify,
    core,
    identical,
    make_registry,
    missing,
    num_types,
    same,
    testing,
)
from statics_support import check_all_differ
from trees_support import trees


@pytest.mark.parametrize("name", trees())
def test_round_trip(registry: Any, name: str) -> None:
    for _ in range(3):  # the first match finds the places of attributes
        tree = trees()[name]
        arrays, structure = core.flatten(registry, tree)
        assert structure.num_leaves == len(arrays)
        built = structure.unflatten(arrays)
        assert same(built, tree)
        for one in (tree, built):
            assert identical(testing.match(structure, one), arrays)
            again, other = core.flatten(registry, one)
            assert identical(again, arrays)
            assert other == structure and hash(other) == hash(structure)
            assert repr(other) == repr(structure) and other._nodes() == structure._nodes()
        keys = [[k[0] if type(k) is tuple else k for k in p] for p in structure._key_paths()]
        _, structure = core.tree_flatten(registry, tree, ("arrays",), None)
        assert structure.paths == tuple(".".join(map(str, path)) for path in keys)


def test_all_kinds_are_told_apart(registry: Any) -> None:
    """Each tree matches its own structure and no other."""
    alike = ("array", "other_array", "maybe_array")
    others = [tree for name, tree in trees().items() if name not in alike]
    for name in alike:
        array = trees()[name]
        check_all_differ(registry, [array, *others], [trees()["array"], *others])
        assert testing.match(core.flatten(registry, Array())[1], array) == (array,)


@pytest.mark.parametrize("cls", [Point, LoudPoint])
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
    for arrays in ([], [1], [1, 2, 3]):
        with pytest.raises(ValueError, match="takes 2 leaves, not"):
            structure.unflatten(arrays)


def test_namedtuples_that_are_filled_directly_are_not_called(registry: Any) -> None:
    arrays, structure = core.flatten(registry, LoudPoint(Array(), 1))
    before = LoudPoint.made
    assert structure.unflatten(arrays) == LoudPoint(arrays[0], 1)
    assert LoudPoint.made == before + 2
    _, direct = core.flatten(registry, Point(Array(), 1))
    assert type(direct.unflatten((5,))) is Point


def test_policies_share_kinds() -> None:
    asked: list[type] = []

    def ask(cls: type, x: Any) -> Any:
        asked.append(cls)
        return classify(cls, x)

    registry = make_registry(classify=ask)
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


def test_a_policy_holds_no_types() -> None:
    registry = make_registry().with_policy(traced=(int,))
    for _ in range(2):
        cls = type("Local", (Linear,), {})
        core.flatten(registry, [cls(), 1])
        known, ref = num_types(registry), weakref.ref(cls)
        del cls
        gc.collect()
        assert ref() is None and num_types(registry) == known - 1


@pytest.mark.parametrize("own_eq", [False, True])
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: (1, x), lambda x: {"a": [x]}])
def test_a_static_that_becomes_an_array(
    registry: Any, own_eq: bool, wrap: Callable[[Any], Any]
) -> None:
    cls = type("Equal", (Maybe,), {"__eq__": lambda x, y: True, "__hash__": lambda x: 1})
    make = cls if own_eq else Maybe
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
    assert registry.missing is missing
    registry.missing = other = Array("missing")
    assert registry.missing is other
    assert structure.unflatten(arrays).__doc__ is other
