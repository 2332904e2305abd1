"""Trees in parts: one filter as in Equinox, several, path patterns, and dicts of paths."""

import functools
import io
import itertools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import flax.core
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import optax
import pytest

import filterjit as fj
from support.comparison import comparable, outcome, same
from support.modules import Module, WithFactories
from support.nodes import (
    Custom,
    FlaxStruct,
    ListSubclass,
    Point,
    PointWithNew,
    Registered,
    WithKeys,
)
from support.trees import ARRAY, KEY, MLP, ONE, PARAMS, TREES

IS_LEAF: list[Callable[[Any], bool] | None] = [
    None,
    lambda x: x is None,
    lambda x: True,
    lambda x: isinstance(x, (list, dict)),
    lambda x: isinstance(x, eqx.Module),
]
# Where JAX makes a tree of filters for the first level, a field that is not there gets one too, and
# the arguments of a Partial have to be a tuple.
NO_PREFIX = ("Module with missing fields", "tree_util.Partial")


def is_text(x: Any) -> bool:
    return isinstance(x, str)


def taken(tree: Any, filter: Any, **kwargs: Any) -> list[str]:
    """The paths of the leaves that a filter takes."""
    nothing = object()
    part = fj.partition(tree, filter, replace=nothing, **kwargs)[0]
    leaves = zip(fj.tree_paths(tree), fj.tree_leaves(part), strict=True)
    return [path for path, x in leaves if x is not nothing]


# ---- one filter: equinox.partition ----


def tree_of(tree: Any, *filters: Any, prefix: bool = False) -> Any:
    """A tree of filters, in turn, of the same structure, or of its first level."""
    endless = itertools.cycle(filters)
    is_leaf = (lambda x: x is not tree) if prefix else None
    return jtu.tree_map(lambda _: next(endless), tree, is_leaf=is_leaf)


SPECS: dict[str, Callable[[Any], Any]] = {
    "is_array": lambda tree: eqx.is_array,
    "is_inexact_array": lambda tree: eqx.is_inexact_array,
    "is_array_like": lambda tree: eqx.is_array_like,
    "lambda": lambda tree: lambda x: isinstance(x, (str, np.ndarray)),
    "truth of anything": lambda tree: lambda x: "x" if isinstance(x, int) else 0,
    "True": lambda tree: True,
    "False": lambda tree: False,
    "mask": lambda tree: tree_of(tree, True, False, False),
    "tree": lambda tree: tree_of(tree, True, eqx.is_array, False, callable),
    "prefix": lambda tree: tree_of(tree, eqx.is_array, True, callable, False, prefix=True),
    "prefix that is wrong": lambda tree: tree_of(tree, eqx.is_array, 1, prefix=True),
    "another tree": lambda tree: (True, {"a": False}),
    "None": lambda tree: None,
    "int": lambda tree: 1,
    "bool of NumPy": lambda tree: np.bool_(True),
    "bools of NumPy": lambda tree: tree_of(tree, True, np.bool_(False)),
    "array": lambda tree: jnp.array(True),
    "float": lambda tree: [1.5],
}


@pytest.mark.parametrize("name", TREES)
def test_one_filter_is_as_in_equinox(name: str) -> None:
    """The parts, or the type of what is raised."""
    tree = TREES[name]()
    for spec, make in SPECS.items():
        if name in NO_PREFIX and spec.startswith("prefix"):
            continue
        filter = make(tree)
        for is_leaf, replace in itertools.product(IS_LEAF, (None, 0, [1, None])):
            theirs = outcome(eqx.partition, tree, filter, replace=replace, is_leaf=is_leaf)
            ours = outcome(fj.partition, tree, filter, replace=replace, is_leaf=is_leaf)
            assert same(ours, theirs), spec


@pytest.mark.parametrize("name", TREES)
def test_our_filters_are_predicates_for_equinox(name: str) -> None:
    tree = TREES[name]()
    for ours, theirs in (
        (fj.is_array, eqx.is_array),
        (fj.is_inexact_array, eqx.is_inexact_array),
        (~fj.is_array | is_text, lambda x: not eqx.is_array(x) or is_text(x)),
    ):
        assert [ours(x) for x in jtu.tree_leaves(tree)] == [
            theirs(x) for x in jtu.tree_leaves(tree)
        ]
        expected = eqx.partition(tree, theirs)
        assert same(fj.partition(tree, ours), expected)
        assert same(eqx.partition(tree, ours), expected)


def test_a_tracer_is_no_filter() -> None:
    @jax.jit
    def f(x: Any) -> Any:
        for filter in (x, [x], {"a": True, "b": x}):
            for partition in (eqx.partition, fj.partition):
                with pytest.raises(ValueError, match="traced"):
                    partition({"a": 1, "b": 2} if isinstance(filter, dict) else [1], filter)
        with pytest.raises(ValueError, match="traced"):
            fj.Filter(x)
        return x

    f(True)


