"""A server that classifies digits: requests of any size are padded to one of a few buckets."""

import queue
import threading

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

BUCKETS = (1, 4, 16, 64)


def fit(images, labels):
    model = eqx.nn.MLP(64, 10, 64, 2, key=jax.random.key(0))
    optimizer = optax.adam(3e-3)
    moments = optimizer.init(eqx.filter(model, eqx.is_inexact_array))

    @eqx.filter_jit
    def step(model, moments, x, y):
        def loss_of(model):
            logits = jax.vmap(model)(x)
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

        updates, moments = optimizer.update(eqx.filter_grad(loss_of)(model), moments)
        return eqx.apply_updates(model, updates), moments

    for i in range(0, 1200, 50):
        model, moments = step(model, moments, images[i : i + 50], labels[i : i + 50])
    return model


class Server:
    def __init__(self, model):
        self.model, self.requests = model, queue.Queue()
        self.predict = eqx.filter_jit(lambda model, x: jax.vmap(model)(x).argmax(-1))
        for n in BUCKETS:
            self.answer(np.zeros((n, 64), np.float32))
        self.thread = threading.Thread(target=self.work)
        self.thread.start()

    def answer(self, x):
        size = next(n for n in BUCKETS if n >= len(x))
        padded = np.zeros((size, 64), np.float32)
        padded[: len(x)] = x
        return np.asarray(self.predict(self.model, jnp.asarray(padded)))[: len(x)]

    def work(self):
        while (request := self.requests.get()) is not None:
            x, reply = request
            reply.put(self.answer(x))

    def ask(self, x):
        reply = queue.Queue()
        self.requests.put((x, reply))
        return reply.get()

    def stop(self):
        self.requests.put(None)
        self.thread.join()


def main():
    digits = load_digits()
    images, labels = (digits.data / 16).astype(np.float32), digits.target.astype(np.int32)
    server = Server(fit(images, labels))
    random, right, asked = np.random.default_rng(0), 0, 0
    for _ in range(1500):
        rows = random.integers(1200, 1797, random.integers(1, 40))
        right += int((server.ask(images[rows]) == labels[rows]).sum())
        asked += len(rows)
    server.stop()
    print(f"{right} of {asked} right")


if __name__ == "__main__":
    main()
