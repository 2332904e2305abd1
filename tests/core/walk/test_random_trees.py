"""Properties of all trees, checked on random trees."""

import collections
import math
import os
from typing import Any

import pytest
from core_support import (
    Array,
    Box,
    Linear,
    LoudPoint,
    Maybe,
    OtherArray,
    Point,
    Record,
    Value,
    classify,
    core,
    identical,
    make_jit,
    make_registry,
    same,
    testing,
)

hypothesis = pytest.importorskip("hypothesis")
st = hypothesis.strategies
quick = hypothesis.settings(
    deadline=None,
    max_examples=int(os.environ.get("FILTERJIT_EXAMPLES", 100)),
    suppress_health_check=[
        hypothesis.HealthCheck.too_slow,
        hypothesis.HealthCheck.data_too_large,
    ],
)

statics = st.sampled_from(
    [0, 1, True, False, 0.0, -0.0, 1.0, math.nan, 1j, "a", "", b"a", len, int, ...]
) | st.builds(Value, st.integers(0, 2))
array = st.builds(Array, st.just(0)) | st.builds(OtherArray) | st.builds(Maybe, st.just(True))
leaves = array | statics | st.none() | st.builds(Maybe, st.just(False))
fields = st.recursive(
    statics,
    lambda inner: (
        st.tuples(inner, inner)
        | st.frozensets(statics, max_size=3)
        | st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=4,
)
keys = st.one_of(
    st.lists(st.sampled_from(["a", "b", "c", "d"]), unique=True, max_size=3),
    st.lists(st.sampled_from([0, 1, 2.0, True, -1]), unique=True, max_size=3),
)


@st.composite
def dicts(draw: Any, inner: Any) -> Any:
    cls = draw(
        st.sampled_from([dict, collections.OrderedDict, lambda x: collections.defaultdict(int, x)])
    )
    return cls({k: draw(inner) for k in draw(keys)})


@st.composite
def modules(draw: Any, inner: Any) -> Linear:
    names = draw(st.permutations(["weight", "bias", "size", "activation", "__name__", "other"]))
    names = names[: draw(st.integers(0, 6))]
    found = {n: draw(inner if n in Linear.dynamic else fields) for n in names if n != "other"}
    if len(found) == 4:  # with as many attributes as fields, wrapper attributes are not looked for
        found.pop("__name__", None)
    return Linear(**found)


def nodes(inner: Any) -> Any:
    return st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        dicts(inner),
        modules(inner),
        st.builds(Point, inner, inner),
        st.builds(LoudPoint, inner, inner),
        st.builds(Record, inner, inner, fields),
        st.builds(Box, st.lists(inner, max_size=3), fields),
    )


trees = st.recursive(leaves, nodes, max_leaves=12)


def flatten(registry: Any, tree: Any) -> tuple[tuple[Any, ...], Any]:
    arrays, structure = core.flatten(registry, tree)
    hash(structure)
    return arrays, structure


@quick
@hypothesis.given(trees)
def test_a_rebuilt_tree_has_the_same_structure(tree: Any) -> None:
    registry = make_registry()
    arrays, structure = flatten(registry, tree)
    fresh = tuple(Array(i) for i in range(len(arrays)))
    built = structure.unflatten(fresh)
    again, other = flatten(registry, built)
    assert identical(again, fresh)
    assert other == structure and hash(other) == hash(structure)
    found = testing.match(structure, built)
    assert found is not None and identical(found, fresh)


@quick
@hypothesis.given(trees, trees)
def test_match_agrees_with_equality(one: Any, two: Any) -> None:
    check_pair(one, two)


def check_pair(one: Any, two: Any) -> None:
    registry = make_registry()
    _, first = flatten(registry, one)
    arrays, second = flatten(registry, two)
    equal = first == second
    assert equal == (second == first)
    assert equal != (first != second)
    assert not equal or hash(first) == hash(second)
    found = testing.match(first, two)
    assert (found is not None) == equal
    assert found is None or identical(found, arrays)


def nearly(tree: Any, place: int, leaf: Any) -> Any:
    """A copy of the tree with another leaf in one place.

    The core makes it with a second registry, which takes every leaf as an array.
    """
    registry = make_registry(
        classify=lambda cls, x: classify(cls, x) if _is_node(x) else ("array",)
    )
    found, structure = core.flatten(registry, tree)
    changed = list(found)
    if changed:
        changed[place % len(changed)] = leaf
    return structure.unflatten(changed)


def _is_node(x: Any) -> bool:
    return x is None or isinstance(x, (tuple, list, dict, Linear, Record, Box))


@quick
@hypothesis.given(trees, st.integers(0, 20), leaves)
def test_match_agrees_with_equality_on_similar_trees(tree: Any, place: int, leaf: Any) -> None:
    check_pair(tree, nearly(tree, place, leaf))
    check_pair(nearly(tree, place, leaf), tree)


@quick
@hypothesis.given(st.lists(trees, min_size=1, max_size=4))
def test_calls_return_what_the_function_does(arguments: list[Any]) -> None:
    """In any order, a call finds the right variant and returns the same arrays."""
    f = make_jit(lambda x: x)
    structures = []
    for tree in [*arguments, *arguments[::-1], arguments[0]]:
        assert same(f(tree), tree)
        structures.append(flatten(f._hooks.registry, tree)[1])
    assert f._hooks.count("compile") == len(set(structures))
