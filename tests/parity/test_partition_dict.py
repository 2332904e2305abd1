"""`partition_dict`: the arrays of a tree as dicts of paths."""

import io
import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import optax
import pytest

import filterjit as fj
from support.comparison import comparable, same
from support.trees import KEY, TREES

MODEL = eqx.nn.MLP(2, 2, 4, 2, key=KEY)


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


def test_combine_uses_what_the_dicts_hold_now() -> None:
    structure, biases, rest = fj.partition_dict(MODEL, "**.bias")
    assert list(biases) == ["layers.0.bias", "layers.1.bias", "layers.2.bias"]
    biases = {path: path for path in reversed(biases)}
    model = structure.combine(biases, rest)
    assert model.layers[1].bias == "layers.1.bias"
    assert model.layers[1].weight is MODEL.layers[1].weight
    assert model.activation is MODEL.activation
    assert same(structure.combine({**biases, **rest}), model)
    assert structure.unflatten(range(6)).layers[2].bias == 5


def test_other_libraries_take_dicts_of_paths() -> None:
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
    for path, leaf in zip(fj.tree_paths(theirs), fj.flatten(theirs, True)[0], strict=True):
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
