"""Statics whose contents are compared by address: classes, deletions, cycles, and code that runs."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from core_support import Array, Keyed, Linear, classify, core, make_registry, static
from statics_support import (
    Pair,
    Shell,
    Slotted,
    calls,
    check_all_differ,
    classify_pairs,
    key,
    matches,
    seen,
)


@pytest.fixture
def registry() -> Any:
    return make_registry(classify=classify_pairs)


# ---- classes ----


@pytest.mark.parametrize("base", [Pair, Slotted])
def test_classes_that_change(registry: Any, base: Any) -> None:
    class Own(base):  # type: ignore[misc]
        a: Any

    class Other(base):  # type: ignore[misc]
        a: Any

    value, own, other = Own([1]), Own([1]), Other([1])
    tree = Linear(size=value)
    structure = seen(registry, tree)
    assert matches(structure, Linear(size=own)) and not matches(structure, Linear(size=other))
    value.__class__ = Other
    assert not matches(structure, tree) and not matches(structure, Linear(size=own))
    value.__class__ = Own
    for name, given in (
        ("a", property(lambda self: 5)),
        ("a", getattr(base, "b", None)),  # the slot of another attribute
        ("__getattribute__", lambda self, name: 5),
    ):
        assert matches(structure, tree) and matches(structure, Linear(size=own))
        if given is not None:
            setattr(Own, name, given)
            assert not matches(structure, tree) and not matches(structure, Linear(size=own))
            delattr(Own, name)
    del value.a
    with pytest.raises(AttributeError):  # of the key
        matches(structure, tree)


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


@pytest.mark.parametrize("base", [Pair, Slotted, WithProperty])
def test_fixed_values_of_equal_fields(base: Any) -> None:
    """They are seen to be equal by their fields; dicts there are compared item by item."""

    class Fixed(base):  # type: ignore[misc]
        __slots__ = ()

    def classify_fixed(cls: type, x: Any) -> Any:
        fixed = static(key, True, ("a", "b"))
        return fixed if cls is Fixed else classify(cls, x)

    registry = make_registry(classify=classify_fixed)
    structure = seen(registry, Linear(size=Fixed(1.5, {"k": 2, "l": "text"})))
    assert matches(structure, Linear(size=Fixed(1.5, {"k": 2, "l": "".join("text")})))
    for other in ({"k": 2}, {"k": True, "l": "text"}, {"l": "text", "k": 2}, {"k": 2, "l": [1]}, 3):
        assert not matches(structure, Linear(size=Fixed(1.5, other)))
    assert not matches(structure, Linear(size=Fixed(2.5, {"k": 2, "l": "text"})))


# ---- values that hold themselves ----


def loop(levels: int, last: Any = 0) -> Any:
    """A list that is in itself, so many levels up."""
    value: list[Any] = [last]
    inner = value
    for _ in range(levels - 1):
        inner.append([1])
        inner = inner[-1]
    inner.append({"loop": value})
    return value


def in_a_key(last: Any = None) -> Any:
    """The key alone does not tell that it leads back to what holds its value."""
    value: list[Any] = [Keyed(None)]
    value[0].key = [value, last]
    return value


def directly(depth: int) -> Any:
    value: list[Any] = [[]] if depth else []
    (value[0] if depth else value).append(value)
    return value


def test_values_that_hold_themselves(registry: Any) -> None:
    def make() -> list[Any]:
        values = [loop(1), loop(2), loop(3), loop(1, True), loop(1, -1), loop(1, -2)]
        return [*values, in_a_key(), in_a_key(1), directly(0), directly(1)]

    values = make()
    trees = [Linear(size=value) for value in values]
    check_all_differ(registry, trees, [Linear(size=value) for value in make()])
    structures = [seen(registry, tree) for tree in trees]
    assert not core.same_static(registry, *values[-2:])
    values[0][0], values[6][0].key[0] = 5, in_a_key()
    for changed in (0, 6):
        assert not matches(structures[changed], trees[changed])
        assert not matches(structures[changed], Linear(size=make()[changed]))


# ---- code that runs while contents are compared ----

OF_LISTS: list[Callable[[Any], Any]] = [lambda x: x.append(3), lambda x: x[1].append(3)]
OF_DICTS: list[Callable[[Any], Any]] = [
    lambda x: x.update(c=3),
    lambda x: x.pop("b", None),
    lambda x: x["b"].append(3),
]


@pytest.mark.parametrize("as_dict", [False, True])
def test_code_that_runs_while_contents_are_compared(registry: Any, as_dict: bool) -> None:
    def make(hook: Callable[[], Any] | None = None) -> Any:
        items = [Shell([1], hook), [2]]
        return dict(zip("ab", items, strict=True)) if as_dict else items

    for change in OF_DICTS if as_dict else OF_LISTS:
        own = make()
        structure = seen(registry, Linear(size=own))
        other = make(lambda: (change(own), change(other)))  # noqa: B023
        assert not matches(structure, Linear(size=other))
        own.clear()
        own.update(make()) if as_dict else own.extend(make())
        assert matches(structure, Linear(size=make()))
    other = make(lambda: other.clear())
    assert matches(structure, Linear(size=other))  # it was equal when it was looked at
    assert not matches(structure, Linear(size=other))


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


def test_contents_are_held_and_freed(registry: Any) -> None:
    class Own(Pair):
        pass

    value = Own([Own(1)])
    value.a.append(value)
    tree = Linear(weight=Array(), size=value)
    structure = seen(registry, tree)
    ref, of_class = weakref.ref(value), weakref.ref(Own)
    assert structure in gc.get_referrers(value.a[0])
    value.a.clear()
    assert not matches(structure, tree)
    del value, tree, Own
    calls.clear()
    gc.collect()
    assert ref() is not None
    del structure
    gc.collect()
    assert ref() is None and of_class() is None
