"""Callables of all kinds that can be jitted."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu

import filterjit

from .trees import TWO


def scale(x: Any, factor: Any = 2, *, shift: Any = 0) -> Any:
    """Scales."""
    return x * factor + shift


@filterjit.filter_jit
def decorated(x: Any) -> Any:
    return x + 1


def square(x: Any) -> Any:
    return x * x * 3


class Affine(eqx.Module):
    """An affine map."""

    w: Any
    b: Any = 1.0
    name: str = eqx.field(static=True, default="affine")

    def __call__(self, x: Any, *, negate: bool = False) -> Any:
        """Applies it."""
        y = self.w * x + self.b
        return -y if negate else y

    def twice(self, x: Any) -> Any:
        """Applies it two times."""
        return self(self(x))


class Plain:
    def __init__(self, a: Any) -> None:
        self.a = a

    def method(self, x: Any) -> Any:
        return self.a * x

    def __call__(self, x: Any) -> Any:
        return self.a + x

    @classmethod
    def of_class(cls, x: Any) -> Any:
        return x, cls.__name__

    @staticmethod
    def of_none(x: Any) -> Any:
        return x + 3


CALLABLES: dict[str, Any] = {
    "function": scale,
    "lambda": lambda x: x - 1,
    "functools.partial": functools.partial(scale, factor=5),
    "functools.partial of an array": functools.partial(scale, factor=TWO),
    "functools.partial of a Module": functools.partial(Affine(TWO), negate=True),
    "tree_util.Partial": jtu.Partial(scale, shift=TWO),
    "eqx.Partial": eqx.Partial(scale, shift=TWO),
    "eqx.Partial of a Module": eqx.Partial(Affine(TWO, 3), negate=True),
    "Module": Affine(TWO, 3),
    "method of a Module": Affine(TWO, 3).twice,
    "__call__ of a Module": Affine(TWO, 3).__call__,
    "method of a plain class": Plain(4).method,
    "callable object": Plain(4),
    "classmethod": Plain.of_class,
    "staticmethod": Plain.of_none,
    "class": Affine,
    "jnp function": jnp.sin,
    "jax.jit function": jax.jit(scale),
    "custom_jvp function": jax.nn.relu,
    "filter_grad function": eqx.filter_grad(lambda x: x**2),
    "eqx.filter_jit": eqx.filter_jit(scale),
    "filterjit.filter_jit": filterjit.filter_jit(scale),
}
