"""Several processes that run one program together; `distributed.py` says what each does."""

import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import filterjit
from support.processes import ROOT, environment, run

TIMEOUT = 200
SCRIPT = Path(__file__).with_name("distributed.py")


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return int(s.getsockname()[1])


def start(check: str, count: int, seconds: float, argument: Any) -> list[subprocess.Popen[str]]:
    port = str(free_port())
    variables = environment(PYTHONHASHSEED="random", FILTERJIT_PROCESSES_TIMEOUT=str(seconds))
    return [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), port, str(i), str(count), check, str(argument)],
            env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8",
        )
        for i in range(count)
    ]  # fmt: skip


def outputs_of(started: list[subprocess.Popen[str]], timeout: float = TIMEOUT) -> list[str]:
    """Kills processes that take longer."""
    timer = threading.Timer(timeout, lambda: [process.kill() for process in started])
    timer.start()
    try:
        return [process.communicate()[0] for process in started]
    finally:
        timer.cancel()


@pytest.mark.slow
@pytest.mark.parametrize(("check", "count"), [
    ("place", 2), ("disagree", 3), ("programs", 4), ("raises", 2), ("raises", 3), ("threads", 2),
    ("absent", 2), ("files", 2),
])  # fmt: skip
def test_processes(check: str, count: int, tmp_path: Path) -> None:
    started = start(check, count, 3 if check == "absent" else 60, tmp_path)
    for process, output in zip(started, outputs_of(started), strict=True):
        assert process.returncode == 0 and "passed" in output, output[-5000:]
    for file in tmp_path.glob("[ep]*"):
        with pytest.raises(
            ValueError, match=r"the file of process \d of 2, and this is process 0 of 1"
        ):
            filterjit.load(file)


@pytest.mark.slow
@pytest.mark.parametrize("who", [0, 1])
def test_one_process_hits_and_another_compiles(who: int) -> None:
    """Both end, and each says which argument differs."""
    started = start("hits", 2, 3, who)
    outputs = outputs_of(started, 60)
    for i, (process, output) in enumerate(zip(started, outputs, strict=True)):
        assert process.returncode not in (0, -9) and "ProcessMismatchError: process" in output, (
            output
        )
        mine, other = (3, 4) if i == who else (4, 3)
        assert f"`n` is {mine} on process {i}, {other} on process {1 - i}" in output, output
        assert "`check_hits.<locals>.<lambda>`" in output, output


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--processes", "4")], ids=str)
def test_the_example(options: tuple[str, ...]) -> None:
    """It compares its losses with those of one device itself, and counts its hits."""
    done = run(ROOT / "examples" / "distributed.py", *options, timeout=300)
    assert "data-parallel: loss" in done.stdout and "fully sharded: loss" in done.stdout
