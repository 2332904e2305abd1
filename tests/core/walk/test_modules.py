"""Modules, whose fields are in their ``__dict__``, wherever CPython keeps it."""

import copy
import gc
from typing import Any

import pytest
from core_support import (
    Array,
    Linear,
    Module,
    classify,
    core,
    make_registry,
    missing,
    same,
    testing,
)


def full(**changes: Any) -> Linear:
    fields: dict[str, Any] = {
        "weight": Array("w"),
        "bias": Array("b"),
        "size": 3,
        "activation": len,
    }
    return Linear(**{**fields, **changes})


def check(registry: Any, tree: Any) -> Any:
    """Checks that the tree round-trips and matches itself.  Returns its structure."""
    arrays, structure = core.flatten(registry, tree)
    assert testing.match(structure, tree) == arrays
    assert same(structure.unflatten(arrays), tree)
    assert testing.match(structure, structure.unflatten(arrays)) == arrays
    return structure


def materialise(x: Any) -> Any:
    """Gives the instance a real dict."""
    x.__dict__.keys()
    return x


def reinsert(x: Any) -> Any:
    """Sets the same attributes in another order."""
    items = list(vars(x).items())
    for name, _ in items:
        object.__delattr__(x, name)
    for name, value in reversed(items):
        object.__setattr__(x, name, value)
    return x


def own_dict(x: Any) -> Any:
    """Gives the instance a dict that shares its keys with no other."""
    x.__dict__ = dict(vars(x))
    return x


def reversed_dict(x: Any) -> Any:
    x.__dict__ = dict(reversed(vars(x).items()))
    return x


def keys_not_interned(x: Any) -> Any:
    x.__dict__ = {"".join(list(k)): v for k, v in vars(x).items()}
    return x


def generic_dict(x: Any) -> Any:
    """Gives the instance a dict whose look-ups may run Python code."""
    x.__dict__[3] = 4
    return x


def once_generic(x: Any) -> Any:
    x.__dict__[3] = 4
    del x.__dict__[3]
    return x


def with_extra(x: Any) -> Any:
    x.extra = "not a field"
    return x


def with_many(x: Any) -> Any:
    """Sets more attributes than instances can share keys."""
    for i in range(60):
        setattr(x, f"extra_{i}", i)
    return x


def as_it_is(x: Any) -> Any:
    return x


DIRECT = [as_it_is, materialise, reinsert, own_dict, reversed_dict, keys_not_interned, once_generic]
# An instance with more attributes than fields is taken as a wrapper of a function.
MORE = [generic_dict, with_extra, with_many]


@pytest.mark.parametrize("first", DIRECT + MORE)
@pytest.mark.parametrize("second", DIRECT + MORE)
def test_where_the_attributes_are_does_not_matter(first: Any, second: Any) -> None:
    """Two instances match and have one structure, however they keep their attributes."""
    registry = make_registry()
    alike = (first in MORE) == (second in MORE)
    one, two = first(full()), second(full(weight=Array(), bias=Array()))
    arrays, structure = core.flatten(registry, one)
    assert arrays == (one.weight, one.bias)
    assert (core.flatten(registry, two)[1] == structure) == alike
    assert testing.match(structure, two) == ((two.weight, two.bias) if alike else None)
    assert testing.match(structure, one) == arrays
    two.__dict__["size"] = 4
    assert testing.match(structure, two) is None
    two.__dict__["size"] = 3
    two.__dict__["bias"] = 1
    assert testing.match(structure, two) is None
    object.__delattr__(two, "bias")
    assert testing.match(structure, two) is None
    assert core.flatten(registry, two)[1] != structure
    object.__setattr__(two, "bias", one.bias)
    assert testing.match(structure, two) == ((two.weight, one.bias) if alike else None)
    check(registry, one)
    check(registry, two)


