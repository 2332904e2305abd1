"""``python -m filterjit run --compare``: does filterjit pay? Runs a script without and with it.

Each run is a process, ``run --measured FOLDER``, in which `record` counts the seconds of compiling
and the functions that filterjit ran. Imports no JAX.
"""

import atexit
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple, NoReturn

from .._base._after_import import after_import
from .._base._rooms import PACKAGE
from .._terminal._text import table

_SIDES = ("plain", "filterjit")


def record(folder: str) -> None:
    """Writes the results of this process to `folder` when it ends. If the script uses JAX's
    persistent cache, moves it to an empty folder."""
    spans: list[tuple[float, float]] = []
    cache = os.path.join(folder, "cache")

    def listen() -> None:
        import jax

        def on_duration(event: str, duration: float, **_: object) -> None:
            if event.startswith("/jax/core/compile/"):  # traces, lowering and compilations
                end = time.perf_counter()
                spans.append((end - duration, end))
                if jax.config.jax_compilation_cache_dir not in (None, cache):
                    jax.config.update("jax_compilation_cache_dir", cache)  # before JAX opens it

        jax.monitoring.register_event_duration_secs_listener(on_duration)

    def write() -> None:
        records = sys.modules.get(f"{PACKAGE}._observe._records")
        functions = 0 if records is None else len(records.functions.groups())
        Path(folder, "run.json").write_text(json.dumps([_length(spans), functions]))

    after_import("jax", listen)
    atexit.register(write)


def _length(spans: Sequence[tuple[float, float]]) -> float:
    """Returns the seconds covered by spans, which can contain each other."""
    total, until = 0.0, 0.0
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


class _Run(NamedTuple):
    """The seconds and the stdout of one run."""

    wall: float
    processor: float
    compiling: float
    without_compiling: float
    lines: list[str]


def compare(program: Sequence[str], *, jax: bool, times: int) -> int:
    """Runs a script 4 * `times` times, without and with filterjit. Prints which is faster and if
    the output differs. Exits with a reason if a run says nothing."""
    runs: tuple[list[_Run], list[_Run]] = [], []
    order = (0, 1, 1, 0) * times
    for i, side in enumerate(order, 1):
        name = f"run {i} of {len(order)}, {_SIDES[side]}"
        print(name, file=sys.stderr, flush=True)
        options = ["--jax"] * (side and jax) + ["--plain"] * (1 - side)
        run, functions = _run([*options, *program], name, is_first=i == 1)
        if functions and not side:
            _stop("the script uses filterjit itself. Compare it before its conversion.")
        if side and not functions:
            _stop(
                "nothing was replaced." + " For functions of `jax.jit`, pass `--jax`." * (not jax)
            )
        runs[side].append(run)
    print(*_times(*runs), *_output(*runs), sep="\n")
    return 0


def _stop(reason: str) -> NoReturn:
    sys.exit(f"run --compare: {reason}")


def _run(arguments: Sequence[str], name: str, *, is_first: bool) -> tuple[_Run, int]:
    """Runs a script once. Also returns the number of functions that filterjit ran. Passes on the
    output of the first run."""
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as errors:
        command = [sys.executable, *flags, "-m", PACKAGE, "run", f"--measured={folder}"]
        lines, begin, used = [], time.perf_counter(), sum(os.times()[2:4])
        with subprocess.Popen(
            [*command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if is_first else errors,
        ) as process:
            for line in process.stdout or ():
                lines.append(line.decode(errors="replace").rstrip("\r\n"))
                if is_first:
                    sys.stdout.buffer.write(line)
                    sys.stdout.flush()
        wall = time.perf_counter() - begin
        if process.returncode:
            errors.seek(0)
            last = errors.read().decode(errors="replace").strip().rpartition("\n")[2]
            _stop(f"{name} failed with status {process.returncode}" + (last and f": {last}"))
        results = Path(folder, "run.json")
        if not results.exists():
            _stop(f"{name} ended by `os._exit`, before it was measured.")
        compiling, functions = json.loads(results.read_text())
    rest = max(wall - compiling, 1e-9)
    return _Run(wall, sum(os.times()[2:4]) - used, compiling, rest, lines), functions


def _times(*sides: Sequence[_Run]) -> list[str]:
    """Returns lines with the times of the fastest run of each side, and the verdict."""
    fastest = [min(runs, key=lambda run: run.without_compiling) for runs in sides]
    rows = [["fastest run", *_SIDES]]
    for name in _Run._fields[:4]:
        rows.append([name.replace("_", " "), *(f"{getattr(x, name):.2f} s" for x in fastest)])
    plain, ours = ([run.without_compiling for run in runs] for runs in sides)
    is_clear = max(ours) < min(plain) or max(plain) < min(ours)
    pairs = [a / b for a, b in zip(plain, ours, strict=True)]
    ratio = f"{min(plain) / min(ours):.2f} ({min(pairs):.2f} to {max(pairs):.2f})"
    return [
        *table(rows),
        f"{'' if is_clear else 'no difference beyond noise: '}plain / filterjit, without compiling: {ratio}",
    ]


def _output(plain: Sequence[_Run], ours: Sequence[_Run]) -> list[str]:
    """Returns lines about differences in the output. Lines that differ between plain runs are
    noise."""
    noise, found = 0, list[str]()
    lines = zip_longest(*(run.lines for run in [*plain, *ours]), fillvalue="(no line)")
    for i, (first, *rest) in enumerate(lines, 1):
        others = [text for text in rest if text != first]
        if others and rest[: len(plain) - 1] != [first] * (len(plain) - 1):
            noise += 1
        elif others:
            found += [f"  line {i}, plain: {first}", f"  line {i}, filterjit: {others[0]}"]
    noisy = "1 line that differs" if noise == 1 else f"{noise} lines that differ"
    except_for = f", except for {noisy} between plain runs too" if noise else ""
    if not found:
        return [f"the same output{except_for}"]
    head = f"different output: {len(found) // 2} of {len(plain[0].lines)} lines{except_for}"
    return [head, *found[:6]]
