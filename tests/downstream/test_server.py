"""examples/serve_http.py, as one would deploy it: several workers, and clients in threads."""

import contextlib
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

from support.processes import ROOT, environment, run

SERVER = ROOT / "examples" / "serve_http.py"
CLIENTS = 6
WORKERS = 2

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no SIGHUP"),
]


def build(folder: Path, seed: int) -> tuple[str, Any]:
    """Builds a version, and returns its name and its model."""
    run(SERVER, "build", folder, "--seed", str(seed), env=environment(), timeout=300)
    model = eqx.nn.MLP(16, 4, 32, depth=4, key=jax.random.key(seed))
    return (folder / "current").read_text(), jax.jit(jax.vmap(model))


def ask(connection: Any, method: str, path: str, body: str | None = None) -> tuple[int, Any]:
    connection.request(method, path, body)
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def connect(port: int) -> Any:
    return contextlib.closing(http.client.HTTPConnection("localhost", port, timeout=60))


def ask_once(port: int, method: str, path: str, body: str | None = None) -> tuple[int, Any]:
    with connect(port) as connection:
        return ask(connection, method, path, body)


@contextlib.contextmanager
def serving(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Runs a server of some workers; yields its process and port."""
    command = [sys.executable, str(SERVER), "run", str(folder), "--port", "0"]
    command += ["--workers", str(WORKERS)]
    with subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(),
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            yield process, int(process.stdout.readline().split()[-1])
        finally:
            process.terminate()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int, Path, Any]]:
    """A server that is ready, its port and folder, and its version."""
    folder = tmp_path / "files"
    version = build(folder, 0)
    with serving(folder) as (process, port):
        wait_for(port, version[0])
        yield process, port, folder, version


def wait_for(port: int, version: str, times: int = 10, workers: int = WORKERS) -> None:
    """Waits until that many answers in a row, of that many workers, are that this version is ready."""
    answers: list[int] = []
    end, before = time.monotonic() + 120, 0
    while len(answers) < times or len(set(answers)) < workers:
        assert time.monotonic() < end
        try:
            status, found = ask_once(port, "GET", "/ready")
        except OSError:
            status, found = 0, {}
        assert status == 200 or before == status == 0, "ready, and then not"
        before = status
        answers = [*answers, found["pid"]] if found.get("version") == version else []
        time.sleep(0 if answers else 0.1)


def test_under_load_through_a_reload_to_the_end(server: Any) -> None:
    process, port, folder, (version, model) = server
    models, answers, errors, stop = {version: model}, [], [], threading.Event()

    def work(number: int) -> None:
        rng = random.Random(number)
        try:
            with connect(port) as connection:
                while not stop.is_set():
                    rows = rng.choice((1, 2, 8, 9, 64, 100))
                    x = [[rng.uniform(-1, 1) for _ in range(16)] for _ in range(rows)]
                    status, found = ask(connection, "POST", "/predict", json.dumps({"x": x}))
                    assert status == 200, found
                    answers.append((found["version"], x, found["y"]))
        except BaseException as e:
            errors.append(e)

    clients = [threading.Thread(target=work, args=(i,)) for i in range(CLIENTS)]
    for client in clients:
        client.start()
    time.sleep(1)
    new, model = build(folder, 1)
    models[new] = model
    process.send_signal(signal.SIGHUP)
    wait_for(port, new)
    asked = len(answers)
    while len(answers) < asked + 100 and not errors:
        time.sleep(0.1)
    stop.set()
    for client in clients:
        client.join()
    assert errors == []
    assert {version for version, _, _ in answers} == {version, new}
    for name, x, y in random.Random(0).sample(answers, 50):
        np.testing.assert_allclose(models[name](np.array(x, np.float32)), y, atol=1e-5)
    process.terminate()
    assert process.wait(timeout=60) == 0
    assert process.stderr.read() == ""


def test_a_bad_version_and_the_death_of_a_worker(server: Any) -> None:
    _, port, folder, (version, _) = server
    status, found = ask_once(port, "POST", "/predict", '{"x": [[1, 2]]}')
    assert status == 400 and "the shape [n, 16], not [1, 2]" in found["error"]
    # A version that cannot be loaded is told, and the old one goes on.
    (folder / "current").write_text("nothing")
    server[0].send_signal(signal.SIGHUP)
    for _ in range(2):
        assert "cannot load" in server[0].stderr.readline()
    wait_for(port, version)
    # A worker that dies is started again.
    (folder / "current").write_text(version)
    dead = ask_once(port, "GET", "/ready")[1]["pid"]
    os.kill(dead, signal.SIGKILL)
    pids: set[int] = set()
    end = time.monotonic() + 120
    while len(pids) < WORKERS:
        assert time.monotonic() < end
        wait_for(port, version, times=1, workers=1)
        with contextlib.suppress(OSError):
            pids |= {ask_once(port, "GET", "/ready")[1].get("pid", dead)} - {dead}
