"""User code in the middle of the tree functions: it changes the tree, or calls them again."""

import gc
from collections.abc import Callable
from typing import Any

import pytest
from core_support import (
    Array,
    Box,
    Value,
    classify,
    core,
    make_registry,
    same,
    testing,
    tree_leaves,
)
from hostile_support import ARRAYS, CHANGES, CONTAINERS, TRAPS, Once, early, filled, late
from outcome_support import attempt, nothing


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("name", early(None, None, nothing))
def test_changed_while_it_is_walked(
    registry: Any, name: str, kind: str, change: Callable[[Any], Any]
) -> None:
    for at in (1, 2, 5, 12):
        for change_root in (False, True):
            tree = [filled(kind), Array()]
            container = tree[0]
            hook = Once(lambda c=container, t=tree, r=change_root: (r and t.clear(), change(c)), at)  # type: ignore[misc]
            del container
            found = attempt(early(registry, tree, hook)[name])
            assert hook.calls >= min(at, 2)
            if isinstance(found, Exception):
                assert isinstance(found, (RuntimeError, ValueError)), found
            # What remains is an ordinary tree.
            rest = [tree, Array()]
            leaves, structure = early(registry, rest, nothing)["flatten"]()
            assert same(structure.unflatten(leaves), rest)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("name", late(None, None, nothing))
def test_changed_after_it_was_walked(
    registry: Any, name: str, kind: str, change: Callable[[Any], Any]
) -> None:
    """The function holds all leaves by then, so the result does not change."""
    for at in (1, 2, 7):
        tree = [filled(kind), Array()]
        container = tree[0]
        expected = late(registry, tree, nothing)[name]()
        hook = Once(lambda c=container, t=tree: (change(c), t.clear()), at)  # type: ignore[misc]
        del container
        found = late(registry, tree, hook)[name]()
        assert hook.calls >= at and tree == []
        assert same(found, expected)


# The traps that comparing one tree with the structure of another meets.
COMPARED = ["flatten_one_level", "aux", "static_field", "dataclass_field", "getattr", "factory"]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("trap", COMPARED)
def test_changed_while_it_is_compared_with_another(
    registry: Any, trap: str, kind: str, change: Callable[[Any], Any]
) -> None:
    calls: list[Callable[[Any, Any, Any], Any]] = [
        lambda model, structure, tree: structure._subtrees(tree),
        lambda model, structure, tree: core.combine(registry, (model, tree), None, False),
        lambda model, structure, tree: core.combine(
            registry, (model, model, tree, tree), None, False
        ),
    ]
    for call in calls:
        model = [filled(kind, TRAPS[trap](nothing)), Array()]
        structure = core.tree_flatten(registry, model, True, None)[1]
        tree: list[Any] = []
        hook = Once(lambda t=tree: change(t[0]))  # type: ignore[misc]
        tree += [filled(kind, TRAPS[trap](hook)), Array()]
        found = attempt(call, model, structure, tree)
        assert hook.calls > 0
        if isinstance(found, Exception):
            assert isinstance(found, (RuntimeError, ValueError, TypeError)), found
        hook.at = -1
        assert structure._subtrees(model) is not None


def test_a_root_dropped_while_it_is_compared_with_another(registry: Any) -> None:
    for trap in COMPARED:
        make = TRAPS[trap]
        model = [[make(nothing), Array()], [Array()]]
        structure = core.tree_flatten(registry, model, True, None)[1]
        tree: list[Any] = []
        tree += [[make(Once(tree.clear)), Array()], [Array()]]
        found = attempt(structure._subtrees, tree)
        assert isinstance(found, RuntimeError) and tree == [], trap


# ---- calls within calls ----


@pytest.mark.parametrize("outer", late(None, None, nothing))
def test_functions_called_within_functions(registry: Any, outer: str) -> None:
    for kind in CONTAINERS:
        tree = [filled(kind), Array()]
        expected = {name: call() for name, call in late(registry, tree, nothing).items()}
        inner: dict[str, Any] = {}

        def again(tree: Any = tree, inner: dict[str, Any] = inner) -> None:
            inner.update({name: call() for name, call in late(registry, tree, nothing).items()})

        assert same(late(registry, tree, Once(again))[outer](), expected[outer])
        assert inner.keys() == expected.keys()
        assert all(same(inner[name], expected[name]) for name in inner)


def test_is_leaf_that_flattens_trees(registry: Any) -> None:
    """`is_leaf` counts the leaves below each node."""
    sizes: list[int] = []

    def is_leaf(x: Any) -> bool:
        sizes.append(len(tree_leaves(registry, x, None)))
        return sizes[-1] == 2

    tree = [[1, 2], [3, [4, 5, 6]], {"a": (7, 8)}]
    assert tree_leaves(registry, tree, is_leaf) == [[1, 2], 3, 4, 5, 6, {"a": (7, 8)}]
    assert sizes == [8, 2, 4, 1, 3, 1, 1, 1, 2]


def test_classify_that_flattens_trees() -> None:
    def ask(cls: type, x: Any) -> tuple[Any, ...]:
        if cls is float and testing.num_types(registry) < 3:
            assert tree_leaves(registry, [1, [2]], None) == [1, 2]
            core.partition(registry, [1, [(b"", {})]], (ARRAYS,), None, None)
        return classify(cls, x)

    registry = make_registry(classify=ask)
    tree = [1, 2.5, ["a", Array()], {"k": Value(1)}]
    leaves, structure = core.tree_flatten(registry, tree, ARRAYS, None)
    assert leaves == [tree[2][1]] and same(structure.unflatten(leaves), tree)  # type: ignore[index]


def test_paths_that_ask_for_paths(registry: Any) -> None:
    found: list[Any] = []

    class Asks:
        def __hash__(self) -> int:
            return 1

        def __str__(self) -> str:
            if len(found) < 2:
                found.append(None)
                found.append(structure.paths)
            return "asks"

    structure = core.tree_flatten(registry, {Asks(): [1, {"a": 2}]}, True, None)[1]
    assert structure.paths == ("asks.0", "asks.1.a")
    assert found[-1] is structure.paths


def test_building_builds(registry: Any) -> None:
    class Builds(Box):
        def __init__(self, children: Any, aux: Any = None) -> None:
            super().__init__(children, aux)
            if made and children[0] == "outer":
                inner.append(made[0].unflatten(["inner", 1, 2]))
                gc.collect()

    made: list[Any] = []
    inner: list[Any] = []
    leaves, structure = core.tree_flatten(registry, [Builds([1, 2]), {"a": 3}], True, None)
    made.append(structure)
    tree = structure.unflatten(["outer", *leaves[1:]])
    assert tree[0].children == ["outer", 2] and tree[1] == {"a": 3}
    assert inner[0][0].children == ["inner", 1] and inner[0][1] == {"a": 2}
    assert structure.unflatten(iter([*structure.unflatten(leaves)[0].children, 5]))[1] == {"a": 5}
