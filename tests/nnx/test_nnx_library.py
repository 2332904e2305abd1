"""The Modules, States and GraphDefs that Flax NNX itself has: results and traces are those of
``jax.jit``."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.tree_util as jtu
import pytest

from filterjit import filter_jit
from filterjit._trees import _registry
from support.exactness import X, changed, check_exact, same_as_jax

pytest.importorskip("flax.nnx")
optax = pytest.importorskip("optax")
from flax import nnx  # noqa: E402

# ---- containers ----


@pytest.mark.parametrize("length", [0, 1, 3, 29, 30, 31, 70])
def test_lists(length: int) -> None:
    def make(extra: Any = ()) -> Any:
        return nnx.List([*(nnx.Param(X + i) for i in range(length)), *extra])

    number = check_exact(lambda: [make(), make(), make([X]), make(), make([1]), make([2])])
    assert number == 4
    check_exact(lambda: [make()] * 5, kind="described", traces=1)


def test_keys_that_look_like_numbers() -> None:
    """Flax takes `"01"` for the index 1, and rebuilds it as such: JAX's function is asked."""

    def trees() -> Iterator[Any]:
        for name in ("01", " 2", "x"):
            xs = nnx.List([nnx.Param(X)])
            vars(xs)[name] = "static"
            yield xs

    same_as_jax(lambda xs: (xs, X), trees)


class Block(nnx.Module):
    def __init__(self, rngs: Any) -> None:
        self.linear = nnx.Linear(3, 3, rngs=rngs)
        self.norm = nnx.BatchNorm(3, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.dropout(nnx.relu(self.norm(self.linear(x))))


def sequential(seed: int = 0) -> Any:
    rngs = nnx.Rngs(seed)
    return nnx.Sequential(nnx.Linear(3, 3, rngs=rngs), nnx.relu, Block(rngs))


MODULES: dict[str, Callable[[], Any]] = {
    "Linear": lambda: nnx.Linear(3, 3, rngs=nnx.Rngs(0)),
    "LinearGeneral": lambda: nnx.LinearGeneral((3,), (2, 2), rngs=nnx.Rngs(0)),
    "Conv": lambda: nnx.Conv(3, 2, (2,), rngs=nnx.Rngs(0)),
    "Embed": lambda: nnx.Embed(5, 3, rngs=nnx.Rngs(0)),
    "BatchNorm": lambda: nnx.BatchNorm(3, rngs=nnx.Rngs(0)),
    "LayerNorm": lambda: nnx.LayerNorm(3, rngs=nnx.Rngs(0)),
    "Dropout": lambda: nnx.Dropout(0.5, rngs=nnx.Rngs(0)),
    "Rngs": lambda: nnx.Rngs(0, params=1),
    "MultiHeadAttention": lambda: nnx.MultiHeadAttention(
        num_heads=1, in_features=3, qkv_features=4, decode=False, rngs=nnx.Rngs(0)
    ),
    "LSTMCell": lambda: nnx.LSTMCell(3, 2, rngs=nnx.Rngs(0)),
    "LoRA": lambda: nnx.LoRA(3, 2, 3, rngs=nnx.Rngs(0)),
    "Sequential": sequential,
    "Average": nnx.metrics.Average,
    "MultiMetric": lambda: nnx.MultiMetric(loss=nnx.metrics.Average(), acc=nnx.metrics.Accuracy()),
    "Optimizer": lambda: nnx.Optimizer(sequential(), optax.adam(0.1), wrt=nnx.Param),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_of_the_library(name: str) -> None:
    module = MODULES[name]()
    assert check_exact(lambda: [module] * 5, kind="described") == 1
    # Modules hold functions that are made anew for each, as those of initializers.
    assert check_exact(lambda: [module, MODULES[name](), module, nnx.clone(module)]) <= 2


def test_more_attributes_than_cpython_keeps_in_a_block() -> None:
    assert len(vars(MODULES["MultiHeadAttention"]())) > 30


# ---- shared Variables ----


class Tied(nnx.Module):
    def __init__(self) -> None:
        self.a = nnx.Param(X)
        self.b = self.a
        self.c = nnx.List([self.a, nnx.Param(X)])


def test_shared_variables_are_a_tree() -> None:
    """As under ``jax.jit``: a Variable that stands in two places becomes two."""
    check_exact(lambda: [Tied()] * 4, kind="described", traces=1)
    for jit in (jax.jit, filter_jit):
        out = jit(lambda m: m)(Tied())
        assert out.a is not out.b


# ---- State ----


class OwnState(nnx.State):
    """A kind of State that a program defines."""


class OwnInit(nnx.State):
    def __init__(self, mapping: Any, /, **kwargs: Any) -> None:
        super().__init__({**dict(mapping), "made": X}, **kwargs)


STATES: dict[str, Callable[[], Any]] = {
    "empty": lambda: nnx.State({}),
    "flat": lambda: nnx.State({"b": X, "a": X + 1}),
    "nested": lambda: nnx.State({"b": {"c": X, "a": {"d": X + 1}}, "a": nnx.State({"e": X})}),
    "Variables": lambda: nnx.State({"a": nnx.Param(X), "b": {"c": nnx.BatchStat(X, tag=1)}}),
    "integers": lambda: nnx.State({10: X, 2: X + 1, 1: {3: X, 0: X}}),
    "of a list": lambda: nnx.state(nnx.List([nnx.Param(X + i) for i in range(12)])),
    "of a Module": lambda: nnx.state(sequential()),
    "pure": lambda: nnx.to_pure_dict(nnx.state(sequential())),
    "subclass": lambda: OwnState({"a": X}),
    "from items": lambda: nnx.State(iter([("b", X), ("a", X)])),
    "lists": lambda: nnx.State({"a": [X, (X, {"b": X})]}),
    "static leaves": lambda: nnx.State({"a": "text", "b": 1, "c": X}),
    "flat state": lambda: nnx.to_flat_state(nnx.state(sequential())),
}


@pytest.mark.parametrize("name", STATES)
def test_states(name: str) -> None:
    make = STATES[name]
    assert check_exact(lambda: [make(), make(), make()]) == 1
    state = make()
    assert check_exact(lambda: [state] * 5) == 1


def test_a_state_with_its_own_init() -> None:
    same_as_jax(lambda s: (s, X), lambda: [OwnInit({"a": X}), OwnInit({"a": X}), OwnInit({"b": X})])
    assert _registry.registry.kind(OwnInit({"a": X})) == "custom"


def test_a_state_that_changes() -> None:
    changes: list[Callable[[Any], object]] = [
        lambda s: s.__setitem__("d", X),
        lambda s: s.__delitem__("a"),
        lambda s: s["b"].__setitem__("c", X + 1),
        lambda s: s["b"].__setitem__("e", X + 1),
        lambda s: s.__setitem__("n", "other"),
        lambda s: s.__setitem__("n", nnx.Param(X)),
        lambda s: s.__setitem__("b", nnx.State({"c": X})),
        lambda s: object.__setattr__(s, "_mapping", {"a": X}),
        lambda s: object.__setattr__(s, "_mapping", nnx.State({"a": X, "b": 1})._mapping),
    ]
    trees = changed(lambda: nnx.State({"a": X, "b": {"c": X}, "n": "text"}), *changes)
    check_exact(trees, lambda s: (s, X, re.sub("0x.*?>", "", repr(jtu.tree_structure(s)))))
