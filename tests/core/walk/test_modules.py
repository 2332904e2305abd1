"""Modules, whose fields are in their ``__dict__``, wherever CPython keeps it: each walk sees what
Python sees."""

import copy
import gc
from collections.abc import Callable
from typing import Any

import core_support as cs
import pytest
from core_support import Array, Linear, Module, classify, core, make_registry, missing, testing

State = Callable[[Any], Any]


def full(cls: Any = Linear, **changes: Any) -> Any:
    """An instance of which every field is set: the dynamic ones to arrays."""
    x = cls.__new__(cls)
    for i, name in enumerate(cls.dynamic):
        setattr(x, name, Array(i))
    for i, name in enumerate(cls.static):
        setattr(x, name, i)
    for name, value in changes.items():
        object.__setattr__(x, name, value)
    return x


def check(registry: Any, tree: Any) -> Any:
    """Checks that the tree round-trips and matches itself.  Returns its structure."""
    arrays, structure = core.flatten(registry, tree)
    assert testing.match(structure, tree) == arrays
    assert cs.same(structure.unflatten(arrays), tree)
    assert testing.match(structure, structure.unflatten(arrays)) == arrays
    return structure


# ---- states of an instance ----


def with_dict(x: Any, items: Any) -> Any:
    x.__dict__ = dict(items)
    return x


def without_dict(x: Any) -> Any:
    kept = dict(vars(x))
    try:
        del x.__dict__
    except TypeError:  # an exception keeps it
        return x
    assert vars(x) == {}
    for name, value in kept.items():
        object.__setattr__(x, name, value)
    return x


def generic(x: Any, stays: bool) -> Any:
    """Gives the instance a dict whose look-ups may run Python code."""
    x.__dict__[3] = 4
    if not stays:
        del x.__dict__[3]
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


def with_many(x: Any) -> Any:
    """Sets more attributes than instances can share keys."""
    for i in range(60):
        setattr(x, f"extra_{i}", i)
    return x


DIRECT: dict[str, State] = {
    "as it is": lambda x: x,
    "materialised": lambda x: (x.__dict__.keys(), x)[1],
    "own dict": lambda x: with_dict(x, vars(x)),
    "names not interned": lambda x: with_dict(x, [("".join([*k]), v) for k, v in vars(x).items()]),
    "once generic": lambda x: generic(x, False),
    "without a dict": without_dict,
    "shared dict": shared_dict,
    "another class": other_class,
    "copied": copy.copy,
}
# An instance with more attributes than fields is taken as a wrapper of a function.
MORE: dict[str, State] = {
    "generic": lambda x: generic(x, True),
    "one more": lambda x: (setattr(x, "extra", "not a field"), x)[1],
    "many more": with_many,
}
FEWER: dict[str, State] = {
    "emptied": lambda x: (vars(x).clear(), x)[1],
    "one deleted": lambda x: (object.__delattr__(x, next(iter(vars(x)))), x)[1],
    "popped": lambda x: (vars(x).popitem(), x)[1],
}
STATES = DIRECT | MORE | FEWER


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
        lambda self: self.__dict__.pop("bias"),
    )


class Slotted(Module):
    """A field in a slot is taken as missing, as it is not in the ``__dict__``.  (The Python side
    registers such a class as a custom node.)"""

    dynamic = ("weight",)
    static = ("size",)
    __slots__ = ("other",)


class OnException(Linear, Exception):
    """Its dict is not managed by CPython, but is where the base class puts it."""

    def __reduce__(self) -> Any:
        return type(self), (), vars(self)


class OnInt(Linear, int):
    """Its size varies: the dict lies behind its digits."""

    def __new__(cls, *args: Any) -> "OnInt":
        return int.__new__(cls, 2**70)


class DictSlot:
    __slots__ = ("__dict__", "__weakref__")
    dynamic, static = ("a", "b"), ("c",)


CLASSES = [Linear, type("Like", (Linear,), {}), Many, Described, Slotted, OnException, OnInt]


def classify_all(cls: type, x: Any) -> Any:
    own = cls in (DictSlot, Bare)
    told = {"kind": "module", "dynamic": cls.dynamic, "static": cls.static} if own else {}  # type: ignore[attr-defined]
    return told or classify(cls, x)


@pytest.mark.parametrize("cls", [*CLASSES, DictSlot])
@pytest.mark.parametrize("state", STATES)
def test_reads_what_python_reads(cls: Any, state: str) -> None:
    """Two instances match if they have the same attributes, however they keep them."""
    registry = make_registry(classify=classify_all)
    x = STATES[state](full(cls))

    def names(instance: Any) -> Any:
        """The attributes that are set, and whether there are more or fewer than fields."""
        found = {k for k, v in vars(instance).items() if v is not missing}
        fields = {*cls.dynamic, *cls.static}
        return found & fields, len(vars(instance)) != len(fields)

    for _ in range(2):  # once before `__dict__` is read for the check, and once after it
        arrays, structure = core.flatten(registry, x)
        built = structure.unflatten(arrays)
        attributes = {k: v for k, v in vars(x).items() if k in cls.dynamic + cls.static}
        assert arrays == tuple(attributes[n] for n in cls.dynamic if n in attributes)
        assert testing.match(structure, x) == arrays
        # An instance without some of its fields counts as a wrapper.
        assert {k: v for k, v in vars(built).items() if v is not missing} == attributes
        assert type(built) is cls
        assert [getattr(built, n, 0) for n in attributes] == [getattr(x, n, 0) for n in attributes]
        others = [make(full(cls)) for make in STATES.values()]
        for other in (built, copy.copy(built), *others):
            assert (testing.match(structure, other) is not None) == (names(other) == names(x))
        for name, value in attributes.items():
            vars(x)[name] = "another"
            assert testing.match(structure, x) is None
            vars(x)[name] = value
    # A built instance can be changed, copied and deallocated as any other.
    built.extra, built.me = 1, built
    assert gc.is_tracked(built) and vars(copy.copy(built)) == vars(built)
    for name in list(vars(built)):
        del vars(built)[name]
    gc.collect()
    assert vars(built) == {}