def test_is_leaf_is_asked_from_the_leaves_of_a_tree_of_filters_on_down() -> None:
    tree = {"a": [[1, 2], 3], "b": [4, 5]}
    for filter in ({"a": True, "b": False}, {"a": [True, False], "b": lambda x: x == 4}):
        for is_leaf in (lambda x: isinstance(x, list), lambda x: True, lambda x: x == [1, 2]):
            theirs = eqx.partition(tree, filter, is_leaf=is_leaf)
            assert same(fj.partition(tree, filter, is_leaf=is_leaf), theirs)


LEAF_CASES: list[tuple[Any, Any, Callable[[Any], bool]]] = [
    ([None, 1], [False, True], lambda x: x is None),
    ([[1, 2], None, 3], [True, False, False], lambda x: x is None or x == [1, 2]),
    ([[1, 2], 3], [True, callable], lambda x: x == [1, 2]),
    ([[1, 2]], [[True, False]], lambda x: x == [1, 2]),
]


@pytest.mark.parametrize("tree, mask, is_leaf", LEAF_CASES)
def test_trees_of_filters_where_is_leaf_hides_and_adds_leaves(
    tree: Any, mask: Any, is_leaf: Callable[[Any], bool]
) -> None:
    theirs = eqx.partition(tree, mask, is_leaf=is_leaf, replace="-")
    assert same(fj.partition(tree, mask, is_leaf=is_leaf, replace="-"), theirs)


@pytest.mark.parametrize("tree, mask, is_leaf", LEAF_CASES)
def test_the_same_among_several_filters(
    tree: Any, mask: Any, is_leaf: Callable[[Any], bool]
) -> None:
    """The same parts as alone; or, for the last case, a ValueError."""
    try:
        ours = fj.partition(tree, mask, False, is_leaf=is_leaf, replace="-")
    except ValueError as e:
        assert "deeper" in str(e) and tree == [[1, 2]]
    else:
        left, right = eqx.partition(tree, mask, is_leaf=is_leaf, replace="-")
        assert same((ours[0], ours[2]), (left, right))


@pytest.mark.parametrize(
    "tree, filter",
    [
        ([1, 2], [True]),
        ([1, 2], (True, False)),
        ({"a": 1}, {"b": True}),
        ({"a": 1}, {"a": {"b": True}}),
        ([1], [[True]]),
        (Module(1, "x"), Module(True, "y")),
        (Custom(1, label="x"), Custom(True, label="y")),
        ([None], [True]),
        ([1], [None]),
    ],
)
def test_a_tree_of_filters_that_is_no_prefix(tree: Any, filter: Any) -> None:
    theirs = outcome(eqx.partition, tree, filter)
    assert same(outcome(fj.partition, tree, filter), theirs)
    assert (theirs is ValueError) == (tree != [None])


# ---- combine ----


@pytest.mark.parametrize("name", TREES)
def test_combine_is_as_in_equinox(name: str) -> None:
    """For any two trees, and for the parts of one."""
    tree = TREES[name]()
    for other, second in all_trees().items():
        for is_leaf in (None, lambda x: isinstance(x, list)):
            theirs = outcome(eqx.combine, tree, second, is_leaf=is_leaf)
            ours = outcome(fj.combine, tree, second, is_leaf=is_leaf)
            assert same(ours, theirs), other
    parts = fj.partition(tree, fj.is_inexact_array, fj.is_array, is_text)
    assert len(parts) == 4
    for order in itertools.permutations(parts):
        assert same(fj.combine(*order, strict=True), eqx.combine(*order))


@functools.cache
def all_trees() -> dict[str, Any]:
    return {name: make() for name, make in TREES.items()}


@pytest.mark.parametrize(
    "trees",
    [
        (),
        (None,),
        ([1, None],),
        ([None, 1], [2, [3]]),
        ([None, [1]], [[2, 3], [None]]),
        ([[1]], [None]),
        ([None], [[1]], [2]),
        ([1], [2], [3]),
        ({"a": None}, {"a": None}),
        ({"a": None}, {"b": 1}),
        (Point(1, None), Point(None, {"a": 2})),
        (Point(1, None), (None, 2)),
        ([0, False, ""], [1, 2, 3]),
        tuple([None] * i + [i] + [None] * (9 - i) for i in range(10)),
    ],
)
def test_combine(trees: tuple[Any, ...]) -> None:
    for is_leaf in (None, lambda x: x == [1], lambda x: isinstance(x, list) and len(x) == 1):
        theirs = outcome(eqx.combine, *trees, is_leaf=is_leaf)
        assert same(outcome(fj.combine, *trees, is_leaf=is_leaf), theirs)


def test_combine_says_where() -> None:
    with pytest.raises(ValueError, match=r"tree 2 differs from tree 1 at `\['a'\]`"):
        fj.combine({"a": [1]}, {"a": (2,)})
    one, two = {"m": Module([1, None])}, {"m": Module([None, 2])}
    assert same(fj.combine(one, two, strict=True), {"m": Module([1, 2])})
    with pytest.raises(ValueError, match=r"`\['m'\]\.a\[1\]` is in tree 2 and in tree 3"):
        fj.combine(one, two, two, strict=True)
    assert same(fj.combine(one, two, two), {"m": Module([1, 2])})


