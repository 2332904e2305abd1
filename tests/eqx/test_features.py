"""Features of JAX and Equinox inside a jitted function: what it returns, prints, and is called."""

import functools
import inspect
import io
import logging
import re
import sys
from collections.abc import Callable
from typing import Any

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from support.comparison import Jit, first_line, on_both
from support.features import Guard, TwoFields, X, fails, positive, printed
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


def _store(x: Any, name: str) -> Any:
    return eqx.debug.store_dce((jnp.sin(x), jnp.cos(x)), name=name)[0]


def _root(x: Any) -> Any:
    return jnp.sqrt(eqx.debug.backward_nan(x, name="root", terminate=False))


def _breakpoint(x: Any) -> Any:
    # Without `num_frames`, JAX flattens the variables of pytest's frames too. Where flattening
    # raises, JAX does not give back the recursion depth that it took, and CPython 3.13 has
    # 10,000 levels for C code: the tests that followed failed with RecursionError.
    eqx.debug.breakpoint_if(x > 1, backend="cli", num_frames=1)
    return x + 1


def _shard(tree: Any) -> Any:
    return jax.tree.map(lambda x: x * 2 if eqx.is_array(x) else x, eqx.filter_shard(tree, SHARDING))


# What a jitted function does, by a name that no other test uses, and what is printed then.
FEATURES: dict[str, tuple[Callable[[Jit, str], Any], str]] = {
    "print": (
        lambda jit, _: [f(*args) for f in [jit(_print)] for args in ((ONE, "a"), (TWO, "a"), (ONE, "b"))],
        "a: 1.0\na: 2.0\nb: 1.0\n",
    ),
    "print in a loop": (
        lambda jit, _: jax.lax.scan(lambda c, _: (jit(_print)(c, "c"), None), ONE, None, length=2),
        "c: 1.0\nc: 2.0\n",
    ),
    "print of a tracer": (
        lambda jit, _: jit(lambda m, n: print(eqx.tree_pformat(m), n))(TwoFields(X, "static"), 3),
        "TwoFields(a=f32[3], b='static') 3\n",
    ),
    "pure_callback": (
        lambda jit, _: [f(*args) for f in [jit(_pure_callback)] for args in ((X, "one"), (ONE, "three"))],
        "one\nthree\n",
    ),
    "announce_transform": (
        lambda jit, name: jax.vmap(
            jax.grad(jit(lambda x: eqx.debug.announce_transform(x, name=name) * 2))
        )(X),
        "",
    ),
    "backward_nan": (lambda jit, _: jit(jax.grad(_root))(jnp.array(0.0)), "root"),
    "inspect_dce": (
        lambda jit, name: (jit(lambda x: _store(x, name))(X), eqx.debug.inspect_dce(name)),
        "(f32[3], <DCE'd>)",
    ),
    "assert_dce": (lambda jit, _: jit(lambda x: (eqxi.assert_dce(x * 2, "alive"), x)[1])(ONE), ""),
    "breakpoint_if": (lambda jit, _: [f(x) for f in [jit(_breakpoint)] for x in (ONE, TWO)], "jdb"),
    "filter_shard": (lambda jit, _: jit(_shard)({"x": jnp.arange(4.0), "name": "static"}), ""),
    "sharding of a result": (lambda jit, _: str(jit(_shard)(jnp.arange(4.0)).sharding.spec), ""),
}  # fmt: skip


@pytest.mark.parametrize("name", FEATURES)
@on_both
def test_features(jit: Jit, name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "stdin", io.StringIO("p x\nc\n"))
    own = f"named {id(jit)}"  # JAX does not announce a name that it has cached
    results: list[Any] = []
    text = printed(lambda: results.append(FEATURES[name][0](jit, own)))
    assert FEATURES[name][1] in text
    return results, text.replace(own, "")


@on_both
def test_what_is_not_dropped(jit: Jit) -> Any:
    return fails(lambda: jit(lambda x: eqxi.assert_dce(x * 2, "still alive"))(ONE))[1]


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


# ---- names and logs ----

NAMED: dict[str, Callable[[], Any]] = {
    "function": lambda: positive,
    "lambda": lambda: lambda x: x + 1,
    "partial": lambda: functools.partial(jnp.add, 1.0),
    "Module": lambda: Guard(ONE),
    "method": lambda: Guard(ONE).method,
    "filter_grad": lambda: eqx.filter_grad(lambda x: x**2),
    "filter_vmap": lambda: eqx.filter_vmap(lambda x: x**2, in_axes=None, axis_size=2),
    "wrapped": lambda: functools.wraps(positive)(lambda x: x * 3),
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


@pytest.mark.skipif(
    "debug_info" not in inspect.signature(jax.stages.Lowered.as_text).parameters,
    reason="this JAX does not print names",
)
@on_both
def test_names_in_nested_programs(jit: Jit) -> Any:
    @jit
    def inner(x: Any) -> Any:
        return x + 1

    @jit
    def outer(x: Any) -> Any:
        with jax.named_scope("my_scope"):
            return inner(x) * 2

    text = outer.lower(ONE).lowered.as_text(debug_info=True)
    jaxpr = eqx.filter_make_jaxpr(outer)(ONE)[0]
    found = sorted(set(re.findall(r"jit\(\w+\)|my_scope", text)))
    assert {"jit(inner)", "jit(outer)", "my_scope"} <= set(found)
    return found, [e.params["name"] for e in jaxpr.eqns]


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
