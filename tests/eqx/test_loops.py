"""Loops of Equinox inside a jitted function."""

from typing import Any

import equinox as eqx
import equinox.internal as eqxi
import jax.numpy as jnp
import pytest

from support.comparison import Jit, Traces, on_both
from support.features import X, fails
from support.trees import KEY, ONE, TWO


@pytest.mark.parametrize("kind", ["lax", "checkpointed", "bounded"])
@on_both
def test_while_loop(jit: Jit, kind: Any) -> Any:
    traces = Traces()

    def total(model: Any, x: Any, bound: Any) -> Any:
        traces.tick()

        def step(carry: Any) -> Any:
            i, y = carry
            return i + 1, model(y) + y

        options = {"checkpoints": 2} if kind == "checkpointed" else {}
        _, y = eqxi.while_loop(
            lambda c: c[0] < bound, step, (0, x), max_steps=6, kind=kind, **options
        )
        return jnp.sum(y)

    model = eqx.nn.Linear(2, 2, key=KEY)
    x = jnp.array([1.0, 2.0])
    results: list[Any] = [jit(total)(model, x, jnp.array(n)) for n in (0, 3, 3, 10)]
    if kind != "lax":
        grad = eqx.filter_grad
        inside = kind == "checkpointed"
        results.append((jit(grad(total)) if inside else grad(jit(total)))(model, x, ONE * 3))
    return results, traces.count


@pytest.mark.parametrize("kind", ["lax", "checkpointed"])
@on_both
def test_scan(jit: Jit, kind: Any) -> Any:
    def total(cell: Any, xs: Any) -> Any:
        options = {"checkpoints": "all"} if kind == "checkpointed" else {}
        last, every = eqxi.scan(
            lambda h, x: (cell(x, h), jnp.sum(h)), jnp.zeros(2), xs, kind=kind, **options
        )
        return jnp.sum(last) + jnp.sum(every)

    cell = eqx.nn.GRUCell(1, 2, key=KEY)
    return jit(eqx.filter_value_and_grad(total))(cell, X[:, None])


@on_both
def test_loop_with_buffers_and_errors(jit: Jit) -> Any:
    @jit
    def f(x: Any) -> Any:
        def step(carry: Any) -> Any:
            i, buffer = carry
            value = eqx.error_if(x * i, i * x > 10, "too big")
            return i + 1, buffer.at[i].set(value)

        return eqxi.while_loop(
            lambda c: c[0] < 5,
            step,
            (0, jnp.zeros(5)),
            buffers=lambda c: c[1],
            max_steps=5,
            kind="checkpointed",
        )

    return f(ONE), fails(lambda: f(TWO * 2))[:2], f(TWO)
