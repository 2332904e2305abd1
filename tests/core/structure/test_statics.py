"""Static values are compared exactly, by type and contents, in each place where one can stand."""

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
from core_support import (
    FREE_THREADED,
    Array,
    Box,
    Hostile,
    Keyed,
    Linear,
    Record,
    Value,
    core,
    make_registry,
)
from statics_support import (
    DISTINCT,
    FIELDS,
    PLACES,
    ByIdentity,
    Half,
    Mixed,
    MyInt,
    Pair,
    Shell,
    Slotted,
    by_identity,
    calls,
    check_all_differ,
    classify_pairs,
    equal_copy,
    matches,
    seen,
)


@pytest.fixture
def registry() -> Any:
    return make_registry(classify=classify_pairs)


def set_item(holder: Any, key: Any, item: Any) -> None:
    holder[key] = item


WRAPS: dict[str, Callable[[Any], Any]] = {
    "alone": lambda x: x,
    "in tuples": lambda x: (1, (x,)),
    "in a list": lambda x: [0, [x]],
    "in a dict": lambda x: {"a": 0, "k": x},
    "in an object": lambda x: Pair(1, [x]),
    "in a key": lambda x: Keyed((0, x)),
}


@pytest.mark.parametrize("place", PLACES)
def test_values_that_differ(registry: Any, place: str) -> None:
    leaves = [v for v in DISTINCT if type(v) is not tuple and v is not None]
    values = leaves if place in ("leaf", "key of a dict") else DISTINCT
    if place == "key of a dict":  # a dict finds one of those that are equal by ==, and sorts them
        values = [1, True, 1.0, 0.0, -0.0, math.nan, 2**70, MyInt(1)]
    put = PLACES[place]
    check_all_differ(registry, [put(v) for v in values], [put(equal_copy(v)) for v in values])


@pytest.mark.skipif(FREE_THREADED, reason="it is asked for")
@pytest.mark.parametrize(
    "make", [Pair, Slotted, Half, Mixed, lambda *x: [*x], lambda *x: Shell([*x])]
)
def test_no_key_is_asked_for(registry: Any, make: Any) -> None:
    """What is compared by address is read by the core."""
    tree = Linear(size=make((1, make("text")), [make(2.0), {"k": make(None)}]))
    structure = seen(registry, tree)
    calls.clear()
    assert matches(structure, tree)
    again = Linear(size=make((1, make("".join("text"))), [make(2.0), {"k": make(None)}]))
    assert matches(structure, again) and calls == []


# ---- types for which the registry has a key ----


def keyed_by(key: Any) -> Any:
    value = ByIdentity()
    value.key = key  # type: ignore[attr-defined]
    return value


@pytest.fixture
def keyed() -> Any:
    keys = ((ByIdentity, lambda p: p.key), (MyInt, lambda i: [int(i)]))
    return make_registry(classify=classify_pairs, keyed=keys)


def test_keyed_types(keyed: Any) -> None:
    keys: list[Any] = [1, True, 1.0, (1,), [1], {1: 2}, {1}, frozenset([1, True, (1,)]), -1, -2]
    # Two elements may be equal, or have the hash of the other: those of -1 and -2 are the same.
    in_sets = (lambda p: {p}, lambda p: frozenset([p]), lambda p: {p, keyed_by(-1)})
    for wrap in (*WRAPS.values(), *in_sets):
        for place in FIELDS if wrap is WRAPS["alone"] else FIELDS[:1]:
            put = lambda key: PLACES[place](wrap(keyed_by(copy.copy(key))))  # noqa: B023
            check_all_differ(keyed, [put(key) for key in keys], [put(key) for key in keys])
        value = keyed_by(1)
        tree = Linear(weight=Array(), size=wrap(value))
        structure = seen(keyed, tree)
        for key, same in ((True, False), (1, True), (2, False), (1, True)):
            value.key = key
            assert matches(structure, tree) == same


