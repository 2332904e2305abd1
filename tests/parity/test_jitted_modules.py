"""A jitted Module is a pytree: transformations of it, and of trees that hold it."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu

from support.callables import Affine, square
from support.comparison import Jit, Traces
from support.trees import ONE, TWO

VECTOR = jnp.arange(1.0, 4.0)


def test_gradient_through_a_jitted_module(jit: Jit, traces: Traces) -> None:
    class Model(eqx.Module):
        w: Any
        b: Any = 1.0

        def __call__(self, x: Any) -> Any:
            traces.tick()
            return self.w * x + self.b

    model = jit(Model(TWO))

    @eqx.filter_grad
    def grad(f: Any, x: Any) -> Any:
        return f(x) ** 2

    for _ in range(2):
        gradient = grad(model, ONE)
        assert gradient.__wrapped__.w == 6
        assert gradient(TWO) == 2 * 6 + 1  # the gradient is a jitted Module too
    assert traces.count == 1
    value, gradient = eqx.filter_value_and_grad(lambda f: f(ONE))(model)
    assert (value, gradient.__wrapped__.w) == (3, 1)
    assert jit(eqx.filter_grad(lambda f: f(ONE)))(model).__wrapped__.w == 1
    assert traces.count == 1


def test_jitted_functions_as_results(jit: Jit) -> None:
    @jit
    def f(x: Any) -> Any:
        return jit(Affine(x)), jit(square), x

    for w in (ONE, TWO):
        model, function, _ = f(w)
        assert model(ONE) == w + 1
        assert function(TWO) == 12
        assert model.__wrapped__.name == "affine"


def test_tree_operations(jit: Jit) -> None:
    model = jit(Affine(TWO, VECTOR))
    doubled = jtu.tree_map(lambda x: x * 2 if eqx.is_array(x) else x, model)
    assert doubled(ONE).tolist() == [6, 8, 10]
    assert model(ONE).tolist() == [3, 4, 5]
    params, static = eqx.partition(model, eqx.is_array)
    assert eqx.combine(params, static)(ONE).tolist() == [3, 4, 5]
    assert sum(eqx.is_array(x) for x in jtu.tree_leaves(model)) == 2
    updated = eqx.apply_updates(params, jtu.tree_map(jnp.ones_like, params))
    assert eqx.combine(updated, static)(ONE).tolist() == [5, 6, 7]
    assert type(doubled.__wrapped__) is Affine
    assert jtu.tree_structure(params) == jtu.tree_structure(jtu.tree_map(lambda x: x, params))
    assert eqx.tree_equal(doubled, jtu.tree_map(lambda x: x, doubled))


def test_bound_methods_are_trees(jit: Jit, traces: Traces) -> None:
    class Model(eqx.Module):
        w: Any

        @jit
        def apply(self, x: Any) -> Any:
            traces.tick()
            return self.w * x

    @eqx.filter_grad
    def grad(f: Any, x: Any) -> Any:
        return f(x)

    method = Model(TWO).apply
    assert [float(x) for x in jtu.tree_leaves(grad(method, ONE)) if eqx.is_array(x)] == [1]
    doubled = jtu.tree_map(lambda x: x * 2 if eqx.is_array(x) else x, method)
    assert doubled(ONE) == 4
    assert jax.vmap(method)(VECTOR).tolist() == [2, 4, 6]
    assert jit(method)(ONE) == 2
    assert jit(lambda f, x: f(x))(method, ONE) == 2
    assert jit(lambda f, x: f(x))(Model(ONE).apply, ONE) == 1
    assert traces.count == 2  # one for a scalar, one for a batch
