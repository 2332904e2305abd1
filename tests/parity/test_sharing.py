"""Which jitted functions share their traces, and jitted Modules as pytrees."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu

from support.comparison import Jit, Traces
from support.lifetimes import collect
from support.trees import ONE, TWO

VECTOR = jnp.arange(1.0, 4.0)


def test_two_wrappers_share(jit: Jit, traces: Traces) -> None:
    f = traces.counting(lambda x: x + 1)
    one, two = jit(f), jit(f)
    assert one == two
    assert hash(one) == hash(two) and one != jit(lambda x: x + 1) and (one == f) is False
    assert one(ONE) == two(ONE) == jit(f)(ONE) == 2
    assert traces.count == 1
    del one
    collect()
    assert two(ONE) == jit(f)(ONE) == 2
    assert traces.count == 1


def test_wrappers_made_in_a_loop_share(jit: Jit, traces: Traces) -> None:
    class M(eqx.Module):
        w: Any
        n: int = eqx.field(static=True, default=1)

        def method(self, x: Any) -> Any:
            traces.tick()
            return self.w * x * self.n

        def __call__(self, x: Any) -> Any:
            traces.tick()
            return self.w + x

    for i in range(5):
        m = M(jnp.array(float(i)))
        assert jit(m.method)(ONE) == i
        assert jit(M(ONE * i).method)(ONE) == i
    assert traces.count == 1
    for i in range(5):
        assert jit(M(jnp.array(float(i))))(ONE) == i + 1
        assert jit(eqx.Partial(M(ONE * i)))(ONE) == i + 1
    assert traces.count == 3
    assert jit(M(ONE, 2).method)(ONE) == 2
    assert traces.count == 4


def test_other_options_do_not_share(ours: bool, jit: Jit, traces: Traces) -> None:
    """By decision each set of options has a cache; Equinox shares between "all" and "warn"."""
    f = traces.counting(lambda x: x + 1)
    options: list[dict[str, Any]] = [{"donate": "all"}, {"inline": True}, {"keep_unused": True}]
    options += [{}, {"donate": "warn"}]
    options += [{"maxsize": 7}, {"functions": "structure"}, {"on_retrace": "log"}] if ours else []
    for given in options * 2:
        assert jit(f, **given)(jnp.ones(3)).tolist() == [2, 2, 2]
    assert traces.count == (8 if ours else 4)
    assert (jit(f) == jit(f, donate="all")) is False


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
