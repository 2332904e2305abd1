"""Calls of several variants in random order, also with statics that change in place in between."""

import random
from typing import Any

import jax.numpy as jnp
import pytest
from flax import nnx

import filterjit
from support.modules import Holder

X = jnp.ones(3)


class Config:
    """A mutable static that compares by its contents."""

    def __init__(self, n: int) -> None:
        self.n, self.names = n, ["a", {"b": n}]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(self.n)


class Net(nnx.Module):
    def __init__(self, n: int) -> None:
        self.layer, self.n = nnx.Linear(2, 2, rngs=nnx.Rngs(0)), n


def graph(i: int) -> Any:
    return nnx.split(Net(i))[0]


def set_in_graph(value: Any, n: int) -> None:
    """Changes a GraphDef, as nobody should."""
    ((i, _),) = [(i, x) for i, x in enumerate(value.attributes) if x[0] == "n"]
    attributes = list(value.attributes)
    attributes[i] = ("n", type(attributes[i][1])(n))
    object.__setattr__(value, "attributes", tuple(attributes))


def set_config(value: Any, n: int) -> None:
    value.n = value.names[1]["b"] = n


def set_list(value: Any, n: int) -> None:
    value[0][0] = n


CASES: dict[str, tuple[Any, Any, Any]] = {
    "configurations": (Config, set_config, lambda x: x.n),
    "lists in fields": (lambda i: [[i], "a"], set_list, lambda x: x[0][0]),
    "GraphDefs": (graph, set_in_graph, lambda x: nnx.merge(x, nnx.split(Net(0))[1]).n),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", [1, 2])
def test_eight_statics_that_change(name: str, seed: int) -> None:
    make, change, read = CASES[name]
    in_field, draw = name == "lists in fields", random.Random(seed)
    f = filterjit.filter_jit(
        lambda x, static: x + read(static.s if in_field else static), maxsize=4096
    )
    kept = [make(i) for i in range(8)]
    try:
        change(kept[0], 0)
    except (AttributeError, ValueError):
        pytest.skip("this version of Flax has other GraphDefs")
    for i in range(300):
        static = kept[draw.randrange(8)]
        if draw.random() < 0.1:
            change(static, draw.randrange(10))
        if draw.random() < 0.1:
            static = make(draw.randrange(10))
        expected = X + read(static)
        found = f(X, Holder(X, static) if in_field else static)
        assert jnp.array_equal(found, expected), i


@pytest.mark.recompiles
def test_several_arguments_and_more_variants_than_are_compared() -> None:
    draw = random.Random(0)
    f = filterjit.filter_jit(lambda m, x, n, k: m["w"] * n + x + k)
    for _ in range(1500):
        n, k, x = draw.randrange(4), draw.choice([1, 2, True]), draw.choice([X, 1.5, 2.5])
        m = {"w": X, "statics": [draw.choice("ab"), (draw.randrange(2),)]}
        assert jnp.array_equal(f(m, x, n, k), m["w"] * n + x + k)
    assert len(f.variants) == 4 * 3 * 3 * 4
