"""User code in the middle of a walk or of a tree function: what its errors say, and what is right
although it changes things.  The hostile matrix (core/catalogue) has each place and each action."""

import gc
import operator
from collections.abc import Callable
from typing import Any

import pytest
from core_support import (
    Array,
    Box,
    Linear,
    Module,
    Object,
    Value,
    classify,
    core,
    layout,
    make_registry,
    same,
    testing,
)
from hostile_support import Once
from outcome_support import attempt, nothing
from trees_support import partition_dict

ARRAYS = ("arrays",)


def test_a_tree_that_changes_after_it_was_walked(registry: Any) -> None:
    """The function holds all leaves by then, so the result does not change."""

    def takes(leaf: Any) -> bool:
        hook()
        return isinstance(leaf, Array)

    def text(key: str) -> bool:
        hook()
        return key < "k2"

    leaf, array, path = ("leaf", takes), ("array", takes), ("path", (..., text))
    calls: list[Callable[[Any], Any]] = [
        lambda t: core.tree_flatten(registry, t, leaf, None),
        lambda t: core.tree_flatten(registry, t, ("not", ("or", leaf, path)), None),
        lambda t: core.partition(registry, t, (path, array), None, "none"),
        lambda t: core.partition(registry, t, (("and", leaf, leaf),), None, None),
        lambda t: partition_dict(registry, t, array, (path,), None),
    ]
    for make in (
        lambda: {f"k{i}": [Array(), Value(1), i] for i in range(4)},
        lambda: [[Array()]] * 3,
    ):
        for call in calls:
            tree = [make(), Array()]
            hook: Callable[[], Any] = nothing
            expected, again = call(tree), [type(x).copy(x) if x is tree[0] else x for x in tree]
            hook = Once(lambda t=again: (t[0].clear(), t.clear()), 2)  # type: ignore[misc]
            assert same(call(again), expected) and again == []


def test_equality_given_to_a_class_later(registry: Any) -> None:
    """The instances of a class compared by identity when they were flattened.  A match still
    compares them so; comparing structures calls the new ``__eq__``."""

    class Late:
        pass

    structure = core.flatten(registry, [[[Late(), Array()], Array()], Array()])[1]
    hash(structure)
    outer: list[Any] = [[[Late(), Array()], Array()], Array()]

    def eq(self: Any, other: Any) -> bool:
        outer.clear()
        gc.collect()
        return True

    Late.__eq__ = eq  # type: ignore[method-assign, assignment]
    Late.__hash__ = lambda self: 1  # type: ignore[method-assign, assignment]
    assert testing.match(structure, outer) is None and len(outer) == 2
    attempt(operator.eq, structure, core.flatten(registry, outer)[1])
    assert outer == []


def test_a_class_changed_by_classify() -> None:
    """Nothing holds the class that the registry was asked about."""

    class Answer(dict):  # type: ignore[type-arg]
        def __del__(self) -> None:
            gc.collect()

    def ask(cls: type, x: Any) -> dict[str, Any]:
        if cls.__name__ == "Brief":
            x.__class__ = cls.__base__
            gc.collect()
        return Answer(classify(cls, x))

    for base, values in ((Linear, {"weight": Array()}), (Value, {"value": 1})):
        registry = make_registry(classify=ask)
        for _ in range(3):
            with pytest.raises(RuntimeError, match="changed its class"):
                core.flatten(registry, [type("Brief", (base,), {})(**values)])
            gc.collect()


def _objects_that_change_class(change: Callable[[Any], None]) -> list[Any]:
    """An object, which changes when an attribute is read, and a custom node."""

    class Reads(Object):
        layout = layout(("x",))

        @property
        def x(self) -> Any:
            change(self)
            return Array()

    class Flattens(Box):
        pass

    flattens = Flattens([])
    flattens.hook = lambda: change(flattens)
    return [Reads(), flattens]


@pytest.mark.parametrize("number", [0, 1], ids=["object", "custom"])
def test_an_object_whose_class_dies_while_it_is_read(registry: Any, number: int) -> None:
    others = [
        type("Other", (Object,), {"layout": layout(("x",)), "x": 1}),
        type("Other", (Box,), {}),
    ]
    armed: list[None] = []

    def change(x: Any) -> None:
        if armed:
            x.__class__ = others[number]
            gc.collect()

    x = _objects_that_change_class(change)[number]
    core.flatten(registry, x)
    armed.append(None)
    with pytest.raises(RuntimeError, match="`Other` changed while it was flattened"):
        core.flatten(registry, [x])


def test_a_class_at_the_address_of_a_leafs_class(registry: Any) -> None:
    """A custom node drops the class of a leaf before it. A Module's class gets its address."""
    leaf = type("Leaf", (), {})()
    core.flatten(registry, [leaf])
    address, later = id(type(leaf)), []

    def hook() -> None:
        leaf.__class__ = Value
        gc.collect()
        kept = []
        while not later and len(kept) < 5000:
            kept.append(type("Node", (Module,), {"dynamic": ("x",)}))
            if id(kept[-1]) == address:
                later.append(kept[-1](x=Array()))

    arrays, _ = core.flatten(registry, [leaf, Box([], hook=hook), later])
    if not later:
        pytest.skip("no class got the address")
    assert arrays == (later[0].x,)
