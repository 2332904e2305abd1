"""The tree functions: path patterns, operators, `partition` with one filter and with several, `combine`,
`partition_dict`, and `flatten`, compared with Equinox and ``jax.tree_util`` for trees of each kind."""

import copy
import functools
import itertools
import pickle
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import filterjit as fj
from support.comparison import comparable, outcome, same
from support.nodes import Point
from support.trees import ARRAY, IS_LEAF, KEY, ONE, TREES
from support.versions import auto_mesh

# ---- path patterns ----


def is_text(x: Any) -> bool:
    return isinstance(x, str)


def taken(tree: Any, filter: Any, **kwargs: Any) -> list[str]:
    """Returns the paths of the leaves that a filter takes."""
    nothing = object()
    part = fj.partition(tree, filter, replace=nothing, **kwargs)[0]
    leaves = zip(fj.tree_paths(tree), fj.flatten(part, True)[0], strict=True)
    return [path for path, x in leaves if x is not nothing]


def selected(tree: Any, pattern: str, **kwargs: Any) -> list[str]:
    return taken(tree, fj.Filter(pattern, missing="ignore"), **kwargs)


NESTED = {
    "a.b": 1, "*": 2, "": 3, "it's": 4, "[0]": 5, "a": {"b": 6, "c.d": {"e": 7}},
    "x": [10, (11, 12), [13]],
}  # fmt: skip
ODD_KEYS = {"tuples": {(1, "b"): 1, (2, "c"): 2}, "ints": {0: [3], -1: 4, 10: 5}}
MODEL = eqx.nn.MLP(2, 2, 4, 2, key=KEY)
MANY = {"l": list(range(6)), "t": (0, 1), "none": [None, 1], "p": Point(1, 2), "e": [[], [2]]}


@pytest.mark.parametrize(
    "tree, pattern, expected",
    [
        (MODEL, "layers[0].weight", ["layers.0.weight"]),
        (MODEL, "**.bias", ["layers.0.bias", "layers.1.bias", "layers.2.bias"]),
        (MODEL, "layers[:-1].w*", ["layers.0.weight", "layers.1.weight"]),
        (MODEL, "layers.00.bias", []),
        (NESTED, "['a.b']", ["a.b"]),
        (NESTED, "['*']", ["*"]),
        (NESTED, '["it\'s"]', ["it's"]),
        (NESTED, "['[0]']", ["[0]"]),
        (NESTED, "a['c.d'].e", ["a.c.d.e"]),
        (NESTED, "a[c?d].e", ["a.c.d.e"]),
        (NESTED, "*", ["", "*", "[0]", "a.b", "it's"]),
        (ODD_KEYS, "ints['10']", ["ints.10"]),
        (ODD_KEYS, "tuples[\"(1, 'b')\"]", ["tuples.(1, 'b')"]),
        (MANY, "l[1:-1:2]", ["l.1", "l.3"]),
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
        ("a..b", ".b"), ("a.", ""), ("a[", "["), ("['a'", "['a'"), ("x.a**", "a**"),
        ("a[1:2:3:4]", "[1:2:3:4]"), ("a[b:c]", "[b:c]"), ("a[0]b", "b"),
    ],
)  # fmt: skip
def test_invalid_patterns(pattern: str, at: str) -> None:
    position = len(pattern) - len(at) + 1
    for use in (fj.Filter, lambda p: fj.partition([1], p), lambda p: fj.is_array & p):
        with pytest.raises(ValueError) as info:
            use(pattern)
        assert f"{pattern!r} from character {position} on: {at!r}" in str(info.value)


@pytest.mark.parametrize(
    "filter, meant",
    [
        ("layres.**", "'layers.**'"),
        ("**.wieght", "'**.weight'"),
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
        with pytest.raises(ValueError, match=r"the tree has `a`, `b`\."):
            function({"a": 1, "b": 2}, "c")
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
        (fj.Filter("no", missing="ignore") & "**", False),
        (fj.Filter("a", missing="ignore") & "b", False),
        (fj.Filter("no", missing="ignore") | "no", True),
        (fj.Filter("no"), True),
    ],
    ids=repr,
)
def test_options_that_take_filters_ignore_what_is_missing(filter: Any, is_error: bool) -> None:
    mesh, rules = auto_mesh("data"), fj.sharding.ShardingRules({filter: P(), ...: P()})
    jitted: Any = fj.filter_jit(lambda tree: tree["b"], traced={"tree": filter})
    for use in (jitted, lambda tree: fj.sharding.place(tree, rules, mesh)):
        tree = {"a": jnp.ones(2), "b": jnp.ones(3)}
        if is_error:
            with pytest.raises(ValueError, match="'no' matches no leaf"):
                use(tree)
        else:
            use(tree)


def test_the_empty_pattern_names_the_root() -> None:
    with pytest.raises(ValueError, match="node"):
        fj.partition([1, 2], "")


# ---- filters made of filters ----


def test_operators() -> None:
    tree = {"w": jnp.ones(2), "bias": [jnp.ones(2), jnp.arange(2), "text"], "n": jnp.arange(2)}
    bias = fj.Filter("bias.*")
    text = fj.Filter(is_text)
    assert taken(tree, bias & fj.is_array) == ["bias.0", "bias.1"]
    assert taken(tree, "bias.*" & fj.is_array) == ["bias.0", "bias.1"]
    assert taken(tree, fj.is_array & "bias.*") == ["bias.0", "bias.1"]
    assert taken(tree, "n" | text) == ["bias.2", "n"]
    assert taken(tree, fj.is_array & "bias[-2]") == ["bias.1"]
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
        assert same(eqx.partition([leaf], filter), fj.partition([leaf], filter))


