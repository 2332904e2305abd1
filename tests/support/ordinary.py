"""What user's modules commonly have, none of which may put a function in doubt."""

from __future__ import annotations

import abc
import argparse
import contextlib
import dataclasses
import enum
import functools
import logging
import math
import pathlib
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx, struct
from jax import lax
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float

T = TypeVar("T")
LOG = logging.getLogger(__name__)
LOCK = threading.Lock()
SCHEDULE = optax.cosine_decay_schedule(1e-3, 100)
OPTIMIZER = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(SCHEDULE))
ARGS = argparse.Namespace(verbose=False)
ROOT = pathlib.Path("data")
KEY = jax.random.key(0)
DTYPE = jnp.float32
TABLE = np.ones(3)
REGISTRY: dict[str, Callable[..., Any]] = {}


def register(f: Any) -> Any:
    REGISTRY[f.__name__] = f
    return f


class Act(enum.StrEnum):
    RELU = "relu"
    GELU = "gelu"


class Shaped(Protocol):
    def shape(self) -> int: ...


class Box(Generic[T]):
    x: T


@dataclasses.dataclass(frozen=True)
class Config:
    width: int = 3
    act: Act = Act.RELU
    dtype: Any = jnp.float32
    names: tuple[str, ...] = ("a",)
    more: dict[str, Any] = dataclasses.field(default_factory=dict)


class Layer(eqx.Module):
    w: Float[Array, "a b"]  # noqa: F722
    cfg: Config = eqx.field(static=True)

    def __init__(self, cfg: Config, *, key: Any) -> None:
        self.w = jax.random.normal(key, (cfg.width, cfg.width))
        self.cfg = cfg

    @jax.named_scope("layer")
    def __call__(self, x: Float[Array, " a"], *, key: Any = None) -> Float[Array, " a"]:  # noqa: F722
        LOG.debug("called")
        return jnp.tanh(self.w @ x)

    @eqx.filter_jit
    def jitted(self, x: Any) -> Any:
        return self(x)


class Abstract(eqx.Module):
    n: eqx.AbstractVar[int]

    @abc.abstractmethod
    def f(self) -> Any: ...


class Variables(nnx.Module):
    def __init__(self, *, rngs: nnx.Rngs) -> None:
        self.linear = nnx.Linear(2, 2, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)

    @nnx.jit
    def __call__(self, x: Any) -> Any:
        return jax.nn.relu(self.linear(x))


class Linen(nn.Module):
    n: int = 3

    @nn.compact
    def __call__(self, x: Any) -> Any:
        return nn.Dense(self.n)(x)


@struct.dataclass
class Record:
    a: Any
    b: int = struct.field(pytree_node=False, default=1)


MODEL = Layer(Config(), key=KEY)


@register
@functools.partial(jax.jit, static_argnames=("n",))
def helper(x: Any, n: int = 2) -> Any:
    return optax.l2_loss(x) * n


@jax.checkpoint
def checkpointed(x: Any) -> Any:
    return eqx.internal.while_loop(lambda y: y, lambda y: y, helper(x), kind="lax")


@eqx.filter_value_and_grad
def loss(model: Any, x: Any) -> Any:
    return jax.vmap(model)(x).mean() + checkpointed(x)


@eqx.filter_vmap(in_axes=(None, 0))
def mapped(model: Any, x: Any) -> Any:
    return loss(model, x)


batched = jax.vmap(jax.grad(helper))


@register
def step(model: Any, x: Any) -> Any:
    with LOCK, contextlib.suppress(ValueError), warnings.catch_warnings():
        time.perf_counter()
    _, _ = OPTIMIZER.update(x, None, None)
    if isinstance(model, (Layer, Variables, Linen, Record, Box, Abstract)) and ARGS.verbose:
        print(ROOT, P("a"), Shaped, [DTYPE(1) for _ in range(3)])
    y = lax.cond(True, lambda x: x, lambda x: x + jax.random.normal(KEY), x)
    return REGISTRY["helper"](y) * getattr(model, "scale", 1.0) + MODEL(x) * np.pi * math.e * TABLE