def test_fields_that_are_missing(registry: Any) -> None:
    trees = [
        Linear(),
        Linear(weight=Array()),
        Linear(bias=Array()),
        Linear(weight=Array(), bias=Array()),
        Linear(size=3),
        Linear(weight=None),
        full(),
    ]
    structures = [check(registry, tree) for tree in trees]
    for i, structure in enumerate(structures):
        for k, tree in enumerate(trees):
            assert (testing.match(structure, tree) is not None) == (i == k)
            assert (structures[k] == structure) == (i == k)


def test_missing_itself_is_an_absent_field(registry: Any) -> None:
    _, structure = core.flatten(registry, Linear(weight=Array()))
    tree = Linear(weight=Array(), bias=missing, size=missing)
    assert testing.match(structure, tree) == (tree.weight,)
    assert core.flatten(registry, tree)[1] == structure


def test_wrapper_attributes(registry: Any) -> None:
    ordinary = full()
    wrapping = full(__name__="f", __doc__=None)
    structure = check(registry, wrapping)
    assert structure.unflatten((1, 2)).__dict__["__name__"] == "f"
    assert testing.match(check(registry, ordinary), wrapping) is None
    assert testing.match(structure, ordinary) is None
    assert testing.match(structure, full(__name__="g", __doc__=None)) is None
    assert testing.match(structure, full(__name__="f")) is None
    assert testing.match(structure, full(__name__="f", __doc__=None, __module__="m")) is None
    assert testing.match(structure, full(__name__="f", __doc__=None)) is not None
    # As in Equinox, they are looked for only if the number of attributes is not that of fields.
    hidden = full(__name__="f")
    del hidden.bias
    alike = full()
    del alike.bias
    assert "__name__" not in repr(core.flatten(registry, hidden)[1])
    assert testing.match(check(registry, alike), hidden) is None
    alike.extra = 1
    assert testing.match(core.flatten(registry, alike)[1], hidden) is not None
    assert repr(structure).endswith("__name__='f', __doc__=None))")


def test_wrapper_attributes_need_no_hash(registry: Any) -> None:
    check(registry, full(__doc__=["a", "list"]))


class Wide(Module):
    dynamic = tuple(f"d{i}" for i in range(40))
    static = tuple(f"s{i}" for i in range(40))


@pytest.mark.parametrize("count", [0, 1, 28, 29, 30, 31, 32, 40])
def test_many_fields(registry: Any, count: int) -> None:
    class Here(Wide):
        pass

    def make(number: int) -> Here:
        names = [name for pair in zip(Wide.dynamic, Wide.static, strict=True) for name in pair]
        return Here(**{n: Array(n) if n[0] == "d" else n for n in names[:number]})

    trees = [make(count) for _ in range(5)]
    structure = check(registry, trees[0])
    for tree in trees:
        assert len(testing.match(structure, tree)) == (count + 1) // 2
    assert testing.match(structure, make(count + 1)) is None


def test_names_that_are_not_interned(registry: Any) -> None:
    """``object.__setattr__`` does not intern the name, so the shared keys of instances may hold
    another string than the fields of the class."""

    class Late(Module):
        dynamic = ("first_field", "second_field")

    for _ in range(3):
        tree: Any = Late()
        for i in (1, 0):
            object.__setattr__(tree, "".join(list(Late.dynamic[i])), Array())
        assert core.flatten(registry, tree)[0] == (tree.first_field, tree.second_field)
        check(registry, tree)


def test_fields_set_later_are_found(registry: Any) -> None:
    """The keys that instances share grow while a structure of the class is kept."""

    class Growing(Module):
        dynamic = ("a", "b", "c")
        static = ("s",)

    one = Growing(c=Array())
    structure = check(registry, one)
    two = Growing(s=1, b=Array(), a=Array(), c=Array())
    assert testing.match(structure, two) is None
    assert testing.match(check(registry, two), two) == (two.a, two.b, two.c)
    three = Growing(c=Array())
    assert testing.match(structure, three) == (three.c,)


def test_deleted_attributes(registry: Any) -> None:
    tree = full()
    structure = check(registry, tree)
    del tree.bias
    assert testing.match(structure, tree) is None
    check(registry, tree)
    tree.bias = Array()
    assert testing.match(structure, tree) is not None
    tree.__dict__.clear()
    assert testing.match(structure, tree) is None
    assert same(check(registry, tree).unflatten(()), Linear())


