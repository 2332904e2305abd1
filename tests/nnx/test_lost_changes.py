"""`filter_jit` warns where a function changes an NNX Module in place, and its change is lost."""

from typing import Any

import jax.numpy as jnp
import pytest
from flax import nnx

import filterjit
import filterjit.nnx
from filterjit import filter_jit
from filterjit._compat import _flax_compat

if _flax_compat.variable_type() is None:
    pytest.skip("Variables of this Flax have no get_raw_value", allow_module_level=True)

X = jnp.ones((4, 3))


class Counter(nnx.Module):
    def __init__(self) -> None:
        self.count = nnx.Variable(jnp.zeros(()))
        self.norm = nnx.BatchNorm(3, rngs=nnx.Rngs(0))

    def __call__(self, x: Any) -> Any:
        return self.norm(x)


def counting(model: Any, x: Any) -> Any:
    model.count[...] += 1
    return x


def assigning(model: Any, x: Any) -> Any:
    model.count = nnx.Variable(model.count[...] + 1)
    return x


def calling(models: Any, x: Any) -> Any:
    return models["a"](x)


@pytest.mark.parametrize(("f", "argument", "said"), [
    (counting, lambda: Counter(), "`model.count` in place"),
    (assigning, lambda: Counter(), "`model.count` in place"),
    (calling, lambda: {"a": Counter()}, "`models['a'].norm.mean` and 1 other Variables in place"),
])  # fmt: skip
def test_a_lost_change_is_told_once(f: Any, argument: Any, said: str) -> None:
    jitted, model = filter_jit(f), argument()
    with pytest.warns(UserWarning) as caught:
        jitted(model, X)
        jitted(model, X + 1), jitted(model, X[:2])
    (warning,) = caught
    assert warning.filename == __file__
    text = str(warning.message)
    assert said in text and "`filterjit.nnx.jit`" in text and "test_lost_changes.py:" in text
    counter = model["a"] if isinstance(model, dict) else model
    assert counter.count[...] == 0 and (counter.norm.mean[...] == 0).all()  # it is lost


def test_what_is_not_lost_is_not_told() -> None:
    def returned(model: Any, x: Any) -> Any:
        model.count[...] += 1
        return model, x

    def local(model: Any, x: Any) -> Any:
        other = Counter()
        other.count[...] += model.count[...]
        return x + other.count[...]

    def transformed(model: Any, x: Any) -> Any:
        gradients = nnx.grad(lambda m: nnx.jit(lambda m, x: m(x))(m, x).sum())(model)
        return nnx.jit(lambda m, x: m(x))(model, x), gradients

    filter_jit(transformed)(nnx.Linear(3, 2, rngs=nnx.Rngs(0)), X)  # warnings are errors
    model, _ = filter_jit(returned)(Counter(), X)
    assert model.count[...] == 1
    filter_jit(local)(Counter(), X)
    updated = Counter()
    filterjit.nnx.jit(counting)(updated, X)
    assert updated.count[...] == 1


def test_the_advice_is_for_what_jitted_the_function() -> None:
    def step(model: Any, counter: Any, x: Any) -> Any:
        counter.count[...] += 1
        return model(x)

    model, counter = nnx.Linear(3, 2, rngs=nnx.Rngs(0)), Counter()
    with pytest.warns(UserWarning, match=r"`filterjit.jit` traces a copy of its arguments"):
        filterjit.jit(step)(model, counter, X)
