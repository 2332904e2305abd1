"""A training step on four devices: the batch is divided, and so are the layers' large weights."""

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec
from sklearn.datasets import load_digits

mesh = jax.make_mesh((4,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
divided, whole = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("data",), ()))


def init(key):
    sizes, layers = (64, 256, 256, 10), []
    for n, m, own in zip(sizes, sizes[1:], jax.random.split(key, 3), strict=False):
        weight = jax.random.normal(own, (n, m)) * np.sqrt(2 / n)
        layers.append({"weight": weight, "bias": jnp.zeros(m)})
    return layers


def place(x):
    return jax.device_put(x, divided if x.ndim == 2 and x.shape[0] >= 256 else whole)


def apply(layers, x):
    for layer in layers[:-1]:
        x = jax.nn.relu(x @ layer["weight"] + layer["bias"])
    return x @ layers[-1]["weight"] + layers[-1]["bias"]


optimizer = optax.adam(1e-3)


@jax.jit
def step(layers, moments, x, y):
    def loss_of(layers):
        return optax.softmax_cross_entropy_with_integer_labels(apply(layers, x), y).mean()

    loss, gradients = jax.value_and_grad(loss_of)(layers)
    updates, moments = optimizer.update(gradients, moments)
    return optax.apply_updates(layers, updates), moments, loss


digits = load_digits()
images, labels = (digits.data / 16).astype(np.float32), digits.target.astype(np.int32)
layers = jax.tree.map(place, init(jax.random.key(0)))
moments = jax.tree.map(place, optimizer.init(layers))
random = np.random.default_rng(0)
for i in range(300):
    rows = random.integers(0, 1500, 64)
    x, y = (jax.device_put(array[rows], divided) for array in (images, labels))
    layers, moments, loss = step(layers, moments, x, y)
    if i % 100 == 99:
        print(f"step {i + 1}: loss {loss:.3f}")
predicted = jax.jit(apply)(layers, images[1500:]).argmax(-1)
print(f"{(np.asarray(predicted) == labels[1500:]).sum()} of 297 right")