# ---- several filters ----


def test_the_first_filter_wins() -> None:
    tree = {"w": jnp.ones(2), "n": jnp.arange(2), "s": "text", "i": 3, "none": None}
    for filters in itertools.permutations([fj.is_inexact_array, fj.is_array, is_text, False]):
        parts = fj.partition(tree, *filters)
        rest = tree
        for filter, part in zip(filters, parts[:-1], strict=True):
            expected, rest = eqx.partition(rest, filter)
            assert same(part, expected)
        assert same(parts[-1], rest)


def test_no_filter_and_many() -> None:
    tree = [1, {"a": None, "b": ARRAY}]
    assert same(fj.partition(tree), (tree,))
    assert same(fj.combine(*fj.partition(tree)), tree)
    many = [lambda x, i=i: x == i for i in range(300)]
    parts = fj.partition(list(range(299, -1, -1)), *many)
    assert [[x for x in part if x is not None] for part in parts] == [[i] for i in range(300)] + [
        []
    ]


def test_a_filter_is_not_asked_about_what_an_earlier_one_took() -> None:
    asked: list[Any] = []
    fj.partition([1, "a", ARRAY, 2], fj.is_array, is_text, lambda x: asked.append(x) or x == 1)
    assert asked == [1, 2]


@pytest.mark.parametrize(
    "filter, expected",
    [
        (jnp.float32, ["f32", "nf32"]),
        (np.float32, ["f32", "nf32"]),
        (np.dtype("float32"), ["f32", "nf32"]),
        (jnp.dtype(jnp.bfloat16), ["bf16"]),
        (jnp.floating, ["bf16", "f32", "nf32", "nf64"]),
        (jnp.inexact, ["bf16", "c64", "f32", "nf32", "nf64"]),
        (np.integer, ["i32", "u8"]),
        (jnp.signedinteger, ["i32"]),
        (jnp.bool_, ["nb"]),
        (jax.dtypes.prng_key, ["key"]),
        (jax.Array, ["bf16", "c64", "f32", "i32", "key", "u8"]),
        (np.ndarray, ["nb", "nf64"]),
        (fj.is_array, ["bf16", "c64", "f32", "i32", "key", "nb", "nf32", "nf64", "u8"]),
    ],
    ids=str,
)
def test_dtypes_and_types_of_arrays(filter: Any, expected: list[str]) -> None:
    tree = {
        "f32": jnp.ones(2),
        "bf16": jnp.ones(2, jnp.bfloat16),
        "c64": jnp.ones(2, jnp.complex64),
        "i32": jnp.arange(2),
        "u8": jnp.arange(2, dtype=jnp.uint8),
        "key": KEY,
        "nf32": np.float32(1),
        "nf64": np.ones(2),
        "nb": np.array([True]),
        "float": 1.0,
        "int": 1,
        "type": jnp.float32,
        "dtype": np.dtype("float32"),
    }
    assert taken(tree, filter) == expected
    assert taken(tree, dict.fromkeys(tree, filter)) == expected
    assert taken(tree, ~fj.Filter(filter)) == [k for k in sorted(tree) if k not in expected]


@pytest.mark.parametrize(
    "bad", [1, 1.5, None, b"bytes", [1], np.bool_(True), ARRAY, {"a": 1j}, ...]
)
def test_what_is_no_filter(bad: Any) -> None:
    with pytest.raises(ValueError):
        fj.partition(3, bad)
    with pytest.raises(ValueError):
        fj.partition([3], True, bad)
    with pytest.raises(ValueError):
        fj.partition_dict(ONE, bad)


# ---- filters made of filters ----


def test_algebra() -> None:
    tree = {"w": jnp.ones(2), "bias": [jnp.ones(2), jnp.arange(2), "text"], "n": jnp.arange(2)}
    bias = fj.Filter("bias.*")
    text = fj.Filter(is_text)
    assert taken(tree, bias & fj.is_array) == ["bias.0", "bias.1"]
    assert taken(tree, "bias.*" & fj.is_array) == ["bias.0", "bias.1"]
    assert taken(tree, fj.is_array & "bias.*") == ["bias.0", "bias.1"]
    assert taken(tree, "n" | text) == ["bias.2", "n"]
    assert taken(tree, jnp.integer | text | "w") == ["bias.1", "bias.2", "n", "w"]
    assert taken(tree, text | jnp.integer) == ["bias.1", "bias.2", "n"]
    assert taken(tree, ~bias & ~text) == ["n", "w"]
    assert taken(tree, ~(bias | fj.is_array)) == []
    assert taken(tree, ~~bias) == taken(tree, bias) == ["bias.0", "bias.1", "bias.2"]
    assert taken(tree, True & bias) == taken(tree, bias) == taken(tree, False | bias)
    assert taken(tree, {"w": True, "bias": False, "n": is_text} | text) == ["bias.2", "w"]
    assert taken(tree, ~fj.Filter({"w": True, "bias": [True, is_text, False], "n": False})) == [
        "bias.1",
        "bias.2",
        "n",
    ]
    for bad in (1, 1.5, "a..b"):
        with pytest.raises(ValueError):
            text & bad
        with pytest.raises(ValueError):
            bad | text


