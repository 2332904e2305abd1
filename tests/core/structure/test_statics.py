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
    Unhashable,
    Value,
    core,
    make_registry,
)
from statics_support import (
    COMPOUND,
    DISTINCT,
    FIELDS,
    PLACES,
    ByIdentity,
    Half,
    Hashed,
    Mixed,
    MyInt,
    MyStr,
    Named,
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


class Other(Pair):
    pass


class Own(Value):
    pass


# A value, and what makes another one of it.
CHANGES: list[tuple[Callable[[], Any], Callable[[Any], Any]]] = [
    (lambda: Value(1), lambda x: setattr(x, "value", 5)),
    (lambda: Own(1), lambda x: setattr(x, "__class__", Value)),
    (lambda: Keyed(1), lambda x: setattr(x, "key", 1.0)),
    (lambda: Pair(1), lambda x: setattr(x, "a", True)),
    (lambda: Pair(1), lambda x: setattr(x, "b", 0)),
    (lambda: Pair(0.0), lambda x: setattr(x, "a", -0.0)),
    (lambda: Pair("a"), lambda x: setattr(x, "a", MyStr("a"))),
    (lambda: Pair(1), lambda x: x.__dict__.update(a=2)),
    (lambda: Pair(1), lambda x: setattr(x, "__dict__", {"a": 2, "b": None})),
    (lambda: Pair([1]), lambda x: setattr(x, "__class__", Other)),
    (lambda: Slotted(1), lambda x: setattr(x, "a", True)),
    (lambda: Slotted(1), lambda x: setattr(x, "b", 0)),
    (lambda: Half(1), lambda x: setattr(x, "a", True)),
    (lambda: Half(1), lambda x: setattr(x, "b", 0)),
    (lambda: Mixed(1), lambda x: setattr(x, "b", 0)),
    (lambda: Shell([1]), lambda x: x.inside.append(1)),
    (lambda: Shell(Pair([1])), lambda x: x.inside.a.append(1)),
    (lambda: Named(1, 2), lambda x: setattr(x, "note", 1)),
    (lambda: Named(Pair(1), 2), lambda x: setattr(x, "note", 1)),
    (lambda: Named(Pair([1]), 2), lambda x: x[0].a.append(1)),
    (lambda: Hashed(1), lambda x: setattr(x, "a", 2)),
    (lambda: Hashed(Value(1)), lambda x: setattr(x.a, "value", 2)),
    (lambda: Pair([{1}]), lambda x: x.a[0].add(2)),
    (lambda: Pair([Value(1)]), lambda x: setattr(x.a[0], "value", 2)),
    (lambda: Pair([Keyed([1])]), lambda x: x.a[0].key.append(1)),
    (lambda: Pair([frozenset([Keyed(1)])]), lambda x: setattr(next(iter(x.a[0])), "key", 2)),
]
CONTAINERS: list[tuple[Callable[[], Any], Callable[[Any], Any]]] = [
    (lambda: [1], lambda x: x.append(1)),
    (lambda: [1], lambda x: x.clear()),
    (lambda: [1], lambda x: set_item(x, 0, True)),
    (lambda: [1, 2], lambda x: x.reverse()),
    # Python gives both the same hash.
    (lambda: [-1], lambda x: set_item(x, 0, -2)),
    (lambda: [0], lambda x: set_item(x, 0, 2**61 - 1)),
    (lambda: [2**70], lambda x: set_item(x, 0, 2**70 + 2**61 - 1)),
    (lambda: [[1]], lambda x: x[0].clear()),
    (lambda: [Keyed("immutable"), Keyed([1])], lambda x: x[1].key.append(2)),
    (list, lambda x: x.append(1)),
    (lambda: {1}, lambda x: x.add(2)),
    (lambda: {"k": 1}, lambda x: set_item(x, "k", 1.0)),
    (lambda: {"k": 1}, lambda x: set_item(x, "l", x.pop("k"))),
    (lambda: {"k": 1}, lambda x: x.update(l=2)),
    (lambda: {"k": 1, "l": 2}, lambda x: set_item(x, "k", True)),
    (lambda: {"k": 1, "l": 2}, lambda x: set_item(x, "k", x.pop("k"))),
    (lambda: {1: 1, "k": 1}, lambda x: set_item(x, "k", True)),
    (dict, lambda x: x.update(k=1)),
    (lambda: {"k": [1]}, lambda x: x["k"].append(2)),
]
WRAPS: dict[str, Callable[[Any], Any]] = {
    "alone": lambda x: x,
    "in tuples": lambda x: (1, (x,)),
    "in a list": lambda x: [0, [x]],
    "in a dict": lambda x: {"a": 0, "k": x},
    "in an object": lambda x: Pair(1, [x]),
    "in a key": lambda x: Keyed((0, x)),
}


def check_change(registry: Any, place: Any, make: Any, change: Any) -> None:
    value, different = make(), make()
    change(different)
    tree, equal = place(value), place(make())
    structure, other = seen(registry, tree), core.flatten(registry, equal)[1]
    assert matches(structure, equal) and structure == other and hash(structure) == hash(other)
    assert not matches(structure, place(different))
    twin = make()
    assert matches(structure, place(twin)) and matches(structure, place(twin))
    change(twin)
    assert not matches(structure, place(twin)), "it was known to be equal"
    change(value)
    # The tree would be traced with the changed value.
    for each in (tree, equal, tree, equal):
        assert not matches(structure, each)
    after = core.flatten(registry, tree)[1]
    assert structure != after != other and other == core.flatten(registry, equal)[1]
    assert structure != core.flatten(registry, place(different))[1], "of the value that it was"
    assert hash(after) != hash(other) or type(value) is not type(make())


@pytest.mark.parametrize("place", FIELDS)
def test_changes_in_place(registry: Any, place: str) -> None:
    """A value that has changed is another one, also if it is the same object."""
    for make, change in CHANGES + CONTAINERS:
        check_change(registry, PLACES[place], make, change)


def test_changes_of_leaves(registry: Any) -> None:
    """A leaf has a hash; the containers in its key are compared by their elements."""
    leaf = PLACES["leaf"]
    for make, change in CHANGES:
        check_change(registry, leaf, make, change)
    for make, change in CONTAINERS:
        check_change(registry, lambda x: leaf(Shell(x)), make, change)


@pytest.mark.parametrize("place", PLACES)
def test_values_that_differ(registry: Any, place: str) -> None:
    leaves = [v for v in DISTINCT if type(v) is not tuple and v is not None]
    values = leaves if place in ("leaf", "key of a dict") else DISTINCT
    if place == "field of a module":
        values = values + COMPOUND
    if place == "key of a dict":  # a dict finds one of those that are equal by ==, and sorts them
        values = [1, True, 1.0, 0.0, -0.0, math.nan, 2**70, MyInt(1)]
    put = PLACES[place]
    check_all_differ(registry, [put(v) for v in values], [put(equal_copy(v)) for v in values])


def containers() -> list[Any]:
    few = [1, True, 1.0, 0.0, -0.0, math.nan, "1", None]
    return [
        *([v] for v in few),
        *({v} for v in few),
        *({v: 0} for v in few),
        *({0: v} for v in few),
        *([[v]] for v in few),
        *(({"k": [v]},) for v in few),
        *([], {}, set(), [1, 2], [2, 1], {1, 2}, {1, 2.0}, {"a": 1, "b": 2}),
    ]


@pytest.mark.parametrize("place", FIELDS)
def test_containers_that_differ(registry: Any, place: str) -> None:
    """Static fields need no hash: lists, dicts and sets are compared by their elements."""
    put, x, y = PLACES[place], Unhashable(), Unhashable()
    check_all_differ(registry, [put(v) for v in containers()], [put(v) for v in containers()])
    check_all_differ(registry, [put(v) for v in (x, y, [x])], [put(v) for v in (x, y, [x])])


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


def test_same_static_and_is_immutable(registry: Any) -> None:
    ask = lambda value: core.is_immutable(registry, value)
    assert all(map(ask, (1, "a", 2.5, None, (), (1, "a"), by_identity)))
    assert not any(map(ask, ([], {}, {1}, (1, [2]), Value(1), Keyed(1))))
    for function, number in ((core.is_immutable, 2), (core.same_static, 3)):
        for arguments in ((), (registry,), (1, 2, 3)[:number], (registry, 1, 2, 3)):
            with pytest.raises(TypeError, match=r"must be \(registry, "):
                function(*arguments)
    bad = Hostile()
    pair = frozenset([bad, 1]), frozenset([Hostile(), 1])
    bad.on_hash = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        core.same_static(registry, *pair)
    with pytest.raises(ZeroDivisionError):  # of the question whether the key is "immutable"
        core.flatten(registry, Box([1], aux=Keyed(Hostile(on_eq=lambda: 1 / 0))))
