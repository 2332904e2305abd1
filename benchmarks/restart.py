"""Times a fresh process until its first result: one that compiles, and those that need not.

    python benchmarks/restart.py [--rounds N] [--markdown] [--case NAME]
    python benchmarks/restart.py --programs [--rounds N] [--markdown]

Each way to the first result has its own processes, which run alternately; the best of each counts.
The clock starts when the model exists and JAX has found its device, and stops when the first result
is there. It is that of the process, so that other work of the machine does not count. The training
step is compiled without most of XLA's optimizations, which take minutes for it.

With `--programs`, the parent times whole programs, from the start of Python to its end: without JAX's
persistent cache, and for the second time with it.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import command
import filterjit
import filterjit.nnx
from cases import CASES, Case, training_step
from layout import lay_out, progress

OPTIMIZER = optax.adam(1e-3)
WAYS = {
    "equinox": "`eqx.filter_jit`",
    "none": "filterjit",
    "jax": "filterjit, with JAX's persistent cache",
    "load": "`load(path)`",
    "portable": "`load(path)` of a portable file",
}
# JAX's cache keeps small and quickly compiled programs too.
EVERYTHING = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}

train = training_step(OPTIMIZER, lambda model, x: jnp.mean(model(x) ** 2))


def _adam() -> Case:
    model, x = CASES["transformer"]().args
    args = (model, OPTIMIZER.init(eqx.filter(model, eqx.is_array)), x)
    return Case("adam", "transformer, 24 layers, Adam step", train, args)


ADAM = "24 layers, Adam step"
SHOWN: dict[str, Callable[[], Case]] = {
    "mlp": CASES["mlp"],
    "4 layers": CASES["transformer_4"],
    "24 layers": CASES["transformer"],
    ADAM: _adam,
}


# ---- whole programs ----


def transformer() -> float:
    """An Equinox transformer of 4 layers, Adam"""
    model, x = CASES["transformer_4"]().args
    step, state = filterjit.filter_jit(train), OPTIMIZER.init(eqx.filter(model, eqx.is_array))
    for _ in range(20):
        model, state, loss = step(model, state, x)
    return float(loss)


def nnx_loop() -> float:
    """A Flax NNX model with BatchNorm and dropout, Adam"""
    from flax import nnx

    rngs = nnx.Rngs(0)
    model = nnx.Sequential(
        nnx.Linear(16, 64, rngs=rngs), nnx.BatchNorm(64, rngs=rngs), nnx.relu,
        nnx.Dropout(0.1, rngs=rngs), nnx.Linear(64, 1, rngs=rngs),
    )  # fmt: skip
    optimizer = nnx.Optimizer(model, OPTIMIZER, wrt=nnx.Param)

    @filterjit.nnx.jit
    def step(model: Any, optimizer: Any, x: jax.Array) -> jax.Array:
        loss, gradients = nnx.value_and_grad(lambda m: jnp.mean(m(x) ** 2))(model)
        optimizer.update(model, gradients)
        return loss

    for i in range(20):
        loss = step(model, optimizer, jax.random.normal(jax.random.key(i), (32, 16)))
    return float(loss)


def batch_norm_loop() -> float:
    """An Equinox model with BatchNorm, evaluated"""
    norm = eqx.nn.BatchNorm(16, "batch", mode="batch")
    state = eqx.nn.State(norm)

    @filterjit.filter_jit
    def step(norm: Any, state: Any, x: jax.Array) -> Any:
        batched = jax.vmap(norm, axis_name="batch", in_axes=(0, None), out_axes=(0, None))
        y, state = batched(x, state)
        return y.sum(), state

    for i in range(20):
        y, state = step(norm, state, jax.random.normal(jax.random.key(i), (32, 16)))
    return float(y)


PROGRAMS = {x.__name__: x for x in (transformer, nnx_loop, batch_norm_loop)}


def _seconds(name: str, variables: dict[str, str]) -> float:
    """Returns the seconds that a program takes, from the start of Python to its end."""
    start = time.perf_counter()
    command.apart(__file__, name, **variables)
    return time.perf_counter() - start


def whole_programs(rounds: int) -> list[list[str]]:
    lines = [["from the start of Python to its end, s", "without a cache", "with JAX's cache"]]
    with tempfile.TemporaryDirectory() as folder:
        cached = {"JAX_COMPILATION_CACHE_DIR": folder, **EVERYTHING}
        for name in progress(list(PROGRAMS)):
            _seconds(name, cached)
            found = [[_seconds(name, env) for env in ({}, cached)] for _ in range(rounds)]
            best = [f"{min(times):.1f}" for times in zip(*found, strict=True)]
            lines.append([PROGRAMS[name].__doc__ or name, *best])
    return lines


# ---- until the first result ----


def one(case_name: str, way: str, path: str) -> float:
    """Returns the seconds of this process until its first result.

    The ways that begin with "save" write the file for the way that follows, and take no time."""
    if case_name == ADAM:
        jax.config.update("jax_disable_most_optimizations", True)
    if way == "jax":
        jax.config.update("jax_compilation_cache_dir", path)
        for name, value in EVERYTHING.items():
            jax.config.update(name.lower(), int(value))
    case = SHOWN[case_name]()
    jax.block_until_ready((case.args, jnp.ones(())))
    if way.startswith("save"):
        f = filterjit.filter_jit(case.function)
        if way == "save portable":
            f.lower(*case.args).save(path)
        else:
            f.warm_up(*case.args)
            f.save(path)
        return 0.0
    # The attributes are read before the clock starts: reading one may import a module.
    load, jit = filterjit.load, eqx.filter_jit if way == "equinox" else filterjit.filter_jit
    start = time.process_time()
    call: Callable[..., Any] = load(path) if way in ("load", "portable") else jit(case.function)
    jax.block_until_ready(eqx.filter(call(*case.args), eqx.is_array))
    return time.process_time() - start


def first_results(case_names: Sequence[str], rounds: int) -> list[list[str]]:
    found: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        for case in progress(case_names):
            paths = {way: f"{folder}/{case}.{way}" for way in WAYS}
            for way in ("save load", "save portable", "jax"):  # which writes
                command.apart(__file__, case, way, paths[way.removeprefix("save ")])
            times = [
                {way: command.apart(__file__, case, way, path) for way, path in paths.items()}
                for _ in range(rounds)
            ]
            found.append({way: min(x[way] for x in times) for way in WAYS})
    lines = [["until the first result, ms of the processor", *case_names]]
    for way, title in WAYS.items():
        lines.append([title, *(f"{1e3 * best[way]:,.0f}" for best in found)])
    return lines


def work(name: str, *more: str) -> float:
    return one(name, *more) if more else PROGRAMS[name]()


def report(options: argparse.Namespace) -> str:
    if options.programs:
        lines = whole_programs(options.rounds)
    else:
        lines = first_results([options.case] if options.case else list(SHOWN), options.rounds)
    said = f"Fresh processes, run alternately; the best of {options.rounds} each."
    return f"{lay_out(lines, markdown=options.markdown)}\n\n{said}"


if __name__ == "__main__":
    parser = command.parser(__doc__)
    parser.add_argument(
        "--rounds", type=int, default=5, help="the number of processes of each way (default: 5)"
    )
    parser.add_argument("--case", choices=SHOWN, help="this case only")
    parser.add_argument("--programs", action="store_true", help="time whole programs")
    sys.exit(command.run(parser, report, work))
