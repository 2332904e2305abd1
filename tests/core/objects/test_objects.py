"""Objects: attributes by name in the ``__dict__`` or in slots.  Each walk sees what `getattr` sees."""

from typing import Any

import pytest
from core_support import Array, Hooks, Object, core, identical, make_jit, make_registry, testing
from hostile_support import NESTS, nest
from node_support import InitDataclass
from object_support import attributes, check_walks
from trees_support import OBJECTS


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


# ---- deep trees ----


@pytest.mark.parametrize("name", NESTS)
@pytest.mark.parametrize("depth", [10, 22, 23, 24, 25, 26, 47, 48, 49, 100])
def test_deep_matches(registry: Any, name: str, depth: int) -> None:
    make, _ = NESTS[name]
    tree, other, deeper = nest(make, depth), nest(make, depth), nest(make, depth + 1)
    _, structure = core.flatten(registry, [tree, 1])
    for each in (tree, other):
        arrays, _ = core.flatten(registry, each)
        assert identical(testing.match(structure, [each, 1]), arrays)
        assert testing.match(structure, [each, 2]) is None
    assert testing.match(structure, [deeper, 1]) is None
    f = make_jit(lambda tree: tree, Hooks(make_registry()))
    for each in (tree, other, tree, deeper, other, *[tree] * 70):
        found = f(each)
        assert identical(core.flatten(registry, found)[0], core.flatten(registry, each)[0])
