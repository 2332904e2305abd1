"""The tree functions, compared with ``jax.tree_util``, for trees of each kind and pairs of them."""

import copy
import functools
import pickle
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.tree_util as jtu
import pytest

import filterjit as fj
from support.comparison import comparable, outcome, same
from support.trees import IS_LEAF, KEY, ONE, TREES

UNPICKLABLE = (
    *("jnp function", "jit function", "module", "device", "MLP", "Sequential", "bound method"),
    "transformation",
)


def _step(key: Any) -> str:
    """As ``keystr(simple=True)``, which older versions of JAX lack."""
    names = (getattr(key, name, None) for name in ("key", "idx", "name"))
    return str(next((x for x in names if x is not None), key))


def jax_paths(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[str]:
    """Returns the paths of JAX, which has a step `value` from a Variable of Flax to its value."""
    found = [path for path, _ in jtu.tree_leaves_with_path(tree, is_leaf)]
    step = jtu.GetAttrKey("value")
    shorter = [tuple(key for key in path if key != step) for path in found]
    return [".".join(map(_step, path)) for path in shorter]


@pytest.mark.parametrize("name", TREES)
def test_flatten_and_unflatten(name: str) -> None:
    tree = TREES[name]()
    for is_leaf in (*IS_LEAF, lambda x: type(x) is tuple):
        theirs, treedef = jtu.tree_flatten(tree, is_leaf)
        leaves, structure = fj.flatten(tree, True, is_leaf=is_leaf)
        assert type(leaves) is list and same(leaves, theirs)
        assert structure.num_leaves == treedef.num_leaves
        assert list(structure.paths) == fj.tree_paths(tree, is_leaf) == jax_paths(tree, is_leaf)
        rebuilt = fj.unflatten(structure, leaves)
        assert type(rebuilt) is type(tree) and same(rebuilt, treedef.unflatten(leaves))
        fresh = [object() for _ in leaves]
        expected = outcome(treedef.unflatten, fresh)
        assert same(outcome(fj.unflatten, structure, iter(fresh)), expected)
    # By default the leaves are the arrays.
    arrays, structure = fj.flatten(tree)
    taken = [
        x for x in zip(jax_paths(tree), jtu.tree_leaves(tree), strict=True) if eqx.is_array(x[1])
    ]
    assert list(structure.paths) == [path for path, _ in taken]
    assert same(arrays, [x for _, x in taken])
    assert same(fj.unflatten(structure, arrays), jtu.tree_map(lambda x: x, tree))


@pytest.mark.parametrize("name", TREES)
def test_any_two_trees(name: str) -> None:
    """Compares which trees are prefixes of each other, the subtrees at their leaves, and equality."""
    tree = TREES[name]()
    treedef, structure = jtu.tree_structure(tree), fj.flatten(tree, True)[1]
    for other, (rest, their_structure, our_structure) in all_trees().items():
        expected = outcome(treedef.flatten_up_to, rest)
        assert same(outcome(structure._subtrees, rest), expected), other
        equal = treedef == their_structure
        assert (structure == our_structure) == equal, other
        assert not equal or hash_of(structure) == hash_of(our_structure), other


@functools.cache
def all_trees() -> dict[str, tuple[Any, Any, fj.types.Structure]]:
    trees = {name: make() for name, make in TREES.items()}
    return {n: (t, jtu.tree_structure(t), fj.flatten(t, True)[1]) for n, t in trees.items()}


def hash_of(structure: fj.types.Structure) -> Any:
    try:
        return hash(structure)
    except TypeError:
        return "unhashable"


@pytest.mark.parametrize("name", TREES)
def test_pickle(name: str) -> None:
    tree = TREES[name]()
    for filter in (True, fj.is_array):
        leaves, structure = fj.flatten(tree, filter)
        if name in UNPICKLABLE and filter is not True:
            with pytest.raises((pickle.PicklingError, TypeError, AttributeError)):
                pickle.dumps(structure)
            continue
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            again = pickle.loads(pickle.dumps(structure, protocol))
            assert again == structure and again is not structure
            assert hash_of(again) == hash_of(structure)
            assert again.paths == structure.paths and repr(again) == repr(structure)
            assert comparable(again.unflatten(leaves)) == comparable(structure.unflatten(leaves))
        assert copy.copy(structure) == structure == copy.deepcopy(structure)


def test_repr_is_short() -> None:
    large: list[Any] = [
        [eqx.nn.MLP(2, 2, 2, 3, key=KEY)] * 100,
        list(range(100_000)),
        {f"key {i}": [ONE] * 50 for i in range(1000)},
        "x" * 100_000,
        [["y" * 1000] * 20] * 20,
    ]
    for tree in large:
        for filter in (True, fj.is_array):
            assert len(repr(fj.flatten(tree, filter)[1])) < 10_000
    assert repr(fj.flatten({"a": (ONE, 1), "b": [None]})[1]) == (
        "Structure({'a': (*, 1), 'b': [None]})"
    )