def test_algebra_asks_no_more_than_it_has_to() -> None:
    asked: list[Any] = []
    ask = lambda x: asked.append(x) or True
    tree = ["a", 1, ARRAY]
    fj.partition(tree, fj.Filter(is_text) & ask)
    fj.partition(tree, fj.is_array | ask)
    assert same(asked, ["a", "a", 1])


@pytest.mark.parametrize("leaf", [ONE, np.ones(2), np.float32(1), jnp.arange(2), 1, "text", None])
def test_a_filter_is_a_function_of_a_leaf(leaf: Any) -> None:
    array, text = eqx.is_array(leaf), is_text(leaf)
    inexact = eqx.is_inexact_array(leaf)
    for filter, expected in [
        (fj.is_array, array),
        (fj.is_inexact_array, inexact),
        (fj.Filter(is_text), text),
        (fj.Filter(jnp.inexact), inexact),
        (fj.Filter(np.ndarray), isinstance(leaf, np.ndarray)),
        (fj.Filter(True), True),
        (~fj.Filter(True), False),
        (fj.is_array & fj.is_inexact_array, inexact),
        (fj.is_array | is_text, array or text),
        (~(fj.is_array | is_text), not (array or text)),
        (fj.Filter(fj.is_array), array),
        (fj.Filter(lambda x: [x]), True),
    ]:
        assert filter(leaf) is expected, filter
        assert same(fj.partition(leaf, filter), eqx.partition(leaf, filter))


def test_a_filter_that_asks_for_the_path_is_none_of_a_leaf() -> None:
    for filter in (fj.Filter("a.*"), fj.is_array & "**", ~fj.Filter([True])):
        with pytest.raises(ValueError, match="not about a leaf"):
            filter(ONE)


def test_repr() -> None:
    assert repr(fj.is_array) == "Filter(is_array)"
    assert repr(("**.bias" & fj.is_array) | ~fj.Filter(is_text)) == (
        "Filter((('**.bias' & is_array) | ~is_text))"
    )
    assert repr(fj.Filter([True, False])) == "Filter([True, False])"
    assert repr(fj.Filter(True)) == "Filter(True)"
    for pattern in ("a.b", "layers[0].w*", "**[-1]", "a[1:3:]", "['a.b'].?.*", "[0][::-1]"):
        shown = repr(fj.Filter(pattern))[len("Filter(") : -1]
        assert repr(fj.Filter(eval(shown))) == f"Filter({shown})"


def test_a_tree_of_filters_inside_a_filter() -> None:
    tree = {"a": [1, 2], "b": [3, "x"]}
    mask = {"a": [True, False], "b": True}
    assert taken(tree, fj.Filter(mask)) == taken(tree, mask) == ["a.0", "b.0", "b.1"]
    assert taken(tree, fj.Filter(mask) & is_text) == ["b.1"]
    with pytest.raises(ValueError, match="differs from the filter"):
        taken(tree, fj.Filter({"a": True}) | is_text)


def test_a_tree_of_filters_inside_a_filter_inside_a_tree_of_filters() -> None:
    first = fj.Filter([True, False])
    assert taken([[1, 2], [3, 4]], [first, False]) == ["0.0"]
    assert taken({"a": [1, 2]}, {"a": first}) == ["a.0"]


def test_no_pattern_inside_a_tree_of_filters() -> None:
    for bad in (
        ["a"],
        [True, "**"],
        [fj.Filter("a")],
        [fj.is_array & "a"],
        {"k": [~fj.Filter("a")]},
    ):
        with pytest.raises(ValueError, match="path pattern cannot stand inside"):
            fj.partition({"k": [1]} if isinstance(bad, dict) else [1] * len(bad), bad)


# ---- path patterns ----

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
STATE = optax.chain(optax.clip(1.0), optax.adam(1e-3)).init(PARAMS)
CUSTOM = {"no": Custom(1, [2, 3]), "yes": WithKeys(4, [5]), "list": ListSubclass([6, {"a": 7}])}
MANY = {"l": list(range(6)), "t": (0, 1), "none": [None, 1], "p": Point(1, 2), "e": [[], [2]]}


