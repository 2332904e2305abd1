"""A hit runs no Python code of the package, except where csrc/README.md says so."""

import datetime
import fractions
import functools
import operator
import os
import sys
import types
from collections import Counter
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import filterjit
from filterjit import filter_jit
from zoo.objects import ByNumber

PACKAGE = os.path.dirname(filterjit.__file__)
CALLS = 40  # after which calls are direct, and the arguments are known

X = np.ones(3, np.float32)


def python_of(call: Callable[[], Any]) -> Counter[str]:
    """Counts the functions of the package that a call runs after many others, by name."""
    for _ in range(CALLS):
        call()
    found: Counter[str] = Counter()

    def profile(frame: types.FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            found[code.co_name] += not code.co_name.startswith("<")  # such as "<listcomp>"

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(before)
    return +found


def first(_: Any, x: Any) -> Any:
    return x


class Net(eqx.Module):
    weight: jax.Array
    name: str = eqx.field(static=True)
    rates: Any = eqx.field(static=True)

    @filter_jit
    def __call__(self, x: Any) -> Any:
        return self.weight * x


class Plain:
    @filter_jit
    def method(self, x: Any) -> Any:
        return x


def net() -> Net:
    return Net(jnp.ones(3), "net", [1, {"a": (2.0, "b")}])


def apply(f: Any, x: Any) -> Any:
    return f(x)


def scaled(values: Any, x: Any) -> Any:
    return x * values["rate"]


def with_aux(make: Callable[[], Any]) -> Callable[[], Any]:
    """Returns a call with a pytree that makes its aux data each time that it is flattened."""

    class Tree:
        pass

    jax.tree_util.register_pytree_node(Tree, lambda _: ((X,), make()), lambda *_: Tree())
    return functools.partial(filterjit.jit(lambda tree: X), Tree())


SPACE = ByNumber(4)
NAMES = ("hilbert", "dtype", "axes", "sweeps")
AUX: dict[str, Callable[[], Any]] = {
    "a mappingproxy": lambda: types.MappingProxyType(
        dict(zip(NAMES, (SPACE, np.dtype("f8"), ("a", "b"), 4), strict=True))
    ),
    "a dict with a dtype": lambda: {"dtype": np.dtype("f8"), "type": np.float32},
    "a tuple of str": lambda: tuple([name.lower() for name in NAMES]),
    "an object": lambda: SPACE,
    "a new object": lambda: ByNumber(4),
}


@pytest.mark.parametrize("name", AUX)
def test_hits_with_new_aux_data(name: str) -> None:
    assert not python_of(with_aux(AUX[name]))


# What is called, and with what.
WITHOUT: dict[str, tuple[Callable[[], Any], tuple[Any, ...]]] = {
    "an array and a str": (lambda: filter_jit(first), ("a", jnp.ones(3))),
    "NumPy and a number": (lambda: filterjit.jit(first), (2.0, X)),
    "a function": (lambda: filter_jit(apply), (jnp.sin, X)),
    "a Module": (lambda: filter_jit(first), (net(), X)),
    "a Module's method": (net, (X,)),
    "an object's method": (lambda: Plain().method, (X,)),
    "a bound method": (lambda: filter_jit(Plain().method), (X,)),
    "on_retrace": (lambda: filter_jit(first, on_retrace="raise"), (1, X)),
    "donate": (lambda: filter_jit(first, donate=("_",)), (1, X)),
    "static_argnums": (lambda: filterjit.jit(first, static_argnums=0), (("a", 1), X)),
    "traced by name": (lambda: filter_jit(scaled, traced=("values",)), ({"rate": 0.1}, X)),
    "traced by path": (
        lambda: filter_jit(scaled, traced={"values": "rate"}),
        ({"rate": 0.1, "n": 3}, X),
    ),
    "structure without functions": (lambda: filter_jit(first, functions="structure"), (1, X)),
    "a compiled function": (lambda: filter_jit(first).lower(1, X).compile(), (1, X)),
}


@pytest.mark.parametrize("name", WITHOUT)
def test_hits_without_python(name: str) -> None:
    make, args = WITHOUT[name]
    assert not python_of(functools.partial(make(), *args))


def new_lambda() -> Any:
    return lambda x: x + 1


def raising(x: Any) -> Any:
    return eqx.error_if(x, x.sum() < 0, "negative")


STRUCTURE = filter_jit(apply, functions="structure")
KEY = {"_key": 1, "__init__": 1, "key": 1, "function": 1, "_parts_of": 1, "parts_of_function": 1}
WITH: dict[str, tuple[Callable[[], Any], dict[str, int]]] = {
    "a nested function": (functools.partial(STRUCTURE, new_lambda(), X), KEY),
    "a new function in each call": (
        lambda: STRUCTURE(new_lambda(), X),
        {name: 2 * n for name, n in KEY.items()},
    ),
    "donated arrays of the function": (
        functools.partial(filter_jit(eqx.Partial(first, jnp.ones(3)), donate="all"), X),
        {"__call__": 1, "arrange": 1},
    ),
}


@pytest.mark.parametrize("name", WITH)
def test_python_in_hits(name: str) -> None:
    call, expected = WITH[name]
    assert python_of(call) == expected


@pytest.mark.parametrize(
    "static",
    [fractions.Fraction(1, 2), datetime.datetime(2020, 1, 1), range(3)],
    ids=operator.attrgetter("__class__.__name__"),
)
def test_statics_with_keys_in_python(static: Any) -> None:
    assert python_of(functools.partial(filter_jit(first), static, X)) == {"guarded": 1}


def test_a_program_that_can_raise() -> None:
    found = python_of(functools.partial(filter_jit(raising), jnp.ones(3)))
    assert found["run"] == 1 and found.keys() >= {"inspect_and_wait"}


def test_a_program_that_another_trace_has_traced_first() -> None:
    """What could not be inspected then makes no later call slower."""
    f = filter_jit(lambda x: x * 2)
    jax.vmap(f)(jnp.ones((2, 3)))
    f(jnp.ones(3))
    assert python_of(lambda: f(jnp.ones(3))) == {}
