"""Each walk sees what `getattr` sees after a change of a class or of an instance.  That calls do is
in call/test_known_objects."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
from core_support import Array, Object, Pair, core, identical, same, testing
from node_support import InitDataclass
from object_support import (
    CLASS_CHANGES,
    INSTANCE_CHANGES,
    NAMES,
    SPACES,
    attributes,
    check_walks,
    new_class,
)
from outcome_support import attempt
from trees_support import OBJECTS

# ---- changes of the class ----


@pytest.mark.parametrize("change", CLASS_CHANGES)
@pytest.mark.parametrize("mode", ["fill", "call", "init"])
@pytest.mark.parametrize("space", SPACES)
def test_a_class_that_changes(registry: Any, space: str, mode: str, change: str) -> None:
    cls = new_class(space, mode)
    tree = [cls(x=Array(i), y=Array(-i), tag="tag") for i in range(2)]
    if space in ("slots and dict", "dict and a slot", "mixed"):
        for each in tree:
            each.spare = Array("spare")
            each.__dict__.update(other=1)
    _, structure = core.flatten(registry, tree)
    check_walks(registry, structure, tree)
    attempt(CLASS_CHANGES[change], cls)
    for _ in range(2):
        check_walks(registry, structure, tree)
        flat = attempt(core.flatten, registry, tree)
        if not isinstance(flat, Exception):
            check_walks(registry, flat[1], tree)
            built = attempt(flat[1].unflatten, flat[0])
            assert isinstance(built, Exception) or len(built) == 2
    # An instance with other values.
    other = [cls(), cls()]
    for i, each in enumerate(other):
        for name in NAMES:
            attempt(setattr, each, name, "tag" if name == "tag" else Array(i))
    check_walks(registry, structure, other)


def test_the_version_of_a_class_that_is_not_counted(registry: Any) -> None:
    """CPython gives a class no more than 1000 versions, and none to a class with odd names."""
    for space in SPACES:
        cls = new_class(space)
        tree = [cls(x=Array(i), y=Array(-i), tag="tag") for i in range(2)]
        _, structure = core.flatten(registry, tree)
        for i in range(1200):
            cls.counter = i
            attempt(getattr, tree[0], "x")
            if i % 100 == 99:
                check_walks(registry, structure, tree)
        cls.x = property(lambda self: 1)
        check_walks(registry, structure, tree)
        assert testing.match(structure, tree) is None


class _Str(str):
    """A name that calls a hook when it is compared."""

    hook: Callable[[], Any] = staticmethod(lambda: None)
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        _Str.hook()
        return False


def test_names_of_a_class_that_run_code(registry: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such code frees an array that the walk has met."""
    cls: Any = type("Odd", (Pair,), {_Str("x"): 1})
    tree: list[Any] = [Array(0), cls(x=Array(1), y=Array(2), tag=3)]
    _, structure = core.flatten(registry, tree)
    cls.other = 1

    def hook() -> None:
        tree[0] = 1
        spare.append([Array("spare") for _ in range(10)])

    spare: list[Any] = []
    monkeypatch.setattr(_Str, "hook", staticmethod(hook))
    found = testing.match(structure, tree)
    assert found is None or found[0].value == 0


# ---- changes of an instance ----


@pytest.mark.parametrize("default", [False, True])
@pytest.mark.parametrize("change", INSTANCE_CHANGES)
@pytest.mark.parametrize("space", SPACES)
def test_an_instance_that_changes(registry: Any, space: str, change: str, default: bool) -> None:
    cls = new_class(space)
    if default and "x" not in cls.__dict__:
        cls.x = Array("default")
    tree = [cls(x=Array(i), y=Array(-i), tag="tag") for i in range(2)]
    _, structure = core.flatten(registry, tree)
    if isinstance(attempt(INSTANCE_CHANGES[change], tree[1]), Exception):
        return
    for _ in range(3):
        check_walks(registry, structure, tree)
        flat = attempt(core.flatten, registry, tree)
        if not isinstance(flat, Exception):
            assert same(attempt(flat[1].unflatten, flat[0]), tree)


@pytest.mark.parametrize("name", OBJECTS)
def test_each_attribute_is_compared(registry: Any, name: str) -> None:
    """Each attribute in turn gets another value, and loses it."""
    tree = OBJECTS[name](Array(1), Array(2), "tag")
    if not isinstance(tree, (Object, InitDataclass)):
        pytest.skip("its attributes cannot be set")
    for attribute in attributes(tree):
        tree = OBJECTS[name](Array(1), Array(2), "tag")
        arrays, structure = core.flatten(registry, [tree])
        before = getattr(tree, attribute)
        object.__setattr__(tree, attribute, {"unlike": 1})
        check_walks(registry, structure, [tree])
        assert testing.match(structure, [tree]) is None
        object.__delattr__(tree, attribute)
        with pytest.raises(AttributeError):
            core.flatten(registry, [tree])
        with pytest.raises(AttributeError):
            testing.match(structure, [tree])
        object.__setattr__(tree, attribute, before)
        assert identical(testing.match(structure, [tree]), arrays)
        check_walks(registry, structure, [tree])


def test_attributes_that_are_not_fields(registry: Any) -> None:
    """A cached property and the like are no part of the tree."""

    class Cached(Pair):
        @functools.cached_property
        def value(self) -> Any:
            return Array("cached")

    tree = [Cached(x=Array(1), y=Array(2), tag=3)]
    arrays, structure = core.flatten(registry, tree)
    assert tree[0].value.value == "cached"
    tree[0].extra = Array("extra")
    assert identical(testing.match(structure, tree), arrays)
    assert core.flatten(registry, tree)[1] == structure
    assert vars(structure.unflatten(arrays)[0]).keys() == {"x", "y", "tag"}
