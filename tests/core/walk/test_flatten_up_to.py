"""Flattening a tree up to a Structure: the subtrees, or where the tree differs."""

import re
from collections import OrderedDict, defaultdict
from typing import Any

import pytest
from core_support import (
    Array,
    Box,
    Hostile,
    Keyed,
    Linear,
    LoudPoint,
    Point,
    Record,
    core,
    identical,
    tree_leaves,
)
from node_support import OtherLinear
from outcome_support import fail

FULL = {"weight": 1, "bias": 2, "size": 3, "activation": "a"}


class OtherRecord(Record):
    pass


class OtherBox(Box):
    pass


MISMATCHES: dict[str, tuple[Any, Any, str]] = {
    "tuple_size": ((1, 2), (1,), "a `tuple` of 1, where {} has a `tuple` of 2"),
    "tuple_type": ((1, 2), [1, 2], "a `list` of 2, where {} has a `tuple` of 2"),
    "tuple_of_nodes_size": (([], []), ([],), "a `tuple` of 1, where {} has a `tuple` of 2"),
    "tuple_subclass": ((1, 2), Point(1, 2), "a `Point`, where {} has a `tuple` of 2"),
    "list_size": ([1], [1, 2], "a `list` of 2, where {} has a `list` of 1"),
    "list_type": ([1], 1, "a `int`, where {} has a `list` of 1"),
    "list_none": ([1], None, "None, where {} has a `list` of 1"),
    "none": (None, 1, "a `int`, where {} has None"),
    "namedtuple_type": (Point(1, 2), LoudPoint(1, 2), "a `LoudPoint`, where {} has a `Point`"),
    "dict_type": ({"a": 1}, OrderedDict(a=1), "a `collections.OrderedDict`, where {} has a `dict`"),
    "dict_keys": (
        {"a": 1, "b": 2},
        {"a": 1, "c": 2},
        "the keys ['a', 'c'], where {} has ['a', 'b']",
    ),
    "dict_fewer": ({"a": 1, "b": 2}, {"a": 1}, "the keys ['a'], where {} has ['a', 'b']"),
    "dict_more": ({"a": 1}, {"a": 1, "b": 2}, "the keys ['a', 'b'], where {} has ['a']"),
    "ordered_order": (
        OrderedDict(a=1, b=2),
        OrderedDict(b=2, a=1),
        "the keys ['b', 'a'], where {} has ['a', 'b']",
    ),
    "ordered_fewer": (
        OrderedDict(a=1, b=2),
        OrderedDict(a=1),
        "the keys ['a'], where {} has ['a', 'b']",
    ),
    "default_factory": (
        defaultdict(int, a=1),
        defaultdict(None, a=1),
        "default_factory=None, where {} has default_factory=<class 'int'>",
    ),
    "default_keys": (
        defaultdict(int, a=1),
        defaultdict(int, b=1),
        "the keys ['b'], where {} has ['a']",
    ),
    "module_type": (
        Linear(**FULL),
        OtherLinear(**FULL),
        "a `OtherLinear`, where {} has a `Linear`",
    ),
    "module_static": (Linear(**FULL), Linear(**FULL | {"size": 4}), "size=4, where {} has size=3"),
    "module_fewer": (
        Linear(weight=1, size=3),
        Linear(size=3, bias=1),
        "no `weight`, where {} has one",
    ),
    "module_more": (Linear(weight=1), Linear(weight=1, bias=2), "a `bias`, where {} has none"),
    "module_other": (
        Linear(**FULL),
        Linear(weight=1, size=3, activation="a"),
        "a `Linear` of other attributes, where {} has a `Linear`",
    ),
    "module_static_more": (
        Linear(weight=1),
        Linear(weight=1, size=3),
        "a `size`, where {} has none",
    ),
    "module_static_more_wrapper": (
        Linear(weight=1, __name__="f"),
        Linear(weight=1, size=3, __name__="f"),
        "a `size`, where {} has none",
    ),
    "module_wrapper": (
        Linear(**FULL, __name__="f"),
        Linear(**FULL, __name__="g"),
        "__name__='g', where {} has __name__='f'",
    ),
    "dataclass_type": (
        Record(1, 2, 3),
        OtherRecord(1, 2, 3),
        "a `OtherRecord`, where {} has a `Record`",
    ),
    "dataclass_static": (Record(1, 2, 3), Record(1, 2, 4), "tag=4, where {} has tag=3"),
    "custom_type": (Box([1]), OtherBox([1]), "a `OtherBox`, where {} has a `Box`"),
    "custom_aux": (Box([1], aux=1), Box([1], aux="b"), "aux data 'b', where {} has 1"),
    "custom_size": (Box([1]), Box([1, 2]), "2 children, where {} has 1"),
}


@pytest.mark.parametrize("kind", MISMATCHES)
def test_where_trees_differ(registry: Any, kind: str) -> None:
    model, other, expected = MISMATCHES[kind]
    wrap = lambda x: {"k": [0, (x, 1)]}
    calls = {
        "the structure": lambda m, o: core.tree_flatten(registry, m, True, None)[1]._subtrees(o),
        "tree 1": lambda m, o: core.combine(registry, (m, m, o), None, False),
    }
    if model is None:  # combine takes None as a leaf without a value
        del calls["tree 1"]
    for name, call in calls.items():
        who = "the tree" if name == "the structure" else "tree 3"
        found = re.escape(expected.format(name)) + "$"
        with pytest.raises(
            ValueError, match=rf"^{who} differs from {name} at `\['k'\]\[1\]\[0\]`: .*{found}"
        ):
            call(wrap(model), wrap(other))
        with pytest.raises(ValueError, match=rf"at the root: it has .*{found}"):
            call(model, other)
    combined = lambda: core.combine(registry, (wrap(model), wrap(other)), None, False)
    if model is None:  # combine takes None as a leaf without a value
        assert combined() == wrap(1)
    else:
        with pytest.raises(ValueError, match=re.escape(expected.format("tree 1"))):
            combined()


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


def test_aux_data_that_fails_to_compare(registry: Any) -> None:
    _, structure = core.tree_flatten(registry, Box([1], aux=Hostile()), True, None)
    with pytest.raises(ZeroDivisionError):
        structure._subtrees(Box([1], aux=Hostile(on_eq=fail)))
