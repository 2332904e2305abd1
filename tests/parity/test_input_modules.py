"""Modules, states and optimisers as arguments, and fields that are changed in place."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import filterjit
from support.comparison import Jit, Traces, check, on_both
from support.modules import Module
from support.trees import KEY, MLP, ONE


def test_deep_changes_are_seen(jit: Jit) -> None:
    """Changes five levels down, in a Module, a list and a dict, are noticed."""
    traces = Traces()

    @jit
    def f(m: Any, x: Any) -> Any:
        traces.tick()
        leaf = m.a[0]["k"].a.a
        return leaf.name, x + leaf.a

    leaf = Module(1)
    inner = {"k": Module(Module(leaf))}
    model = Module([inner])
    assert f(model, ONE) == ("name", 2)
    object.__setattr__(leaf, "name", "other")
    assert f(model, ONE) == ("other", 2)
    object.__setattr__(leaf, "a", 5)
    assert f(model, ONE) == ("other", 6)
    inner["k"] = Module(Module(Module(7, "third")))
    assert f(model, ONE) == ("third", 8)
    model.a[0] = {"k": Module(Module(leaf))}
    assert f(model, ONE) == ("other", 6)
    object.__setattr__(leaf, "a", jnp.array(9.0))
    assert f(model, ONE) == ("other", 10)
    assert traces.count == 5


def test_unhashable_static_field_changed_in_place() -> None:
    # Equinox's key holds the list itself, so its result is stale. filterjit notices the change.
    def run(jit: Jit) -> list[Any]:
        @jit
        def f(m: Any, x: Any) -> Any:
            return x + sum(m.name)

        values = [1, 2]
        m = Module(None, values)  # type: ignore[arg-type]
        results = [f(m, ONE)]
        values.append(10)
        results.append(f(m, ONE))
        values[:] = [1, 2]
        results.append(f(m, ONE))
        values[0] = 5
        results.append(f(m, ONE))
        return [float(r) for r in results]

    assert run(filterjit.filter_jit) == [4, 14, 4, 8]
    assert run(eqx.filter_jit) == [4, 4, 4, 4]


def test_wrapper_modules_are_told_apart(jit: Jit) -> None:
    """The attributes that ``module_update_wrapper`` sets are part of the key."""
    traces = Traces()

    class Wrapper(eqx.Module):
        fn: Any

        @property
        def __wrapped__(self) -> Any:
            return self.fn

        def __call__(self, x: Any) -> Any:
            return self.fn(x), self.__name__

    def one(x: Any) -> Any:
        return x + 1

    def two(x: Any) -> Any:
        return x + 2

    @jit
    def call(m: Any, x: Any) -> Any:
        traces.tick()
        return m(x)

    wrapped_one = eqx.module_update_wrapper(Wrapper(one))
    wrapped_two = eqx.module_update_wrapper(Wrapper(two))
    for _ in range(2):
        assert call(wrapped_one, ONE) == (2, "one")
        assert call(wrapped_two, ONE) == (3, "two")
        assert jit(wrapped_one)(ONE) == (2, "one")
    object.__setattr__(wrapped_two, "__name__", "renamed")
    assert call(wrapped_two, ONE) == (3, "renamed")
    assert traces.count == 3


# ---- states, optimisers, layers ----


@on_both
def test_state_is_used_up(jit: Jit) -> Any:
    """A State that was passed on is invalid, as in Equinox."""
    index = eqx.nn.StateIndex(ONE)

    class Counter(eqx.Module):
        index: eqx.nn.StateIndex

        def __call__(self, state: Any) -> Any:
            return state.set(self.index, state.get(self.index) + 1)

    counter, state = eqx.nn.make_with_state(Counter)(index)
    step = jit(counter)
    after = step(step(state))
    try:
        reuse: Any = step(state).get(counter.index)
    except ValueError as e:
        reuse = str(e)
    return after.get(counter.index), reuse


def test_an_optimiser_step(jit: Jit) -> None:
    traces = Traces()
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-2))

    @jit
    def step(model: Any, state: Any, x: Any, y: Any, optimiser: Any) -> Any:
        traces.tick()

        def loss(m: Any) -> Any:
            return jnp.mean((jax.vmap(m)(x) - y) ** 2)

        value, grads = eqx.filter_value_and_grad(loss)(model)
        updates, state = optimiser.update(grads, state, eqx.filter(model, eqx.is_array))
        return eqx.apply_updates(model, updates), state, value

    model, x = MLP, jax.random.normal(KEY, (8, 2))
    y = x[:, ::-1]
    state = optimiser.init(eqx.filter(model, eqx.is_array))
    losses = []
    for _ in range(5):
        model, state, loss = step(model, state, x, y, optimiser)
        losses.append(float(loss))
    assert losses[-1] < losses[0]
    assert traces.count == 1


def test_layers_run() -> None:
    x = jnp.arange(6.0).reshape(2, 3)
    layers: list[tuple[Any, tuple[Any, ...]]] = [
        (eqx.nn.Conv1d(2, 1, 2, key=KEY), (x,)),
        (eqx.nn.LSTMCell(3, 2, key=KEY), (x[0], (jnp.ones(2), jnp.zeros(2)))),
        (eqx.nn.Embedding(4, 3, key=KEY), (jnp.array(2),)),
        (eqx.nn.Identity(), (x,)),
        (eqx.nn.MLP("scalar", "scalar", 4, 1, key=KEY), (ONE,)),
    ]

    def body(jit: Jit) -> Any:
        results = []
        for layer, args in layers:
            call = jit(lambda layer, *args: layer(*args))
            results += [call(layer, *args), jit(layer)(*args)]
        return results

    check(body)


def test_one_trace_for_equal_models(jit: Jit) -> None:
    """Models that differ in their arrays only share the trace."""
    traces = Traces()

    @jit
    def f(model: Any, x: Any) -> Any:
        traces.tick()
        return model(x)

    for seed in range(4):
        f(eqx.nn.MLP(2, 2, 4, 2, key=jax.random.key(seed)), jnp.ones(2))
    assert traces.count == 1
    f(eqx.nn.MLP(2, 2, 5, 2, key=KEY), jnp.ones(2))
    assert traces.count == 2
