"""Trains a small GPT in Flax NNX on scikit-learn's description of a data set, letter by letter."""

import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from sklearn.datasets import load_diabetes

CONTEXT, WIDTH, HEADS, LAYERS = 32, 48, 4, 3


class Block(nnx.Module):
    def __init__(self, rngs):
        self.norm_1 = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(
            num_heads=HEADS, in_features=WIDTH, decode=False, rngs=rngs
        )
        self.norm_2 = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.up = nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs)
        self.down = nnx.Linear(4 * WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x, mask):
        x = x + self.attention(self.norm_1(x), mask=mask)
        return x + self.down(nnx.gelu(self.up(self.norm_2(x))))


class GPT(nnx.Module):
    def __init__(self, letters, rngs):
        self.tokens = nnx.Embed(letters, WIDTH, rngs=rngs)
        self.positions = nnx.Embed(CONTEXT, WIDTH, rngs=rngs)
        self.blocks = nnx.List([Block(rngs) for _ in range(LAYERS)])
        self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.head = nnx.Linear(WIDTH, letters, rngs=rngs)

    def __call__(self, tokens):
        x = self.tokens(tokens) + self.positions(jnp.arange(tokens.shape[-1]))
        mask = nnx.make_causal_mask(tokens)
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x))


@nnx.jit
def train_step(model, optimizer, tokens):
    def loss_of(model):
        logits = model(tokens[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    loss, gradients = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, gradients)
    return loss


@nnx.jit
def next_letter(model, tokens, end):
    return model(tokens[None])[0, end - 1].argmax()


text = load_diabetes().DESCR
letters = sorted(set(text))
data = np.array([letters.index(x) for x in text], np.int32)
model = GPT(len(letters), nnx.Rngs(0))
optimizer = nnx.Optimizer(model, optax.adam(2e-3), wrt=nnx.Param)
random = np.random.default_rng(0)
for step in range(150):
    begins = random.integers(0, len(data) - CONTEXT, 8)
    loss = train_step(model, optimizer, data[begins[:, None] + np.arange(CONTEXT + 1)])
    if step % 50 == 49:
        print(f"step {step + 1}: loss {loss:.3f}")
tokens = np.zeros(CONTEXT, np.int32)
tokens[:4] = data[:4]
for end in range(4, CONTEXT):
    tokens[end] = next_letter(model, tokens, np.int32(end))
print(repr("".join(letters[x] for x in tokens)))
