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


def total(x: Any) -> Any:
    return jnp.sum(jnp.sin(x) * x)


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


def test_vmap_over_a_jitted_module(jit: Jit) -> None:
    make = eqx.filter_vmap(lambda w: jit(Affine(w)))
    models = make(VECTOR)
    assert models.__wrapped__.w.tolist() == [1, 2, 3]
    out = eqx.filter_vmap(lambda f, x: f(x), in_axes=(eqx.if_array(0), None))(models, TWO)
    assert out.tolist() == [3, 5, 7]


def test_jitted_modules_as_arguments(jit: Jit, traces: Traces) -> None:
    call = jit(traces.counting(lambda f, x: f(x)))
    for w in (ONE, TWO, jnp.array(3.0)):
        assert call(jit(Affine(w)), ONE) == w + 1
    assert traces.count == 1
    assert call(Affine(ONE), ONE) == 2
    assert call(jit(square), TWO) == 12
    assert call(jit(square), ONE) == 3
    assert traces.count == 3
    assert call({"f": jit(Affine(TWO))}["f"], ONE) == 3


def test_jitted_functions_as_results(jit: Jit) -> None:
    @jit
    def f(x: Any) -> Any:
        return jit(Affine(x)), jit(square), x

    for w in (ONE, TWO):
        model, function, _ = f(w)
        assert model(ONE) == w + 1
        assert function(TWO) == 12
        assert model.__wrapped__.name == "affine"


def test_jitted_functions_under_jax_jit(jit: Jit, traces: Traces) -> None:
    """As a pytree argument of ``jax.jit``: its leaves are the arrays (and Equinox's name)."""
    params, static = eqx.partition(jit(Affine(TWO)), eqx.is_array)
    f = jax.jit(traces.counting(lambda params, x: eqx.combine(params, static)(x)))
    assert f(params, ONE) == 3
    assert f(jtu.tree_map(lambda a: a * 2, params), ONE) == 5
    assert traces.count == 1


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


def test_structure_of_equal_wrappers(jit: Jit) -> None:
    one, two = jit(Affine(ONE)), jit(Affine(TWO))
    assert jtu.tree_structure(one) == jtu.tree_structure(two)
    assert jtu.tree_structure(jit(square)) == jtu.tree_structure(jit(square))
    assert jtu.tree_structure(jit(square)) != jtu.tree_structure(jit(total))
    assert jtu.tree_structure(one) != jtu.tree_structure(jit(Affine(ONE, name="other")))
    both = jtu.tree_map(lambda a, b: a + b if eqx.is_array(a) else a, one, two)
    assert both(ONE) == 4


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
