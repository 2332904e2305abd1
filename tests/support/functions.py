"""Functions that are equal in structure, for the tests of ``functions="structure"``."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp

import filterjit
from support.comparison import Traces

X = jnp.arange(3.0)


class Layer(eqx.Module):
    weight: Any
    act: Any
    tag: Any = eqx.field(static=True, default=None)

    def __call__(self, x: Any) -> Any:
        return self.act(self.weight * x)


@dataclasses.dataclass(frozen=True)
class Config:
    scale: Any


class Plain:
    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def act(self, x: Any) -> Any:
        return x * self.scale


class Counted:
    """A jitted `apply(act, x)` that counts its traces."""

    def __init__(self, **options: Any) -> None:
        self.traces = Traces()
        fun = self.traces.counting(lambda act, x: act(x))
        self.call = filterjit.filter_jit(fun, functions="structure", **options)

    def __call__(self, act: Any, x: Any = X) -> Any:
        return self.call(act, x)

    @property
    def count(self) -> int:
        return self.traces.count


def scaled(s: Any) -> Callable[[Any], Any]:
    return lambda x: x * s


def holding(cell: Any) -> Callable[[Any], Any]:
    return lambda x: (x, repr(cell))[0]


def with_attributes(x: Any, **attributes: Any) -> Any:
    for name, value in attributes.items():
        setattr(x, name, value)
    return x


def settable(s: Any) -> tuple[Callable[[Any], Any], Callable[[Any], None]]:
    def act(x: Any) -> Any:
        return x * s

    def change(value: Any) -> None:
        nonlocal s
        s = value

    return act, change


def scaled_like(s: Any) -> Callable[[Any], Any]:
    return settable(s)[0]
