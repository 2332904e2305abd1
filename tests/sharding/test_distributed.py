"""Several processes that run one program together; `distributed.py` says what each does."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

import filterjit
from support.processes import ROOT, environment, run

TIMEOUT = 200
SCRIPT = Path(__file__).with_name("distributed.py")


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return int(s.getsockname()[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("check", "count"),
    [
        ("place", 2),
        ("disagree", 3),
        ("programs", 4),
        ("raises", 2),
        ("raises", 3),
        ("threads", 2),
        ("absent", 2),
        ("files", 2),
    ],
)
def test_processes(check: str, count: int, tmp_path: Path) -> None:
    port = str(free_port())
    variables = environment(PYTHONHASHSEED="random", FILTERJIT_PROCESSES_TIMEOUT="3") | (
        {} if check == "absent" else {"FILTERJIT_PROCESSES_TIMEOUT": "60"}
    )
    started = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), port, str(i), str(count), check, str(tmp_path)],
            env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8",
        )
        for i in range(count)
    ]  # fmt: skip
    try:
        outputs = [process.communicate(timeout=TIMEOUT)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    for process, output in zip(started, outputs, strict=True):
        assert process.returncode == 0 and "passed" in output, output[-5000:]
    for file in tmp_path.glob("[ep]*"):
        with pytest.raises(
            ValueError, match=r"the file of process \d of 2, and this is process 0 of 1"
        ):
            filterjit.load(file)


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--processes", "4")], ids=str)
def test_the_example(options: tuple[str, ...]) -> None:
    """It compares its losses with those of one device itself, and counts its hits."""
    done = run(ROOT / "examples" / "distributed.py", *options, timeout=300)
    assert "data-parallel: loss" in done.stdout and "fully sharded: loss" in done.stdout
