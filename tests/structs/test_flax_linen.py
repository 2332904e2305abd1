"""Modules and states of Flax's linen: the results are those of ``jax.jit`` and Equinox."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import pytest

import filterjit
from support.comparison import Traces, comparable

pytest.importorskip("flax")
optax = pytest.importorskip("optax")
import flax.linen as nn  # noqa: E402
from flax.core import FrozenDict, freeze, unfreeze  # noqa: E402
from flax.training.train_state import TrainState  # noqa: E402

KEY = jax.random.key(0)
X = jax.random.normal(jax.random.key(1), (4, 3))


def same_everywhere(body: Callable[[Any], Any]) -> Any:
    """Runs `body` with ``jax.jit``, Equinox and filterjit. Asserts that all return the same, and
    returns it."""
    theirs = body(jax.jit)
    assert comparable(body(eqx.filter_jit)) == comparable(theirs)
    assert comparable(body(filterjit.filter_jit)) == comparable(theirs)
    return theirs


class Network(nn.Module):
    features: int = 4

    @nn.compact
    def __call__(self, x: Any, train: bool = False) -> Any:
        x = nn.Dense(self.features)(x)
        x = nn.BatchNorm(use_running_average=not train)(x)
        return nn.Dense(1)(nn.relu(x))


@pytest.mark.parametrize("frozen", [False, True], ids=["dict", "FrozenDict"])
def test_linen_training(frozen: bool) -> None:
    model = Network()
    variables = model.init(KEY, X)
    variables = freeze(variables) if frozen else unfreeze(variables)
    assert type(variables) is (FrozenDict if frozen else dict)

    def body(jit: Any) -> Any:
        traces = Traces()

        @jit
        def step(variables: Any, x: Any) -> Any:
            traces.tick()

            def loss(params: Any) -> Any:
                out, updates = model.apply(
                    {"params": params, "batch_stats": variables["batch_stats"]},
                    x,
                    train=True,
                    mutable=["batch_stats"],
                )
                return jnp.mean(out**2), updates

            grads, updates = jax.grad(loss, has_aux=True)(variables["params"])
            params = jtu.tree_map(lambda p, g: p - 0.1 * g, variables["params"], grads)
            new = {"params": params, **updates}
            return freeze(new) if frozen else new

        state: Any = variables
        for _ in range(3):
            state = step(state, X)
        return state, traces.count

    assert same_everywhere(body)[-1] == 1


def test_linen_module_as_an_argument() -> None:
    """A linen Module is not a pytree and can be hashed: it is static."""
    params = Network().init(KEY, X)

    def body(jit: Any) -> Any:
        traces = Traces()

        @jit
        def apply(model: Any, params: Any, x: Any) -> Any:
            traces.tick()
            return model.apply(params, x)

        return [apply(Network(4), params, X) for _ in range(3)], traces.count

    assert comparable(body(filterjit.filter_jit)) == comparable(body(eqx.filter_jit))
    assert body(filterjit.filter_jit)[1] == 1


def test_linen_init_and_apply_as_the_function() -> None:
    model = Network()

    def body(jit: Any) -> Any:
        variables = jit(model.init)(KEY, X)
        return variables, jit(model.apply)(variables, X)

    assert comparable(body(filterjit.filter_jit)) == comparable(body(eqx.filter_jit))


def test_train_state() -> None:
    model = nn.Dense(2)
    params = model.init(KEY, X)["params"]

    def body(jit: Any) -> Any:
        traces = Traces()

        @jit
        def step(state: Any, x: Any) -> Any:
            traces.tick()
            loss = lambda p: jnp.mean(state.apply_fn({"params": p}, x) ** 2)
            value, grads = jax.value_and_grad(loss)(state.params)
            return state.apply_gradients(grads=grads), value

        # `step` is an int at first, and an array later.
        state = TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(0.1))
        state = state.replace(step=jnp.asarray(0))
        values = []
        for _ in range(4):
            state, value = step(state, X)
            values.append(value)
        return values, state.params, state.opt_state, state.step, traces.count

    same_everywhere(body)
