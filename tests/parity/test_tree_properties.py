"""Properties of random trees of all kinds of nodes, checked with JAX and Equinox."""

import collections
import os
import pickle
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest

import filterjit as fj
from support.comparison import identical, outcome, same
from support.flax_nodes import FlaxStruct
from support.modules import Module
from support.nodes import (
    Childless,
    Custom,
    FrozenRegistered,
    ListSubclass,
    Point,
    PointWithMethods,
    Registered,
    Static,
    WithKeys,
)
from support.trees import identity

hypothesis = pytest.importorskip("hypothesis")
st = hypothesis.strategies
quick = hypothesis.settings(
    deadline=None,
    max_examples=int(os.environ.get("FILTERJIT_EXAMPLES", 120)),
    suppress_health_check=[
        hypothesis.HealthCheck.too_slow,
        hypothesis.HealthCheck.data_too_large,
    ],
)

ARRAYS = [jnp.arange(3.0), jnp.arange(2), jnp.array(True), jax.random.key(0)]
arrays = (
    st.sampled_from(ARRAYS)
    | st.builds(lambda n: np.full(1, n, np.float32), st.integers(0, 3))
    | st.builds(np.int64, st.integers(0, 3))
)
values = st.sampled_from([0, 1, True, False, 0.0, -0.0, 1.0, "a", "", b"a", (1, 2), identity, ...])
leaves = arrays | values | st.none()
keys = st.one_of(
    st.lists(st.sampled_from(["a", "b", "c.d", "*", "0"]), unique=True, max_size=3),
    st.lists(st.sampled_from([0, 1, -1, 20]), unique=True, max_size=3),
    st.lists(st.sampled_from([(1, "a"), (0, "b")]), unique=True, max_size=2),
)


@st.composite
def dicts(draw: Any, inner: Any) -> Any:
    items = {key: draw(inner) for key in draw(keys)}
    kind = draw(st.sampled_from([dict, collections.OrderedDict, collections.defaultdict]))
    if kind is collections.defaultdict:
        return kind(draw(st.sampled_from([None, list, int])), items)
    return kind(items)


def nodes(inner: Any) -> Any:
    lists = st.lists(inner, max_size=4)
    return st.one_of(
        lists,
        lists.map(tuple),
        lists.map(ListSubclass),
        dicts(inner),
        st.builds(Point, inner, inner),
        st.builds(PointWithMethods, inner, inner),
        st.builds(Module, inner, values, inner),
        st.builds(Registered, inner, inner, values),
        st.builds(FrozenRegistered, inner, inner, st.sampled_from("ab")),
        st.builds(FlaxStruct, inner, inner, values),
        st.builds(lambda children, label: Custom(*children, label=label), lists, values),
        st.builds(WithKeys, inner, inner),
        st.builds(Static, values),
        st.builds(Childless, st.lists(st.integers(0, 2), max_size=2)),
    )


trees = st.recursive(leaves, nodes, max_leaves=12)

predicates = st.sampled_from(
    [
        eqx.is_array,
        eqx.is_inexact_array,
        eqx.is_array_like,
        callable,
        lambda x: isinstance(x, (str, bytes)),
        lambda x: type(x) is bool,
        True,
        False,
    ]
)
stops = st.sampled_from(
    [
        None,
        lambda x: x is None,
        lambda x: isinstance(x, (dict, Point)),
        lambda x: isinstance(x, (eqx.Module, list, Custom)),
        lambda x: type(x) is tuple and len(x) == 2,
    ]
)


@st.composite
def masks(draw: Any, tree: Any) -> Any:
    """Draws a tree of filters that is a prefix of `tree`."""
    stop = draw(st.sampled_from([lambda x: False, lambda x: isinstance(x, (list, dict, Module))]))
    return jtu.tree_map(lambda _: draw(predicates), tree, is_leaf=stop)


@st.composite
def cases(draw: Any) -> tuple[Any, list[Any]]:
    """Draws a tree and filters for it."""
    tree = draw(trees)
    single = (
        predicates
        | st.sampled_from([fj.is_array, jnp.floating, np.ndarray, ~fj.is_array | callable])
        | masks(tree)
    )
    return tree, draw(st.lists(single, max_size=4))


def jax_paths(tree: Any, is_leaf: Any = None) -> list[str]:
    found = jtu.tree_leaves_with_path(tree, is_leaf)
    return [jtu.keystr(path, simple=True, separator=".") for path, _ in found]


@quick
@hypothesis.given(cases())
def test_parts_combine_to_the_tree(case: Any) -> None:
    tree, filters = case
    parts = fj.partition(tree, *filters)
    assert len(parts) == len(filters) + 1
    for order in (parts, parts[::-1]):
        assert same(fj.combine(*order, strict=True), tree)
    sizes = [len(fj.tree_paths(part)) for part in parts]
    assert sum(sizes) == len(fj.tree_paths(tree))


@quick
@hypothesis.given(st.data(), trees, stops)
def test_one_filter_is_as_in_equinox(data: Any, tree: Any, stop: Any) -> None:
    filter = data.draw(predicates | masks(tree))
    # ValueError: a tree of filters is deeper than `is_leaf` allows.
    theirs = outcome(eqx.partition, tree, filter, is_leaf=stop)
    assert same(outcome(fj.partition, tree, filter, is_leaf=stop), theirs)
    if stop is None:
        assert same(fj.partition(tree, fj.Filter(filter)), theirs)
        assert same(fj.partition(tree, ~fj.Filter(filter)), theirs[::-1])


