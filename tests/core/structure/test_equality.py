"""Structures are equal if their nodes, open leaves and statics are; errors of statics are named."""

from collections.abc import Callable
from typing import Any

import pytest
from core_support import (
    Array,
    Hostile,
    Keyed,
    Linear,
    Point,
    Unhashable,
    Value,
    core,
    make_registry,
)
from outcome_support import fail


def test_statics_are_compared_exactly(registry: Any) -> None:
    nan = float("nan")
    values: list[Callable[[], Any]] = [
        *map(lambda v: lambda: v, (1, True, 1.0, 0.0, -0.0, nan, 1j, "1", b"1", len, int)),
        lambda: Value(1),
        lambda: Value(True),
        lambda: Keyed(1),
        lambda: Keyed(2),
        lambda: Point,
        lambda: frozenset([1]),
        lambda: frozenset([True]),
    ]
    structure_of = lambda v: core.tree_flatten(registry, [v(), Array()], ("arrays",), None)[1]
    structures = [structure_of(v) for v in values]
    for i, one in enumerate(structures):
        assert structure_of(values[i]) == one and hash(structure_of(values[i])) == hash(one)
        for k, other in enumerate(structures):
            # A Value is compared by the == of its class.
            alike = i == k or {i, k} == {11, 12}
            assert (one == other) == alike and (hash(one) == hash(other)) == alike, (i, k)


def test_structures_with_other_open_leaves_differ(registry: Any) -> None:
    structure_of = lambda *tree: core.tree_flatten(registry, list(tree), ("arrays",), None)[1]
    x = Array()
    assert (
        structure_of(1, x) != structure_of(x, 1)
        and structure_of(1, x) != structure_of(x, x)
        and structure_of(1, 1) != structure_of(1, x)
    )
    assert structure_of(x, 1) == structure_of(Array(), 1)
    assert core.tree_flatten(registry, [x, 1], True, None)[1] != structure_of(x, 1)
    with pytest.raises(TypeError):
        structure_of(1, x) < structure_of(1, x)  # noqa: B015
    assert structure_of(1) != 1
    assert structure_of(1) != core.tree_flatten(make_registry(), [1], ("arrays",), None)[1]


def test_statics_without_a_hash(registry: Any) -> None:
    s = Unhashable()
    make = lambda x: core.tree_flatten(registry, {"k": [0, x]}, False, None)[1]
    assert make(s) == make(s) and make(s) != make(Unhashable())
    with pytest.raises(TypeError, match="unhashable") as info:
        hash(make(s))
    assert info.value.__notes__ == ["(while hashing the static `['k'][1]`)"]
    root = core.tree_flatten(registry, s, False, None)[1]
    with pytest.raises(TypeError) as info:
        hash(root)
    assert info.value.__notes__ == ["(while hashing the static at the root)"]
    # A static field needs no hash.
    assert hash(core.tree_flatten(registry, Linear(size=s), True, None)[1]) is not None


def test_statics_that_fail_are_named(registry: Any) -> None:
    make = lambda x: core.tree_flatten(registry, {"k": (Array(), x)}, ("arrays",), None)[1]
    bad = [Hostile(on_hash=fail), Linear(size=Hostile(on_hash=fail))]
    for x, path in zip(bad, ("['k'][1]", "['k'][1].size"), strict=True):
        with pytest.raises(ZeroDivisionError) as info:
            hash(make(x))
        assert info.value.__notes__ == [f"(while hashing the static `{path}`)"]
        assert not hasattr(info.value, "__filterjit_error_context__")
    with pytest.raises(ZeroDivisionError) as info:
        assert make(Hostile()) == make(Hostile(on_eq=fail))
    assert info.value.__notes__ == ["(while comparing the static `['k'][1]`)"]


def test_static_fields_that_fail_to_compare_are_named(registry: Any) -> None:
    make = lambda x: core.tree_flatten(registry, [Linear(size=x)], True, None)[1]
    with pytest.raises(ZeroDivisionError) as info:
        assert make(Hostile()) == make(Hostile(on_eq=fail))
    assert info.value.__notes__ == ["(while comparing the static `[0].size`)"]


@pytest.mark.parametrize("hashed", [False, True])
def test_single_nodes(registry: Any, hashed: bool) -> None:
    """As explanations compare them: without their children."""
    trees = [[1, Array(), Value(1)], [True, Array(), Value(1)], [1, (2,), Value(2)]]
    one, other, third = (core.flatten(registry, tree)[1] for tree in trees)
    if hashed:
        assert len({one, other, third}) == 3
    equal = lambda other: [one._equal_nodes(i, other, i) for i in range(4)]
    assert equal(one) == [True] * 4
    assert equal(other) == [True, False, True, True]
    assert equal(third) == [True, True, False, False]
    for i, j in ((4, 0), (0, 4)):
        with pytest.raises(IndexError, match="no such node"):
            one._equal_nodes(i, other, j)
    with pytest.raises(TypeError):
        one._equal_nodes(0, "no Structure", 0)
