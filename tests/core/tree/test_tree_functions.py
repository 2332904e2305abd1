"""The tree functions on each kind of node, compared with a reference in Python."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trees_support as ts
from core_support import Point, Value, core, identical, messages, nodes_of, same
from trees_support import children, partition_dict, parts_of, random_tree, tree_leaves, trees


def never(x: Any) -> bool:
    return False


def text(path: Any) -> str:
    return ".".join(str(key[0] if type(key) is tuple else key) for key in path)


def places(
    x: Any, is_leaf: Callable[[Any], Any] = never, path: tuple[Any, ...] = ()
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yields (keys, leaf) of each leaf."""
    below = None if is_leaf(x) else children(x)
    if below is None:
        yield path, x
    else:
        for key, child in below:
            yield from places(child, is_leaf, path if key is None else (*path, key))


# ---- each kind ----


@pytest.mark.parametrize("name", trees())
def test_each_kind(registry: Any, name: str) -> None:
    tree, hole = trees()[name], Value("hole")
    expected = list(places(tree))
    paths = [text(path) for path, _ in expected]
    everything, structure = core.tree_flatten(registry, tree, True, None)
    assert identical(everything, [leaf for _, leaf in expected])
    assert structure.paths == tuple(paths) and structure.paths is structure.paths
    assert structure.num_leaves == len(everything)
    assert same(structure.unflatten(iter(everything)), tree)
    assert identical(structure._subtrees(tree), everything)
    for expression in (True, ("arrays",), False):
        leaves, structure = core.tree_flatten(registry, tree, expression, None)
        skeleton, found = parts_of(structure, hole)
        assert all(leaf is hole for leaf in tree_leaves(registry, skeleton, None))
        given = iter(leaves)
        assert identical([next(given) if s is hole else s for s in found], everything)
        again = core.from_skeleton(registry, hole, skeleton, found)
        assert again == structure and hash(again) == hash(structure)
        assert repr(again) == repr(structure) and again.paths == structure.paths
        assert same(again.unflatten(leaves), tree)


def test_random_trees(registry: Any) -> None:
    source = random.Random(0)
    for _ in range(300):
        tree = random_tree(source)
        expected = list(places(tree))
        assert ts.tree_paths(registry, tree, None) == [text(p) for p, _ in expected]
        group = {id(leaf): source.randrange(4) for _, leaf in expected}
        filters = tuple(("leaf", lambda x, i=i, g=group: g[id(x)] == i) for i in range(3))
        parts = core.partition(registry, tree, filters, None, None)
        for i, part in enumerate(parts):
            found = [leaf for _, leaf in places(part, lambda x: x is None)]
            wanted = [
                leaf if leaf is not None and group[id(leaf)] == i else None
                for _, leaf in places(tree, lambda x: x is None)
            ]
            assert identical(found, wanted)
        source.shuffle(shuffled := list(parts))
        assert same(core.combine(registry, tuple(shuffled), None, True), tree)
        leaves, structure = core.tree_flatten(registry, tree, ("or", *filters[:2]), None)
        assert identical(leaves, [x for _, x in expected if group[id(x)] < 2])
        assert same(structure.unflatten(leaves), tree)
        is_leaf = lambda x: isinstance(x, (Point, list)) and len(x) == 2
        expected = list(places(tree, is_leaf))
        leaves, structure = core.tree_flatten(registry, tree, True, is_leaf)
        assert identical(leaves, [leaf for _, leaf in expected])
        assert structure.paths == tuple(text(p) for p, _ in expected)
        assert same(structure.unflatten(leaves), tree)
        assert identical(structure._subtrees(tree), leaves)


def test_a_subtree_taken_as_a_leaf_is_a_leaf_like_any_other(registry: Any) -> None:
    is_leaf = lambda x: isinstance(x, list) and len(x) == 2
    _, structure = core.tree_flatten(registry, ([1, 2], 3, [4, 5]), True, is_leaf)
    assert structure == core.tree_flatten(registry, (1, 2, 3), True, None)[1]
    assert structure.paths == ("0", "1", "2") and structure.num_leaves == 3


