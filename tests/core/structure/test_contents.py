"""Statics whose contents are compared by address: classes, deletions, cycles, and code that runs."""

import gc
import weakref
from typing import Any

import pytest
from core_support import (
    FREE_THREADED,
    Box,
    Hostile,
    Keyed,
    Linear,
    Value,
    classify,
    core,
    make_registry,
)
from outcome_support import fail
from statics_support import Pair, Shell, Slotted, calls, classify_pairs, key, matches, seen


@pytest.fixture
def registry() -> Any:
    return make_registry(classify=classify_pairs)


@pytest.mark.parametrize("base", [Pair, Slotted])
def test_classes_that_change(registry: Any, base: Any) -> None:
    class Own(base):  # type: ignore[misc]
        pass

    class Other(base):  # type: ignore[misc]
        pass

    value, own, other = Own([1]), Own([1]), Other([1])
    tree = Linear(size=value)
    structure = seen(registry, tree)
    assert matches(structure, Linear(size=own)) and not matches(structure, Linear(size=other))
    value.__class__ = Other
    assert not matches(structure, tree) and not matches(structure, Linear(size=own))
    value.__class__ = Own
    assert matches(structure, tree) and matches(structure, Linear(size=own))
    Own.a = property(lambda self: 5)
    assert not matches(structure, tree) and not matches(structure, Linear(size=own))
    del Own.a
    assert matches(structure, tree) and matches(structure, Linear(size=own))
    Own.__getattribute__ = lambda self, name: 5
    assert not matches(structure, tree) and not matches(structure, Linear(size=own))


def test_slots_that_move(registry: Any) -> None:
    class Own:
        __slots__ = ("a", "b")
        __eq__, __hash__ = Pair.__eq__, Pair.__hash__

    def classify_own(cls: type, x: Any) -> Any:
        return ("static", (key, None, ("a", "b"))) if cls is Own else classify(cls, x)

    value: Any = Own()
    value.a, value.b = 1, 2
    structure = seen(make_registry(classify=classify_own), Linear(size=value))
    Own.a, Own.b = Own.b, Own.a  # type: ignore[misc,attr-defined]
    assert not matches(structure, Linear(size=value))
    Own.a, Own.b = Own.b, Own.a  # type: ignore[misc,attr-defined]
    assert matches(structure, Linear(size=value))


@pytest.mark.parametrize("make", [Pair, Slotted])
def test_attributes_that_are_deleted(registry: Any, make: Any) -> None:
    value = make(1)
    structure = seen(registry, Linear(size=value))
    del value.a
    with pytest.raises(AttributeError):  # of the key
        matches(structure, Linear(size=value))


def test_values_that_hold_themselves_in_a_key(registry: Any) -> None:
    """The key alone does not tell that it leads back to what holds its value."""

    def make(last: Any = None) -> Any:
        value: list[Any] = [Keyed(None)]
        value[0].key = [value, last]
        return value

    value = make()
    structure = seen(registry, Linear(size=value))
    assert matches(structure, Linear(size=make()))
    assert not matches(structure, Linear(size=make(1)))
    value[0].key[0] = make()
    assert not matches(structure, Linear(size=value))
    assert not matches(structure, Linear(size=make()))


def test_values_that_hold_themselves_at_another_depth(registry: Any) -> None:
    one: list[Any] = []
    one.append(one)
    other: list[Any] = [[]]
    other[0].append(other)
    for a, b in ((one, other), (other, one)):
        assert not matches(seen(registry, Linear(size=a)), Linear(size=b))
        assert not core.same_static(registry, a, b)


def test_values_that_hold_themselves_and_change(registry: Any) -> None:
    value: list[Any] = [[1]]
    value.append(value)
    structure, (inner, itself) = seen(registry, Linear(size=value)), value
    deeper: list[Any] = [[1]]
    deeper.append(value)
    for parts, same in (
        ([[1], itself], True),
        ([[True], itself], False),
        ([[1], deeper], False),
        ([inner, itself], True),
        ([inner, inner], False),
    ):
        value[:] = parts
        assert matches(structure, Linear(size=value)) is same


def test_shared_parts_are_taken_once(registry: Any) -> None:
    value: Any = [1]
    for _ in range(12):
        value = [value, value]
    structure = seen(registry, Linear(size=value))
    inner = value
    for _ in range(12):
        inner = inner[1]
    inner[0] = True
    assert not matches(structure, Linear(size=value))


def test_code_that_runs_while_contents_are_compared(registry: Any) -> None:
    own: list[Any] = [Shell([1]), [2]]
    other: list[Any] = [Shell([1]), [2]]
    structure = seen(registry, Linear(size=own))
    for change in (lambda x: x.append(3), lambda x: x[1].append(3)):
        other[0] = Shell([1], lambda: (change(own), change(other)))  # noqa: B023
        assert not matches(structure, Linear(size=other))
        other[0].hook = None
        own[1:], other[1:] = [[2]], [[2]]
        assert matches(structure, Linear(size=other))
    other[0] = Shell([1], lambda: other.clear())
    assert matches(structure, Linear(size=other))  # it was equal when it was looked at
    assert not matches(structure, Linear(size=other))


def test_contents_are_freed(registry: Any) -> None:
    class Own(Pair):
        pass

    value = Own([Own(1)])
    value.a.append(value)
    tree = Linear(size=value)
    structure = seen(registry, tree)
    ref, of_class = weakref.ref(value), weakref.ref(Own)
    value.a.clear()
    assert not matches(structure, tree)
    del value, tree, Own
    calls.clear()
    gc.collect()
    assert ref() is not None
    del structure
    gc.collect()
    assert ref() is None and of_class() is None


