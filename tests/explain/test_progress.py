"""What a terminal shows while a program compiles."""

import re
import sys
import threading
import time
from pathlib import Path

import pytest

import filterjit
from filterjit._terminal import _progress
from support.processes import environment, run_on_terminal
from support.terminals import terminal
from support.threads import at_once

SLOW = """
import os, sys, threading, time
import jax, jax.numpy as jnp
import filterjit
from filterjit._terminal import _progress

@filterjit.filter_jit
def slow(x, how):
    if how == "fails":
        time.sleep(1)
        raise KeyError("on purpose")
    for _ in range(40):
        x = jnp.sin(x) @ jnp.cos(x) + jnp.sort(x)
    return x

class Failing:
    def isatty(self):
        return True

    def write(self, text):
        1 / 0

def compile(how, patience=0.02):
    _progress._PATIENCE = patience
    print("begin", how)
    try:
        slow(jnp.ones((20, 20)), how)
    except KeyError as e:
        print("failed", e)
    assert threading.active_count() == 1, threading.enumerate()

compile("shown")
compile("fails")
compile("soon", 60.0)
filterjit.switches.progress = False
compile("off")
filterjit.switches.progress = True
os.environ["TERM"] = "dumb"
compile("dumb")
os.environ["TERM"] = "xterm"
with open("stderr", "w") as sys.stderr:
    compile("file")
print(open("stderr").read(), end="")
sys.stderr = Failing()
threading.excepthook = lambda args: os._exit(9)
compile("failing")
sys.stderr = None
compile("none")
"""


def test_what_a_terminal_shows(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    env = environment(TERM="xterm", FORCE_COLOR="1")
    status, shown = run_on_terminal("slow.py", cwd=tmp_path, env=env, timeout=400)
    assert status == 0, shown
    parts = dict(part.split("\r\n", 1) for part in shown.split("begin ")[1:])
    of_long = parts.pop("shown")
    assert re.search(r"\x1b\[2Kcompiling __main__\.slow \(slow\.py:7\): [01] s", of_long)
    assert of_long.rsplit("\x1b[2K", 1)[1] == ""
    # A failing trace is not shown: only JAX's own work is.
    assert parts == {
        "fails": "failed 'on purpose'\r\n",
        "soon": "",
        "off": "",
        "dumb": "filterjit: compiling __main__.slow (slow.py:7) ...\r\n",
        "file": "",
        "failing": "",
        "none": "",
    }


def test_jobs_of_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
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

    with terminal() as opened:
        monkeypatch.setattr(sys, "stderr", opened.file)
        assert at_once(8, work) == [None] * 8
    assert _progress._line._jobs == []
    assert not any(t.name == "filterjit-progress" for t in threading.enumerate())
    lines = opened.text.split("\r\x1b[2K")
    assert lines[0] == lines[-1] == "" and max(map(len, lines)) < 80
    assert all(re.fullmatch(r"(compiling job \d( and \d others?)?: 0 s)?", line) for line in lines)
    assert any("and 2 others" in line for line in lines)
