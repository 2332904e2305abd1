"""Features of JAX and Equinox inside a jitted function: what it returns, prints, and is called."""

import functools
import io
import logging
import re
import sys
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from support.comparison import Jit, first_line, on_both
from support.features import Guard, TwoFields, X, positive, printed
from support.trees import ONE, TWO
from support.versions import auto_mesh

SHARDING = jax.sharding.NamedSharding(auto_mesh("d"), P("d"))


def _print(x: Any, name: str) -> Any:
    jax.debug.print("{n}: {x}", n=name, x=x, ordered=True)
    return x + 1


def _on_host(x: Any, name: str, *, module: Any) -> Any:
    print(name)
    return TwoFields(np.asarray(x) * np.float32(module.a), np.float32(len(name)))


def _pure_callback(x: Any, name: str) -> Any:
    shape = TwoFields(jax.ShapeDtypeStruct(x.shape, x.dtype), jax.ShapeDtypeStruct((), x.dtype))
    module = TwoFields(TWO, None)
    return eqx.filter_pure_callback(_on_host, x, name, module=module, result_shape_dtypes=shape)


def _breakpoint(x: Any) -> Any:
    # Without `num_frames`, JAX flattens the variables of pytest's frames too. Where flattening
    # raises, JAX does not give back the recursion depth that it took, and CPython 3.13 has
    # 10,000 levels for C code: the tests that followed failed with RecursionError.
    eqx.debug.breakpoint_if(x > 1, backend="cli", num_frames=1)
    return x + 1


def _shard(tree: Any) -> Any:
    return jax.tree.map(lambda x: x * 2 if eqx.is_array(x) else x, eqx.filter_shard(tree, SHARDING))


# What a jitted function does, and what is printed then.
FEATURES: dict[str, tuple[Callable[[Jit], Any], str]] = {
    "print": (
        lambda jit: [f(*args) for f in [jit(_print)] for args in ((ONE, "a"), (TWO, "a"), (ONE, "b"))],
        "a: 1.0\na: 2.0\nb: 1.0\n",
    ),
    "print in a loop": (
        lambda jit: jax.lax.scan(lambda c, _: (jit(_print)(c, "c"), None), ONE, None, length=2),
        "c: 1.0\nc: 2.0\n",
    ),
    "print of a tracer": (
        lambda jit: jit(lambda m, n: print(eqx.tree_pformat(m), n))(TwoFields(X, "static"), 3),
        "TwoFields(a=f32[3], b='static') 3\n",
    ),
    "pure_callback": (
        lambda jit: [f(*args) for f in [jit(_pure_callback)] for args in ((X, "one"), (ONE, "three"))],
        "one\nthree\n",
    ),
    "breakpoint_if": (lambda jit: [f(x) for f in [jit(_breakpoint)] for x in (ONE, TWO)], "jdb"),
    "filter_shard": (lambda jit: jit(_shard)({"x": jnp.arange(4.0), "name": "static"}), ""),
}  # fmt: skip


@pytest.mark.parametrize("name", FEATURES)
@on_both
def test_features(jit: Jit, name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "stdin", io.StringIO("p x\nc\n"))
    results: list[Any] = []
    text = printed(lambda: results.append(FEATURES[name][0](jit)))
    assert FEATURES[name][1] in text
    return results, text


@on_both
def test_assert_max_traces(jit: Jit) -> Any:
    @jit
    @eqx.debug.assert_max_traces(max_traces=2)
    def f(x: Any, y: Any = 1) -> Any:
        return x

    results: list[Any] = [f(ONE), f(TWO), f(X), eqx.debug.get_num_traces(f)]
    with pytest.raises(RuntimeError, match="can only be traced 2 times") as info:
        f(X[:2])
    results.append(first_line(info.value))
    method = eqx.debug.assert_max_traces(Guard(ONE).method, max_traces=None)
    g = jit(method)
    results += [g(TWO), g(TWO), g(X + 5), eqx.debug.get_num_traces(g)]
    return results, f(ONE), eqx.debug.get_num_traces(f), f.__name__


NAMED: dict[str, Callable[[], Any]] = {
    "function": lambda: positive,
    "lambda": lambda: lambda x: x + 1,
    "partial": lambda: functools.partial(jnp.add, 1.0),
    "Module": lambda: Guard(ONE),
    "method": lambda: Guard(ONE).method,
    "filter_grad": lambda: eqx.filter_grad(lambda x: x**2),
    "nested": lambda: eqx.filter_jit(positive),
}


@pytest.mark.parametrize("name", NAMED)
@on_both
def test_name_of_the_program(jit: Jit, name: str) -> Any:
    """Profiles, dumps and logs show the program's name."""
    f = jit(NAMED[name]())
    lowered = f.lower(TWO)
    (found,) = re.findall(r"module @(\w+)", lowered.as_text())
    (compiled,) = re.findall(r"HloModule (\w+)", lowered.compile().compiled.as_text())
    assert found.startswith("jit_")
    return found, compiled


@on_both
def test_explain_cache_misses(jit: Jit, caplog: pytest.LogCaptureFixture) -> Any:
    @jit
    def some_function(x: Any, n: Any) -> Any:
        return x + 1

    caplog.clear()
    with jax.explain_cache_misses(True), caplog.at_level(logging.WARNING):
        for x, n in ((X, 1), (X[:2], 1), (X, "n"), (X, 1)):
            some_function(x, n)
    told = [r.getMessage() for r in caplog.records if r.name.startswith("jax")]
    assert any("some_function" in message for message in told)
