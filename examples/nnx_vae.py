"""A variational autoencoder of scikit-learn's digits, in Flax NNX with streams of random numbers:

    python examples/nnx_vae.py
    python -m filterjit run examples/nnx_vae.py

Both print the same losses; the last line says how many steps a second.
"""

import time

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from sklearn.datasets import load_digits

STEPS, BATCH = 400, 64


class Encoder(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.hidden = nnx.Linear(64, 32, rngs=rngs)
        self.mean = nnx.Linear(32, 2, rngs=rngs)
        self.log_scale = nnx.Linear(32, 2, rngs=rngs)
        self.rngs = rngs

    def __call__(self, x: jax.Array) -> jax.Array:
        h = nnx.relu(self.hidden(x))
        mean, log_scale = self.mean(h), self.log_scale(h)
        kl = 0.5 * (jnp.exp(2 * log_scale) + mean**2 - 1) - log_scale
        self.kl = nnx.Intermediate(kl.sum(-1).mean())
        return mean + jnp.exp(log_scale) * jax.random.normal(self.rngs.noise(), mean.shape)


class VAE(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.encoder = Encoder(rngs)
        self.decoder = nnx.Sequential(
            nnx.Linear(2, 32, rngs=rngs), nnx.relu, nnx.Linear(32, 64, rngs=rngs)
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.decoder(self.encoder(x))


@nnx.jit
def train(model, optimizer, x):
    def loss_of(model):
        logits = model(x)
        error = optax.sigmoid_binary_cross_entropy(logits, x).sum(-1).mean()
        return error + model.encoder.kl[...]

    loss, gradients = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, gradients)
    return loss


def main() -> None:
    images = jnp.asarray(load_digits().data / 16, jnp.float32)
    model = VAE(nnx.Rngs(0, noise=1))
    optimizer = nnx.Optimizer(model, optax.adam(3e-3), wrt=nnx.Param)
    data = [images[i : i + BATCH] for i in range(0, len(images) - BATCH, BATCH)]
    train(model, optimizer, data[0])
    start = time.perf_counter()
    for step in range(STEPS):
        loss = train(model, optimizer, data[step % len(data)])
        if step % 100 == 99:
            print(f"step {step + 1}: loss {float(loss)!r}")
    taken = time.perf_counter() - start
    print(f"divergence: {float(model.encoder.kl[...])!r}")
    print(f"{STEPS / taken:.0f} steps a second")


if __name__ == "__main__":
    main()
