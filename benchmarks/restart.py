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
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import filterjit
import filterjit.nnx
from cases import CASES, Case, training_step
from filterjit._aot import _file
from filterjit._compat import _private
from layout import lay_out, machine, progress

OPTIMIZER = optax.adam(1e-3)
WAYS = {
    "equinox": "`eqx.filter_jit`",
    "none": "filterjit",
    "jax": "filterjit, with JAX's persistent cache",
    "load": "`load(path)`",
    "xla": "XLA's deserialization of that program alone",
    "portable": "`load(path)` of a portable file",
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


def transformer() -> None:
    """An Equinox transformer of 4 layers, Adam"""
    model, x = CASES["transformer_4"]().args
    step, state = filterjit.filter_jit(train), OPTIMIZER.init(eqx.filter(model, eqx.is_array))
    for _ in range(20):
        model, state, loss = step(model, state, x)
    print(float(loss))


def nnx_loop() -> None:
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
    print(float(loss))


def batch_norm_loop() -> None:
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
    print(float(y))


PROGRAMS = {x.__name__: x for x in (transformer, nnx_loop, batch_norm_loop)}


def _whole(name: str, cache: Path | None) -> float:
    """Returns the seconds that a program takes, from the start of Python to its end."""
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    if cache is not None:
        env |= {
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, __file__, "--program", name], check=True, env=env,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return time.perf_counter() - start


def whole_programs(rounds: int, markdown: bool) -> str:
    lines = [["from the start of Python to its end, s", "without a cache", "with JAX's cache"]]
    with tempfile.TemporaryDirectory() as folder:
        for name in progress(list(PROGRAMS)):
            caches = None, Path(folder)
            _whole(name, caches[1])
            found = [[_whole(name, cache) for cache in caches] for _ in range(rounds)]
            best = [f"{min(times):.1f}" for times in zip(*found, strict=True)]
            lines.append([PROGRAMS[name].__doc__ or name, *best])
    return lay_out(lines, markdown=markdown)


def one(case_name: str, way: str, path: Path) -> float:
    """Returns the seconds of this process until its first result.

    The ways that begin with "save" write the file for the way that follows, and take no time."""
    if case_name == ADAM:
        jax.config.update("jax_disable_most_optimizations", True)
    if way == "jax":
        jax.config.update("jax_compilation_cache_dir", str(path))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    case = SHOWN[case_name]()
    jax.block_until_ready((case.args, jnp.ones(())))
    if way == "xla":
        return _deserialize(path)
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


def _deserialize(path: Path) -> float:
    """Returns the seconds that XLA takes for the executable of a file."""
    _, (data, *_) = _file.read(str(path))
    device = jax.devices()[0]
    on = _private.private("jax._src.lib", "xla_client", "DeviceList")((device,))
    start = time.process_time()
    device.client.deserialize_executable(data, executable_devices=on)
    return time.process_time() - start


def _in_a_process(case_name: str, way: str, path: Path) -> float:
    command = [sys.executable, __file__, "--one", way, "--case", case_name, "--in", str(path)]
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # as users import modules
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=env)
    return float(done.stdout)


def measure(case_names: Sequence[str], rounds: int, folder: Path) -> dict[str, dict[str, float]]:
    found = {}
    for case_name in progress(case_names):
        paths = {way: folder / f"{case_name}.{way}" for way in WAYS}
        paths["xla"] = paths["load"]
        for way in ("save load", "save portable", "jax"):  # which writes
            _in_a_process(case_name, way, paths[way.removeprefix("save ")])
        best: dict[str, float] = {}
        for _ in range(rounds):
            for way, path in paths.items():
                best[way] = min(best.get(way, 1e9), _in_a_process(case_name, way, path))
        found[case_name] = best
    return found


def table(found: dict[str, dict[str, float]], markdown: bool) -> str:
    lines = [["until the first result, ms of the processor", *found]]
    for way, title in WAYS.items():
        lines.append([title, *(f"{1e3 * best[way]:,.0f}" for best in found.values())])
    return lay_out(lines, markdown=markdown)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--rounds", type=int, default=5, help="the number of processes of each way (default: 5)"
    )
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--case", choices=SHOWN, help="this case only")
    parser.add_argument("--programs", action="store_true", help="time whole programs")
    parser.add_argument("--program", help=argparse.SUPPRESS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--in", dest="path", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.program:
        PROGRAMS[options.program]()
        return
    if options.programs:
        print(whole_programs(options.rounds, options.markdown))
        print(f"Fresh processes, run alternately; the best of {options.rounds} each. {machine()}")
        return
    if options.one:
        print(one(options.case, options.one, options.path))
        return
    with tempfile.TemporaryDirectory() as folder:
        names = [options.case] if options.case else list(SHOWN)
        found = measure(names, options.rounds, Path(folder))
    print(table(found, options.markdown))
    print(f"Fresh processes, run alternately; the best of {options.rounds} each. {machine()}")


if __name__ == "__main__":
    main()
