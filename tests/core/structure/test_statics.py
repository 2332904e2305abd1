"""Static values are compared exactly, by type and value."""

import math
from typing import Any

import pytest
from core_support import Array, Box, Keyed, Linear, Record, Unhashable, Value, core, testing
from statics_support import COMPOUND, DISTINCT, by_identity, check_all_differ, equal_copy


@pytest.mark.parametrize("value", [3, (Value(1),), Value(1), [1]])
@pytest.mark.parametrize("hashed", [(), (0,), (1,), (0, 1)])
def test_equality_does_not_depend_on_what_was_hashed(
    registry: Any, value: Any, hashed: tuple[int, ...]
) -> None:
    for tree in (Linear(size=value), Box([], aux=value)):
        pair = [core.flatten(registry, tree)[1] for _ in range(2)]
        for i in hashed:
            hash(pair[i])
        assert pair[0] == pair[1] and pair[1] == pair[0]


def test_leaves_are_exact(registry: Any) -> None:
    leaves = [v for v in DISTINCT if type(v) is not tuple and v is not None]
    check_all_differ(registry, [[v] for v in leaves], [[equal_copy(v)] for v in leaves])


def test_fields_are_exact(registry: Any) -> None:
    values = DISTINCT + COMPOUND
    check_all_differ(
        registry,
        [Linear(size=v) for v in values],
        [Linear(size=equal_copy(v)) for v in values],
    )


def test_unhashable_fields_are_exact(registry: Any) -> None:
    """Static fields need no hash: lists, dicts and sets are compared by their elements."""

    def make() -> list[Any]:
        few = [1, True, 1.0, 0.0, -0.0, math.nan, "1", None]
        return [
            *([v] for v in few),
            *({v} for v in few),
            *({v: 0} for v in few),
            *({0: v} for v in few),
            *([[v]] for v in few),
            *(({"k": [v]},) for v in few),
            [],
            {},
            set(),
            [1, 2],
            [2, 1],
            {1, 2},
            {1, 2.0},
            {"a": 1, "b": 2},
        ]

    for wrap in (
        lambda v: Linear(size=v),
        lambda v: Record(1, 2, v),
        lambda v: Box([], aux=v),
    ):
        check_all_differ(registry, [wrap(v) for v in make()], [wrap(v) for v in make()])


def test_fields_without_a_hash_are_compared_by_identity(registry: Any) -> None:
    x, y = Unhashable(), Unhashable()
    check_all_differ(
        registry,
        [Linear(size=v) for v in (x, y, [x], [y])],
        [Linear(size=v) for v in (x, y, [x], [y])],
    )


def test_values_by_their_own_equality(registry: Any) -> None:
    _, structure = core.flatten(registry, [Value(3), Array()])
    assert testing.match(structure, [Value(3), Array()]) is not None
    assert testing.match(structure, [Value(4), Array()]) is None
    assert testing.match(structure, [3, Array()]) is None
    # The == of the class takes 1 and True as equal.
    assert testing.match(core.flatten(registry, [Value(1)])[1], [Value(True)]) is not None


def test_a_kind_with_a_key(registry: Any) -> None:
    trees = [[Keyed(v)] for v in (1, True, 1.0, (1,), (True,))]
    check_all_differ(registry, trees, [[Keyed(v)] for v in (1, True, 1.0, (1,), (True,))])


def test_nan_equals_itself(registry: Any) -> None:
    _, structure = core.flatten(registry, [math.nan, Array()])
    assert testing.match(structure, [float("nan"), Array()]) is not None
    assert testing.match(structure, [-math.nan, Array()]) is None


def test_arguments_of_same_static(registry: Any) -> None:
    for arguments in ((), (registry, 1), (1, 2, 3), (registry, 1, 2, 3)):
        with pytest.raises(TypeError, match="takes"):
            core.same_static(*arguments)


def test_what_cannot_change(registry: Any) -> None:
    ask = lambda value: core.is_immutable(registry, value)
    assert all(map(ask, (1, "a", 2.5, None, (), (1, "a"), by_identity)))
    assert not any(map(ask, ([], {}, {1}, (1, [2]), Value(1), Keyed(1))))
    for arguments in ((), (registry,), (1, 2), (registry, 1, 2)):
        with pytest.raises(TypeError, match="takes"):
            core.is_immutable(*arguments)
