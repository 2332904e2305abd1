"""Each walk sees what `getattr` sees of an object.  That calls and walks do so after a change of a class
or of an instance is in call/test_known.py."""

import functools
from typing import Any

import pytest
from core_support import Array, Object, Pair, core, identical, testing
from node_support import InitDataclass, LoudStr
from object_support import attributes, check_walks
from trees_support import OBJECTS


def test_names_of_a_class_that_run_code(registry: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such code frees an array that the walk has met."""
    cls: Any = type("Odd", (Pair,), {LoudStr("x"): 1})
    tree: list[Any] = [Array(0), cls(x=Array(1), y=Array(2), tag=3)]
    _, structure = core.flatten(registry, tree)
    cls.other = 1

    def hook() -> None:
        tree[0] = 1
        spare.append([Array("spare") for _ in range(10)])

    spare: list[Any] = []
    monkeypatch.setattr(LoudStr, "hook", staticmethod(hook))
    found = testing.match(structure, tree)
    assert found is None or found[0].value == 0


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
