"""Times a fresh process until its first result, with and without a saved program.

    python benchmarks/first_answer.py [--rounds N] [--markdown] [--case NAME]

Each way to the result has its own processes, which run alternately; the best of each counts. The
clock starts when the model exists and JAX has found its device, and stops when the first result is
there. In addition, a call of a `Compiled` is compared with a hit of the jitted function; the two
run alternately in one process.
"""

import argparse
import functools
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

import filterjit
from cases import CASES
from layout import lay_out, machine, progress
from timing import in_a_row, interleaved

SHOWN = ("mlp", "transformer_4", "transformer")
WAYS = {
    "equinox": "`eqx.filter_jit`",
    "filterjit": "filterjit",
    "cache": "filterjit, JAX's persistent cache",
    "portable": "filterjit, `load` of a portable file",
    "executable": "filterjit, `load` of an executable",
}


def first_answer(case_name: str, way: str, folder: Path) -> float:
    """Returns the seconds until the first result of this process."""
    if way == "cache":
        _use_cache(folder)
    case = CASES[case_name]()
    jax.block_until_ready((case.args, jax.numpy.ones(())))
    # The attributes are read before the clock starts: reading one may import a module.
    load, jit = filterjit.load, eqx.filter_jit if way == "equinox" else filterjit.filter_jit
    is_saved = way in ("portable", "executable")
    start = time.perf_counter()
    call: Callable[..., Any]
    call = load(_file(folder, case_name, way)) if is_saved else jit(case.function)
    jax.block_until_ready(eqx.filter(call(*case.args, **case.kwargs), eqx.is_array))
    return time.perf_counter() - start


def _use_cache(folder: Path) -> None:
    jax.config.update("jax_compilation_cache_dir", str(folder / "cache"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def _file(folder: Path, case_name: str, way: str) -> Path:
    return folder / f"{case_name}.{way}"


def prepare(case_name: str, folder: Path) -> dict[str, float]:
    """Saves the program in both ways. Returns the seconds of a call of it, and of a hit."""
    case = CASES[case_name]()
    f: Any = filterjit.filter_jit(case.function)
    compiled = f.lower(*case.args, **case.kwargs).compile()
    compiled.save(_file(folder, case_name, "executable"))
    compiled.save(_file(folder, case_name, "portable"), portable=True)
    calls = {
        "hit": lambda: f(*case.args, **case.kwargs),
        "compiled": lambda: compiled(*case.args, **case.kwargs),
    }
    for call in calls.values():
        call()
    batches = {name: functools.partial(in_a_row, call, 200) for name, call in calls.items()}
    return interleaved(batches, 3.0, 20)


def _seconds_of_a_process(*arguments: str) -> float:
    done = subprocess.run(
        [sys.executable, __file__, *arguments], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def measure(case_names: Sequence[str], rounds: int, folder: Path) -> dict[str, dict[str, float]]:
    found = {}
    for case_name in progress(case_names):
        best = prepare(case_name, folder)
        for i in range(rounds + 1):  # the first round fills the caches of JAX and of the disk
            for way in WAYS:
                seconds = _seconds_of_a_process(
                    "--one", way, "--case", case_name, "--in", str(folder)
                )
                if i > 0:
                    best[way] = min(best.get(way, seconds), seconds)
        found[case_name] = best
    return found


def table(found: dict[str, dict[str, float]], markdown: bool) -> str:
    lines = [["until the first result, ms", *found, "speed-up over equinox, last"]]
    last = list(found.values())[-1]
    for way, title in WAYS.items():
        times = [f"{1e3 * best[way]:,.0f}" for best in found.values()]
        lines.append([title, *times, f"{last['equinox'] / last[way]:.1f}"])
    ratios = [f"{best['compiled'] / best['hit']:.3f}" for best in found.values()]
    lines.append(["a call of `compiled` over a hit of `f`", *ratios, ""])
    return lay_out(lines, markdown=markdown)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--rounds", type=int, default=5, help="the number of processes of each way (default: 5)"
    )
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--case", choices=CASES, help="this case only")
    parser.add_argument("--one", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--in", dest="folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.one:
        print(first_answer(options.case, options.one, options.folder))
        return
    with tempfile.TemporaryDirectory() as folder:
        names = [options.case] if options.case else SHOWN
        found = measure(names, options.rounds, Path(folder))
    print(table(found, options.markdown))
    print(f"Fresh processes, run alternately; the best of {options.rounds} each. {machine()}")


if __name__ == "__main__":
    main()