@pytest.mark.parametrize(
    "tree, pattern, expected",
    [
        (MODEL, "layers[0].weight", ["layers.0.weight"]),
        (MODEL, "layers.0.weight", ["layers.0.weight"]),
        (MODEL, "layers[*].bias", ["layers.0.bias", "layers.1.bias", "layers.2.bias"]),
        (MODEL, "**.bias", ["layers.0.bias", "layers.1.bias", "layers.2.bias"]),
        (MODEL, "**.layers.**.bias.**", ["layers.0.bias", "layers.1.bias", "layers.2.bias"]),
        (MODEL, "layers[-1].*", ["layers.2.weight", "layers.2.bias"]),
        (MODEL, "layers[:-1].w*", ["layers.0.weight", "layers.1.weight"]),
        (MODEL, "layers[1:].b?as", ["layers.1.bias", "layers.2.bias"]),
        (MODEL, "layers[::-2].bias", ["layers.0.bias", "layers.2.bias"]),
        (MODEL, "*activation", ["activation", "final_activation"]),
        (MODEL, "**[1].**", ["layers.1.weight", "layers.1.bias"]),
        (MODEL, "l*.?.*", [f"layers.{i}.{n}" for i in range(3) for n in ("weight", "bias")]),
        (MODEL, "layer.**", []),
        (MODEL, "layers[3].**", []),
        (MODEL, "layers[-4].**", []),
        (MODEL, "layers.00.bias", []),
        (MODEL, "weight", []),
        (NESTED, "['a.b']", ["a.b"]),
        (NESTED, "a.b", ["a.b"]),
        (NESTED, "['*']", ["*"]),
        (NESTED, "['']", [""]),
        (NESTED, '["it\'s"]', ["it's"]),
        (NESTED, "it's", ["it's"]),
        (NESTED, "['[0]']", ["[0]"]),
        (NESTED, "a['c.d'].e", ["a.c.d.e"]),
        (NESTED, "a['c.d']['e']", ["a.c.d.e"]),
        (NESTED, "a[c?d].e", ["a.c.d.e"]),
        (NESTED, "a[b]", ["a.b"]),
        (NESTED, "*", ["", "*", "[0]", "a.b", "it's"]),
        (NESTED, "x.**", ["x.0", "x.1.0", "x.1.1", "x.2.0"]),
        (NESTED, "x[*]", ["x.0"]),
        (NESTED, "x.*.*", ["x.1.0", "x.1.1", "x.2.0"]),
        (NESTED, "x[-1][-1]", ["x.2.0"]),
        (NESTED, "**[0]", ["x.0", "x.1.0", "x.2.0"]),
        (NESTED, "**.**.1.**", ["x.1.0", "x.1.1"]),
        (ODD_KEYS, "ints[0].**", ["ints.0.0"]),
        (ODD_KEYS, "ints[-1]", ["ints.-1"]),
        (ODD_KEYS, "ints.10", ["ints.10"]),
        (ODD_KEYS, "ints['10']", ["ints.10"]),
        (ODD_KEYS, "ints[1?]", ["ints.10"]),
        (ODD_KEYS, "ints[:].**", []),
        (ODD_KEYS, "tuples[\"(1, 'b')\"]", ["tuples.(1, 'b')"]),
        (ODD_KEYS, "tuples.(2*", ["tuples.(2, 'c')"]),
        (STATE, "**.mu.w", ["1.0.mu.w"]),
        (STATE, "[1][0].count", ["1.0.count"]),
        (STATE, "**.?u.*", ["1.0.mu.b", "1.0.mu.w", "1.0.nu.b", "1.0.nu.w"]),
        (STATE, "[0].**", []),
        (CUSTOM, "no[1].*", ["no.1.0", "no.1.1"]),
        (CUSTOM, "no.0", ["no.0"]),
        (CUSTOM, "yes.left", ["yes.left"]),
        (CUSTOM, "yes.right[0]", ["yes.right.0"]),
        (CUSTOM, "list[1].a", ["list.1.a"]),
        (CUSTOM, "list[0]", ["list.0"]),
        (MANY, "l[1:-1:2]", ["l.1", "l.3"]),
        (MANY, "l[4:100]", ["l.4", "l.5"]),
        (MANY, "l[-2:]", ["l.4", "l.5"]),
        (MANY, "l[3:1]", []),
        (MANY, "l[3:1:-1]", ["l.2", "l.3"]),
        (MANY, "*[0]", ["l.0", "t.0"]),
        (MANY, "*[-1]", ["l.5", "none.1", "t.1"]),
        (MANY, "*.*.*", ["e.1.0"]),
        (MANY, "none.*", ["none.1"]),
        (MANY, "p.y", ["p.y"]),
        (MANY, "p[xy]", []),
        (flax.core.freeze({"params": {"w": 1}}), "params.*", ["params.w"]),
        (FlaxStruct([1, 2], 3), "a[1]", ["a.1"]),
        (Registered({"k": 1}), "a.k", ["a.k"]),
        (WithFactories(1, b=2), "c[1]", ["c.1"]),
        (PointWithNew([1], 2), "a.**", ["a.0"]),
        (7, "", [""]),
        (7, "**", [""]),
        (7, "*", []),
    ],
)
def test_patterns(tree: Any, pattern: str, expected: list[str]) -> None:
    assert taken(tree, pattern) == expected
    rest = taken(tree, ~fj.Filter(pattern))
    assert sorted([*expected, *rest]) == sorted(fj.tree_paths(tree))


