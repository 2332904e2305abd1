"""Times a process that is started again, with a program cache.

    python benchmarks/restart.py [--rounds N] [--markdown] [--case NAME]

Each way to the first result has its own processes, which run alternately; the best of each counts.
The clock starts when the model exists and JAX has found its device, and stops when the first result
is there. The last row compares a hit after a start from the cache with a hit after a compilation.
The training step is compiled without most of XLA's optimizations, which take minutes for it.
"""

import argparse
import json
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
from layout import lay_out, machine, progress
from timing import in_a_row

OPTIMIZER = optax.adam(1e-3)
WAYS = {
    "none": "without a program cache",
    "first": "the first run with it",
    "again": "the second run",
    "load": "`load` of a file written by hand",
}
# The rows of ratios, and what the issue of the program cache aims at.
RATIOS = {
    "the second run over the first": ("again", "none"),
    "the second run over `load`": ("again", "load"),
    "the first run with it over without": ("first", "none"),
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


def one(case_name: str, way: str, folder: Path) -> dict[str, float]:
    """Returns the seconds until the first result of this process, and those of a hit."""
    if case_name == ADAM:
        jax.config.update("jax_disable_most_optimizations", True)
    if way in ("first", "again"):
        filterjit.program_cache(folder)
    case = SHOWN[case_name]()
    jax.block_until_ready((case.args, jnp.ones(())))
    if way == "save":
        filterjit.filter_jit(case.function).lower(*case.args).compile().save(folder)
        return {}
    # The attributes are read before the clock starts: reading one may import a module.
    load, jit = filterjit.load, filterjit.filter_jit
    start = time.perf_counter()
    call: Callable[..., Any] = load(folder) if way == "load" else jit(case.function)
    jax.block_until_ready(eqx.filter(call(*case.args), eqx.is_array))
    first = time.perf_counter() - start
    hits = [in_a_row(lambda: call(*case.args), 50) for _ in range(10)]
    return {"first": first, "hit": min(hits)}


def _in_a_process(case_name: str, way: str, folder: Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--one", way, "--case", case_name, "--in", str(folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def measure(case_names: Sequence[str], rounds: int, folder: Path) -> dict[str, dict[str, float]]:
    found = {}
    for case_name in progress(case_names):
        file, full = folder / f"{case_name}.jit", folder / f"{case_name}.full"
        _in_a_process(case_name, "save", file)
        _in_a_process(case_name, "first", full)
        best: dict[str, float] = {}
        for i in range(rounds):
            places = {"first": folder / f"{case_name}.{i}", "load": file}
            for way in WAYS:
                times = _in_a_process(case_name, way, places.get(way, full))
                for name, key in ((way, "first"), (f"{way} hit", "hit")):
                    best[name] = min(best.get(name, times[key]), times[key])
        found[case_name] = best
    return found


def table(found: dict[str, dict[str, float]], markdown: bool) -> str:
    lines = [["until the first result, ms", *found]]
    for way, title in WAYS.items():
        lines.append([title, *(f"{1e3 * best[way]:,.0f}" for best in found.values())])
    for title, (way, other) in RATIOS.items():
        lines.append([title, *(f"{best[way] / best[other]:.2f}" for best in found.values())])
    hits = [f"{best['again hit'] / best['none hit']:.2f}" for best in found.values()]
    lines.append(["a hit in the second run over one without", *hits])
    return lay_out(lines, markdown=markdown)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--rounds", type=int, default=5, help="the number of processes of each way (default: 5)"
    )
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--case", choices=SHOWN, help="this case only")
    parser.add_argument("--one", choices=[*WAYS, "save"], help=argparse.SUPPRESS)
    parser.add_argument("--in", dest="folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.one:
        print(json.dumps(one(options.case, options.one, options.folder)))
        return
    with tempfile.TemporaryDirectory() as folder:
        names = [options.case] if options.case else list(SHOWN)
        found = measure(names, options.rounds, Path(folder))
    print(table(found, options.markdown))
    print(f"Fresh processes, run alternately; the best of {options.rounds} each. {machine()}")


if __name__ == "__main__":
    main()
