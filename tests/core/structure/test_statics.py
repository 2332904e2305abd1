"""Static values are compared exactly, by type and contents, in each place where one can stand."""

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import core_support as cs
import pytest
import statics_support as ss
from core_support import Array, Box, Hostile, Keyed, Linear, Record, Value, core, make_registry
from statics_support import PLACES, ByIdentity, MyInt, Pair, Slotted, calls, key, matches, seen


@pytest.fixture
def registry() -> Any:
    return make_registry(classify=ss.classify_pairs)


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


@pytest.mark.skipif(cs.FREE_THREADED, reason="it is asked for")
@pytest.mark.parametrize(
    "make", [Pair, Slotted, ss.Half, ss.Mixed, lambda *x: [*x], lambda *x: ss.Shell([*x])]
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
    return make_registry(classify=ss.classify_pairs, keyed=keys)


def test_keyed_types(keyed: Any) -> None:
    keys: list[Any] = [1, True, 1.0, (1,), [1], {1: 2}, {1}, frozenset([1, True, (1,)]), -1, -2]
    # Two elements may be equal, or have the hash of the other: those of -1 and -2 are the same.
    places = list(PLACES)
    in_sets = (lambda p: {p}, lambda p: frozenset([p]), lambda p: {p, keyed_by(-1)})
    for wrap in (*WRAPS.values(), *in_sets):
        for place in places if wrap is WRAPS["alone"] else places[:1]:
            put = lambda key: PLACES[place](wrap(keyed_by(copy.copy(key))))  # noqa: B023
            ss.check_all_differ(keyed, [put(key) for key in keys], [put(key) for key in keys])
        value = keyed_by(1)
        tree = Linear(weight=Array(), size=wrap(value))
        structure = seen(keyed, tree)
        for value.key, same in ((True, False), (1, True), (2, False), (1, True)):
            assert matches(structure, tree) == same


def test_which_types_are_keyed(keyed: Any) -> None:
    class Sub(ByIdentity):
        key = 1

    structure = core.flatten(keyed, [MyInt(3), 3])[1]
    for tree, same in (([MyInt(3), 3], 1), ([3, MyInt(3)], 0), ([MyInt(4), 3], 0), ([Sub(), 3], 0)):
        assert matches(structure, tree) == bool(same)
    assert not matches(core.flatten(keyed, [Sub()])[1], [Sub()])
    # A type that the registry has another key for has no contents by its kind.
    other = make_registry(classify=ss.classify_pairs, keyed=((Slotted, lambda x: x.a),))
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
    ss.check_all_differ(keyed, trees(), trees())
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
    assert all(map(ask, (1, "a", 2.5, None, (), (1, "a"), ByIdentity())))
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
        fixed = cs.static(key, True, ("a", "b"))
        return fixed if cls is Fixed else cs.classify(cls, x)

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
    ss.check_all_differ(registry, trees, [Linear(size=value) for value in make()])
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
        items = [ss.Shell([1], hook), [2]]
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