def test_a_dot_in_a_key_is_no_dot_between_keys() -> None:
    tree = {"a.b": 1, "a": {"b": 2, "b.c": 3}, "*": 4}
    for pattern, expected in [
        ("['a.b']", [1]),
        ("a.b", [2]),
        ("[a.b]", [1]),
        ("a['b.c']", [3]),
        ("a.b.c", []),
        ("*", [4, 1]),
        ("['*']", [4]),
        ("a*", [1]),
        ("a.*", [2, 3]),
    ]:
        assert fj.tree_leaves(fj.partition(tree, pattern)[0]) == expected, pattern


@pytest.mark.parametrize("name", TREES)
def test_each_path_is_the_pattern_of_its_leaf(name: str) -> None:
    """Where keys hold no dots, what `tree_paths` writes is read."""
    tree = TREES[name]()
    paths = fj.tree_paths(tree)
    for path in paths if name != "dict of mixed numbers" else ():
        assert taken(tree, path) == [path]
    assert taken(tree, "**") == paths


@pytest.mark.parametrize(
    "pattern, at",
    [
        ("a..b", ".b"),
        (".a", ".a"),
        ("a.", ""),
        ("[", "["),
        ("a[", "["),
        ("a[]", "[]"),
        ("a]b", "]b"),
        ("['a'", "['a'"),
        ("a['b", "['b"),
        ("a[1", "[1"),
        ("a[::0]", "[::0]"),
        ("x.a**", "a**"),
        ("**a", "**a"),
        ("***", "***"),
        ("a.[0]", ".[0]"),
        ("a[1:2:3:4]", "[1:2:3:4]"),
        ("a[b:c]", "[b:c]"),
        ("a[0]b", "b"),
        ("a[0]]", "]"),
    ],
)
def test_patterns_that_cannot_be_read(pattern: str, at: str) -> None:
    position = len(pattern) - len(at) + 1
    for use in (fj.Filter, lambda p: fj.partition([1], p), lambda p: fj.is_array & p):
        with pytest.raises(ValueError) as info:
            use(pattern)
        assert f"{pattern!r} from character {position} on: {at!r}" in str(info.value)


def test_a_pattern_that_names_an_inner_node() -> None:
    for pattern in ("layers", "layers[0]", "layers.*"):
        with pytest.raises(ValueError, match=r"`layers(\[0\])?`, which is a node.*\*\*`"):
            fj.partition(MODEL, pattern)
    # It may name one as long as it takes leaves too.
    assert taken(MODEL, "*")[:2] == ["activation", "final_activation"]
    # A node that `is_leaf` stops at is a leaf.
    layer = lambda x: isinstance(x, eqx.nn.Linear)
    left = fj.partition(MODEL, "layers[0]", is_leaf=layer)[0]
    assert left.layers == (MODEL.layers[0], None, None)


def test_everything_below_a_node_without_leaves() -> None:
    assert same(fj.partition([[None]], "**"), ([[None]], [[None]]))
    state = optax.chain(optax.clip(1.0), optax.sgd(0.1)).init(PARAMS)
    assert jtu.tree_leaves(state) == []
    assert same(fj.partition(state, "**"), eqx.partition(state, True))
    assert same(fj.partition({"a": [None], "b": 1}, "a.**")[1], {"a": [None], "b": 1})


def test_large_indices() -> None:
    assert taken({10**30: 1, 2: 3}, f"[{10**30}]") == [str(10**30)]
    assert taken([1], f"[{10**30}]") == []


def test_the_empty_pattern_names_the_root() -> None:
    with pytest.raises(ValueError, match="node"):
        fj.partition([1, 2], "")


def test_long_patterns() -> None:
    tree: Any = 1
    for _ in range(100):
        tree = {"a": tree}
    assert taken(tree, ".".join(["**"] * 30 + ["a"] * 30)) == [".".join(["a"] * 100)]
    with pytest.raises(ValueError, match="components"):
        fj.partition(tree, ".".join(["a"] * 100))


# ---- dicts ----


@pytest.mark.parametrize("name", TREES)
def test_partition_dict(name: str) -> None:
    tree = TREES[name]()
    structure, *groups = fj.partition_dict(tree, fj.is_inexact_array, jax.Array)
    leaves = dict(zip(fj.tree_paths(tree), fj.tree_leaves(tree), strict=True))
    floats = {k: x for k, x in leaves.items() if eqx.is_inexact_array(x)}
    others = {k: x for k, x in leaves.items() if isinstance(x, jax.Array) and k not in floats}
    rest = {k: x for k, x in leaves.items() if eqx.is_array(x) and k not in {**floats, **others}}
    assert same(groups, [floats, others, rest])
    assert [list(g) for g in groups] == [list(floats), list(others), list(rest)]
    assert structure.paths == tuple(k for k, x in leaves.items() if eqx.is_array(x))
    assert structure == fj.flatten(tree)[1]
    rebuilt = jtu.tree_map(lambda x: x, tree)
    for order in itertools.permutations(groups):
        assert same(structure.combine(*order), rebuilt)