@pytest.mark.parametrize("bad", [(key, None, 1), (key, None, ["a"]), (key, None, (1,))])
def test_bad_contents(bad: Any) -> None:
    registry = make_registry(classify=lambda cls, x: ("static", bad))
    with pytest.raises(TypeError):
        core.flatten(registry, Value(1))


class WithDefault(Pair):
    b = 7

    def __init__(self, a: Any) -> None:
        self.a = a


class WithProperty(Pair):
    a = property(lambda self: self._a, lambda self, value: self.__dict__.update(_a=value))


def with_a_key_that_is_no_str(a: Any) -> Any:
    value: Any = Pair(a)
    vars(value)[1] = 2
    return value


@pytest.mark.parametrize("make", [WithDefault, WithProperty, with_a_key_that_is_no_str])
def test_attributes_that_are_not_where_they_are_stored(registry: Any, make: Any) -> None:
    """The key is asked for each time."""
    value = make([1])
    assert core.same_static(registry, value, make([1]))
    assert not core.same_static(registry, value, make([2]))
    structure = seen(registry, Linear(size=value))
    assert matches(structure, Linear(size=make([1])))
    assert not matches(structure, Linear(size=make([2])))
    calls.clear()
    assert matches(structure, Linear(size=value)) and calls
    value.a.append(2)
    assert not matches(structure, Linear(size=value))


@pytest.mark.skipif(FREE_THREADED, reason="it is asked for")
def test_a_dict_that_gets_a_key_that_is_no_str(registry: Any) -> None:
    """It could have an __eq__ of its own, so the key is asked for from then on: a miss, once."""
    value: Any = Pair(1)
    structure = seen(registry, Linear(size=value))
    vars(value)[1] = 2
    assert not matches(structure, Linear(size=value))
    structure = seen(registry, Linear(size=value))
    calls.clear()
    assert matches(structure, Linear(size=value)) and calls
    value.a = True
    assert not matches(structure, Linear(size=value))


def test_code_that_runs_while_dicts_are_compared(registry: Any) -> None:
    own: dict[str, Any] = {"a": Shell([1]), "b": [2]}
    other: dict[str, Any] = {"a": Shell([1]), "b": [2]}
    structure = seen(registry, Linear(size=own))
    for change in (lambda x: x.update(c=3), lambda x: x.pop("b", None), lambda x: x["b"].append(3)):
        other["a"] = Shell([1], lambda: (change(own), change(other)))  # noqa: B023
        assert not matches(structure, Linear(size=other))
        for x in (own, other):
            x.pop("c", None)
            x["b"] = [2]
        other["a"].hook = None
        assert matches(structure, Linear(size=other))


@pytest.mark.skipif(FREE_THREADED, reason="it is asked for")
def test_a_key_that_fails_while_contents_are_compared(registry: Any) -> None:
    structure = seen(registry, Linear(size=[Shell([1])]))
    with pytest.raises(ZeroDivisionError):
        matches(structure, Linear(size=[Shell([1], fail)]))
    own = [Shell([1])]
    structure = seen(registry, Linear(size=own))
    own[0].hook = fail  # it is seen by its parts that it is unchanged
    assert matches(structure, Linear(size=[Shell([1])]))


def test_the_collector_sees_what_contents_hold(registry: Any) -> None:
    value = [Pair([1])]
    structure = seen(registry, Linear(size=value))
    assert structure in gc.get_referrers(value[0])


class Elements(frozenset[Any]):
    """A set whose iterator lies; it is compared as its base is."""

    __slots__ = ()

    def __iter__(self) -> Any:
        raise AssertionError


def test_elements_are_those_of_the_set(registry: Any) -> None:
    make = lambda *x: Linear(size=[Elements(x)])
    structure = seen(registry, make(1, (2, 3)))
    assert matches(structure, make((2, 3), 1)) and not matches(structure, make(1.0, (2, 3)))
    assert hash(core.flatten(registry, make((2, 3), 1))[1]) == hash(structure)


def test_aux_data_that_cannot_say_whether_it_changes(registry: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        core.flatten(registry, Box([1], aux=Keyed(Hostile(on_eq=fail))))


@pytest.mark.parametrize("base", [Pair, Slotted])
def test_immutable_values_of_equal_fields(base: Any) -> None:
    """They are seen to be equal by their fields; dicts there are compared item by item."""

    class Fixed(base):  # type: ignore[misc]
        __slots__ = ()

    def classify_fixed(cls: type, x: Any) -> Any:
        fixed = ("static", (key, True, ("a", "b")))
        return fixed if cls is Fixed else classify_pairs(cls, x)

    registry = make_registry(classify=classify_fixed)
    structure = seen(registry, Linear(size=Fixed(1.5, {"k": 2, "l": "text"})))
    calls.clear()
    assert matches(structure, Linear(size=Fixed(1.5, {"k": 2, "l": "".join("text")})))
    for other in ({"k": 2}, {"k": True, "l": "text"}, {"l": "text", "k": 2}, {"k": 2, "l": [1]}, 3):
        assert not matches(structure, Linear(size=Fixed(1.5, other)))
    assert not matches(structure, Linear(size=Fixed(2.5, {"k": 2, "l": "text"})))
