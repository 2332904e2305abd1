"""Trains a small transformer on several devices, data-parallel and fully sharded.

    python examples/distributed.py                  one process with 8 devices of the CPU
    python examples/distributed.py --processes 4    4 processes with 2 devices each
    make demo-distributed                           both

The same lines run on one process and on several: each process has the same seed and so the same
batches, and passes them whole. The losses are those of one device, but for rounding.
"""

import argparse
import os
import socket
import subprocess
import sys
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from filterjit import filter_jit
from filterjit.sharding import ShardingRules, fsdp, place

DEVICES, STEPS = 8, 10
SECONDS = 120  # for each process
OPTIMIZER = optax.adam(3e-3)
KINDS = {
    "data-parallel": ShardingRules({...: P()}),
    "fully sharded": ShardingRules({"**.weight": fsdp("data", min_size=256), ...: P()}),
}


class Block(eqx.Module):
    attention: eqx.nn.MultiheadAttention
    mlp: eqx.nn.MLP
    norm: eqx.nn.LayerNorm

    def __init__(self, size: int, key: Any) -> None:
        keys = jax.random.split(key)
        self.attention = eqx.nn.MultiheadAttention(2, size, key=keys[0])
        self.mlp = eqx.nn.MLP(size, size, 4 * size, 1, jax.nn.gelu, key=keys[1])
        self.norm = eqx.nn.LayerNorm(size)

    def __call__(self, x: Any) -> Any:
        y = jax.vmap(self.norm)(x)
        x = x + self.attention(y, y, y, jnp.tril(jnp.ones((len(x), len(x)), bool)))
        return x + jax.vmap(self.mlp)(x)


class Transformer(eqx.Module):
    embed: eqx.nn.Embedding
    blocks: list[Block]
    head: eqx.nn.Linear

    def __init__(self, key: Any, tokens: int = 16, size: int = 32, depth: int = 2) -> None:
        keys = jax.random.split(key, depth + 2)
        self.embed = eqx.nn.Embedding(tokens, size, key=keys[0])
        self.blocks = [Block(size, k) for k in keys[2:]]
        self.head = eqx.nn.Linear(size, tokens, key=keys[1])

    def __call__(self, tokens: Any) -> Any:
        x = jax.vmap(self.embed)(tokens)
        for block in self.blocks:
            x = block(x)
        return jax.vmap(self.head)(x)


def init(key: Any) -> Any:
    model = Transformer(key)
    return model, OPTIMIZER.init(eqx.filter(model, eqx.is_inexact_array))


def step(model: Any, state: Any, tokens: Any) -> Any:
    def loss(model: Any) -> Any:
        logits = jax.vmap(model)(tokens[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    value, gradients = eqx.filter_value_and_grad(loss)(model)
    updates, state = OPTIMIZER.update(gradients, state)
    return eqx.apply_updates(model, updates), state, value


def train(init: Any, step: Any, place_batch: Any) -> tuple[list[float], Any]:
    """Returns the losses, and the model."""
    starts = np.random.default_rng(0).integers(16, size=(STEPS, 32, 1))
    batches = ((starts + np.arange(13)) % 16).astype(np.int32)  # sequences that count upwards
    model, state = init(jax.random.key(0))
    losses = []
    for batch in batches:
        model, state, value = step(model, state, place_batch(batch))
        losses.append(float(value))
    return losses, model


def train_all(index: int) -> None:
    mesh = jax.make_mesh((DEVICES,), ("data",), axis_types=(AxisType.Auto,))
    for name, rules in KINDS.items():
        sharded_init = filter_jit(init, out_shardings=rules, mesh=mesh)
        sharded_step = filter_jit(
            step,
            in_shardings={"model": rules, "state": rules, "tokens": P("data")},
            out_shardings=(rules, rules, P()),
            mesh=mesh,
            donate="all",
        )
        start = time.perf_counter()
        losses, model = train(sharded_init, sharded_step, lambda x: place(x, P("data"), mesh))
        seconds = time.perf_counter() - start
        info = sharded_step.cache_info()
        assert (info.hits, info.misses) == (STEPS - 1, 1), info
        if index > 0:
            continue
        expected, _ = train(filter_jit(init), filter_jit(step), lambda x: x)
        np.testing.assert_allclose(losses, expected, rtol=2e-4)
        arrays = jax.tree.leaves(eqx.filter(model, eqx.is_array))
        held = sum(x.addressable_shards[0].data.nbytes for x in arrays)
        print(
            f"{name}: loss {losses[0]:.3f} to {losses[-1]:.3f}, as on one device; {held:,} of "
            f"{sum(x.nbytes for x in arrays):,} bytes of the model on each device; {seconds:.1f} s"
        )


def start_processes(count: int) -> int:
    """Starts the processes here, with a time limit, and returns the first status that is not 0."""
    with socket.socket() as s:
        s.bind(("localhost", 0))
        coordinator = f"localhost:{s.getsockname()[1]}"
    command = [sys.executable, __file__, "--processes", str(count), "--coordinator", coordinator]
    processes = [subprocess.Popen([*command, "--index", str(i)]) for i in range(count)]
    deadline = time.monotonic() + SECONDS
    try:
        statuses = [p.wait(max(1.0, deadline - time.monotonic())) for p in processes]
    except subprocess.TimeoutExpired:
        print(f"the processes did not end in {SECONDS} seconds", file=sys.stderr)
        return 1
    finally:
        for process in processes:
            process.kill()
    return next((status for status in statuses if status), 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=1, choices=(1, 2, 4, 8))
    parser.add_argument("--coordinator", help=argparse.SUPPRESS)
    parser.add_argument("--index", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.processes > 1 and options.coordinator is None:
        return start_processes(options.processes)
    # Programs of this size take far longer to optimize than to run.
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0"
    os.environ["XLA_FLAGS"] = flags
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", DEVICES // options.processes)
    if options.coordinator is not None:
        jax.distributed.initialize(options.coordinator, options.processes, options.index)
    train_all(options.index)
    if options.coordinator is not None:
        jax.distributed.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
