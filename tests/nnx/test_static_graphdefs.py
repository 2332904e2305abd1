"""A static ``nnx.GraphDef``: what is compared, and what is noticed."""

import copy
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

pytest.importorskip("flax.nnx")

import flax.struct
from flax import nnx
from flax.typing import HashableMapping

import filterjit


class Net(nnx.Module):
    def __init__(self, number: int = 3, extra: Any = 0, **metadata: Any) -> None:
        rngs = nnx.Rngs(0)
        self.layers = nnx.List([nnx.Linear(2, 2, rngs=rngs) for _ in range(number)])
        self.extra = nnx.static(extra)
        self.scale = nnx.Param(jnp.ones(2), **metadata)


class State(flax.struct.PyTreeNode):
    graphdef: nnx.GraphDef[Any]
    params: Any
    opt_state: Any
    step: jax.Array
    tx: Any = flax.struct.field(pytree_node=False)


def split(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
    return nnx.split(Net(*args, **kwargs))


def jitted() -> Any:
    """A jitted function that returns what it saw in the model when it was traced."""

    def f(graphdef: Any, state: Any) -> Any:
        model = nnx.merge(graphdef, state)
        seen = repr((model.extra, model.scale.get_metadata()))
        return seen, jnp.sum(model.scale[...])

    return filterjit.filter_jit(f)


def traces(f: Any) -> int:
    return len(f.variants)


def test_the_same_and_equal_graphdefs() -> None:
    f = jitted()
    graphdef, state = split()
    for _ in range(5):
        f(graphdef, state)
        f(split()[0], state)
    assert traces(f) == 1
    others = [split(4), split(extra=1), split(extra=True), split(extra=1.0), split(note="a")]
    for other, its_state in others:
        for _ in range(3):
            f(other, its_state)
    assert traces(f) == 1 + len(others)


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
    assert f(graphdef, state)[0] != before
    assert f(nnx.split(model)[0], nnx.split(model)[1])[0] != before
    assert traces(f) == 2


@pytest.mark.parametrize("calls", [1, 2, 200])
def test_a_graphdef_that_changes(calls: int) -> None:
    """Nobody should, but each of these is seen."""
    f = filterjit.filter_jit(lambda graphdef, x: (repr(graphdef), x))
    graphdef, _ = split(note=(1, 2))
    x = jnp.ones(2)
    node = next(n for n in graphdef.nodes if isinstance(n, nnx.graphlib.NodeDef))
    variable = next(n for n in graphdef.nodes if isinstance(n, nnx.graphlib.VariableDef))
    at, (key, static) = next(
        (i, pair)
        for i, pair in enumerate(graphdef.attributes)
        if isinstance(pair[1], nnx.graphlib.Static) and pair[0] == "extra"
    )
    count, index = node.num_attributes, variable.index
    for change, back in (
        (lambda: graphdef.nodes.append(node), lambda: graphdef.nodes.pop()),
        (
            lambda: graphdef.attributes.__setitem__(at, ("other", static)),
            lambda: graphdef.attributes.__setitem__(at, (key, static)),
        ),
        (
            lambda: object.__setattr__(static, "value", 5),
            lambda: object.__setattr__(static, "value", 0),
        ),
        (
            lambda: object.__setattr__(node, "num_attributes", 77),
            lambda: object.__setattr__(node, "num_attributes", count),
        ),
        (
            lambda: object.__setattr__(variable, "index", 77),
            lambda: object.__setattr__(variable, "index", index),
        ),
    ):
        for _ in range(calls):
            assert f(graphdef, x)[0] == repr(graphdef)
        number = traces(f)
        change()
        assert f(graphdef, x)[0] == repr(graphdef)
        assert traces(f) == number + 1
        back()
        assert f(graphdef, x)[0] == repr(graphdef)
        assert traces(f) == number + 1


@pytest.mark.parametrize("calls", [1, 2, 200])
def test_mappings(calls: int) -> None:
    @dataclasses.dataclass(frozen=True)
    class Holder:
        mapping: Any

    f = filterjit.filter_jit(lambda holder, x: (repr(holder.mapping), x))
    x = jnp.ones(2)
    own = {"a": 1, "b": 2}
    shared = HashableMapping(own, copy=False)
    inside = HashableMapping({"a": [1]})
    for _ in range(calls):
        assert f(Holder(HashableMapping(own)), x)[0] == repr(own)
        f(Holder(HashableMapping({"b": 2, "a": 1})), x)
    assert traces(f) == 1  # in any order
    f(Holder(HashableMapping({"a": True, "b": 2})), x)
    assert traces(f) == 2

    g = filterjit.filter_jit(lambda holder, x: (repr(holder.value.mapping), x))
    for mapping, change in (
        (shared, lambda: own.update(a=True)),
        (inside, lambda: inside["a"].append(2)),
    ):
        static = Static(Holder(mapping))
        for _ in range(calls):
            assert g(static, x)[0] == repr(mapping)
        change()
        assert g(static, x)[0] == repr(mapping)


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Static:
    value: Any


def test_a_train_state() -> None:
    model = Net()
    graphdef, params = nnx.split(model, nnx.Param)
    tx = optax.adam(1e-2)
    state = State(graphdef, params, tx.init(params), jnp.zeros((), jnp.int32), tx)

    def step(state: Any, x: Any) -> Any:
        def loss(params: Any) -> Any:
            model = nnx.merge(state.graphdef, params)
            for layer in model.layers:
                x_ = layer(x)
            return jnp.mean((x_ * model.scale) ** 2)

        grads = jax.grad(loss)(state.params)
        updates, opt_state = state.tx.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        return state.replace(params=params, opt_state=opt_state, step=state.step + 1)

    ours, plain = filterjit.filter_jit(step), jax.jit(step)
    mine, theirs = state, state
    x = jnp.ones((4, 2))
    for _ in range(5):
        mine, theirs = ours(mine, x), plain(theirs, x)
        assert jax.tree.structure(mine) == jax.tree.structure(theirs)
        assert mine.graphdef is graphdef
    for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
        assert np.array_equal(a, b)
    assert traces(ours) == 1
    # Another, equal graphdef in each step.
    for _ in range(3):
        mine = ours(mine.replace(graphdef=nnx.split(Net(), nnx.Param)[0]), x)
    assert traces(ours) == 1
