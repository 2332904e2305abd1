"""``python -m filterjit run --compare``: does filterjit pay? Runs a program without and with it.

Each run is a process of its own, ``run --measured FOLDER``, with `record`. It writes how long JAX
compiled, and how many functions filterjit ran. The rest is measured here. Imports no JAX.
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
from typing import NamedTuple, NoReturn

from .._base._after_import import after_import
from .._base._rooms import PACKAGE
from .._terminal._text import table

_SIDES = ("plain", "filterjit")
_MOST_LINES = 3
_BUSY = 2.5  # processes per core


def record(folder: str) -> None:
    """Writes the results of this process to `folder` when it ends. Moves JAX's persistent cache, if
    the program has one, to an empty folder."""
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
        with open(os.path.join(folder, "run.json"), "w") as file:
            json.dump({"compiling": _length(spans), "functions": functions}, file)

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
    """One run: seconds, the number of functions that filterjit ran, the lines of its stdout, and
    the machine's load per core at its end."""

    wall: float
    processor: float | None
    compiling: float
    functions: int
    lines: list[str]
    load: float

    @property
    def without_compiling(self) -> float:
        return max(self.wall - self.compiling, 1e-9)


def compare(program: Sequence[str], *, jax: bool, times: int) -> int:
    """Runs a program 4 * `times` times, without and with filterjit. Prints which is faster and if
    the output differs. Exits with a reason if a run says nothing."""
    runs: tuple[list[_Run], list[_Run]] = [], []
    order = (0, 1, 1, 0) * times
    for i, side in enumerate(order, 1):
        name = f"run {i} of {len(order)}, {_SIDES[side]}"
        print(name, file=sys.stderr, flush=True)
        options = ["--jax"] * (side and jax) + ["--plain"] * (1 - side)
        run = _run([*options, *program], name, is_first=i == 1)
        if run.functions and not side:
            _stop("the program uses filterjit itself. Compare it before its conversion.")
        if side and not run.functions:
            more = "" if jax else ": for functions of `jax.jit`, pass `--jax`"
            _stop(f"nothing was replaced{more}.")
        runs[side].append(run)
    print(*_times(*runs), *_output(*runs), sep="\n")
    return 0


def _stop(reason: str) -> NoReturn:
    sys.exit(f"run --compare: {reason}")


def _run(arguments: Sequence[str], name: str, *, is_first: bool) -> _Run:
    """Runs a program once. Passes on the output of the first run, and stderr."""
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as errors:
        command = [sys.executable, *flags, "-m", PACKAGE, "run", f"--measured={folder}"]
        lines = []
        begin = time.perf_counter()
        with subprocess.Popen(
            [*command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if is_first else errors,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line.decode(errors="replace").rstrip("\r\n"))
                if is_first:
                    sys.stdout.buffer.write(line)
                    sys.stdout.flush()
            processor = _wait(process)
        wall = time.perf_counter() - begin
        if process.returncode:
            errors.seek(0)
            last = errors.read().decode(errors="replace").strip().rpartition("\n")[2]
            _stop(f"{name} failed with status {process.returncode}" + (last and f": {last}"))
        try:
            with open(os.path.join(folder, "run.json")) as file:
                return _Run(wall, processor, **json.load(file), lines=lines, load=_load())
        except FileNotFoundError:
            _stop(f"{name} ended by `os._exit`, before it was measured.")


def _load() -> float:
    """Returns the number of processes that are ready to run, per core; 0 if unknown."""
    return os.getloadavg()[0] / (os.cpu_count() or 1) if hasattr(os, "getloadavg") else 0.0


def _wait(process: "subprocess.Popen[bytes]") -> float | None:
    """Waits for a process. Returns the processor time of it and its children, if known."""
    if not hasattr(os, "wait4"):
        process.wait()
        return None
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime


def _times(*sides: Sequence[_Run]) -> list[str]:
    """Returns lines with the times of the fastest run of each side, and the verdict."""
    fastest = [min(runs, key=lambda run: run.without_compiling) for runs in sides]
    rows = [["fastest run", *_SIDES]]
    for name in ("wall", "processor", "compiling", "without_compiling"):
        values = [getattr(run, name) for run in fastest]
        rows.append([name.replace("_", " "), *("" if x is None else f"{x:.2f} s" for x in values)])
    plain, ours = ([run.without_compiling for run in runs] for runs in sides)
    is_clear = max(ours) < min(plain) or max(plain) < min(ours)
    pairs = [a / b for a, b in zip(plain, ours, strict=True)]
    ratio = f"{min(plain) / min(ours):.2f} ({min(pairs):.2f} to {max(pairs):.2f})"
    begin = "" if is_clear else "no difference: "
    load = max(run.load for runs in sides for run in runs)
    busy = f"the machine was busy, with {load:.0f} processes per core: the times are rough"
    return [
        *table(rows),
        *[busy] * (load > _BUSY),
        f"{begin}plain / filterjit, without compiling: {ratio}",
    ]


def _output(plain: Sequence[_Run], ours: Sequence[_Run]) -> list[str]:
    """Returns lines about differences in the output. Lines that differ between plain runs are
    noise."""
    first, *others = (run.lines for run in plain)
    noise, found = set[int](), dict[int, tuple[str | None, str | None]]()
    for lines in others:
        noise |= {i for i, (a, b) in enumerate(zip_longest(first, lines)) if a != b}
    for run in ours:
        for i, (a, b) in enumerate(zip_longest(first, run.lines)):
            if a != b and i not in noise:
                found.setdefault(i, (a, b))
    noisy = "1 line that differs" if len(noise) == 1 else f"{len(noise)} lines that differ"
    except_for = f", except for {noisy} between plain runs too" if noise else ""
    if not found:
        return [f"the same output{except_for}"]
    lines = [f"different output: {len(found)} of {len(first)} lines{except_for}"]
    for i, texts in sorted(found.items())[:_MOST_LINES]:
        shown = ("(no line)" if text is None else text for text in texts)
        lines += [f"  line {i + 1}, {side}: {x}" for side, x in zip(_SIDES, shown, strict=True)]
    return lines