def test_which_types_are_keyed(keyed: Any) -> None:
    class Sub(ByIdentity):
        key = 1

    structure = core.flatten(keyed, [MyInt(3), 3])[1]
    for tree, same in (([MyInt(3), 3], 1), ([3, MyInt(3)], 0), ([MyInt(4), 3], 0), ([Sub(), 3], 0)):
        assert matches(structure, tree) == bool(same)
    assert not matches(core.flatten(keyed, [Sub()])[1], [Sub()])
    # A type that the registry has another key for has no contents by its kind.
    other = make_registry(classify=classify_pairs, keyed=((Slotted, lambda x: x.a),))
    structure = seen(other, Linear(size=[Slotted(1, 2)]))
    assert matches(structure, Linear(size=[Slotted(1, 3)]))
    assert not matches(structure, Linear(size=[Slotted(True, 2)]))


def test_identity_as_a_key(keyed: Any) -> None:
    """Stands in the keys of functions: equal if it is of the same object."""
    value: list[int] = []
    for make in (
        lambda v: [keyed_by((core.identity(v), 1))],
        lambda v: Linear(size=[1, core.identity(v)]),
    ):
        structure = seen(keyed, make(value))
        value.append(1)
        assert matches(structure, make(value)) and not matches(structure, make([*value]))
    others = (list, [], (list,), core.identity, type(core.identity(1)))
    trees = lambda: [[keyed_by((core.identity(v), 1))] for v in others]
    check_all_differ(keyed, trees(), trees())
    assert not matches(core.flatten(keyed, [keyed_by(core.identity(list))])[1], [keyed_by([])])


def test_keys_that_fail_or_hold_themselves(keyed: Any) -> None:
    value = ByIdentity()
    with pytest.raises(AttributeError):
        matches(core.flatten(keyed, [keyed_by(1)])[1], [value])
    value.key = value  # type: ignore[attr-defined]
    assert matches(core.flatten(keyed, [value])[1], [value])
    first, second = Keyed(0), Keyed(0)
    first.key, second.key = (first,), (second,)
    structure = core.flatten(make_registry(), [first])[1]
    assert matches(structure, [second])
    second.key = (first,)
    assert not matches(structure, [second])


# ---- by their own equality, and by identity ----


def test_values_by_their_own_equality(registry: Any) -> None:
    # The == of the class takes 1 and True as equal.
    assert matches(core.flatten(registry, [Value(1)])[1], [Value(True)])
    thing = ByIdentity()
    structure = core.flatten(registry, [thing])[1]
    thing.anything = 1  # type: ignore[attr-defined]
    assert matches(structure, [thing]) and not matches(structure, [ByIdentity()])


def test_another_object_at_the_same_address(registry: Any) -> None:
    """The parts of a frozen value are held, so no other object gets their addresses."""
    value: Any
    for value, change in (
        ([ByIdentity()], lambda x: set_item(x, 0, ByIdentity())),
        ({"k": ByIdentity()}, lambda x: set_item(x, "k", ByIdentity())),
        (Keyed((0, ByIdentity())), lambda x: setattr(x, "key", (0, ByIdentity()))),
    ):
        tree = Record(1, 2, value)
        structures = []
        for _ in range(100):
            structure = core.flatten(registry, tree)[1]
            hash(structure)
            assert matches(structure, tree)
            structures.append(structure)
            change(value)
            assert not matches(structure, tree)
        assert not any(matches(s, tree) for s in structures)


# ---- what Python asks ----


def test_same_static_and_is_fixed(registry: Any) -> None:
    ask = lambda value: core.is_fixed(registry, value)
    assert all(map(ask, (1, "a", 2.5, None, (), (1, "a"), by_identity)))
    assert not any(map(ask, ([], {}, {1}, (1, [2]), Value(1), Keyed(1))))
    for function, number in ((core.is_fixed, 2), (core.same_static, 3)):
        for arguments in ((), (registry,), (1, 2, 3)[:number], (registry, 1, 2, 3)):
            with pytest.raises(TypeError, match=r"must be \(registry, "):
                function(*arguments)
    bad = Hostile()
    pair = frozenset([bad, 1]), frozenset([Hostile(), 1])
    bad.on_hash = lambda: 1 / 0
    assert not core.same_static(registry, *pair)
    with pytest.raises(ZeroDivisionError):  # of the question whether the key is "fixed"
        core.flatten(registry, Box([1], aux=Keyed(Hostile(on_eq=lambda: 1 / 0))))