def test_what_the_dicts_hold_then_is_what_the_tree_gets() -> None:
    structure, biases, rest = fj.partition_dict(MODEL, "**.bias")
    assert list(biases) == ["layers.0.bias", "layers.1.bias", "layers.2.bias"]
    biases = {path: path for path in reversed(biases)}
    model = structure.combine(biases, rest)
    assert model.layers[1].bias == "layers.1.bias"
    assert model.layers[1].weight is MODEL.layers[1].weight
    assert model.activation is MODEL.activation
    assert same(structure.combine({**biases, **rest}), model)
    assert structure.unflatten(range(6)).layers[2].bias == 5


def test_partition_dict_errors() -> None:
    structure, group, rest = fj.partition_dict({"a": ONE, "b": [ARRAY, 1], "c": ARRAY}, "a")
    with pytest.raises(ValueError, match=r"missing: \['b\.0', 'c'\]"):
        structure.combine(group)
    with pytest.raises(ValueError, match=r"missing: \['a', 'b\.0', 'c'\]"):
        structure.combine()
    with pytest.raises(ValueError, match=r"unknown: \['b\.1', 3\]"):
        structure.combine(group, rest, {"b.1": ONE, 3: ONE})
    with pytest.raises(ValueError, match=r"more than one group: \['a'\]"):
        structure.combine(group, rest, {"a": None})
    with pytest.raises(TypeError, match="group 2 is a `list`"):
        structure.combine(group, [rest])
    many, everything = fj.partition_dict([ONE] * 50)
    with pytest.raises(ValueError, match="and 40 more"):
        many.combine({})
    assert list(everything) == [str(i) for i in range(50)]
    with pytest.raises(ValueError, match=r"two leaves have the path 'a\.b'"):
        fj.partition_dict({"a.b": ONE, "a": {"b": ARRAY}})
    # Statics may share a path: they are in the structure.
    tree = {"a.b": 1, "a": {"b": ARRAY}}
    structure, group = fj.partition_dict(tree)
    assert same(structure.combine(group), tree)


def test_partition_dict_asks_about_arrays_only() -> None:
    asked: list[Any] = []
    structure, *_ = fj.partition_dict([1, ONE, "a", ARRAY, None], lambda x: asked.append(x) or True)
    assert same(asked, [ONE, ARRAY])
    assert structure.num_leaves == 2


def test_dicts_of_paths_are_what_others_take() -> None:
    structure, train, frozen = fj.partition_dict(MODEL, "layers[1:].*" & fj.is_inexact_array)
    x = jnp.ones(2)

    @jax.jit
    @jax.grad
    def gradient(train: Any, frozen: Any) -> Any:
        return jnp.sum(structure.combine(frozen, train)(x) ** 2)

    grads = gradient(train, frozen)
    spec = fj.partition(MODEL, "layers[1:].*", replace=False)[0]
    spec = jtu.tree_map(lambda leaf: leaf is not False and eqx.is_array(leaf), spec)
    dynamic, static = eqx.partition(MODEL, spec)
    theirs = eqx.filter_jit(eqx.filter_grad(lambda d: jnp.sum(eqx.combine(d, static)(x) ** 2)))(
        dynamic
    )
    assert sorted(grads) == sorted(train)
    for path, leaf in zip(fj.tree_paths(theirs), fj.tree_leaves(theirs), strict=True):
        np.testing.assert_allclose(grads[path], leaf, rtol=1e-5)

    optimiser = optax.sgd(0.1, momentum=0.9)
    updates, state = optimiser.update(grads, optimiser.init(train), train)
    train = optax.apply_updates(train, updates)
    model = structure.combine(train, frozen)
    assert model.layers[0].weight is MODEL.layers[0].weight
    assert fj.tree_paths(state) == [f"0.trace.{path}" for path in sorted(train)]

    file = io.BytesIO()
    np.savez(file, **train, **frozen)
    file.seek(0)
    with np.load(file) as loaded:
        again = structure.combine(dict(loaded))
    assert comparable(jtu.tree_map(jnp.asarray, eqx.filter(again, eqx.is_array))) == comparable(
        jtu.tree_map(jnp.asarray, eqx.filter(model, eqx.is_array))
    )


# ---- hostile filters ----


class Refused(Exception):
    pass


def refuse(x: Any) -> bool:
    if x == 3:
        raise Refused
    return True