def test_is_leaf_of_partition_and_combine(registry: Any) -> None:
    tree, is_list = {"a": [1, 2], "b": (3, [4])}, lambda x: [0] if type(x) is list else None
    longest = ("leaf", lambda x: x == [1, 2])
    parts = core.partition(registry, tree, (longest,), is_list, None)
    assert parts == ({"a": [1, 2], "b": (None, None)}, {"a": None, "b": (3, [4])})
    assert core.combine(registry, parts, is_list, True) == tree
    structure, one, rest = partition_dict(registry, tree, True, (longest,), is_list)
    assert one == {"a": [1, 2]} and rest == {"b.0": 3, "b.1": [4]}
    assert structure.combine(one, rest) == tree


def paths_of_errors(registry: Any, tree: Any) -> list[str]:
    """Returns the path of each leaf, as the note of a filter's error tells it."""
    count = len(core.tree_flatten(registry, tree, True, None)[0])
    found = []
    for wanted in range(count):
        left = iter(range(count))

        def is_wanted(_: Any, wanted: int = wanted, left: Any = left) -> bool:
            if next(left) == wanted:
                raise ZeroDivisionError
            return False

        with pytest.raises(ZeroDivisionError) as failed:
            core.partition(registry, tree, (("leaf", is_wanted),), None, None)
        found += failed.value.__notes__
    return found


def paths_of_conflicts(registry: Any, tree: Any) -> list[str]:
    """Returns the path of each leaf, as the error of `combine` tells it."""
    leaves, structure = core.tree_flatten(registry, tree, True, None)
    found = []
    for i in range(len(leaves)):
        given = [1 if i == j else None for j in range(len(leaves))]
        part = structure.unflatten(given)
        with pytest.raises(ValueError, match="is in tree 1 and in tree 2") as failed:
            core.combine(registry, (part, part), None, True)
        found.append(str(failed.value))
    return found


def taken_by_pattern(registry: Any, tree: Any, path: list[Any]) -> tuple[str, ...]:
    """Returns the paths of the leaves that the pattern with these keys takes."""
    components = tuple([str(key[0] if type(key) is tuple else key) for key in path])
    taken: tuple[str, ...] = core.tree_flatten(registry, tree, ("path", components), None)[1].paths
    return taken


@pytest.mark.parametrize("name", trees())
def test_the_paths_of_leaves(registry: Any, name: str) -> None:
    tree = trees()[name]
    structure = core.tree_flatten(registry, tree, True, None)[1]
    paths = structure._key_paths()
    shown = [messages.path_text(path) for path in paths]
    assert structure.paths == tuple(map(text, paths))
    assert [
        note.removeprefix("(while a filter was asked about ")
        for note in paths_of_errors(registry, tree)
    ] == [f"{'' if path else 'at '}{x})" for path, x in zip(paths, shown, strict=True)]
    assert [
        x.removesuffix(" is in tree 1 and in tree 2") for x in paths_of_conflicts(registry, tree)
    ] == shown
    assert all(taken_by_pattern(registry, tree, path) == (text(path),) for path in paths)
    arrays = core.tree_flatten(registry, tree, ("arrays",), None)[1]
    assert arrays._key_paths() == core.flatten(registry, tree)[1]._key_paths()
    assert all(path in paths for path in arrays._key_paths())
    assert arrays.paths == tuple(map(text, arrays._key_paths()))


@pytest.mark.parametrize("name", trees())
def test_the_paths_of_nodes(registry: Any, name: str) -> None:
    tree = trees()[name]
    for structure in (
        core.flatten(registry, tree)[1],
        core.tree_flatten(registry, tree, True, None)[1],
        core.tree_flatten(registry, tree, ("arrays",), None)[1],
    ):
        nodes = nodes_of(structure)
        for i, (*_, below) in enumerate(nodes):
            for child, key in below:
                expected = [*structure._key_path(i), *([] if key is None else [key])]
                assert structure._key_path(child) == expected
        with pytest.raises(IndexError):
            structure._key_path(len(nodes))
        with pytest.raises(IndexError):
            structure._key_path(-1)
    of_call = core.flatten(registry, tree)[1]
    arrays = [i for i, (kind, *_) in enumerate(nodes_of(of_call)) if kind == "array"]
    assert of_call._arrays() == arrays
    assert of_call._key_paths() == [of_call._key_path(i) for i in arrays]


def test_types_that_a_structure_holds(registry: Any) -> None:
    structure = core.tree_flatten(registry, [{"a": Point(1, 2)}, Value(1)], True, None)[1]
    assert [structure._holds(cls) for cls in (dict, Point, tuple, object)] == [True] * 4
    assert not any(structure._holds(cls) for cls in (int, list, Value))
    with pytest.raises(TypeError, match="expected a type"):
        structure._holds(1)
