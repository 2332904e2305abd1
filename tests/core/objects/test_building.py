"""How an object is built: filled, called, or by its `__init__`."""

import abc
from typing import Any

import pytest
from core_support import Array, Object, Pair, Part, core, identical, layout, same, testing
from object_support import new_class


def test_init_is_a_call_once_the_class_has_changed(registry: Any) -> None:
    for slots in (False, True):
        cls = new_class("slots" if slots else "dict", "init")
        calls = []

        def init(self: Any, calls: Any = calls, **values: Any) -> None:
            calls.append(values)
            Object.__init__(self, **values)

        cls.__init__ = init
        tree = cls(x=Array(1), y=Array(2), tag="tag")
        arrays, structure = core.flatten(registry, tree)
        calls.clear()
        assert same(structure.unflatten(arrays), tree)
        assert not calls, "nothing has changed since it was classified"
        cls.other = 1
        assert same(structure.unflatten(arrays), tree)
        assert [list(call) for call in calls] == [["x", "y", "tag"]]
        del cls.other
        structure.unflatten(arrays)
        assert len(calls) == 2


def test_fill_calls_no_code_of_the_class(registry: Any) -> None:
    class Loud(Pair):
        def __new__(cls, *args: Any) -> Any:
            raise AssertionError

        def __init__(self) -> None:
            raise AssertionError

        def __setattr__(self, name: str, value: Any) -> None:
            raise AssertionError

    tree = object.__new__(Loud)
    Object.__init__(tree, x=Array(1), y=Array(2), tag=3)
    arrays, structure = core.flatten(registry, tree)
    assert same(structure.unflatten(arrays), tree)


@pytest.mark.parametrize("slots", [False, True])
def test_fill_sets_through_a_descriptor(registry: Any, slots: bool) -> None:
    """As object.__setattr__ does, of the fields and of what is made besides."""
    for name in ("x", "made"):
        space = {"__slots__": ("x", "made")} if slots else {}
        cls: Any = type("Cls", (Object,), {"layout": layout(("x",), made=list), **space})
        arrays, structure = core.flatten(registry, cls(x=Array(1), made=[]))
        values: list[Any] = []
        setattr(cls, name, property(lambda self: 1, lambda self, v, to=values: to.append(v)))
        structure.unflatten(arrays)
        assert values == ([arrays[0]] if name == "x" else [[]])


def test_what_is_made_besides(registry: Any) -> None:
    """A maker is called once a tree."""
    made: list[Any] = []

    def make() -> Any:
        made.append(object())
        return made[-1]

    for space in ({}, {"__slots__": ("x", "one", "two")}):
        cls: Any = type("Cls", (Object,), {"layout": layout(("x",), one=make, two=make), **space})
        tree = [cls(x=Array(i)) for i in range(3)]
        arrays, structure = core.flatten(registry, tree)
        for _ in range(2):
            made.clear()
            built = structure.unflatten(arrays)
            assert len(made) == 1
            assert all(x.one is made[0] and x.two is made[0] for x in built)


def test_abstract_classes(registry: Any) -> None:
    class Abstract(Object, abc.ABC):
        layout = layout(("x",))

    arrays, structure = core.flatten(registry, Abstract(x=Array(1)))
    Abstract.__abstractmethods__ = frozenset(["f"])  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="abstract"):
        structure.unflatten(arrays)


def test_partials(registry: Any) -> None:
    for tree in (
        Part(max),
        Part(max, Array(1), 2, key=Array(3), default=None),
        Part(Part(max, Array(1), a=1), Array(2), b=Array(3)),
        Part(Part, max, 1),
    ):
        arrays, structure = core.flatten(registry, tree)
        built = structure.unflatten(arrays)
        assert same(built, tree) and same(built.func, tree.func)
        assert identical(testing.match(structure, built), arrays)
    nested = Part(max, Array(1))
    nested.__setstate__((Part(min, 1), (Array(2),), {"k": Array(3)}, {}))
    arrays, structure = core.flatten(registry, nested)
    # As a call of the class would, it takes the inner one apart.
    assert structure.unflatten(arrays).func is min
    for kind, leaves in ((dict, [1]), (tuple, [1, 1])):
        is_leaf = lambda x, kind=kind: type(x) is kind
        _, structure = core.tree_flatten(registry, Part(max, k=1), True, is_leaf)
        with pytest.raises(TypeError):
            structure.unflatten(leaves)