def test_a_filter_that_uses_paths_cannot_be_called_with_a_leaf() -> None:
    for filter in (fj.Filter("a.*"), fj.is_array & "**", ~fj.Filter([True])):
        with pytest.raises(ValueError, match="cannot be called with a leaf"):
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


# Trees for which JAX makes no valid tree of filters of the first level: a missing field gets a filter
# too, and the arguments of a Partial must be a tuple.
NO_PREFIX = ("Module with missing fields", "tree_util.Partial")


# ---- one filter, compared with Equinox's `partition` ----


def tree_of(tree: Any, *filters: Any, prefix: bool = False) -> Any:
    """Returns a tree of filters, taken in turn, of the same structure or of its first level."""
    endless = itertools.cycle(filters)
    is_leaf = (lambda x: x is not tree) if prefix else None
    return jtu.tree_map(lambda _: next(endless), tree, is_leaf=is_leaf)


SPECS: dict[str, Callable[[Any], Any]] = {
    "is_array": lambda tree: eqx.is_array,
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
    "bool of NumPy": lambda tree: np.bool_(True),
    "array": lambda tree: jnp.array(True),
}


@pytest.mark.parametrize("name", TREES)
def test_one_filter_is_as_in_equinox(name: str) -> None:
    """They return the same parts, or raise exceptions of the same type."""
    tree = TREES[name]()
    for spec, make in SPECS.items():
        if name in NO_PREFIX and spec.startswith("prefix"):
            continue
        filter = make(tree)
        for is_leaf, replace in itertools.product(IS_LEAF, (None, 0, [1, None])):
            theirs = outcome(eqx.partition, tree, filter, replace=replace, is_leaf=is_leaf)
            ours = outcome(fj.partition, tree, filter, replace=replace, is_leaf=is_leaf)
            assert same(ours, theirs), spec


def test_a_tracer_is_not_a_filter() -> None:
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


# ---- combine ----


@pytest.mark.parametrize("name", TREES)
def test_combine_is_as_in_equinox(name: str) -> None:
    """Combines any two trees, and the parts of one."""
    tree = TREES[name]()
    for other, (second, *_) in all_trees().items():
        for is_leaf in (None, lambda x: isinstance(x, list)):
            theirs = outcome(eqx.combine, tree, second, is_leaf=is_leaf)
            ours = outcome(fj.combine, tree, second, is_leaf=is_leaf)
            assert same(ours, theirs), other
    parts = fj.partition(tree, fj.is_inexact_array, fj.is_array, is_text)
    assert len(parts) == 4
    for order in itertools.permutations(parts):
        assert same(fj.combine(*order, strict=True), eqx.combine(*order))
    if jtu.tree_leaves(tree):
        with pytest.raises(ValueError, match="is in tree 1 and in tree 2"):
            fj.combine(tree, tree, strict=True)


# ---- several filters ----


@pytest.mark.parametrize(
    "filter, expected",
    [
        (jnp.float32, ["f32", "nf32"]),
        (np.dtype("float32"), ["f32", "nf32"]),
        (jnp.dtype(jnp.bfloat16), ["bf16"]),
        (jnp.floating, ["bf16", "f32", "nf32", "nf64"]),
        (jnp.inexact, ["bf16", "c64", "f32", "nf32", "nf64"]),
        (np.integer, ["i32", "u8"]),
        (jax.dtypes.prng_key, ["key"]),
        (jax.Array, ["bf16", "c64", "f32", "i32", "key", "u8"]),
        (np.ndarray, ["nb", "nf64"]),
        (fj.is_array, ["bf16", "c64", "f32", "i32", "key", "nb", "nf32", "nf64", "u8"]),
    ],
    ids=str,
)
def test_dtypes_and_types_of_arrays(filter: Any, expected: list[str]) -> None:
    tree = {
        "f32": jnp.ones(2), "bf16": jnp.ones(2, jnp.bfloat16), "c64": jnp.ones(2, jnp.complex64),
        "i32": jnp.arange(2), "u8": jnp.arange(2, dtype=jnp.uint8), "key": KEY,
        "nf32": np.float32(1), "nf64": np.ones(2), "nb": np.array([True]), "float": 1.0, "int": 1,
        "type": jnp.float32, "dtype": np.dtype("float32"),
    }  # fmt: skip
    assert taken(tree, filter) == expected
    assert taken(tree, dict.fromkeys(tree, filter)) == expected
    assert taken(tree, ~fj.Filter(filter)) == [k for k in sorted(tree) if k not in expected]


@pytest.mark.parametrize(
    "bad", [1, 1.5, None, b"bytes", [1], np.bool_(True), ARRAY, {"a": 1j}, ...]
)
def test_invalid_filters(bad: Any) -> None:
    with pytest.raises(ValueError):
        fj.partition(3, bad)
    with pytest.raises(ValueError):
        fj.partition([3], True, bad)
    with pytest.raises(ValueError):
        fj.partition_dict(ONE, bad)


# ---- partition_dict ----


@pytest.mark.parametrize("name", TREES)
def test_partition_dict(name: str) -> None:
    tree = TREES[name]()
    structure, *groups = fj.partition_dict(tree, fj.is_inexact_array, jax.Array)
    leaves = dict(zip(fj.tree_paths(tree), fj.flatten(tree, True)[0], strict=True))
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


@pytest.mark.parametrize("tree", [{"0": ONE, "b": ONE}, {0: ONE, 1: ONE}, (ONE, ONE), [ONE, ONE]])
def test_a_quoted_name_in_a_pattern_is_that_of_a_key_or_an_index(tree: Any) -> None:
    chosen, _ = fj.partition(tree, "['0']")
    assert [x is ONE for x in jax.tree.leaves(chosen)] == [True]


UNPICKLABLE = (
    *("jit function", "module", "device", "MLP", "Sequential", "bound method"),
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
