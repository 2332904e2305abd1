"""Times what `filterjit.lax.scan` costs in a trace, and many steps of training in one call.

    python benchmarks/loops.py [--quick] [--markdown] [trace] [steps]

``trace``: ``jax.make_jaxpr`` of a scan whose carry has statics, beside the same scan with the statics
taken out by hand, by ``equinox.partition`` and ``combine``. It is processor time, since nothing else
runs. ``steps``: 100 steps of Adam in one awaited call of `filter_jit`, beside 100 calls of one step.
"""

import functools
import os
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import command
from filterjit import filter_jit, lax
from layout import lay_out
from timing import interleaved

Step = Callable[[Any, Any], tuple[Any, Any]]
STEPS, BATCH = 100, 32

adam = optax.adam(1e-3)


def by_hand(step: Step, init: Any, xs: Any) -> Any:
    arrays, static = eqx.partition(init, eqx.is_array)

    def body(arrays: Any, x: Any) -> tuple[Any, Any]:
        carry, y = step(eqx.combine(arrays, static), x)
        return eqx.partition(carry, eqx.is_array)[0], y

    arrays, ys = jax.lax.scan(body, arrays, xs)
    return eqx.combine(arrays, static), ys


def nothing(carry: Any, x: Any) -> tuple[Any, Any]:
    return carry, x


def inference(carry: Any, x: Any) -> tuple[Any, Any]:
    return carry, jax.vmap(carry[0])(x)


def training(carry: Any, x: Any) -> tuple[Any, Any]:
    model, moments = carry

    def loss_of(model: Any) -> Any:
        return jnp.mean((jax.vmap(model)(x) - x) ** 2)

    loss, gradients = eqx.filter_value_and_grad(loss_of)(model)
    updates, moments = adam.update(gradients, moments)
    return (eqx.apply_updates(model, updates), moments), loss


def state(layers: int, width: int) -> Any:
    model = eqx.nn.MLP(8, 8, width, layers - 1, key=jax.random.key(0))
    return model, adam.init(eqx.filter(model, eqx.is_inexact_array))


def trace(scan: Callable[..., Any], step: Step, init: Any) -> float:
    """Returns the seconds of a trace. The step is a new function, of which JAX has kept none."""
    arrays, static = eqx.partition(init, eqx.is_array)

    def flat(arrays: Any, xs: Any) -> Any:
        carry, ys = scan(lambda c, x: step(c, x), eqx.combine(arrays, static), xs)
        return jax.tree.leaves((eqx.filter(carry, eqx.is_array), ys))

    start = time.thread_time()
    jax.make_jaxpr(flat)(arrays, jnp.ones((STEPS, BATCH, 8)))
    return time.thread_time() - start


def table_of_traces(seconds: float, markdown: bool) -> str:
    lines = [["the step, and the carry", "by hand", "`lax.scan` over it"]]
    for step in (nothing, inference, training):
        for layers in (3, 24):
            init = state(layers, 8)
            found = interleaved(
                {
                    "by hand": functools.partial(trace, by_hand, step, init),
                    "ours": functools.partial(trace, lax.scan, step, init),
                },
                seconds,
                5,
            )
            name = f"{step.__name__}, an MLP of {layers} layers and moments"
            ratio = found["ours"] / found["by hand"]
            lines.append([name, f"{found['by hand'] * 1e3:.2f} ms", f"{ratio:.2f}"])
    return lay_out(lines, markdown=markdown)


def table_of_steps(seconds: float, markdown: bool) -> str:
    lines = [[f"{STEPS} steps of Adam, batches of {BATCH}", f"{STEPS} calls", "one call over them"]]
    batches = list(jax.random.normal(jax.random.key(1), (STEPS, BATCH, 8)))
    stacked = jnp.stack(batches)
    one = filter_jit(training)
    many = filter_jit(lambda carry, xs: lax.scan(training, carry, xs))

    def one_by_one(carry: Any) -> float:
        start = time.perf_counter()
        for batch in batches:
            carry, loss = one(carry, batch)
        jax.block_until_ready(loss)
        return time.perf_counter() - start

    def at_once(carry: Any) -> float:
        start = time.perf_counter()
        jax.block_until_ready(many(carry, stacked)[1])
        return time.perf_counter() - start

    for layers, width in ((3, 8), (24, 8), (3, 256)):
        init = state(layers, width)
        calls = {f.__name__: functools.partial(f, init) for f in (one_by_one, at_once)}
        for call in calls.values():
            call()
        found = interleaved(calls, seconds, 5)
        ratio = found["at_once"] / found["one_by_one"]
        name = f"an MLP of {layers} layers of width {width}"
        lines.append([name, f"{found['one_by_one'] * 1e3:.1f} ms", f"{ratio:.2f}"])
    return lay_out(lines, markdown=markdown)


TABLES = {"trace": table_of_traces, "steps": table_of_steps}


def main(argv: list[str] | None = None) -> int:
    given = command.parser(
        "Times filterjit.lax.scan.", quick="5 rounds", metavar="TABLE", names=TABLES
    ).parse_args(argv)
    seconds = 0.0 if given.quick else 10.0
    return command.run(
        lambda: "\n\n".join([TABLES[name](seconds, given.markdown) for name in given.names])
    )


if __name__ == "__main__":
    sys.exit(main())
