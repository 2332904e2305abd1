"""Programs that people reported as broken: each row has a program and its value."""

import concurrent.futures
import functools
import os
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from flax import nnx

import filterjit
from filterjit._base._switches import Switches

JITS = [filterjit.jit, filterjit.filter_jit, filterjit.nnx.jit]
X = jnp.arange(2.0)


def named(x: Any) -> Any:
    "Doc."
    return x


def attribute(jit: Callable[[Any], Any], name: str) -> Any:
    """The values of an attribute and of a call, after the attribute was set."""
    f = jit(lambda x: x + 1)
    setattr(f, name, "mine")
    return getattr(f, name), f(X).tolist(), f(X).tolist()


@pytest.mark.parametrize("jit", JITS)
@pytest.mark.parametrize("name", ["__wrapped__", "__name__", "__doc__", "__module__", "note"])
def test_what_can_be_set_on_a_jitted_function(jit: Any, name: str) -> None:
    assert attribute(jit, name) == attribute(jax.jit, name) == ("mine", [1, 2], [1, 2])


@pytest.mark.parametrize("jit", JITS)
def test_wraps_around_a_jitted_function(jit: Any) -> None:
    f = functools.wraps(named)(jit(lambda x: x + 1))
    assert f.__wrapped__ is named and (f.__name__, f.__doc__) == ("named", "Doc.")
    assert f(X).tolist() == f(X).tolist() == [1, 2]
    assert jax.make_jaxpr(f)(X).out_avals[0].shape == (2,)
    assert f.lower(X).compile()(X).tolist() == [1, 2]
    assert f.explain(X).hit and "lambda" in repr(f)
    f.clear_cache()
    assert f(X).tolist() == [1, 2]
    del f.__wrapped__
    with pytest.raises(AttributeError):
        del f.__wrapped__


def test_wraps_around_a_pytree_that_jax_rebuilt() -> None:
    f = functools.wraps(named)(filterjit.filter_jit(eqx.nn.Linear(2, 2, key=jax.random.key(0))))
    other = jax.tree.map(jnp.zeros_like, f)
    assert other(X).tolist() == [0, 0] and isinstance(other.__wrapped__, eqx.nn.Linear)


def contains_itself(**options: Any) -> list[list[float]]:
    class Loop(nnx.Module):  # a new class: the first instance is looked at
        def __init__(self) -> None:
            self.w = nnx.Param(jnp.ones(2))
            self.me = self

    def add(loop: Loop, x: jax.Array) -> jax.Array:
        loop.w[...] += x
        return loop.w[...]

    loop, f = Loop(), filterjit.nnx.jit(add, **options)
    found = [f(loop, X).tolist() for _ in range(2)]
    with open(os.devnull, "rb"):  # what needs C recursion goes on
        return found


@pytest.mark.parametrize("options", [{}, {"graph": True, "graph_updates": True}])
def test_a_module_that_contains_itself(options: dict[str, Any]) -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        assert thread.submit(contains_itself, **options).result() == [[1, 2], [1, 3]]


def sizes(f: Any) -> tuple[int, int, int]:
    f(X)
    before = f._cache_size()
    f._clear_cache()
    between = f._cache_size()
    f(X)
    return before, between, f._cache_size()


USED_BY_LIBRARIES: dict[str, Callable[[Any], Any]] = {
    "_cache_size and _clear_cache": lambda jit: sizes(jit(lambda x: x + 1)),
    "_fun": lambda jit: jit(named)._fun is named,
    "_jit_info": lambda jit: jit(named, static_argnames="x")._jit_info.static_argnames,
    "clear_cache": lambda jit: jit(named).clear_cache(),
    "lower": lambda jit: jit(named).lower(X).as_text("stablehlo"),
    "trace": lambda jit: str(jit(named).trace(X).jaxpr),
    "eval_shape": lambda jit: str(jit(named).eval_shape(X)),
}


@pytest.mark.parametrize("name", USED_BY_LIBRARIES)
def test_what_libraries_use_of_a_jitted_function(name: str) -> None:
    program = USED_BY_LIBRARIES[name]
    assert program(filterjit.jit) == program(jax.jit)


@pytest.mark.parametrize("jit", JITS)
def test_no_tracing_names_the_users_function(jit: Any) -> None:
    def text(jit: Any) -> str:
        f = jit(named)
        with jax.no_tracing(True), pytest.raises(RuntimeError) as raised:
            f(X)
        return str(raised.value)

    assert text(jit) == text(jax.jit)
    assert f"named at {__file__}:" in text(jit)


WORDS = {"0": False, "false": False, "off": False, "No": False, "": None, "1": True, "TRUE": True}
WORDS |= {"on": True, "yes": True, "maybe": None, "2": None}


@pytest.mark.parametrize("variable", ["FILTERJIT_DIRECT", "FILTERJIT_EXPLAIN"])
@pytest.mark.parametrize(("word", "value"), WORDS.items())
def test_switches_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, variable: str, word: str, value: bool | None
) -> None:
    name = variable.removeprefix("FILTERJIT_").lower()
    monkeypatch.delenv(variable, raising=False)
    expected = getattr(Switches(), name) if value is None else value
    monkeypatch.setenv(variable, word)
    if value is None and word:
        with pytest.warns(UserWarning, match=rf"{variable} is '{word}'.* set it to 1 or 0"):
            assert getattr(Switches(), name) is expected
    else:
        assert getattr(Switches(), name) is expected
