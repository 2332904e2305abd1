"""Combining trees and dicts of paths."""

import re
from typing import Any

import pytest
from core_support import Array, Value, core, same
from hooks_support import make_jit
from trees_support import partition_dict

# ---- combine ----


def test_combine_strictly(registry: Any) -> None:
    for trees, expected in (
        (({"a": None}, {"a": 1}, {"a": None}, {"a": 1}), "`['a']` is in tree 2 and in tree 4"),
        ((1, 2), "root is in tree 1 and in tree 2"),
    ):
        assert core.combine(registry, trees, None, False) is not None
        with pytest.raises(ValueError, match=re.escape(expected)):
            core.combine(registry, trees, None, True)


def test_bad_arguments_are_named(registry: Any) -> None:
    for trees in ((), [[1, 2]]):
        with pytest.raises(TypeError, match="there must be at least one tree"):
            core.combine(registry, trees, None, False)


# ---- dicts of paths ----


FULL = {"a": 1, "b.0": 2, "b.1": 3}
MANY = {f"k{i:02}": i for i in range(25)}


def first(count: int) -> str:
    return f"[{', '.join(repr(k) for k in list(MANY)[:count])}]"


def test_groups_that_do_not_fit(registry: Any) -> None:
    few = {"a": 1, "b": [2, 3]}
    for tree, groups, expected in (
        (few, [{"a": 1}], "structure; missing: ['b.0', 'b.1']"),
        (few, [], "structure; missing: ['a', 'b.0', 'b.1']"),
        (few, [FULL | {"c": 1}], "structure; unknown: ['c']"),
        (few, [FULL, {"c": 1, 3: 2}], "structure; unknown: ['c', 3]"),
        (few, [FULL, {"a": 1}], "structure; in more than one group: ['a']"),
        (few, [FULL] * 3, "structure; in more than one group: ['a', 'b.0', 'b.1']"),
        (
            *(few, [{"a": 1, "b.0": 2}, {"b.0": 5, "b": 1}]),
            "missing: ['b.1']; unknown: ['b']; in more than one group: ['b.0']",
        ),
        (MANY, [dict(list(MANY.items())[10:])], f"missing: {first(10)}"),
        (MANY, [dict(list(MANY.items())[11:])], f"missing: {first(10)} and 1 more"),
        (MANY, [{}], f"missing: {first(10)} and 15 more"),
        (MANY, [MANY, MANY], f"in more than one group: {first(10)} and 15 more"),
        (MANY, [MANY | {f"u{i}": i for i in range(11)}], "'u9'] and 1 more"),
    ):
        structure, _ = partition_dict(registry, tree, True, (), None)
        with pytest.raises(ValueError, match=re.escape(expected) + "$"):
            structure.combine(*groups)


def test_groups_that_are_no_dicts(registry: Any) -> None:
    structure, full = partition_dict(registry, [1], True, (), None)
    for groups, expected in (
        ([3], "group 1 is a `int`: it has to be a dict"),
        ([full, [("0", 1)]], "group 2 is a `list`"),
    ):
        with pytest.raises(TypeError, match=expected):
            structure.combine(*groups)
    with pytest.raises(TypeError):
        structure.combine(full, key=full)


@pytest.mark.parametrize(
    "tree, path",
    [
        ({"a.b": 1, "a": {"b": 2}}, "a.b"),
        ({"a": [1], "a.0": 2}, "a.0"),
        ({"": {"": 1}, ".": 2}, "."),
    ],
)
def test_two_leaves_with_one_path(registry: Any, tree: Any, path: str) -> None:
    """`partition_dict` refuses these trees. Only open leaves need a path of their own."""
    assert core.tree_flatten(registry, tree, True, None)[1].paths.count(path) == 2
    structure, group = partition_dict(registry, tree, ("leaf", lambda n: n == 1), (), None)
    assert group == {path: 1} and same(structure.combine(group), tree)


def test_structures_of_jitted_calls(registry: Any) -> None:
    """They have paths, and build trees; their statics are no leaves."""
    x = Array()
    _, structure = core.flatten(registry, {"a": [x, 1], "b": x})
    assert structure.paths == ("a.0", "b")
    assert structure.combine({"b": 1, "a.0": 2}) == {"a": [2, 1], "b": 1}
    f = make_jit(lambda a, b: a)
    f([x, 1], b=x)
    structure = f._find_or_compile([x, 1], b=x)[0].structure
    assert structure.paths == ("a.0", "b")
    with pytest.raises(ValueError):  # it describes the arguments of a call, not one tree
        structure.combine({"a.0": x, "b": x})


def test_statics_tell_which_leaves_of_a_skeleton_are_open(registry: Any) -> None:
    """The values in the places of the skeleton do not matter."""
    hole = Value("hole")
    structure = core.from_skeleton(registry, hole, [1, (2, 3)], (hole, "a", hole))
    assert structure.unflatten([5, 6]) == [5, ("a", 6)]
    assert core.from_skeleton(registry, hole, [1, 2], (hole, hole)).unflatten([5, 6]) == [5, 6]
    assert core.from_skeleton(registry, hole, (), ()).unflatten([]) == ()
    many = core.from_skeleton(registry, hole, [0] * 200, (hole,) * 200)
    assert many.unflatten(range(200)) == [*range(200)]
    with pytest.raises(ValueError, match="an item for each leaf"):
        core.from_skeleton(registry, [], [[], 1], ([], []))
