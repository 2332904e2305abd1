"""Measures how memory grows when one function is called with many different static values (statics).

    python benchmarks/memory.py [--statics N] [--maxsize N] [--plot PATH]

It compares `filterjit.filter_jit(maxsize=128)` with `equinox.filter_jit`, which keeps all programs,
each in its own process, and prints by how many MiB each process grew in the second half of the
calls.
"""

import argparse
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

STEPS = 20


def resident() -> float:
    """Returns the resident memory of this process, in MiB."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def grow(jit: str, statics: int, maxsize: int) -> None:
    """Runs in a child process: prints [statics, MiB] after each of STEPS steps."""
    import gc

    import jax.numpy as jnp

    make: Callable[..., Any]
    if jit == "filterjit":
        import filterjit

        warnings.simplefilter("ignore", filterjit.RetraceWarning)  # what is measured is just that
        make = filterjit.filter_jit(maxsize=maxsize)
    else:
        import equinox

        make = equinox.filter_jit
    f = make(lambda x, n: x * n + 1)
    x = jnp.ones(3)
    for n in range(1, statics + 1):
        f(x, n)
        if n % max(1, statics // STEPS) == 0:
            gc.collect()
            print(json.dumps([n, resident()]), flush=True)


def measure(jit: str, statics: int, maxsize: int) -> list[list[float]]:
    options = ["--statics", str(statics), "--maxsize", str(maxsize), "--child", jit]
    points = []
    with subprocess.Popen(
        [sys.executable, __file__, *options], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            points.append(json.loads(line))
            if sys.stderr.isatty():
                done = int(points[-1][0])
                bar = "#" * (30 * done // statics)
                print(f"\r{jit:10} [{bar:30}] {done:,}", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    if child.returncode:
        raise SystemExit(child.returncode)
    return points


def plot(path: str, found: dict[str, list[list[float]]], maxsize: int) -> None:
    from matplotlib.figure import Figure

    from pictures import COLOURS, save

    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    labels = {"equinox": "equinox.filter_jit", "filterjit": f"filterjit, maxsize={maxsize}"}
    for (name, points), colour in zip(found.items(), ("orange", "blue"), strict=True):
        axes.plot(
            *zip(*points, strict=True), color=COLOURS[colour][0], label=labels[name], linewidth=2
        )
    axes.set_xlabel("different statics")
    axes.set_ylabel("resident memory, MiB")
    axes.set_ylim(bottom=0)
    axes.set_title("Memory over the number of statics", loc="left", weight="bold")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    save(figure, Path(path))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--statics", type=int, default=3000, help="the number of static values (default: 3000)"
    )
    parser.add_argument(
        "--maxsize", type=int, default=128, help="the maxsize of filterjit (default: 128)"
    )
    parser.add_argument(
        "--plot", metavar="PATH", help="plot the memory, for example to docs/assets/memory.svg"
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        grow(args.child, args.statics, args.maxsize)
        return
    found = {jit: measure(jit, args.statics, args.maxsize) for jit in ("equinox", "filterjit")}
    print("Growth in the second half of the calls, in MiB:")
    for jit, points in found.items():
        print(f"{jit} {points[-1][1] - points[len(points) // 2 - 1][1]:.1f}")
    if args.plot:
        plot(args.plot, found, args.maxsize)


if __name__ == "__main__":
    main()
