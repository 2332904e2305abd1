"""Properties of all trees, checked on random trees."""

import itertools
import math
import os
import random
from typing import Any

import pytest
from core_support import (
    Array,
    Maybe,
    OtherArray,
    Value,
    core,
    identical,
    make_jit,
    make_registry,
    same,
    testing,
)
from trees_support import random_tree

STATICS: list[Any] = [0, 1, True, False, 0.0, -0.0, 1.0, math.nan, 1j, "a", "", b"a", len, int, ...]


def leaf(source: random.Random) -> Any:
    kinds = (Array, OtherArray, lambda: Maybe(True), lambda: Maybe(False))
    if source.random() < 0.4:
        return source.choice(kinds)()
    return source.choice((None, Value(source.randrange(3)), *STATICS))


def flatten(registry: Any, tree: Any) -> tuple[tuple[Any, ...], Any]:
    arrays, structure = core.flatten(registry, tree)
    hash(structure)
    return arrays, structure


@pytest.mark.parametrize("seed", range(int(os.environ.get("FILTERJIT_EXAMPLES", 100))))
def test_random_trees(seed: int) -> None:
    source, registry = random.Random(seed), make_registry()
    tree = random_tree(source, 3, leaf)
    arrays, structure = flatten(registry, tree)
    fresh = tuple(Array(i) for i in range(len(arrays)))
    built = structure.unflatten(fresh)
    again, other = flatten(registry, built)
    assert identical(again, fresh) and other == structure
    trees = [tree, built, random_tree(source, 1, leaf), random_tree(source, 3, leaf)]
    leaves, outer = core.tree_flatten(registry, tree, True, None)
    for place in range(len(leaves)):  # trees with another leaf in one place
        trees.append(outer.unflatten([*leaves[:place], leaf(source), *leaves[place + 1 :]]))
    structures = [flatten(registry, each)[1] for each in trees]
    for first, (two, second) in itertools.product(structures, zip(trees, structures, strict=True)):
        equal = first == second
        assert equal == (second == first) and equal != (first != second)
        assert not equal or hash(first) == hash(second)
        found = testing.match(first, two)
        assert (found is not None) == equal
        assert found is None or identical(found, core.flatten(registry, two)[0])
    # In any order, a call finds the right variant and returns the same arrays.
    f = make_jit(lambda x: x)
    for each in [*trees, *trees[::-1], tree]:
        assert same(f(each), each)
    assert f._hooks.count("compile") == len(set(structures))
