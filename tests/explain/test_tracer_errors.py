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

import filterjit
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


def test_a_jax_without_the_private_names_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_private, "private", lambda *names: None)
    text = error_of(filter_jit(lambda x, y: branch(x, y)), X, X)
    assert "TracerBoolConversionError" in text and "the argument y." in text


LEAKED: list[Any] = []
NUMBERS: dict[str, Any] = {"traced": ("n",)}


@filter_jit
def endless(x: Any) -> Any:
    return endless(x)


def leak(x: Any) -> Any:
    filter_jit(lambda x: LEAKED.append(2 * x))(x)
    return LEAKED.pop() + 1


# A call, what its error and the notes say, and what they do not say.
SAID: dict[str, tuple[Callable[..., Any], str, str]] = {
    "endless recursion": (lambda: endless(X), f"(endless at {__file__}:", "argument `"),
    "a leaked tracer": (lambda: leak(X), f"{__file__}:", "_trace.py"),
    "a shape": (
        lambda: filter_jit(lambda n: jnp.zeros(n), **NUMBERS)(3),
        "argument `n` is 3, and has no value in the trace since the option `traced` is ('n',)",
        "`m`",
    ),
    "a number in a tree": (
        lambda: filter_jit(lambda n, m: range(n["k"]), traced=("n", "m"))({"k": 3}, 2),
        "argument `n['k']` is 3, and",
        "argument `m`",
    ),
    "an array": (
        lambda: filter_jit(lambda n: range(n), **NUMBERS)(np.int32(3)),
        "argument n",
        "argument `",
    ),
    "filterjit.jit": (lambda: filterjit.jit(lambda n: range(n))(3), "argument n", "argument `"),
}


@pytest.mark.parametrize("name", SAID)
def test_what_is_added_to_the_words_of_jax(name: str) -> None:
    call, said, unsaid = SAID[name]
    with pytest.raises(Exception) as caught:
        call()
    text = "\n".join([str(caught.value), *caught.value.__notes__])
    assert said in text and unsaid not in text, text
    assert text.count("calls itself") == (name == "endless recursion")


@pytest.mark.parametrize("jit", [filterjit.jit, filter_jit, filterjit.nnx.jit])
def test_a_function_that_calls_itself_without_end_and_without_jit(jit: Any) -> None:
    itself = jit(lambda x: itself(x))
    # JAX raises a ValueError if an `__eq__` of its own has reached the limit.
    with jax.disable_jit(), pytest.raises((RecursionError, ValueError), match="ecursion"):
        itself(X)
    assert filter_jit(lambda x: x + 1)(X).tolist() == [2, 2]
