"""A static ``nnx.GraphDef``: what is compared, and what is noticed."""

import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from flax.training.train_state import TrainState

import filterjit
from support.trees import LIST

STATIC = nnx.static if hasattr(nnx, "List") else lambda x: x  # Flax 0.12 and newer have it


class Net(nnx.Module):
    def __init__(self, number: int = 3, extra: Any = 0, **metadata: Any) -> None:
        rngs = nnx.Rngs(0)
        self.layers = LIST([nnx.Linear(2, 2, rngs=rngs) for _ in range(number)])
        self.extra = STATIC(extra)
        self.scale = nnx.Param(jnp.ones(2), **metadata)


def split(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
    return nnx.split(Net(*args, **kwargs))


def jitted() -> Any:
    """A jitted function that returns what it saw in the model when it was traced."""

    def f(graphdef: Any, state: Any) -> Any:
        model = nnx.merge(graphdef, state)
        seen = repr((model.extra, sorted(model.scale.get_metadata().items())))
        return seen, jnp.sum(model.scale[...])

    return filterjit.filter_jit(f)


def test_the_same_and_equal_graphdefs() -> None:
    f = jitted()
    graphdef, state = split()
    for _ in range(5):
        f(graphdef, state)
        f(split()[0], state)
    assert len(f.variants) == 1
    others = [split(4), split(extra=1), split(extra=True), split(extra=1.0), split(note="a")]
    for other, its_state in others:
        for _ in range(3):
            f(other, its_state)
    assert len(f.variants) == 1 + len(others)


@pytest.mark.parametrize("calls", [1, 2, 200])
@pytest.mark.parametrize(
    "kwargs, change",
    [
        ({"extra": [1]}, lambda m: m.extra.append(2)),
        ({"extra": {"a": [1]}}, lambda m: m.extra["a"].append(2)),
        ({"extra": {1}}, lambda m: m.extra.add(2)),
        ({"note": [1]}, lambda m: m.scale.get_metadata()["note"].append(2)),
        ({"note": {"a": 1}}, lambda m: m.scale.get_metadata()["note"].update(a=True)),
    ],
)
def test_values_in_a_graphdef_that_change(kwargs: Any, change: Any, calls: int) -> None:
    f = jitted()
    model = Net(**copy.deepcopy(kwargs))
    graphdef, state = nnx.split(model)
    for _ in range(calls):
        before = f(graphdef, state)[0]
    change(model)
    # Older versions of Flax copy containers, so that the GraphDef stays as it was.
    assert f(graphdef, state)[0] == f.__wrapped__(graphdef, state)[0]
    assert f(nnx.split(model)[0], nnx.split(model)[1])[0] != before
    assert len(f.variants) == 2


def test_a_train_state() -> None:
    graphdef, params = nnx.split(Net(), nnx.Param)
    state = TrainState.create(apply_fn=graphdef, params=params, tx=optax.adam(1e-2))
    state = state.replace(step=jnp.array(0))

    def step(state: Any, x: Any) -> Any:
        def loss(params: Any) -> Any:
            model = nnx.merge(state.apply_fn, params)
            return jnp.mean((model.layers[0](x) * model.scale) ** 2)

        return state.apply_gradients(grads=jax.grad(loss)(state.params))

    ours, plain = filterjit.filter_jit(step), jax.jit(step)
    mine = theirs = state
    for i in range(8):
        if i > 4:  # another, equal graphdef in each step
            mine = mine.replace(apply_fn=nnx.split(Net(), nnx.Param)[0])
        mine, theirs = ours(mine, jnp.ones((4, 2))), plain(theirs, jnp.ones((4, 2)))
        assert jax.tree.structure(mine) == jax.tree.structure(theirs)
        assert mine.apply_fn is graphdef
    for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
        assert np.array_equal(a, b)
    assert len(ours.variants) == 1