def test_subclasses(registry: Any) -> None:
    class Sub(Linear):
        dynamic = (*Linear.dynamic, "more")

    tree = Sub(weight=Array(), bias=Array(), more=Array(), size=1, activation=None)
    structure = check(registry, tree)
    assert len(testing.match(structure, tree)) == 3
    base = Linear(weight=Array(), bias=Array(), size=1, activation=None)
    assert testing.match(structure, base) is None
    assert testing.match(check(registry, base), tree) is None


def test_fields_in_slots(registry: Any) -> None:
    """The core takes fields in slots as missing, as they are not in the ``__dict__``.  (The Python
    side registers such a class as a custom node.)"""

    class Slotted(Module):
        __slots__ = ("a",)
        dynamic = ("a", "b")

    tree = Slotted(a=Array(), b=Array())
    arrays, structure = core.flatten(registry, tree)
    assert arrays == (tree.b,)
    assert testing.match(structure, tree) == arrays
    assert not hasattr(structure.unflatten(arrays), "a")


def test_no_dict_at_all() -> None:
    class Bare:
        __slots__ = ("a",)

    registry = make_registry(classify=lambda cls, x: ("module", None, ("a",), (), ()))
    tree = Bare()
    tree.a = Array()
    arrays, structure = core.flatten(registry, tree)
    assert arrays == () and testing.match(structure, tree) == ()
    assert type(structure.unflatten(())) is Bare


class OnException(Module, Exception):
    """Its dict is not managed by CPython, but is where the base class puts it."""

    dynamic = ("a", "b")

    def __init__(self, **fields: Any) -> None:
        Exception.__init__(self)
        self.__dict__.update(fields)


class OnInt(Module, int):
    """Its size varies: the dict lies behind its digits."""

    dynamic = ("a", "b")

    def __new__(cls, **fields: Any) -> "OnInt":
        return int.__new__(cls, 2**70)


class WithDictSlot:
    __slots__ = ("__dict__", "__weakref__")

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


@pytest.mark.parametrize("cls", [OnException, OnInt, WithDictSlot])
def test_dicts_in_other_places(cls: Any) -> None:
    registry = make_registry(
        classify=lambda c, x: ("module", None, ("a", "b"), (), ()) if c is cls else classify(c, x)
    )
    tree, other = cls(a=Array(), b=1), cls(a=Array(), b=1)
    arrays, structure = core.flatten(registry, tree)
    assert arrays == (tree.a,)
    assert testing.match(structure, other) == (other.a,)
    assert testing.match(structure, cls(b=1)) is None
    assert testing.match(structure, cls()) is None
    built = structure.unflatten(arrays)
    assert type(built) is cls and vars(built) == vars(tree)
    _, empty = core.flatten(registry, cls())
    assert testing.match(empty, cls()) == ()


def test_a_changed_class(registry: Any) -> None:
    """An instance that moves to another class keeps the shared keys of the old class."""

    class Swapped(Module):
        dynamic = ("bias", "weight")
        static = ("activation", "size")

    native = Swapped(bias=Array(), weight=Array(), activation=1, size=2)
    structure = check(registry, native)
    moved = Linear(weight=Array(), bias=Array(), size=2, activation=1)
    moved.__class__ = Swapped  # type: ignore[assignment]
    assert testing.match(structure, moved) == (moved.bias, moved.weight)
    assert core.flatten(registry, moved)[1] == structure


def test_attributes_of_the_class_are_not_fields(registry: Any) -> None:
    class Defaults(Module):
        dynamic = ("a",)
        static = ("b",)
        a = 3
        b = property(lambda self: 1 / 0)

    tree = Defaults()
    assert core.flatten(registry, tree)[0] == ()
    check(registry, tree)


def test_properties_without_a_setter_fail_to_build(registry: Any) -> None:
    class ReadOnly(Module):
        dynamic = ("a",)
        a = property(lambda self: 1)

        def __init__(self, a: Any) -> None:
            self.__dict__["a"] = a

    arrays, structure = core.flatten(registry, ReadOnly(Array()))
    with pytest.raises(AttributeError):
        structure.unflatten(arrays)


