"""The texts that describe values: the same in all processes, for any value, and soon done."""

import functools
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from aot_support import Program

from filterjit._functions._texts import difference, texts

PROGRAM = """
import collections, decimal, enum, functools, logging, random, threading
import equinox as eqx, jax, jax.numpy as jnp, numpy as np
from flax import nnx
from filterjit._functions._texts import texts

def f(x, names={"a", "b", (1, "c")}, *, k=-0.0):
    return x in {"p", "q", "r"} or names

class Color(enum.Enum):
    RED = "red"

class Plain:
    seen = {Color, f, Color.RED, "a", 1, 2.0}
    def __init__(self):
        self.me, self.lock, self.log = self, threading.Lock(), logging.getLogger("a")
        self.of = {Plain, f, *map(str, range(9))}

def made(n):
    return lambda x: x * n

variables = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
roots = [
    f, Color.RED, Plain, Plain(), made, {made(i) for i in range(5)}, frozenset("abc"),
    functools.partial(f, k=1), jax.jit(f), eqx.filter_jit(f), jax.vmap(made(2.0)), jnp.sum,
    eqx.nn.MLP(2, 2, 3, 1, key=jax.random.key(0)), variables, nnx.split(variables)[0],
    np.random.default_rng(1), random.Random(1), decimal.Decimal("1.0"), np.arange(3), jnp.ones(3),
    jax.random.key(0), jax.devices()[0], jax.make_mesh((1,), ("a",)), iter([1]), Ellipsis, np,
]
for i, x in enumerate(roots):
    print(texts([(str(i), x)]))
print(texts([("all", roots)], for_file=True))
"""


def test_they_are_the_same_in_all_processes(tmp_path: Path) -> None:
    pytest.importorskip("flax")
    one = Program(tmp_path, PROGRAM)
    (first, _), (second, _) = one.starts([{"PYTHONHASHSEED": seed} for seed in "12"])
    assert first == second and "__main__.Plain" in first and " 0x" not in first


class Raises:
    def __getattribute__(self, name: str) -> Any:
        raise ZeroDivisionError

    def __hash__(self) -> int:
        raise ZeroDivisionError

    __repr__ = __eq__ = __reduce__ = __len__ = __hash__  # type: ignore[assignment]


class RaisingMeta(type):
    def __getattribute__(cls, name: str) -> Any:
        raise ZeroDivisionError


class OfRaisingMeta(metaclass=RaisingMeta):
    pass


def _wrong() -> Any:
    def f(x: Any) -> Any:
        return x

    f.__dict__[1] = f.__wrapped__ = f  # type: ignore[attr-defined,index]
    f.__defaults__ = (1, 2, 3)
    f.__qualname__ = "\ud800"
    del f.__module__
    return f


HOSTILE: dict[str, Any] = {
    "raises": lambda: (Raises(), OfRaisingMeta, OfRaisingMeta(), [Raises()]),
    "wrong function": _wrong,
    "deep": lambda: functools.reduce(lambda x, _: [x], range(5000), []),
    "shared": lambda: functools.reduce(lambda x, _: [x, x], range(200), []),
    "closures": lambda: functools.reduce(lambda f, _: lambda x: f(x), range(2000), abs),
    "long": lambda: [list(range(10**6)), set(range(10**6)), "a" * 10**7, 10**10000],
    "wide": lambda: [[str(i)] for i in range(10**5)],
    "everything": lambda: dict(sys.modules),
    "modules": lambda: [vars(module) for module in list(sys.modules.values())],
    "arrays": lambda: [np.zeros(10**8, np.int8)] * 3,
    "deleted": lambda: [x := jnp.ones(3), x.delete()],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_they_are_made_of_anything_and_soon(name: str) -> None:
    found = texts([("x", HOSTILE[name]()), ("y", 1)])
    assert found[-1] == ("`y`", "int 1")
    assert all(len(text) < 1000 for _, text in found)


def test_what_differs() -> None:
    def make(n: Any, *, k: Any = 2.0) -> Any:
        return lambda x, y=k: x * n * y

    def differs(before: Any, now: Any) -> str | None:
        return difference(texts([("f", before)]), texts([("f", now)]))

    name = f"{__name__}.test_what_differs.<locals>.make.<locals>.<lambda>"
    assert differs(make(1), make(1)) is None
    assert differs(make(1), make(2)) == f"the closure value `n` of `{name}` was 1, is 2"
    assert differs(make(1), make(1.0)) == (
        f"the closure value `n` of `{name}` was the int 1, is the float 1.0"
    )
    assert differs(make(0.0), make(-0.0)) == f"the closure value `n` of `{name}` was 0.0, is -0.0"
    assert differs(make(1, k=3), make(1)) == (
        f"the default of `y` in `{name}` was the int 3, is the float 2.0"
    )
    assert differs(make([1]), make([1, 2])) == f"the closure value `n` of `{name}` has changed"
    assert differs(make(1), 1) == f"the code of `{name}` is gone"
    assert differs(1, make(1)) == "`f` has changed"
    assert difference([("a", "int 1")], []) == "a is gone"
    assert difference([], [("a", "int 1")]) == "a is new"
    assert difference([("a", "sha256 1")], [("a", "sha256 2")], bytecode=False) is None
    version = "the version of the package `a`"
    assert difference([(version, "package 1")], [(version, "package 2")], versions=False) is None
