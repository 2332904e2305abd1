"""Trees that all differ, in lists of trees that are alike; a copy of each, in another order, matches."""

import collections
import copy
import math
from typing import Any

import pytest
from core_support import Array, Described, Frozen, Linear, core, identical, same, testing
from outcome_support import raised
from statics_support import Factory, MyStr, check_all_differ, equal_copy

X, Y = Array("x"), Array("y")
FIELDS = {"weight": X, "bias": Y, "size": 1, "activation": 2}
DICTS: list[dict[Any, Any]] = [
    *({}, {"a": X}, {"a": X, "b": Y}, {"a": X, "c": Y}, {"a": X, "b": Y, "c": 1}),
    *({"a": X, "b": 1}, {MyStr("a"): X, "b": Y}, {f"key {i}": Array(i) for i in range(6)}),
    *({1: X, 0: Y}, {True: X, False: Y}, {1: X, False: Y}, {True: X, 0: Y}, {1.0: X, 0: Y}),
    *({1: X, 2: Y}, {"1": X, "0": Y}, {1: X, 0: Y, 2: 1}, {math.nan: X}),
    *({2**70: X, -(2**70): Y}, {2**70: X, -(2**70) - 1: Y}),
]
DIFFERENT: dict[str, list[Any]] = {
    "dicts": DICTS,
    "dict fields": [Frozen(items) for items in DICTS],
    "ordered": [
        *(collections.OrderedDict(a=1, b=2), collections.OrderedDict(b=2, a=1), {"a": 1, "b": 2}),
        collections.OrderedDict(a=1, b=True),
    ],
    "factories": [
        collections.defaultdict(factory, a=X)
        for factory in (int, list, None, Factory(1), Factory(2))
    ],
    "constant tuples": [
        *((1, "two", (3.0, None, last)) for last in ("last", "lost", None, ())),
        *((1, "two"), [1, "two", (3.0, None)], (True, "two", (3.0, None, "last"))),
        (1, "two", (3, None, "last")),
    ],
    "fields": [
        *(Linear(), Linear(weight=X), Linear(bias=X), Linear(size=3), Linear(weight=X, bias=Y)),
        *(Linear(weight=None), Linear(**FIELDS), Linear(**FIELDS | {"size": 2, "activation": 1})),
        Linear(**FIELDS | {"size": 4}),
    ],
    "wrappers": [
        Linear(**FIELDS, **attributes)
        for attributes in (
            *({}, {"__name__": "f"}, {"__name__": "f", "__doc__": None}),
            *({"__name__": "g", "__doc__": None}, {"__doc__": ["a", "list"]}),
            {"__name__": "f", "__doc__": None, "__module__": "m"},
        )
    ],
    "described": [
        Described(("x",), x=X, y="y", tag=1),
        Described(("x",), x=X, y="y", tag=2),
        Described(("x",), x=X, y="y"),
        Described(("x",), x=X, y="y", tag=1, more=1),
        Described(("x", "y"), x=X, y="y", tag=1),
        Described((), x=1, y="y", tag=1),
        Described(("x",), x=X, z="y", tag=1),
        Described(("x",), x=1, y="y", tag=1),
    ],
}


def in_another_order(tree: Any) -> Any:
    """An equal tree, in which other objects are equal, and dicts have another order."""
    if type(tree) is dict:
        return {equal_copy(key): in_another_order(x) for key, x in reversed(tree.items())}
    if isinstance(tree, (Linear, Described, Frozen)):
        new = copy.copy(tree)
        vars(new).clear()
        vars(new).update(in_another_order(vars(tree)))
        return new
    if isinstance(tree, collections.defaultdict):
        made = tree.default_factory
        same_one = Factory(made.value) if isinstance(made, Factory) else made
        return collections.defaultdict(same_one, in_another_order(dict(tree)))
    return equal_copy(tree)


def test_trees_that_differ(registry: Any) -> None:
    for trees in DIFFERENT.values():
        again = [in_another_order(tree) for tree in trees]
        check_all_differ(registry, trees, again)
        for tree, other in zip(trees, again, strict=True):
            arrays, structure = core.flatten(registry, tree)
            assert identical(testing.match(structure, other), arrays)
            if not isinstance(tree, Linear):  # built without a field, it is a wrapper
                assert same(structure.unflatten(arrays), tree)


def test_values_under_each_others_names(registry: Any) -> None:
    for make in (dict, lambda **items: Frozen(items), lambda **items: Linear(**items)):
        _, structure = core.flatten(registry, make(weight=X, bias=Y))
        swapped = make(weight=Y, bias=X)
        found = core.flatten(registry, swapped)[0]
        assert identical(testing.match(structure, swapped), found)
        assert {*found} == {X, Y} and found != core.flatten(registry, make(weight=X, bias=Y))[0]


def test_a_dict_that_held_a_subclass_of_str(registry: Any) -> None:
    """The subclass is equal, with an equal hash, so a dict finds one for the other."""
    _, structure = core.flatten(registry, {"a": X})
    was: dict[Any, Any] = {MyStr("b"): 1, "a": X}
    del was["b"]
    assert testing.match(structure, was) == (X,)


@pytest.mark.parametrize(
    "keys", [(1, "a"), (None, 1), (object(), object()), ((1, "a"), (1, 2)), (1j, 2j)]
)
def test_keys_that_cannot_be_sorted(registry: Any, keys: tuple[Any, ...]) -> None:
    bad = dict.fromkeys(keys, 0)
    tree = [0, {"k": Linear(weight=Array(), bias=bad)}]
    with pytest.raises(TypeError, match="not supported") as info:
        core.flatten(registry, tree)
    operation, path, value = info.value.__filterjit_error_context__  # type: ignore[attr-defined]
    assert (operation, path) == ("sort", [(1,), ("k",), "bias"]) and value is bad
    error = raised(TypeError, core.tree_flatten, registry, tree, True, None)
    assert error.__notes__ == ["(while sorting the keys of the dict `[1]['k'].bias`)"]
    # An OrderedDict keeps its own order, which matters.
    own = collections.OrderedDict(bad)
    structure = core.flatten(registry, own)[1]
    assert testing.match(structure, own) == ()
    assert list(structure.unflatten(())) == list(keys)
    own.move_to_end(keys[0])
    assert testing.match(structure, own) is None
    # A match does not sort.
    _, structure = core.flatten(registry, {1: 0, 2: 0})
    assert testing.match(structure, bad) is None
