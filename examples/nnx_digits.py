"""A convolutional network with BatchNorm and Dropout on scikit-learn's digits, in Flax NNX:

    python examples/nnx_digits.py
    python -m filterjit run examples/nnx_digits.py

Both print the same losses; the last line says how many steps a second.
"""

import time

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from sklearn.datasets import load_digits

STEPS, BATCH = 300, 32


class Network(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.conv1 = nnx.Conv(1, 4, kernel_size=(3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(4, rngs=rngs)
        self.conv2 = nnx.Conv(4, 8, kernel_size=(3, 3), strides=2, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.linear = nnx.Linear(8 * 4 * 4, 10, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        x = nnx.relu(self.norm(self.conv1(images)))
        x = nnx.relu(self.conv2(x))
        return self.linear(self.dropout(x.reshape(x.shape[0], -1)))


def loss_of(network: Network, images: jax.Array, labels: jax.Array) -> jax.Array:
    logits = network(images)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


@nnx.jit
def train(network, optimizer, metrics, images, labels):
    loss, gradients = nnx.value_and_grad(loss_of)(network, images, labels)
    optimizer.update(network, gradients)
    metrics.update(loss=loss)
    return loss


@nnx.jit
def accuracy(network, images, labels):
    return (network(images).argmax(1) == labels).mean()


def main() -> None:
    digits = load_digits()
    images = jnp.asarray(digits.images[..., None] / 16, jnp.float32)
    labels = jnp.asarray(digits.target)
    network = Network(nnx.Rngs(0))
    optimizer = nnx.Optimizer(network, optax.adam(3e-3), wrt=nnx.Param)
    metrics = nnx.MultiMetric(loss=nnx.metrics.Average("loss"))
    batches = [slice(i, i + BATCH) for i in range(0, 1500 - BATCH, BATCH)]
    data = [(images[batch], labels[batch]) for batch in batches]
    train(network, optimizer, metrics, *data[0])
    start = time.perf_counter()
    for step in range(STEPS):
        loss = train(network, optimizer, metrics, *data[step % len(data)])
        if step % 50 == 49:
            print(
                f"step {step + 1}: loss {float(loss)!r}, mean {float(metrics.compute()['loss'])!r}"
            )
            metrics.reset()
    taken = time.perf_counter() - start
    network.eval()
    print(f"test accuracy: {float(accuracy(network, images[1500:], labels[1500:]))!r}")
    print(f"{STEPS / taken:.0f} steps a second")


if __name__ == "__main__":
    main()
