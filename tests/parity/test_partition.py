"""`partition` with one filter and with several, and `combine`."""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest

import filterjit as fj
from support.comparison import outcome, same
from support.filters import IS_LEAF, is_text, taken
from support.modules import Module
from support.trees import ARRAY, KEY, ONE, TREES

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


def test_errors_of_combine_name_the_place() -> None:
    with pytest.raises(ValueError, match=r"tree 2 differs from tree 1 at `\['a'\]`"):
        fj.combine({"a": [1]}, {"a": (2,)})
    one, two = {"m": Module([1, None])}, {"m": Module([None, 2])}
    assert same(fj.combine(one, two, strict=True), {"m": Module([1, 2])})
    with pytest.raises(ValueError, match=r"`\['m'\]\.a\[1\]` is in tree 2 and in tree 3"):
        fj.combine(one, two, two, strict=True)
    assert same(fj.combine(one, two, two), {"m": Module([1, 2])})


# ---- several filters ----


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
def test_invalid_filters(bad: Any) -> None:
    with pytest.raises(ValueError):
        fj.partition(3, bad)
    with pytest.raises(ValueError):
        fj.partition([3], True, bad)
    with pytest.raises(ValueError):
        fj.partition_dict(ONE, bad)


# ---- inside transformations ----
