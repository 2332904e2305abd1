"""Three problems that users report, and what filterjit says about each."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import filterjit
from filterjit import filter_jit

KEY = jax.random.key(0)


def test_a_first_call_that_takes_minutes() -> None:
    """A trace unrolls a Python loop, and the time to compile looks like run time. The report shows
    the two apart and names the line of the loop."""

    @filter_jit
    def simulate(x: Any) -> Any:
        for _ in range(400):
            x = jnp.sin(x) * 2.0 + jnp.cos(x)
        return x

    for _ in range(3):
        simulate(jnp.ones(3))
    (function,) = simulate.report().as_dict()["functions"]
    (variant,) = function["variants"]
    assert (function["calls"], function["hits"], function["traces"]) == (3, 2, 1)
    assert variant["compiling"] > 0.0 and variant["tracing"] > 0.0
    text = str(simulate.report())
    assert "test_stories.py" in text and "400 copies" in text and "fori_loop" in text


@pytest.mark.parametrize(("functions", "expected"), [("identity", 5), ("structure", 1)])
def test_recreated_lambdas(functions: str, expected: int) -> None:
    """A model that is recreated for each member of an ensemble compiles each time."""
    traces = []

    @filter_jit(functions=functions)
    def predict(model: Any, x: Any) -> Any:
        traces.append(None)
        return model(x)

    def member(seed: int) -> Any:
        activation = lambda x: x * jax.nn.sigmoid(x)
        return eqx.nn.MLP(2, 2, 4, 1, activation=activation, key=jax.random.key(seed))

    models = [member(seed) for seed in range(5)]
    x = jnp.ones(2)
    outputs = [predict(model, x) for model in models]
    assert len(traces) == expected
    for model, out in zip(models, outputs, strict=True):
        assert jnp.allclose(out, model(x))
    explanation = predict.explain(member(9), x)
    assert explanation.hit == (functions == "structure")
    if not explanation.hit:
        (cause,) = explanation.causes
        assert (cause.kind, cause.path) == ("recreated", "model.activation")
        assert 'functions="structure"' in cause.remedy and "test_stories.py" in cause.remedy


def test_a_weak_type_that_changes() -> None:
    """The first state is made from a Python number and has a weak type; the state that the first
    step returns does not. So the second step compiles again."""
    explanations: list[filterjit.types.Explanation] = []

    @filter_jit(on_retrace=explanations.append)
    def step(state: Any, x: Any) -> Any:
        return {"mean": state["mean"] * 0.9 + x.mean()}

    state = {"mean": jnp.asarray(0.0)}
    for _ in range(4):
        state = step(state, jnp.ones(3))
    (explanation,) = explanations
    (cause,) = explanation.causes
    assert (cause.kind, cause.path) == ("weak type", "state['mean']")
    assert "weak type" in cause.was and "weak type" not in cause.now and "dtype=" in cause.remedy

    explanations.clear()
    state = {"mean": jnp.asarray(0.0, dtype=jnp.float32)}
    step(state, jnp.ones(3))
    assert explanations == []
