"""A small transformer in Flax NNX that learns to continue a text, and then writes with a cache:

    python examples/nnx_transformer.py
    python -m filterjit run examples/nnx_transformer.py

Both print the same losses and the same text; the last lines say how many steps a second.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

TEXT = (__doc__ or "") * 20
WIDTH, LENGTH, STEPS, WRITTEN = 32, 24, 150, 120


class Block(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.norm1 = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(2, WIDTH, decode=False, rngs=rngs)
        self.norm2 = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.up = nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs)
        self.down = nnx.Linear(4 * WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x: jax.Array, mask: jax.Array | None) -> jax.Array:
        x = x + self.attention(self.norm1(x), mask=mask)
        return x + self.down(nnx.gelu(self.up(self.norm2(x))))


class Transformer(nnx.Module):
    def __init__(self, symbols: int, rngs: nnx.Rngs) -> None:
        self.embed = nnx.Embed(symbols, WIDTH, rngs=rngs)
        self.places = nnx.Embed(WRITTEN, WIDTH, rngs=rngs)
        self.blocks = nnx.List([Block(rngs) for _ in range(2)])
        self.head = nnx.Linear(WIDTH, symbols, rngs=rngs)

    def __call__(self, ids: jax.Array, start: jax.Array, decode: bool = False) -> jax.Array:
        x = self.embed(ids) + self.places(start + jnp.arange(ids.shape[1]))
        mask = None if decode else nnx.make_causal_mask(ids)
        for block in self.blocks:
            x = block(x, mask)
        return self.head(x)


@nnx.jit
def train(model, optimizer, ids):
    def loss_of(model):
        logits = model(ids[:, :-1], jnp.zeros((), int))
        return optax.softmax_cross_entropy_with_integer_labels(logits, ids[:, 1:]).mean()

    loss, gradients = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, gradients)
    return loss


@nnx.jit
def write(model, symbol, place):
    """Returns the most likely next symbol; the caches of the attentions are updated."""
    return model(symbol, place, decode=True)[:, -1:].argmax(-1)


def main() -> None:
    symbols = sorted(set(TEXT))
    ids = jnp.asarray([symbols.index(c) for c in TEXT])
    model = Transformer(len(symbols), nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    rng = np.random.default_rng(0)
    starts = rng.integers(0, len(ids) - LENGTH, (STEPS + 1, 8))
    batches = [jnp.stack([ids[i : i + LENGTH] for i in row]) for row in starts]
    train(model, optimizer, batches[-1])
    begin = time.perf_counter()
    for step in range(STEPS):
        loss = train(model, optimizer, batches[step])
        if step % 50 == 49:
            print(f"step {step + 1}: loss {float(loss)!r}")
    trained = time.perf_counter()
    for block in model.blocks:
        block.attention.set_attributes(decode=True)
        block.attention.init_cache((1, WRITTEN, WIDTH))
    symbol, text = ids[:1][None], ""
    write(nnx.clone(model), symbol, jnp.zeros((), int)).block_until_ready()
    writing = time.perf_counter()
    for place in range(WRITTEN):
        symbol = write(model, symbol, jnp.asarray(place))
        text += symbols[int(symbol[0, 0])]
    written = time.perf_counter()
    print(repr(text))
    print(f"{STEPS / (trained - begin):.0f} steps a second")
    print(f"{WRITTEN / (written - writing):.0f} symbols a second")


if __name__ == "__main__":
    main()
