"""Serves a frozen model over HTTP, beside the same server on `eqx.filter_jit`.

    python examples/serve_http.py [REQUESTS]

One server of the standard library, with a thread for each connection, has three paths: the frozen
model, `filterjit.filter_jit` and `eqx.filter_jit`. Clients in threads of the same process ask for
them in turn. Prints for each the median and the 99th percentile of the time of a request, and the
ratio of the medians. Most of a request is HTTP, JSON and threads that wait for each other.
"""

import contextlib
import http.client
import http.server
import itertools
import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import equinox as eqx
import jax
import numpy as np

import filterjit

CLIENTS, BLOCK, SIZE = 2, 20, 16


def make_server(models):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # keeps connections
        disable_nagle_algorithm = True
        wbufsize = -1  # header and body in one packet

        def do_POST(self):
            x = np.array(
                json.loads(self.rfile.read(int(self.headers["Content-Length"]))), np.float32
            )
            answer = json.dumps(np.asarray(models[self.path](x)).tolist()).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *arguments):
            pass

    return http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)


def main(requests=1000):
    model = eqx.nn.MLP(SIZE, 4, 32, depth=40, key=jax.random.key(0))

    def predict(model, x):
        return model(x)

    ours, theirs = filterjit.filter_jit(predict), eqx.filter_jit(predict)
    models = {
        "/frozen": ours.freeze(model),
        "/filterjit": ours.partial(model),
        "/equinox": lambda x: theirs(model, x),
    }
    client = threading.local()

    def ask(path):
        """Returns the seconds of a request, and the answer."""
        if not hasattr(client, "connection"):
            connection = http.client.HTTPConnection("127.0.0.1", server.server_port)
            client.connection = closed.enter_context(contextlib.closing(connection))
        before = time.perf_counter()
        client.connection.request("POST", path, json.dumps([1.0] * SIZE))
        answer = json.loads(client.connection.getresponse().read())
        return time.perf_counter() - before, answer

    found = {path: [] for path in models}
    with make_server(models) as server, contextlib.ExitStack() as closed:
        threading.Thread(target=server.serve_forever).start()
        answers = {path: ask(path)[1] for path in models}  # compiles
        with ThreadPoolExecutor(CLIENTS) as clients:
            for _ in range(0, requests, BLOCK):
                for path in models:
                    found[path] += [taken for taken, _ in clients.map(ask, [path] * BLOCK)]
        server.shutdown()

    for path, times in found.items():
        p50, p99 = 1e3 * np.percentile(times, [50, 99])
        print(f"{path:10} p50 {p50:.2f} ms, p99 {p99:.2f} ms")
    ratio = np.median(found["/equinox"]) / np.median(found["/frozen"])
    same = all(np.allclose(a, b, atol=1e-5) for a, b in itertools.pairwise(answers.values()))
    print(f"the same answers: {same}; p50 of Equinox is {ratio:.1f} times that of frozen")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
