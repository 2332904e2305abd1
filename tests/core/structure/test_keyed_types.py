"""Types for which the registry has a key function, though they compare by identity."""

import copy
from typing import Any

import pytest
from core_support import Array, Box, Keyed, Linear, Record, core, make_registry, testing
from statics_support import ByIdentity, MyInt


@pytest.fixture
def keyed() -> Any:
    return make_registry(keyed=((ByIdentity, lambda p: p.key), (MyInt, lambda i: [int(i)])))


def keyed_by(key: Any) -> Any:
    value = ByIdentity()
    value.key = key  # type: ignore[attr-defined]
    return value


@pytest.mark.parametrize(
    "wrap",
    [
        lambda p: p,
        lambda p: (p, 1),
        lambda p: Linear(weight=p),
        lambda p: Linear(size=p),
        lambda p: Linear(size=(1, ((p,),))),
        lambda p: Linear(size=[p]),
        lambda p: Linear(size={"k": p}),
        lambda p: Linear(size={p}),
        lambda p: Linear(size=frozenset([p])),
        lambda p: Linear(size=Keyed(p)),
        lambda p: Box([1], aux=p),
        lambda p: Record(p, 1, p),
        lambda p: {(p, 1): 1},
    ],
)
def test_keyed_types_in_each_place(keyed: Any, wrap: Any) -> None:
    keys: list[Any] = [1, True, 1.0, (1,), [1], {1: 2}, {1}, frozenset([1, True, (1,)])]
    make = lambda: [wrap(keyed_by(copy.copy(k))) for k in keys]
    structures = [core.flatten(keyed, tree)[1] for tree in make()]
    again = make()
    for i, s in enumerate(structures):
        hash(s)
        for j, tree in enumerate(again):
            _, t = core.flatten(keyed, tree)
            assert (s == t) == (i == j)
            hash(t)
            assert (s == t) == (i == j) == (t == s)
            if not isinstance(tree, dict):  # a dict finds its keys by their own ==
                assert (testing.match(s, tree) is not None) == (i == j)


def test_the_same_object(keyed: Any) -> None:
    value = keyed_by(1)
    _, structure = core.flatten(keyed, [value, Array()])
    hash(structure)
    array = Array()
    assert testing.match(structure, [value, array]) == (array,)
    value.key = True
    assert testing.match(structure, [value, array]) is None
    value.key = 1
    assert testing.match(structure, [value, array]) == (array,)


def test_subclasses_have_no_key(keyed: Any) -> None:
    class Sub(ByIdentity):
        key = 1

    _, structure = core.flatten(keyed, [Sub(), MyInt(3), 3])
    assert testing.match(structure, [Sub(), MyInt(3), 3]) is None
    _, structure = core.flatten(keyed, [MyInt(3), 3])
    assert testing.match(structure, [MyInt(3), 3]) is not None
    assert testing.match(structure, [3, MyInt(3)]) is None
    assert testing.match(structure, [MyInt(4), 3]) is None


def test_identity_as_a_key(keyed: Any) -> None:
    value: list[int] = []
    make = lambda v: [keyed_by((core.identity(v), 1))]
    _, structure = core.flatten(keyed, make(value))
    assert testing.match(structure, make(value)) == ()
    value.append(1)
    assert testing.match(structure, make(value)) == ()
    assert testing.match(structure, make([1])) is None
    for v in (list, [], (list,), core.identity, type(core.identity(1))):
        _, structure = core.flatten(keyed, make(v))
        for w in (list, [], (list,), core.identity, type(core.identity(1))):
            assert (testing.match(structure, make(w)) is not None) == (v is w)
    assert testing.match(core.flatten(keyed, [keyed_by(core.identity(list))])[1],
                      [keyed_by([])]) is None  # fmt: skip


def test_containers_inside_a_key(registry: Any) -> None:
    """The hash of a value tells whether it may be a leaf; the containers in its key are compared
    by their elements."""
    value = Keyed(([1], {1: {2}}))
    _, structure = core.flatten(registry, [0, value])
    hash(structure)
    assert testing.match(structure, [0, Keyed(([1], {1: {2}}))]) == ()
    assert testing.match(structure, [0, Keyed(([True], {1: {2}}))]) is None
    value.key[0].append(2)
    assert testing.match(structure, [0, value]) is None


def test_a_key_that_fails(keyed: Any) -> None:
    value = ByIdentity()
    _, structure = core.flatten(keyed, [keyed_by(1)])
    with pytest.raises(AttributeError):
        testing.match(structure, [value])
    with pytest.raises(AttributeError) as info:
        hash(core.flatten(keyed, [1, value])[1])
    assert info.value.__filterjit_error_context__[:2] == ("hash", [(1,)])  # type: ignore[attr-defined]


def test_a_key_that_holds_itself(keyed: Any) -> None:
    value = ByIdentity()
    value.key = value  # type: ignore[attr-defined]
    assert testing.match(core.flatten(keyed, [value])[1], [value]) is not None
    first, second = Keyed(0), Keyed(0)
    first.key, second.key = (first,), (second,)
    structure = core.flatten(make_registry(), [first])[1]
    assert testing.match(structure, [second]) is not None
    second.key = (first,)
    assert testing.match(structure, [second]) is None


@pytest.mark.parametrize("bad", [(1,), ((1, 2),), ((int,),), [(int, str)], ([int, str],)])
def test_bad_pairs_of_a_type_and_a_key(bad: Any) -> None:
    with pytest.raises(TypeError):
        make_registry(keyed=bad)
    with pytest.raises(TypeError, match="positional"):
        core.Registry(Array)
