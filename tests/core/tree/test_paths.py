"""The paths of leaves and nodes are the same for all who ask for them."""

from typing import Any

import pytest
from core_support import core, messages
from trees_support import trees


def text(path: list[Any]) -> str:
    return ".".join(str(key[0] if type(key) is tuple else key) for key in path)


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


@pytest.mark.parametrize("name", trees())
def test_the_paths_of_nodes(registry: Any, name: str) -> None:
    tree = trees()[name]
    for structure in (
        core.flatten(registry, tree)[1],
        core.tree_flatten(registry, tree, True, None)[1],
        core.tree_flatten(registry, tree, ("arrays",), None)[1],
    ):
        nodes = structure._nodes()
        paths = [structure._key_path(i) for i in range(len(nodes))]
        for (_, _, _, _, key), path in zip(nodes[1:], paths[1:], strict=True):
            assert key is None or path[-1] == key
        with pytest.raises(IndexError):
            structure._key_path(len(nodes))
        with pytest.raises(IndexError):
            structure._key_path(-1)
    of_call = core.flatten(registry, tree)[1]
    arrays = [i for i, (kind, *_) in enumerate(of_call._nodes()) if kind == "array"]
    assert of_call._key_paths() == [of_call._key_path(i) for i in arrays]
