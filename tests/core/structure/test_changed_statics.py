"""A static that has changed between two calls differs, also if it is the same object."""

import copy
from typing import Any

import pytest
from core_support import Array, Box, Keyed, Linear, Record, Value, core, testing
from statics_support import ByIdentity


def test_a_changed_value_differs(registry: Any) -> None:
    value = Value(1)
    tree = [value, Array()]
    _, before = core.flatten(registry, tree)
    assert testing.match(before, tree) is not None
    value.value = 2
    assert testing.match(before, tree) is None
    _, after = core.flatten(registry, tree)
    hash(after)
    assert before != after
    value.value = 1
    assert testing.match(before, tree) is not None


@pytest.mark.parametrize(
    "value, change",
    [
        ([1], lambda v: v.append(2)),
        ([1], lambda v: v.__setitem__(0, True)),
        # Python gives both the same hash.
        ([-1], lambda v: v.__setitem__(0, -2)),
        ([0], lambda v: v.__setitem__(0, 2**61 - 1)),
        ([2**70], lambda v: v.__setitem__(0, 2**70 + 2**61 - 1)),
        ({"a": 1}, lambda v: v.update(b=2)),
        ({"a": 1}, lambda v: v.update(a=1.0)),
        ({1}, lambda v: v.add(2)),
        ([[1]], lambda v: v[0].clear()),
        (([1],), lambda v: v[0].append(2)),
        (Value(1), lambda v: setattr(v, "value", 5)),
        ((Value(1),), lambda v: setattr(v[0], "value", 5)),
        (([Value(1)],), lambda v: setattr(v[0][0], "value", 5)),
        (Keyed(1), lambda v: setattr(v, "key", 1.0)),
    ],
)
@pytest.mark.parametrize("place", ["module", "dataclass", "custom"])
def test_a_changed_field_differs(registry: Any, value: Any, change: Any, place: str) -> None:
    value = copy.deepcopy(value)
    tree = {
        "module": lambda: Linear(weight=Array(), size=value),
        "dataclass": lambda: Record(Array(), 2, value),
        "custom": lambda: Box([Array()], aux=value),
    }[place]()
    _, before = core.flatten(registry, tree)
    assert testing.match(before, tree) is not None
    hash(before)
    change(value)
    assert testing.match(before, tree) is None
    _, after = core.flatten(registry, tree)
    hash(after)
    assert before != after


@pytest.mark.parametrize("make", [lambda p: [p], lambda p: {"k": p}, lambda p: Keyed((0, p))])
def test_another_object_at_the_same_address(registry: Any, make: Any) -> None:
    """The parts of a frozen value are held, so no other object gets their addresses."""
    value = make(ByIdentity())
    tree = Record(1, 2, value)
    structures = []
    for _ in range(100):
        _, structure = core.flatten(registry, tree)
        hash(structure)
        assert testing.match(structure, tree) is not None
        structures.append(structure)
        match value:
            case list():
                value[0] = ByIdentity()
            case dict():
                value["k"] = ByIdentity()
            case _:
                value.key = (0, ByIdentity())
        assert testing.match(structure, tree) is None
    assert all(testing.match(s, tree) is None for s in structures)


@pytest.mark.parametrize("make", [lambda v: [v], lambda v: {"k": v}, Keyed])
def test_the_value_in_the_structure_changes(registry: Any, make: Any) -> None:
    """It goes into the next trace, so nothing matches once it has changed."""
    value = make(1)
    _, structure = core.flatten(registry, Record(1, 2, value))
    hash(structure)
    assert testing.match(structure, Record(1, 2, make(1))) is not None
    match value:
        case list():
            value[0] = 2
        case dict():
            value["k"] = 2
        case _:
            value.key = 2
    _, other = core.flatten(registry, Record(1, 2, make(1)))
    hash(other)
    assert structure != other and other != structure
    assert testing.match(structure, Record(1, 2, make(1))) is None
    assert testing.match(structure, Record(1, 2, value)) is None
    _, again = core.flatten(registry, Record(1, 2, make(2)))
    assert structure != again  # which is not frozen before it is hashed


def test_the_class_of_a_value_changes(registry: Any) -> None:
    """By its own hash and __eq__, it is what it was."""

    class Own(Value):
        pass

    class Other(Value):
        pass

    value = Own(1)
    tree = Record(1, 2, [value])
    _, before = core.flatten(registry, tree)
    assert testing.match(before, tree) is not None
    value.__class__ = Other  # type: ignore[assignment]
    assert testing.match(before, tree) is None
    _, after = core.flatten(registry, tree)
    hash(after)
    assert before != after
    assert testing.match(after, Record(1, 2, [Other(1)])) is not None
    assert testing.match(after, Record(1, 2, [Own(1)])) is None


def test_statics_compared_by_identity_may_change(registry: Any) -> None:
    thing = ByIdentity()
    _, structure = core.flatten(registry, [thing])
    thing.anything = 1  # type: ignore[attr-defined]
    assert testing.match(structure, [thing]) == ()
    assert testing.match(structure, [ByIdentity()]) is None
