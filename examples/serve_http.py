"""Serves a model over HTTP, with several processes and the standard library alone.

    python examples/serve_http.py build FOLDER
    python examples/serve_http.py run FOLDER --port 8000 --workers 2

``build`` compiles the model for batches of 1, 8 and 64 and saves them in one file. ``run`` needs this
file only, not the model. A process listens once it has loaded it: ``GET /ready`` answers 200, and no
connection is made before. ``POST
/predict`` takes ``{"x": [[...], ...]}``, any number of rows, and answers ``{"y": [[...], ...]}``, or
400 with the reason. After another ``build``, SIGHUP loads the new file while the old one answers.
SIGTERM ends when the requests that have begun are answered.

Nothing traces or compiles in ``run``.
"""

import argparse
import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np

BATCHES = 1, 8, 64
MAX_BYTES = 2**22  # of a request


def build(folder: Path, seed: int) -> None:
    import equinox as eqx
    import jax

    import filterjit

    model = eqx.nn.MLP(16, 4, 32, depth=4, key=jax.random.key(seed))
    predict = filterjit.filter_jit(lambda x: jax.vmap(model)(x))
    version = f"{time.time_ns()}"
    folder.mkdir(parents=True, exist_ok=True)
    batches = [jax.ShapeDtypeStruct((n, 16), np.float32) for n in BATCHES]
    errors = predict.warm_up_all([((batch,), {}) for batch in batches])
    assert not errors, errors
    assert predict.save(folder / f"{version}.jit") == len(BATCHES)
    (folder / "new").write_text(version)
    os.replace(folder / "new", folder / "current")  # in one step
    for old in sorted(folder.glob("[0-9]*.jit"))[:-2]:  # a server may still load the one before
        old.unlink()


class Model:
    """The file of one version. A batch is padded to the next size that was compiled."""

    def __init__(self, folder: Path) -> None:
        import filterjit

        self.version = (folder / "current").read_text()
        self.predict = filterjit.load(folder / f"{self.version}.jit")
        specs = [spec for (spec,), _ in self.predict.signatures]
        self.sizes = sorted(spec.shape[0] for spec in specs)
        self.row, self.dtype = specs[0].shape[1:], specs[0].dtype
        for n in self.sizes:
            self(np.zeros((n, *self.row), self.dtype))  # the first call of each is slower

    def __call__(self, x):
        found = []
        while len(x):
            n = next((n for n in self.sizes if n >= len(x)), self.sizes[-1])
            padded = np.zeros((n, *self.row), self.dtype)
            rows = min(n, len(x))
            padded[:rows] = x[:rows]
            found.append(np.asarray(self.predict(padded))[:rows])
            x = x[rows:]
        return np.concatenate(found)

    def parse(self, body: bytes):
        """Returns the array of a request. Raises ValueError with the reason."""
        try:
            request = json.loads(body)
        except (ValueError, RecursionError) as e:
            raise ValueError(f"the body is not JSON: {e}") from None
        if not isinstance(request, dict) or request.keys() != {"x"}:
            raise ValueError('the body must be an object with the key "x" alone')
        try:
            x = np.array(request["x"])
        except ValueError:
            raise ValueError("the rows of x differ in length") from None
        if x.dtype.kind not in "iuf":
            raise ValueError("x must have numbers alone, of at most 64 bits")
        if x.shape[1:] != self.row or not len(x):
            wanted = ", ".join(["n", *map(str, self.row)])
            raise ValueError(f"x must have the shape [{wanted}], not {list(x.shape)}")
        with np.errstate(over="ignore"):
            x = x.astype(self.dtype)
        if not np.isfinite(x).all():
            raise ValueError(f"x has numbers that are not finite in {self.dtype}")
        return x


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keeps connections
    disable_nagle_algorithm = True
    wbufsize = -1  # header and body in one packet
    timeout = 5.0  # of an idle connection

    def answer(self, status: int, **content) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.server.ends or status >= 400:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        if self.path != "/ready":
            self.answer(404, error="there are GET /ready and POST /predict")
        else:
            self.answer(200, version=self.server.model.version, pid=os.getpid())

    def do_POST(self) -> None:
        model = self.server.model  # the same one for the whole request
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > MAX_BYTES:
            self.answer(400, error=f"Content-Length must be a number up to {MAX_BYTES}")
            return
        body = self.rfile.read(int(length))  # also where it is not wanted
        if self.path != "/predict":
            self.answer(404, error="there are GET /ready and POST /predict")
        else:
            try:
                x = model.parse(body)
            except ValueError as e:
                self.answer(400, error=str(e))
            else:
                self.answer(200, version=model.version, y=model(x).tolist())

    def log_message(self, *arguments) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    """One process: a thread for each connection, and the model that answers at the moment."""

    allow_reuse_port = True  # several processes listen
    daemon_threads = False  # the end waits for them
    request_queue_size = 128
    model, ends = None, False

    def __init__(self, port: int) -> None:
        super().__init__(("", port), Handler, bind_and_activate=False)
        self.changed = threading.Event()

    def load(self, folder: Path) -> None:
        import filterjit

        try:
            filterjit.forbid_compile()
            self.model = Model(folder)
        except Exception as e:  # the old one goes on
            sys.stderr.write(f"cannot load {folder}: {e}\n")  # in one go, beside other workers
        self.changed.set()

    def serve(self) -> None:
        """Listens from the first load that succeeds to the end."""
        while self.model is None and not self.ends:
            self.changed.wait()
            self.changed.clear()
        if not self.ends:
            self.server_bind()
            self.server_activate()
        self.serve_forever(poll_interval=0.1)

    def end(self) -> None:
        self.ends = True
        self.changed.set()
        self.shutdown()


def work(folder: Path, port: int) -> None:
    def start(function, *arguments):
        threading.Thread(target=function, args=arguments).start()

    with Server(port) as server:
        signal.signal(signal.SIGHUP, lambda *_: start(server.load, folder))
        signal.signal(signal.SIGTERM, lambda *_: start(server.end))
        start(server.load, folder)
        server.serve()


def run(folder: Path, port: int, workers: int) -> None:
    """Starts the workers, passes signals on to them, and starts those again that die."""
    with socket.socket() as reserved:  # keeps the port, and chooses one for 0
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(("", port))
        port = reserved.getsockname()[1]
        command = [sys.executable, __file__, "work", str(folder), "--port", str(port)]
        children = [subprocess.Popen(command) for _ in range(workers)]
        ends = threading.Event()
        signal.signal(signal.SIGHUP, lambda *_: [c.send_signal(signal.SIGHUP) for c in children])
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ends.set())
        print(f"listening on port {port}", flush=True)
        while not ends.wait(0.2):
            for i, child in enumerate(children):
                if child.poll() is not None:
                    children[i] = subprocess.Popen(command)
        for child in children:
            child.terminate()
        for child in children:
            child.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("command", choices=("build", "run", "work"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of the model's parameters")
    given = parser.parse_args()
    if given.command == "build":
        build(given.folder, given.seed)
    elif given.command == "run":
        run(given.folder, given.port, given.workers)
    else:
        work(given.folder, given.port)
