"""A match reads children borrowed, or held if it must run Python code. Both read the same."""

import collections
import random
from typing import Any

import pytest
from core_support import Array, Box, Linear, Object, core, identical, layout, make_registry, testing


def reordered(names: list[str], order: str) -> list[str]:
    if order == "reversed":
        return names[::-1]
    if order == "rotated":
        return names[3:] + names[:3]
    return random.Random(1).sample(names, len(names)) if order == "shuffled" else names


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("same_keys", [True, False])
@pytest.mark.parametrize("order", ["sorted", "reversed", "rotated", "shuffled"])
@pytest.mark.parametrize("count", [4, 100, 300])
def test_dicts_with_keys_in_any_order(count: int, order: str, same_keys: bool, held: bool) -> None:
    registry = make_registry()
    names = [f"name {i:03}" for i in range(count)]
    arrays = tuple(Array(i) for i in range(count))
    values = dict(zip(names, arrays, strict=True))
    first: Any = Box([], 1) if held else None  # its registered function is Python
    flat, structure = core.flatten(registry, [first, {name: values[name] for name in names}])
    hash(structure)
    assert identical(flat, arrays)
    keys = reordered(names if same_keys else ["".join(list(name)) for name in names], order)
    other = {key: values[key] for key in keys}
    for mapping in (other, collections.OrderedDict(other)):
        found = testing.match(structure, [first, mapping])
        assert identical(found, arrays) if mapping is other else found is None
    other["name 000"] = other.pop("name 001")
    assert testing.match(structure, [first, other]) is None


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize(
    "child", [[Array(1)], (Array(1),), {"a": Array(1)}, Linear(weight=Array(1))]
)
def test_containers_with_other_children(child: Any, held: bool) -> None:
    registry = make_registry()
    first: Any = Box([], 1) if held else None
    _, structure = core.flatten(registry, [first, child, None])
    hash(structure)
    assert len(testing.match(structure, [first, child, None])) >= 1
    others = ([], (), {}, {"b": Array(1)}, [1], (1,), {"a": 1}, Linear(weight=1), None, 1, Array(1))
    for other in others:
        assert testing.match(structure, [first, other, None]) is None


class Both(tuple[Any, ...], Object):  # type: ignore[misc]
    """Its attributes are children; its items are not."""

    layout = layout(("x", "y"), mode="call")

    def __new__(cls, x: Any, y: Any) -> Any:
        return tuple.__new__(cls, (Array("item"), y))

    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y = x, y


@pytest.mark.parametrize("held", [False, True])
def test_an_object_that_is_also_a_tuple(held: bool) -> None:
    registry = make_registry()
    first: Any = Box([], 1) if held else None
    both = Both(Array(1), Array(2))
    _, structure = core.flatten(registry, [first, both])
    hash(structure)
    assert identical(testing.match(structure, [first, both]), (both.x, both.y))
    both.x = "static"
    assert testing.match(structure, [first, both]) is None