def test_a_dict_that_the_class_hides(registry: Any) -> None:
    """``object.__setattr__`` and ``object.__getattribute__`` pass over a ``__dict__`` of the
    class."""

    class Hiding(Module):
        dynamic = ("a",)
        static = ("b",)
        __dict__ = property(lambda self: 1 / 0, lambda self, value: 1 / 0)  # type: ignore[assignment]

        def __init__(self, a: Any) -> None:
            object.__setattr__(self, "a", a)
            object.__setattr__(self, "b", "b")

    tree = Hiding(Array())
    arrays, structure = core.flatten(registry, tree)
    assert arrays == (tree.a,)
    for _ in range(3):
        built: Any = structure.unflatten(arrays)
        assert (built.a, built.b) == (tree.a, "b")
        assert testing.match(structure, built) == arrays


def test_trees_of_one_structure_share_no_dict(registry: Any) -> None:
    arrays, structure = core.flatten(registry, [full(size=1), full(size=2), full(size=3)])
    trees = [structure.unflatten(arrays) for _ in range(4)]
    for tree in trees:
        for i, x in enumerate(tree):
            x.weight = x.size = i
            x.extra = 1
    for tree in [*trees, structure.unflatten(arrays)]:
        assert len({id(vars(x)) for x in tree}) == 3
    assert [x.size for x in structure.unflatten(arrays)] == [1, 2, 3]
    assert testing.match(structure, structure.unflatten(arrays)) == arrays


def test_values_under_each_others_names(registry: Any) -> None:
    a, b = Array(), Array()
    structure = check(registry, full(weight=a, bias=b, size=1, activation=2))
    swapped = full()
    swapped.__dict__ = {"bias": a, "weight": b, "activation": 2, "size": 1}
    assert testing.match(structure, swapped) == (b, a)
    swapped.__dict__ = {"weight": a, "bias": b, "activation": 1, "size": 2}
    assert testing.match(structure, swapped) is None


def test_building_runs_no_init(registry: Any) -> None:
    class Strict(Module):
        dynamic = ("a",)

        def __init__(self, a: Any) -> None:
            object.__setattr__(self, "a", a)

        def __setattr__(self, name: str, value: Any) -> None:
            raise AttributeError("frozen")

    check(registry, Strict(Array()))


def test_built_modules_are_ordinary_objects(registry: Any) -> None:
    arrays, structure = core.flatten(registry, full())
    built = structure.unflatten(arrays)
    built.me = built
    assert gc.is_tracked(built)
    del built
    assert gc.collect() > 0


# ---- every state of an instance, compared with what Python says ----


class Many(Module):
    """More fields than instances share keys."""

    dynamic = tuple(f"d{i}" for i in range(45))
    static = tuple(f"s{i}" for i in range(36))


class Described(Linear):
    """One field has a data descriptor, one a plain value in the class."""

    size = 7
    bias = property(
        lambda self: self.__dict__.get("bias"),
        lambda self, value: self.__dict__.__setitem__("bias", value),
    )


class Slotted(Module):
    dynamic = ("weight",)
    static = ("size",)
    __slots__ = ("other",)


class LikeLinear(Linear):
    pass


def filled_in(cls: Any) -> Any:
    """An instance of which every field is set: the dynamic ones to arrays."""
    x = cls.__new__(cls)
    for i, name in enumerate(cls.dynamic):
        setattr(x, name, Array(i))
    for i, name in enumerate(cls.static):
        setattr(x, name, i)
    return x


def without_dict(x: Any) -> Any:
    kept = dict(vars(x))
    del x.__dict__
    assert vars(x) == {}
    for name, value in kept.items():
        object.__setattr__(x, name, value)
    return x


def cleared(x: Any) -> Any:
    """Clears the dict and fills it again, in another order."""
    kept = dict(vars(x))
    vars(x).clear()
    for name in reversed(kept):
        object.__setattr__(x, name, kept[name])
    return x


