"""Objects: attributes by name in the ``__dict__`` or in slots.  Each walk sees what `getattr` sees."""

from typing import Any

import pytest
from core_support import Array, Object, core, identical, testing
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