@pytest.mark.parametrize(
    "tree, path",
    [
        ([1, 2, 3], "[2]"),
        ({"a": {"b": [1, 3]}}, "['a']['b'][1]"),
        (Module([3]), "a[0]"),
        (Registered(1, (3,)), "b[0]"),
        (Custom(1, 3), "[1]"),
        (WithKeys(1, {"k": 3}), "right['k']"),
        (Point(1, 3), "y"),
    ],
)
def test_filters_that_raise(tree: Any, path: str) -> None:
    with pytest.raises(Refused):
        eqx.partition(tree, refuse)
    for filter in (refuse, fj.Filter(refuse) | True, "**" & fj.Filter(refuse)):
        with pytest.raises(Refused) as info:
            fj.partition(tree, filter)
        assert [note for note in info.value.__notes__ if f"`{path}`" in note]
    with pytest.raises(TypeError, match="returned None") as other:
        fj.partition(tree, lambda x: None if x == 3 else True)
    assert [note for note in other.value.__notes__ if f"`{path}`" in note]


def test_answers_that_are_no_bools() -> None:
    tree = [jnp.ones(2), jnp.zeros(2), 3]
    for answer in (lambda x: jnp.any(x), lambda x: np.any(x), lambda x: np.asarray(x)[..., None]):
        assert same(outcome(fj.partition, tree, answer), outcome(eqx.partition, tree, answer))
    for empty in ("", [], 0, 0.0):
        assert same(fj.partition(tree, lambda x, empty=empty: empty), fj.partition(tree, False))

    @jax.jit
    def f(x: Any) -> Any:
        with pytest.raises(jax.errors.TracerBoolConversionError):
            fj.partition([x], lambda leaf: leaf > 0)
        return x

    f(ONE)


def test_a_filter_that_changes_the_tree() -> None:
    """The parts are those of the tree as it was."""
    before = {"a": [1, 2, [3]], "b": {"c": 4}, "d": 5}
    tree = {"a": [1, 2, [3]], "b": {"c": 4}, "d": 5}

    def change(x: int) -> bool:
        tree["a"].clear()
        tree["b"].clear()
        tree["d"] = {"more": [x] * 10}
        return x % 2 == 1

    assert fj.partition(tree, change) == eqx.partition(before, lambda x: x % 2 == 1)
    tree = {"a": [1, 2, [3]], "b": {"c": 4}, "d": 5}
    with pytest.raises(ValueError):
        fj.partition(tree, change, {"a": True, "b": True, "d": False})


def test_a_filter_that_uses_the_functions_itself() -> None:
    tree = {"a": [1, ARRAY], "b": "x"}

    def nested(x: Any) -> bool:
        inner = fj.partition(tree, fj.is_array, "b")
        assert same(fj.combine(*inner, strict=True), tree)
        return eqx.is_array(x)

    assert same(fj.partition(tree, nested), eqx.partition(tree, eqx.is_array))


# ---- inside transformations ----


def test_partition_inside_jit() -> None:
    tree = {"w": jnp.ones(2), "n": jnp.arange(2)}

    @jax.jit
    def f(tree: Any) -> Any:
        full = {**tree, "static": "text", "numpy": np.ones(2)}
        for filter in (eqx.is_array, eqx.is_inexact_array, lambda x: isinstance(x, jax.Array)):
            assert same(fj.partition(full, filter), eqx.partition(full, filter))
        assert taken(full, jax.Array) == ["n", "w"]
        floats, ints, rest = fj.partition(full, jnp.floating, fj.is_array)
        assert rest["static"] == "text" and ints["w"] is None
        structure, group = fj.partition_dict(full)
        assert list(group) == ["n", "numpy", "w"]
        assert same(structure.combine(group), full)
        combined = fj.combine(jtu.tree_map(lambda x: 2 * x, floats), ints, rest, strict=True)
        return {k: combined[k] for k in tree}

    assert comparable(f(tree)) == comparable({"n": jnp.arange(2), "w": 2 * jnp.ones(2)})


def test_training_what_a_mask_says() -> None:
    """A step by our functions and by Equinox's: the same updates, the rest untouched."""
    mask = jtu.tree_map(lambda _: False, MLP)
    mask = eqx.tree_at(lambda m: m.layers[-1], mask, jtu.tree_map(lambda _: True, MLP.layers[-1]))
    optimiser = optax.adam(0.1)
    x = jnp.ones(2)

    def train(partition: Callable[..., Any], combine: Callable[..., Any], filter: Any) -> Any:
        train, frozen = partition(MLP, filter)
        state = optimiser.init(train)

        def step(train: Any, state: Any) -> Any:
            grads = jax.grad(lambda t: jnp.sum(combine(t, frozen)(x) ** 2))(train)
            updates, state = optimiser.update(grads, state, train)
            return combine(train, jtu.tree_map(lambda _: None, train)), updates, state

        for _ in range(3):
            _, updates, state = jax.jit(step)(train, state)
            train = eqx.apply_updates(train, updates)
        return combine(train, frozen)

    theirs = train(eqx.partition, eqx.combine, mask)
    for filter in (mask, "layers[-1].*", fj.Filter(mask) & fj.is_inexact_array):
        ours = train(fj.partition, fj.combine, filter)
        assert comparable(ours) == comparable(theirs)
        assert ours.layers[0].weight is MLP.layers[0].weight
        assert not np.allclose(ours.layers[-1].weight, MLP.layers[-1].weight)
