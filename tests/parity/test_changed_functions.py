"""Functions and callable objects whose contents change in place, and which a trace gives to JAX again.

JAX traces what `jax.lax.scan`, ``jax.jit`` and the like are given once, by identity.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from filterjit import filter_jit, lax
from filterjit._compat import _constants_compat

ONES = jnp.ones(3)
OLD_JAX = jax.__version_info__ < (0, 11)


def _scale(held: Any, *xs: Any) -> Any:
    """`xs` has more than one item where a body has an index too, or a reduction is given it."""
    return math.prod(xs) * held[0]


def _closure(held: Any) -> Any:
    return lambda *xs: _scale(held, *xs)


def _default(held: Any) -> Any:
    return lambda *xs, held=held: _scale(held, *xs)


@dataclasses.dataclass
class Scale:
    held: Any

    def __hash__(self) -> int:
        return id(self)

    def __call__(self, *xs: Any) -> Any:
        return _scale(self.held, *xs)

    def of(self, *xs: Any) -> Any:
        return _scale(self.held, *xs)


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "closure": _closure,
    "default": _default,
    "closure in a closure": lambda held: (lambda f: lambda *xs: f(*xs))(_closure(held)),
    "partial": lambda held: functools.partial(_scale, held),
    "method": lambda held: Scale(held).of,
    "callable": Scale,
}


def _scan(f: Any, x: Any) -> Any:
    return jax.lax.map(f, x[None])[0]


# What traces a function that it is given.
USES: dict[str, Callable[[Any, Any], Any]] = {
    "call": lambda f, x: f(x),
    "scan": _scan,
    "jit": lambda f, x: jax.jit(f)(x),
    "checkpoint": lambda f, x: jax.checkpoint(f)(x),
    "cond": lambda f, x: jax.lax.cond(x[0] > 0, f, f, x),
    "fori_loop": lambda f, x: jax.lax.fori_loop(1, 2, f, x),
    "fori_loop, traced length": lambda f, x: jax.lax.fori_loop(1, 1 + x[0].astype(int), f, x),
    "reduce_window": lambda f, x: jax.lax.reduce_window(x, jnp.float32(1), f, (1,), (1,), "VALID"),
    "composite": lambda f, x: jax.lax.composite(f, "test.scale")(x),
    "while_loop": lambda f, x: jax.lax.while_loop(lambda x: x[0] < 2, f, x),
    "scan of trees": lambda f, x: lax.scan(lambda c, x: (c, f(x)), "a", x[None])[1][0],
    "cond of trees": lambda f, x: lax.cond(x[0] > 0, f, f, x),
    "while_loop of trees": lambda f, x: lax.while_loop(lambda x: x[0] < 2, f, x),
    "vmap": lambda f, x: jax.vmap(f)(x),
    "grad": lambda f, x: jax.grad(lambda x: f(x).sum())(x),
    "eval_shape": lambda f, x: f(x) * len(jax.eval_shape(f, x).shape),
}


@pytest.mark.parametrize("held", [[2.0], np.array([2.0]), np.array([2]), np.array([2.0], "f")])
@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("use", USES)
def test_a_trace_sees_what_a_function_holds(use: str, holder: str, held: Any) -> None:
    if OLD_JAX and use.startswith(("fori_loop", "composite")):
        pytest.skip("JAX 0.10 still finds an older trace: docs/statics.md")
    held = held.copy()
    f = filter_jit(lambda f, x: USES[use](f, x), functions="structure")
    holding = HOLDERS[holder](held)
    np.testing.assert_array_equal(f(holding, ONES), ONES * 2)
    held[0] = 5.0
    np.testing.assert_array_equal(f(holding, ONES), ONES * 5)


def test_a_callable_that_is_compared_by_contents() -> None:
    """Functions are not, by default, but this is."""
    f, scale = filter_jit(_scan), Scale([2.0])
    f(scale, ONES)
    scale.held[0] = 5.0
    np.testing.assert_array_equal(f(scale, ONES), ONES * 5)


def test_functions_that_are_compared_by_identity() -> None:
    """Programs share JAX's trace of one."""
    traces = []

    def inner(x: Any) -> Any:
        traces.append(x)
        return x * 2

    f = filter_jit(lambda f, x, n: jax.jit(f)(x) * n)
    f(inner, ONES, 1)
    f(inner, ONES, 2)
    assert len(traces) == 1


@pytest.mark.parametrize("lacking", ["the registry of caches", "all caches"])
@pytest.mark.parametrize("use", ["scan", "jit", "cond", "checkpoint"])
def test_names_that_jax_lacks(monkeypatch: pytest.MonkeyPatch, use: str, lacking: str) -> None:
    if lacking == "all caches":
        if use == "checkpoint":
            pytest.skip("what `jax.jit` has for that does not know it")
        monkeypatch.setattr(_constants_compat, "_WEAK", ())
    monkeypatch.setattr(_constants_compat, "_caches", None)
    test_a_trace_sees_what_a_function_holds(use, "closure", [2.0])


def test_what_cannot_be_hashed() -> None:
    """JAX keeps nothing of it."""

    class Odd:
        def __call__(self, x: Any) -> Any:
            return x * 2

        def __hash__(self) -> int:
            raise RuntimeError("no hash")

    class Holder:
        f: Any

    f = filter_jit(lambda held, x: held.f(x), functions="structure")
    held = Holder()
    held.f = Odd()
    np.testing.assert_array_equal(f(held, ONES), ONES * 2)