# ---- which fields are set ----


def test_fields_that_are_missing(registry: Any) -> None:
    structure = check(registry, Linear(weight=Array()))
    tree = Linear(weight=Array(), bias=missing, size=missing)
    assert testing.match(structure, tree) == (tree.weight,), "missing itself is an absent field"
    assert core.flatten(registry, tree)[1] == structure
    # The keys that instances share grow while a structure of the class is kept.
    growing = type("Growing", (Module,), {"dynamic": ("a", "b", "c"), "static": ("s",)})
    structure = check(registry, growing(c=Array()))
    two, three = growing(s=1, b=Array(), a=Array(), c=Array()), growing(c=Array())
    assert testing.match(structure, two) is None
    assert testing.match(check(registry, two), two) == (two.a, two.b, two.c)
    assert testing.match(structure, three) == (three.c,)


def test_wrapper_attributes(registry: Any) -> None:
    structure = check(registry, full(__name__="f", __doc__=None))
    assert structure.unflatten((1, 2)).__dict__["__name__"] == "f"
    # As in Equinox, they are looked for only if the number of attributes is not that of fields.
    hidden, like = full(__name__="f"), full()
    del hidden.bias, like.bias
    assert "__name__" not in repr(core.flatten(registry, hidden)[1])
    assert testing.match(check(registry, like), hidden) is None
    like.extra = 1
    assert testing.match(core.flatten(registry, like)[1], hidden) is not None
    assert repr(structure).endswith("__name__='f', __doc__=None))")
    check(registry, full(__doc__=["a", "list"]))  # they need no hash


@pytest.mark.parametrize("count", [0, 1, 28, 29, 30, 31, 32, 40])
def test_many_fields(registry: Any, count: int) -> None:
    dynamic, static = ([f"{c}{i}" for i in range(40)] for c in "ds")
    cls: Any = type("Here", (Module,), {"dynamic": tuple(dynamic), "static": tuple(static)})

    def make(number: int) -> Any:
        names = [name for pair in zip(dynamic, static, strict=True) for name in pair]
        return cls(**{n: Array(n) if n[0] == "d" else n for n in names[:number]})

    trees = [make(count) for _ in range(5)]
    structure = check(registry, trees[0])
    for tree in trees:
        assert len(testing.match(structure, tree)) == (count + 1) // 2
    assert testing.match(structure, make(count + 1)) is None


# ---- classes ----


class Bare:
    __slots__ = ("a",)
    dynamic, static = ("a",), ()


def test_no_dict_at_all() -> None:
    tree = Bare()
    tree.a = Array()
    arrays, structure = core.flatten(make_registry(classify=classify_all), tree)
    assert arrays == () and testing.match(structure, tree) == ()
    assert type(structure.unflatten(())) is Bare


def test_a_changed_class(registry: Any) -> None:
    """An instance that moves to another class keeps the shared keys of the old class."""

    class Swapped(Module):
        dynamic = ("bias", "weight")
        static = ("activation", "size")

    native = Swapped(bias=Array(), weight=Array(), activation=1, size=2)
    structure = check(registry, native)
    moved = Linear(weight=Array(), bias=Array(), size=2, activation=1)
    assert testing.match(structure, moved) is None
    moved.__class__ = Swapped  # type: ignore[assignment]
    assert testing.match(structure, moved) == (moved.bias, moved.weight)
    assert core.flatten(registry, moved)[1] == structure


def test_building_runs_no_code_of_the_class(registry: Any) -> None:
    """``object.__setattr__`` and ``object.__getattribute__`` pass over a ``__dict__`` of the
    class."""

    class Hiding(Module):
        dynamic = ("a",)
        static = ("b",)
        __dict__ = property(lambda self: 1 / 0, lambda self, value: 1 / 0)  # type: ignore[assignment]

        def __init__(self, a: Any) -> None:
            object.__setattr__(self, "a", a)
            object.__setattr__(self, "b", "b")

        def __setattr__(self, name: str, value: Any) -> None:
            raise AttributeError("frozen")

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


def test_a_class_that_has_used_up_its_versions() -> None:
    """Python 3.13 and newer give a class 1000 versions."""
    cls: Any = type("Restless", (Linear,), {})
    x = full(cls)
    arrays, structure = core.flatten(make_registry(), x)
    for i in range(1100):
        cls.attribute = i
        assert vars(structure.unflatten(arrays)) == vars(x)
    seen: list[Any] = []
    cls.bias = property(lambda self: None, lambda self, value: seen.append(value))
    built = structure.unflatten(arrays)
    assert seen == [arrays[1]] and "bias" not in vars(built)
