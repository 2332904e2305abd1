"""Flattening a tree up to a Structure: the subtrees, or where the tree differs."""

import re
from collections import OrderedDict, defaultdict
from typing import Any

import core_support as cs
import pytest
from core_support import Array, Box, Keyed, Linear, Point, Record, core, identical
from trees_support import OtherLinear, tree_leaves

FULL = {"weight": 1, "bias": 2, "size": 3, "activation": "a"}


class OtherRecord(Record):
    pass


class OtherBox(Box):
    pass


# A model, a tree that differs from it, what the tree has, and what the model has.
MISMATCHES: list[tuple[Any, Any, str, str]] = [
    ((1, 2), (1,), "a `tuple` of 1", "a `tuple` of 2"),
    ((1, 2), [1, 2], "a `list` of 2", "a `tuple` of 2"),
    (([], []), ([],), "a `tuple` of 1", "a `tuple` of 2"),
    ((1, 2), Point(1, 2), "a `Point`", "a `tuple` of 2"),
    ([1], [1, 2], "a `list` of 2", "a `list` of 1"),
    ([1], 1, "a `int`", "a `list` of 1"),
    ([1], None, "None", "a `list` of 1"),
    (None, 1, "a `int`", "None"),
    (Point(1, 2), cs.LoudPoint(1, 2), "a `LoudPoint`", "a `Point`"),
    ({"a": 1}, OrderedDict(a=1), "a `OrderedDict`", "a `dict`"),
    ({"a": 1, "b": 2}, {"a": 1, "c": 2}, "the keys ['a', 'c']", "['a', 'b']"),
    ({"a": 1, "b": 2}, {"a": 1}, "the keys ['a']", "['a', 'b']"),
    ({"a": 1}, {"a": 1, "b": 2}, "the keys ['a', 'b']", "['a']"),
    (OrderedDict(a=1, b=2), OrderedDict(b=2, a=1), "the keys ['b', 'a']", "['a', 'b']"),
    (OrderedDict(a=1, b=2), OrderedDict(a=1), "the keys ['a']", "['a', 'b']"),
    (
        *(defaultdict(int, a=1), defaultdict(None, a=1)),
        *("default_factory=None", "default_factory=<class 'int'>"),
    ),
    (defaultdict(int, a=1), defaultdict(int, b=1), "the keys ['b']", "['a']"),
    (Linear(**FULL), OtherLinear(**FULL), "a `OtherLinear`", "a `Linear`"),
    (Linear(**FULL), Linear(**FULL | {"size": 4}), "size=4", "size=3"),
    (Linear(weight=1, size=3), Linear(size=3, bias=1), "no `weight`", "one"),
    (Linear(weight=1), Linear(weight=1, bias=2), "a `bias`", "none"),
    (
        *(Linear(**FULL), Linear(weight=1, size=3, activation="a")),
        *("a `Linear` of other attributes", "a `Linear`"),
    ),
    (Linear(weight=1), Linear(weight=1, size=3), "a `size`", "none"),
    (Linear(__name__="f"), Linear(size=3, __name__="f"), "a `size`", "none"),
    (Linear(**FULL, __name__="f"), Linear(**FULL, __name__="g"), "__name__='g'", "__name__='f'"),
    (Record(1, 2, 3), OtherRecord(1, 2, 3), "a `OtherRecord`", "a `Record`"),
    (Record(1, 2, 3), Record(1, 2, 4), "tag=4", "tag=3"),
    (Box([1]), OtherBox([1]), "a `OtherBox`", "a `Box`"),
    (Box([1], aux=1), Box([1], aux="b"), "aux data 'b'", "1"),
    (Box([1]), Box([1, 2]), "2 children", "1"),
]


def test_where_trees_differ(registry: Any) -> None:
    def up_to(model: Any, other: Any) -> Any:
        return core.tree_flatten(registry, model, True, None)[1]._subtrees(other)

    def combine(*trees: Any) -> Any:
        return core.combine(registry, trees, None, False)

    wrap = lambda x: {"k": [0, (x, 1)]}
    for model, other, has, model_has in MISMATCHES:
        calls = [("the tree", "the structure", up_to), ("tree 2", "tree 1", combine)]
        calls += [("tree 3", "tree 1", lambda model, other: combine(model, model, other))]
        if model is None:  # combine takes None as a leaf without a value
            assert combine(wrap(model), wrap(other)) == wrap(1)
            del calls[1:]
        for tree, name, call in calls:
            found = re.escape(f"{has}, where {name} has {model_has}") + "$"
            differs = rf"^{tree} differs from {name} at `\['k'\]\[1\]\[0\]`: .*"
            with pytest.raises(ValueError, match=differs + found):
                call(wrap(model), wrap(other))
            with pytest.raises(ValueError, match=rf"at the root: it has .*{found}"):
                call(model, other)


def test_where_metadata_differ(registry: Any) -> None:
    variable = cs.Variable(1, kind="k")
    _, structure = core.tree_flatten(registry, variable, True, None)
    for variable.metadata, error in (
        ({"kind": "other"}, "at `metadata`: it has kind='other', where the structure has kind='k'"),
        ({"kind": "k", "more": 1}, "the keys"),
        ([("kind", "k")], "differs"),
    ):
        with pytest.raises(ValueError, match=error):
            structure._subtrees(variable)


def test_trees_that_do_not_differ(registry: Any) -> None:
    """Statics are compared by ==, as in jax.tree_util; the order of a dict does not matter."""
    pairs: list[tuple[Any, Any]] = [
        (Linear(size=1), Linear(size=True)),
        (Record(1, 2, [1]), Record(3, 4, [1.0])),
        (Box([1], aux=Keyed(1)), Box([2], aux=Keyed(2))),
        ({"a": 1, "b": 2}, {"b": 4, "a": 3}),
        ({1: 1, 2: 2}, {2.0: 4, True: 3}),
        (defaultdict(int, a=1, b=2), defaultdict(int, b=4, a=3)),
    ]
    for model, other in pairs:
        _, structure = core.tree_flatten(registry, model, True, None)
        assert structure._subtrees(other) == tree_leaves(registry, other, None)


def test_subtrees_in_the_places_of_leaves(registry: Any) -> None:
    _, structure = core.tree_flatten(registry, {"a": [0, 0], "b": Point(0, 0)}, True, None)
    tree = {"a": [None, {"c": 1}], "b": Point([2, 3], ())}
    assert structure._subtrees(tree) == [None, {"c": 1}, [2, 3], ()]


def test_static_leaves_of_a_structure_are_not_compared(registry: Any) -> None:
    x, y = Array(), Array()
    leaves, structure = core.tree_flatten(registry, [1, x, ("s", y)], ("arrays",), None)
    assert identical(leaves, [x, y])
    assert structure._subtrees([[2], 3, (None, 4)]) == [3, 4]
    assert structure.unflatten([5, 6]) == [1, 5, ("s", 6)]
    with pytest.raises(ValueError, match="takes 2 leaves, not 3"):
        structure.unflatten([5, 6, 7])
