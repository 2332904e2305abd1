"""Filters made of filters, and filters that misbehave."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import filterjit as fj
from support.comparison import same
from support.filters import is_text, taken
from support.trees import ONE

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


def test_a_tree_of_filters_inside_a_filter() -> None:
    tree = {"a": [1, 2], "b": [3, "x"]}
    mask = {"a": [True, False], "b": True}
    assert taken(tree, fj.Filter(mask)) == taken(tree, mask) == ["a.0", "b.0", "b.1"]
    assert taken(tree, fj.Filter(mask) & is_text) == ["b.1"]
    with pytest.raises(ValueError, match="differs from the filter"):
        taken(tree, fj.Filter({"a": True}) | is_text)
