"""Errors of tracers, and of arrays that JAX does not take, name the user's argument and line.

``jax.jit`` of the same function is the oracle: the texts are equal.
"""

import functools
import re
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from filterjit import filter_jit
from filterjit._compat import _private

X = jnp.ones(2)


def error_of(f: Callable[..., Any], *args: Any) -> str:
    with pytest.raises(Exception) as caught:
        f(*args)
    return re.sub(r"0x[0-9a-f]+", "0x", f"{type(caught.value).__name__}: {caught.value}")


def branch(x: Any, y: Any) -> Any:
    if y.sum() > 0:
        return x
    return -x


def index(x: Any, y: Any) -> Any:
    return [1, 2][y["k"][0]] * x


def to_numpy(x: Any, *, scale: Any = 1) -> Any:
    return np.asarray(x) * scale


def add(x: Any, y: Any) -> Any:
    return x


@functools.wraps(branch)
def wrapper(*args: Any) -> Any:
    return branch(*args)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "a branch": (branch, (X, X), "argument y"),
    "an index in a tree": (index, (X, {"k": [jnp.array(1)]}), "argument y['k'][0]"),
    "NumPy": (to_numpy, (X,), "argument x"),
    "a wrapper": (wrapper, (X, X), "argument y"),
    "strings": (add, (X, {"name": np.array(["a"])}), "path y['name']"),
    "objects": (add, (X, [np.array([None])]), "path y[0]"),
}


@pytest.mark.parametrize("name", CASES)
def test_errors_are_those_of_jax_jit(name: str) -> None:
    f, args, expected = CASES[name]
    text = error_of(filter_jit(f), *args)
    assert text == error_of(jax.jit(f), *args)
    assert expected in text
    assert "path" in expected or f"{__file__}:{branch_line(f)}" in text


def branch_line(f: Any) -> int:
    line: int = getattr(f, "__wrapped__", f).__code__.co_firstlineno
    return line


def test_arrays_in_a_module_and_in_the_function() -> None:
    class Model(eqx.Module):
        weight: Any

        def __call__(self, x: Any) -> Any:
            return x if self.weight.any() else -x

    assert "the argument model.weight." in error_of(
        filter_jit(lambda model, x: model(x)), Model(X), X
    )
    text = error_of(filter_jit(Model(X)), X)
    assert "the argument the function.weight." in text
    assert f"{__file__}:{Model.__call__.__code__.co_firstlineno}" in text


def test_a_jax_without_the_private_names_says_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_private, "private", lambda *names: None)
    text = error_of(filter_jit(lambda x, y: branch(x, y)), X, X)
    assert "TracerBoolConversionError" in text and "argument arrays[1]" in text


def test_a_frozen_function_and_a_partial() -> None:
    jitted = filter_jit(branch)
    line = f"branch at {__file__}:{branch_line(branch)} for jit"
    for f in (jitted.freeze(X), jitted.partial(X)):
        text = error_of(f, X)
        assert line in text and "the argument y." in text