def emptied(x: Any) -> Any:
    vars(x).clear()
    return x


def one_deleted(x: Any) -> Any:
    object.__delattr__(x, next(iter(vars(x))))
    return x


def popped(x: Any) -> Any:
    vars(x).popitem()
    return x


def dict_of_another(x: Any) -> Any:
    """Takes the dict of an instance that is gone then."""
    donor = copy.copy(x)
    x.__dict__ = donor.__dict__
    return x


def shared_dict(x: Any) -> Any:
    other = copy.copy(x)
    other.__dict__ = x.__dict__
    return other


def other_class(x: Any) -> Any:
    """Assigns another class and the first one again."""
    cls = type(x)
    try:
        x.__class__ = type("Other", (cls,), {})
    except TypeError:  # another layout
        return x
    x.__class__ = cls
    return x


STATES = [
    *(as_it_is, materialise, reinsert, own_dict, reversed_dict, once_generic),
    *(without_dict, cleared, emptied, one_deleted, popped, dict_of_another, shared_dict),
    *(copy.copy, copy.deepcopy, other_class, lambda x: copy.copy(materialise(x))),
]
CLASSES = [Linear, LikeLinear, Many, Described, Slotted]


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("state", STATES)
def test_reads_what_python_reads(cls: Any, state: Any) -> None:
    if state is reinsert and cls is Described:
        pytest.skip("its property cannot be deleted")
    registry = make_registry()
    x = state(filled_in(cls))
    for _ in range(2):  # once before `__dict__` is read for the check, and once after it
        arrays, structure = core.flatten(registry, x)
        built = structure.unflatten(arrays)
        attributes = {k: v for k, v in vars(x).items() if k in cls.dynamic + cls.static}
        assert arrays == tuple(attributes[n] for n in cls.dynamic if n in attributes)
        assert testing.match(structure, x) == arrays
        # An instance without some of its fields counts as a wrapper.
        assert {k: v for k, v in vars(built).items() if v is not missing} == attributes
        assert type(built) is cls
        assert [getattr(built, n, None) for n in attributes] == [
            getattr(x, n, None) for n in attributes
        ]
        for other in (built, copy.copy(built), filled_in(cls)):
            same_names = {k for k, v in vars(other).items() if v is not missing} == {*attributes}
            assert (testing.match(structure, other) is not None) == same_names
    # A built instance can be changed, copied and deallocated as any other.
    built.extra = 1
    assert vars(copy.copy(built)) == vars(built) and built.extra == 1
    for name in list(vars(built)):
        del vars(built)[name]
    gc.collect()
    assert vars(built) == {}


def test_a_class_that_has_used_up_its_versions() -> None:
    """Python 3.13 and newer give a class 1000 versions."""
    cls = type("Restless", (Linear,), {})
    registry = make_registry()
    x = filled_in(cls)
    arrays, structure = core.flatten(registry, x)
    for i in range(1100):
        cls.attribute = i  # type: ignore[attr-defined]
        assert vars(structure.unflatten(arrays)) == vars(x)
    seen = []
    cls.bias = property(  # type: ignore[attr-defined]
        lambda self: None, lambda self, value: seen.append(value)
    )
    built = structure.unflatten(arrays)
    assert seen == [arrays[1]] and "bias" not in vars(built)


def test_names_of_a_dict_that_was_filled_by_hand(registry: Any) -> None:
    """Its names can be equal to those of the class, and other objects."""
    one = Linear(weight=Array(), bias=None, size=3)
    arrays, structure = core.flatten(registry, one)
    other: Any = object.__new__(Linear)
    other.__dict__ = {"".join(list(name)): value for name, value in vars(one).items()}
    assert not any(a is b for a, b in zip(vars(other), vars(one), strict=True))
    assert testing.match(structure, other) == arrays
    assert core.flatten(registry, other) == (arrays, structure)
    other.__dict__ = {"".join(["si", "ze"]): 4, **vars(other)}
    assert testing.match(structure, other) == arrays, "the latter 3 is set"
    other.size = 4
    assert testing.match(structure, other) is None
