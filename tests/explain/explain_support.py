"""Helpers of the tests of reports and explanations, and the classes of what differs."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import filterjit
from filterjit import filter_jit

X = jnp.ones(3)


class Static(eqx.Module):
    weight: Any
    value: Any = eqx.field(static=True)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Data:
    rate: Any
    weight: Any


@jax.tree_util.register_pytree_node_class
class Aux:
    def __init__(self, aux: Any, child: Any = X) -> None:
        self.aux, self.child = aux, child

    def tree_flatten(self) -> Any:
        return (self.child,), self.aux

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> "Aux":
        return cls(aux, *children)


class Plain:
    """Compares by identity."""

    def method(self, x: Any) -> Any:
        return x


class Holder:
    def __init__(self) -> None:
        self.size, self.weight = 2, {"w": X}


def closure(n: Any) -> Callable[[Any], Any]:
    return lambda x: x * n


def jitted(jit: Any = filter_jit, **options: Any) -> tuple[Any, list[None]]:
    """Returns a function of two arguments, and a list that grows with each of its traces."""
    traces: list[None] = []

    @jit(**options)
    def f(a: Any, b: Any = None) -> Any:
        traces.append(None)
        return a

    return f, traces


@contextlib.contextmanager
def switched(**switches: bool) -> Iterator[None]:
    """Sets attributes of `filterjit.switches`, for a while."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in switches.items():
            patch.setattr(filterjit.switches, name, value)
        yield


def row_of(f: Any) -> dict[str, Any]:
    """Returns the row of a function in its report."""
    (row,) = f.report().as_dict()["functions"]
    return row


def build_seconds(row: dict[str, Any]) -> float:
    return row["tracing"] + row["compiling"]
