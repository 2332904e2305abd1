"""Variables and Modules that occur twice, on Flax's and on `filterjit.nnx.jit`."""

import random
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import optax
import pytest
from flax import nnx

import filterjit.nnx
from support.nnx import MODES, Node, in_each_mode, needs_this_flax, outcome

pytestmark = needs_this_flax

GRAPH = sorted(mode for mode in MODES if mode != "tree")
x = jnp.arange(8.0).reshape(2, 4) / 8


class MLP(nnx.Module):
    """Large enough for a record, from six layers on."""

    def __init__(self, layers: int = 8, seed: int = 0) -> None:
        rngs = nnx.Rngs(seed)
        self.layers = nnx.List([nnx.Linear(4, 4, rngs=rngs) for _ in range(layers)])

    def __call__(self, y: Any) -> Any:
        for layer in self.layers:
            y = nnx.relu(layer(y))
        return y


def loss_of(model: Any, y: Any) -> Any:
    return ((model(y) - 1) ** 2).mean()


@pytest.mark.parametrize("layers", [1, 6])
@in_each_mode(modes=["graph"])
def test_a_model_and_its_optimizer(jit: Any, layers: int) -> Iterator[Any]:
    model = MLP(layers)
    optimizer = nnx.ModelAndOptimizer(model, optax.sgd(1e-2, momentum=0.9))

    @jit
    def step(model: Any, optimizer: Any, y: Any) -> Any:
        assert optimizer.model is model
        loss, grads = nnx.value_and_grad(loss_of)(model, y)
        optimizer.update(grads)
        return loss

    for i in range(6):
        yield step(model, optimizer, x + i)
        yield step(optimizer=optimizer, model=model, y=x)
        yield model, optimizer


def _pairs(m: Any, n: Any) -> list[tuple[Any, ...]]:
    """Arguments of the same shapes in which different objects are one."""
    return [
        (m, n, {"a": m.v, "b": n.v}),
        (m, m, {"a": m.v, "b": m.v}),
        (m, n, {"a": n.v, "b": m.v}),
        (n, m, {"a": n.v, "b": m.v}),
        (m, n, {"a": m.v, "b": m.v}),
        (m, n, {"a": nnx.Param(jnp.ones(2)), "b": nnx.Param(jnp.ones(2))}),
        (m, n, {"a": m.v, "b": nnx.Param(jnp.ones(2))}),
        (m, m, {"a": n.v, "b": n.v}),
    ]


@in_each_mode(modes=GRAPH)
def test_what_is_shared_decides_which_program_runs(jit: Any) -> Iterator[Any]:
    m, n = Node(1.0), Node(2.0)
    m.child = n.child = Node(3.0)

    @jit
    def f(m: Any, n: Any, tree: Any) -> Any:
        m.v[...] += 1
        n.v[...] *= 3
        tree["a"][...] -= 5
        tree["b"][...] *= 2
        m.child.v[...] += n.v
        all_of = [m.v, n.v, tree["a"], tree["b"], m.child.v, n.child.v]
        return [i for i, v in enumerate(all_of) for w in all_of if v is w], m is n

    for _ in range(3):
        for args in _pairs(m, n):
            yield outcome(f, *args)
            yield args
    choose = random.Random(0)
    for _ in range(8):
        args = choose.choice(_pairs(m, n))
        yield outcome(f, *args)
        yield args
    n.child = Node(4.0)
    for args in _pairs(m, n):
        yield outcome(f, *args)
        yield args


def test_identity_after_the_call() -> None:
    for jit in (nnx.jit, filterjit.nnx.jit):
        m = Node(1.0, child=Node(2.0))
        m.again = m.child
        shared, tree = m.child, {"m": m, "v": m.child.v}

        @jit
        def f(tree: Any, child: Any) -> Any:
            assert tree["m"].again is child and tree["v"] is child.v
            child.v[...] += 1
            child.new = nnx.Param(child.v * 2)
            return child, tree["m"], child.new

        for _ in range(2):
            found = f(tree, shared)
            assert found[0] is shared is m.child is m.again and found[1] is m
            assert found[2] is shared.new and tree["v"] is shared.v
        assert shared.v[...].tolist() == [4.0, 4.0]


@in_each_mode(modes=GRAPH)
def test_donation_of_what_is_shared(jit: Any) -> Iterator[Any]:
    for options in ({"donate_argnums": 0}, {"donate_argnums": 1}, {"donate_argnums": (0, 1)}):
        m = Node(1.0)
        n = Node(2.0, child=m)

        @jit(**options)
        def f(m: Any, n: Any) -> Any:
            m.v[...] += 1
            n.v[...] += m.v
            return n.child is m

        for _ in range(3):
            old = m.v.get_raw_value(), n.v.get_raw_value()
            yield f(m, n)
            yield [array.is_deleted() for array in old]
            yield m, n


@in_each_mode(handed_over=True, modes=["tree"])
def test_tree_mode_raises(jit: Any) -> Iterator[Any]:
    m = Node(1.0, child=Node(2.0))
    f = jit(lambda m, n: m.v + n.v)
    for args in ((m, m), (m, m.child), ([m.v, m.v], m)):
        yield outcome(f, *args)
    yield f(m.child, Node(1.0))


def test_explanations() -> None:
    f = filterjit.nnx.jit(lambda m, n: m.v + n.v)
    m, n = Node(1.0), Node(2.0)
    f(m, n)
    assert "the same object as `m`" in str(f.explain(m, m))
    n.v = m.v
    text = str(f.explain(m, n))
    assert "the same object as `m.v`" in text and "sharing is part of the structure" in text
    f(m, m)
    assert "hit" in str(f.explain(n, n))
    assert f.cache_info().variants == 2
