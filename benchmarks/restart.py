"""Times a fresh process until its first result: one that compiles, and those that need not.

    python benchmarks/restart.py [--rounds N] [--markdown] [--case NAME]

Each way to the first result has its own processes, which run alternately; the best of each counts.
The clock starts when the model exists and JAX has found its device, and stops when the first result
is there. It is that of the process, so that other work of the machine does not count. The training
step is compiled without most of XLA's optimizations, which take minutes for it.
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
from cases import CASES, Case
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


def train(model: Any, state: Any, x: jax.Array) -> Any:
    """A step of Adam."""

    def loss_of(model: Any) -> jax.Array:
        return jnp.mean(model(x) ** 2)

    loss, gradients = eqx.filter_value_and_grad(loss_of)(model)
    updates, state = OPTIMIZER.update(gradients, state)
    return eqx.apply_updates(model, updates), state, loss


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
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--in", dest="path", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
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