@quick
@hypothesis.given(trees, trees, stops)
def test_two_trees(one: Any, two: Any, stop: Any) -> None:
    """Combines unrelated trees, and the parts of one."""
    parts = fj.partition(one, eqx.is_array)
    structure, treedef = fj.flatten(one, True)[1], jtu.tree_structure(one)
    for left, right in ((one, two), (two, one), parts, parts[::-1], (one, parts[0])):
        theirs = outcome(eqx.combine, left, right, is_leaf=stop)
        assert same(outcome(fj.combine, left, right, is_leaf=stop), theirs)
        theirs = outcome(treedef.flatten_up_to, right)
        assert same(outcome(structure._subtrees, right), theirs)


@quick
@hypothesis.given(trees, stops)
def test_leaves_and_paths(tree: Any, stop: Any) -> None:
    theirs, treedef = jtu.tree_flatten(tree, stop)
    leaves, structure = fj.flatten(tree, True, is_leaf=stop)
    assert identical(leaves, theirs)
    assert fj.tree_paths(tree, stop) == list(structure.paths) == jax_paths(tree, stop)
    assert same(fj.unflatten(structure, leaves), treedef.unflatten(leaves))
    numbers = range(len(leaves))
    assert same(structure.unflatten(numbers), treedef.unflatten(numbers))


@quick
@hypothesis.given(cases(), st.randoms(use_true_random=False))
def test_dicts_of_paths(case: Any, random: Any) -> None:
    tree, filters = case
    paths = [p for p, x in zip(jax_paths(tree), jtu.tree_leaves(tree), strict=True) if is_array(x)]
    if len(set(paths)) < len(paths):
        with pytest.raises(ValueError, match="two leaves have the path"):
            fj.partition_dict(tree, *filters)
        return
    structure, *groups = fj.partition_dict(tree, *filters)
    assert structure.paths == tuple(paths)
    assert sorted(path for group in groups for path in group) == sorted(paths)
    parts = [eqx.filter(part, is_array) for part in fj.partition(tree, *filters)]
    assert all(
        identical(list(group.values()), jtu.tree_leaves(part))
        for group, part in zip(groups, parts, strict=True)
    )
    random.shuffle(groups)
    assert same(structure.combine(*groups), tree)
    again = pickle.loads(pickle.dumps(structure))
    assert again == structure and shape(again.combine(*groups)) == shape(tree)


def is_array(x: Any) -> bool:
    return eqx.is_array(x)


def shape(tree: Any) -> Any:
    """Returns what a structure must tell apart: the nodes, and the type and text of static values."""
    return str(jtu.tree_structure(tree)), [
        "array" if is_array(x) else (type(x), repr(x)) for x in jtu.tree_leaves(tree)
    ]


@quick
@hypothesis.given(st.data(), trees)
def test_equality_of_structures(data: Any, tree: Any) -> None:
    """Structures of two trees that differ in at most one leaf, or are unrelated."""
    found, treedef = jtu.tree_flatten(tree)
    changed = list(found)
    if changed:
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(leaves)
    for other in (treedef.unflatten(changed), jtu.tree_map(lambda x: x, tree), data.draw(trees)):
        one, two = fj.flatten(tree)[1], fj.flatten(other)[1]
        assert (one == two) == (two == one) == (shape(tree) == shape(other))
        assert (one != two) == (not one == two)  # noqa: SIM201
        assert one != two or hash_of(one) == hash_of(two)


def hash_of(structure: fj.types.Structure) -> Any:
    try:
        return hash(structure)
    except TypeError:  # the aux data of Childless cannot be hashed
        return None


# ---- path patterns, against a matcher that is as simple as can be ----


def takes(pattern: list[str], keys: list[str]) -> bool:
    """Whether a pattern of names, `*` and `**` matches a path."""
    if not pattern:
        return not keys
    if pattern[0] == "**":
        return takes(pattern[1:], keys) or (bool(keys) and takes(pattern, keys[1:]))
    return bool(keys) and pattern[0] in ("*", repr(keys[0])) and takes(pattern[1:], keys[1:])


@quick
@hypothesis.given(st.data(), trees)
def test_patterns(data: Any, tree: Any) -> None:
    found = [
        [jtu.keystr((key,), simple=True) for key in path]
        for path, _ in jtu.tree_leaves_with_path(tree)
    ]
    start = [repr(key) for key in data.draw(st.sampled_from([[], *found]))]
    pattern = [
        part
        for key in start
        for part in data.draw(st.sampled_from([[key]] * 3 + [["*"], ["**"], [key, "**"], []]))
    ]
    expected = [takes(pattern, keys) for keys in found]
    hypothesis.assume(any(expected))
    text = "".join(f"[{part}]" for part in pattern)
    nothing = object()
    part, _ = fj.partition(tree, text, replace=nothing)
    assert [x is not nothing for x in jtu.tree_leaves(part)] == expected
