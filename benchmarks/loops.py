#!/usr/bin/env python3
"""What `filterjit.lax.scan` costs while it is traced, and what many steps in one dispatch save:
``loops.py [SECONDS]``.

The first table is the time of ``jax.make_jaxpr`` of a scan over a Module, over the same scan written
by hand with ``equinox.partition`` and ``combine``. The second is 100 steps of Adam in one call of
`filter_jit` over 100 calls of one step each, both awaited.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import timing
from filterjit import filter_jit, lax

Carry = Any
Step = Callable[[Carry, Any], tuple[Carry, Any]]


def by_hand(step: Step, init: Carry, xs: Any) -> Any:
    """A scan over a tree with statics, as Equinox's users write it."""
    arrays, static = eqx.partition(init, eqx.is_array)

    def body(arrays: Any, x: Any) -> tuple[Any, Any]:
        carry, y = step(eqx.combine(arrays, static), x)
        return eqx.partition(carry, eqx.is_array)[0], y

    arrays, ys = jax.lax.scan(body, arrays, xs)
    return eqx.combine(arrays, static), ys


def mlp(depth: int) -> tuple[Carry, Any]:
    model = eqx.nn.MLP(8, 8, 8, depth, activation=jax.nn.gelu, key=jax.random.key(0))
    return model, jnp.ones((100, 8))


def forward(model: Any, x: Any) -> tuple[Any, Any]:
    return model, model(x)


def identity(model: Any, x: Any) -> tuple[Any, Any]:
    return model, x


adam = optax.adam(1e-3)


def adam_step(carry: Carry, batch: Any) -> tuple[Carry, Any]:
    model, moments = carry

    def loss_of(model: Any) -> Any:
        return jnp.mean((jax.vmap(model)(batch) - batch) ** 2)

    loss, gradients = eqx.filter_value_and_grad(loss_of)(model)
    updates, moments = adam.update(gradients, moments)
    return (eqx.apply_updates(model, updates), moments), loss


def training(depth: int) -> tuple[Carry, Any]:
    model, _ = mlp(depth)
    return (model, adam.init(eqx.filter(model, eqx.is_inexact_array))), jnp.ones((100, 32, 8))


def time_to_trace(scan: Callable[..., Any], step: Step, init: Carry, xs: Any) -> float:
    """Returns the seconds of one trace. The step is a new function, for which JAX has kept none."""
    arrays, static = eqx.partition((init, xs), eqx.is_array)

    def flat(arrays: Any) -> Any:
        carry, ys = scan(lambda c, x: step(c, x), *eqx.combine(arrays, static))
        return jax.tree.leaves(eqx.filter((carry, ys), eqx.is_array))

    start = time.perf_counter()
    jax.make_jaxpr(flat)(arrays)
    return time.perf_counter() - start


def trace_times(seconds: float) -> None:
    cases = {
        "MLP of 3 layers": (forward, *mlp(2)),
        "MLP of 24 layers": (forward, *mlp(23)),
        "24 layers, an empty step": (identity, *mlp(23)),
        "Adam, MLP of 3 layers": (adam_step, *training(2)),
        "Adam, MLP of 24 layers": (adam_step, *training(23)),
    }
    print("| tracing a scan | by hand | `lax.scan` | ratio |\n|---|---|---|---|")
    for name, case in cases.items():
        found = timing.interleaved(
            {
                "by hand": lambda case=case: time_to_trace(by_hand, *case),
                "lax.scan": lambda case=case: time_to_trace(lax.scan, *case),
            },
            seconds,
            20,
        )
        one, other = found["by hand"], found["lax.scan"]
        print(f"| {name} | {one * 1e3:.2f} ms | {other * 1e3:.2f} ms | {other / one:.2f} |")


def many_steps(seconds: float) -> None:
    print(
        "\n| 100 steps of Adam, a batch of 32 | 100 calls | one call | ratio |\n|---|---|---|---|"
    )
    for width, depth in ((8, 2), (8, 23), (256, 2)):
        model = eqx.nn.MLP(8, 8, width, depth, key=jax.random.key(0))
        init = model, adam.init(eqx.filter(model, eqx.is_inexact_array))
        batches = list(jnp.ones((100, 32, 8)))
        one_step = filter_jit(adam_step)
        all_steps = filter_jit(lambda carry, xs: lax.scan(adam_step, carry, xs))
        stacked = jnp.stack(batches)

        def calls(init: Carry = init, batches: Any = batches, one_step: Any = one_step) -> float:
            start, carry = time.perf_counter(), init
            for batch in batches:
                carry, loss = one_step(carry, batch)
            jax.block_until_ready(loss)
            return time.perf_counter() - start

        def call(init: Carry = init, stacked: Any = stacked, all_steps: Any = all_steps) -> float:
            start = time.perf_counter()
            jax.block_until_ready(all_steps(init, stacked)[1])
            return time.perf_counter() - start

        calls(), call()
        found = timing.interleaved({"calls": calls, "call": call}, seconds, 10)
        one, other = found["calls"], found["call"]
        print(
            f"| {depth + 1} layers of {width} | {one * 1e3:.1f} ms | {other * 1e3:.1f} ms | {other / one:.2f} |"
        )


if __name__ == "__main__":
    duration = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    trace_times(duration)
    many_steps(duration)
