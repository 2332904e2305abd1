"""Path patterns as filters. The paths of all kinds of nodes are those of JAX (test_tree_util)."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import filterjit as fj
from support.filters import taken
from support.nodes import Point
from support.trees import KEY


def selected(tree: Any, pattern: str, **kwargs: Any) -> list[str]:
    return taken(tree, fj.Filter(pattern, missing="ignore"), **kwargs)


NESTED = {
    "a.b": 1,
    "*": 2,
    "": 3,
    "it's": 4,
    "[0]": 5,
    "a": {"b": 6, "c.d": {"e": 7}},
    "x": [10, (11, 12), [13]],
}
ODD_KEYS = {"tuples": {(1, "b"): 1, (2, "c"): 2}, "ints": {0: [3], -1: 4, 10: 5}}
MODEL = eqx.nn.MLP(2, 2, 4, 2, key=KEY)
MANY = {"l": list(range(6)), "t": (0, 1), "none": [None, 1], "p": Point(1, 2), "e": [[], [2]]}


@pytest.mark.parametrize(
    "tree, pattern, expected",
    [
        (MODEL, "layers[0].weight", ["layers.0.weight"]),
        (MODEL, "layers.0.weight", ["layers.0.weight"]),
        (MODEL, "**.bias", ["layers.0.bias", "layers.1.bias", "layers.2.bias"]),
        (MODEL, "layers[:-1].w*", ["layers.0.weight", "layers.1.weight"]),
        (MODEL, "layers[1:].b?as", ["layers.1.bias", "layers.2.bias"]),
        (MODEL, "*activation", ["activation", "final_activation"]),
        (MODEL, "layers.00.bias", []),
        (NESTED, "['a.b']", ["a.b"]),
        (NESTED, "['*']", ["*"]),
        (NESTED, "['']", [""]),
        (NESTED, '["it\'s"]', ["it's"]),
        (NESTED, "['[0]']", ["[0]"]),
        (NESTED, "a['c.d'].e", ["a.c.d.e"]),
        (NESTED, "a[c?d].e", ["a.c.d.e"]),
        (NESTED, "a[b]", ["a.b"]),
        (NESTED, "*", ["", "*", "[0]", "a.b", "it's"]),
        (ODD_KEYS, "ints[0].**", ["ints.0.0"]),
        (ODD_KEYS, "ints['10']", ["ints.10"]),
        (ODD_KEYS, "ints[1?]", ["ints.10"]),
        (ODD_KEYS, "tuples[\"(1, 'b')\"]", ["tuples.(1, 'b')"]),
        (MANY, "l[1:-1:2]", ["l.1", "l.3"]),
        (MANY, "l[3:1:-1]", ["l.2", "l.3"]),
        (MANY, "*[-1]", ["l.5", "none.1", "t.1"]),
        (MANY, "p[xy]", []),
        (7, "", [""]),
    ],
)
def test_patterns(tree: Any, pattern: str, expected: list[str]) -> None:
    assert selected(tree, pattern) == expected
    rest = selected(tree, ~fj.Filter(pattern))
    assert sorted([*expected, *rest]) == sorted(fj.tree_paths(tree))


@pytest.mark.parametrize(
    "pattern, at",
    [
        ("a..b", ".b"),
        ("a.", ""),
        ("a[", "["),
        ("a[]", "[]"),
        ("['a'", "['a'"),
        ("a[1", "[1"),
        ("x.a**", "a**"),
        ("a[1:2:3:4]", "[1:2:3:4]"),
        ("a[b:c]", "[b:c]"),
        ("a[0]b", "b"),
    ],
)
def test_invalid_patterns(pattern: str, at: str) -> None:
    position = len(pattern) - len(at) + 1
    for use in (fj.Filter, lambda p: fj.partition([1], p), lambda p: fj.is_array & p):
        with pytest.raises(ValueError) as info:
            use(pattern)
        assert f"{pattern!r} from character {position} on: {at!r}" in str(info.value)


@pytest.mark.parametrize(
    "filter, meant",
    [
        ("layres.0.weight", "'layers.0.weight'"),
        ("layres.**", "'layers.**'"),
        ("**.wieght", "'**.weight'"),
        ("*.*.wieght", "'*.*.weight'"),
        ("layers[0].quite_another", None),
        ("layers[3].weight", None),
        (fj.is_array & "layres.**", "'layers.**'"),
        ("**.weight" | fj.Filter("layers.**.bais"), "'layers.**.bias'"),
        (~fj.Filter("layres.**"), "'layers.**'"),
    ],
)
def test_a_pattern_that_matches_no_leaf(filter: Any, meant: str | None) -> None:
    question = f" Did you mean {meant}?" if meant else ""
    has = "the tree has `layers.0.weight`, `layers.0.bias`, `layers.1.weight`, "
    for function in (fj.partition, fj.partition_dict):
        with pytest.raises(ValueError, match=r"the path pattern '.*' matches no leaf") as info:
            function(MODEL, filter)
        assert has in str(info.value)
        assert str(info.value).endswith(question or "....")
    with pytest.raises(ValueError, match="'error' or 'ignore', not 'no'"):
        fj.Filter("layers.**", missing="no")  # type: ignore[arg-type]


def test_a_pattern_may_match_no_leaf_where_this_is_ignored() -> None:
    ignoring = fj.Filter("layres.**", missing="ignore")
    assert taken(MODEL, ignoring) == taken(MODEL, fj.is_array & ignoring) == []
    assert taken(MODEL, ignoring | "layers[0].bias") == ["layers.0.bias"]
    either = fj.Filter(fj.Filter("layres.**") | "layers[0].bias", missing="ignore")
    assert taken(MODEL, either) == ["layers.0.bias"]
    # A node that is there and has no leaves is no mistake.
    for tree in ({}, {"a": ()}, {"a": None}):
        assert taken(tree, "**") == []
    assert taken({"a": None, "b": 1}, "a.**") == []


@pytest.mark.parametrize(
    ("filter", "is_error"),
    [
        (fj.Filter("no", missing="ignore"), False),
        (fj.Filter("no", missing="ignore") & fj.is_array, False),
        (fj.Filter("a", missing="ignore") & "b", False),
        (fj.Filter("no", missing="ignore") | "no", True),
        (fj.Filter("no"), True),
    ],
    ids=repr,
)
def test_options_that_take_filters_ignore_what_is_missing(filter: Any, is_error: bool) -> None:
    mesh, rules = jax.make_mesh((1,), ("data",)), fj.sharding.ShardingRules({filter: P(), ...: P()})
    options: Any = [{"donate": {"tree": filter}}, {"traced": {"tree": filter}}]
    jitted = [fj.filter_jit(lambda tree: tree["b"], **option) for option in options]
    for use in (*jitted, lambda tree: rules.table(tree, mesh)):
        tree = {"a": jnp.ones(2), "b": jnp.ones(3)}
        if is_error:
            with pytest.raises(ValueError, match="'no' matches no leaf"):
                use(tree)
        else:
            use(tree)
        assert not tree["a"].is_deleted()


def test_the_empty_pattern_names_the_root() -> None:
    with pytest.raises(ValueError, match="node"):
        fj.partition([1, 2], "")
