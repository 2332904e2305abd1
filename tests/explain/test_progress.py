"""What a terminal shows while a program compiles."""

import re
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import filterjit
from filterjit._terminal import _progress
from support.processes import environment, run_code, run_on_terminal

SLOW = """
    import sys, threading, time
    import jax, jax.numpy as jnp
    import filterjit
    from filterjit._terminal import _progress
    _progress._PATIENCE = float(sys.argv[1]) if len(sys.argv) > 1 else 0.02
    {setup}

    @filterjit.filter_jit
    def slow(x):
        for _ in range(40):
            x = jnp.sin(x) @ jnp.cos(x) + jnp.sort(x)
        {inside}
        return x

    try:
        slow(jnp.ones((20, 20)))
    except KeyError as e:
        print("failed", e)
    assert threading.active_count() == 1, threading.enumerate()
    print("done")
"""


def on_a_terminal(
    cwd: Path, setup: str = "", inside: str = "", *args: str, **env: str
) -> tuple[int, str]:
    """Runs SLOW on a terminal. Returns the exit status and the output."""
    (cwd / "slow.py").write_text(textwrap.dedent(SLOW.format(setup=setup, inside=inside)))
    env = environment(TERM="xterm", **env)
    return run_on_terminal("slow.py", *args, cwd=cwd, env=env, timeout=240)


def test_a_long_compile_is_shown_and_removed(tmp_path: Path) -> None:
    status, shown = on_a_terminal(tmp_path)
    assert status == 0, shown
    assert re.search(r"\x1b\[2Kcompiling __main__\.slow \(slow\.py:9\): [01] s", shown)
    last = shown.rsplit("\x1b[2K", 1)[1]
    assert last.strip() == "done"


def test_a_terminal_that_clears_no_line_has_a_message(tmp_path: Path) -> None:
    status, shown = on_a_terminal(tmp_path, "import os; os.environ['TERM'] = 'dumb'")
    assert status == 0, shown
    assert shown.split("\r\n") == [
        "filterjit: compiling __main__.slow (slow.py:9) ...",
        "done",
        "",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setup", "inside", "args", "env"),
    [
        ("", "", (), {"FILTERJIT_PROGRESS": "0"}),
        ("filterjit.switches.progress = False", "", (), {}),
        ("", "", ("60",), {}),  # too short
    ],
)
def test_nothing_is_shown(tmp_path: Path, setup: str, inside: str, args: Any, env: Any) -> None:
    status, shown = on_a_terminal(tmp_path, setup, inside, *args, **env)
    assert (status, shown) == (0, "done\r\n")


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    """A failing trace is not shown: only JAX's own work is."""
    inside = "time.sleep(1); raise KeyError('on purpose')"
    status, shown = on_a_terminal(tmp_path, inside=inside)
    assert (status, shown) == (0, "failed 'on purpose'\r\ndone\r\n")


def test_nothing_is_shown_in_a_pipe() -> None:
    done = run_code(
        SLOW.format(setup="", inside=""), env=environment(FORCE_COLOR="1", TERM="xterm")
    )
    assert (done.stdout, done.stderr) == ("done\n", "")


class Terminal:
    def __init__(self) -> None:
        self.text = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass


def test_jobs_of_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(_progress, "_PATIENCE", 0.02)
    monkeypatch.setattr(_progress, "_REFRESH", 0.01)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(filterjit.switches, "progress", True)

    def work(i: int) -> None:
        for k in range(10):
            job = _progress.job_of(f"job {i}")
            assert job is not None
            job.begin()
            time.sleep(0.005 * ((i + k) % 8))
            job.end()
            job.end()  # a second end does nothing

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert _progress._line._jobs == []
    assert not any(t.name == "filterjit-progress" for t in threading.enumerate())
    lines = terminal.text.split("\r\x1b[2K")
    assert lines[0] == lines[-1] == "" and max(map(len, lines)) < 80
    assert all(re.fullmatch(r"(compiling job \d( and \d others?)?: 0 s)?", line) for line in lines)
    assert any("and 2 others" in line for line in lines)


def test_a_failing_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(_progress, "_PATIENCE", 0.0)
    monkeypatch.setattr(terminal, "write", lambda text: 1 / 0)
    job = _progress.Job("job")
    job.begin()
    time.sleep(0.2)
    job.end()
    assert not any(t.name == "filterjit-progress" for t in threading.enumerate())


def test_without_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert _progress.job_of("job") is None
