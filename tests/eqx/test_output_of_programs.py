"""Output of a program while it runs: prints, callbacks, names, profiles, logs."""

import functools
import logging
import re
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from support.comparison import Jit, on_both
from support.features import Guard, TwoFields, X, positive, printed
from support.trees import ONE, TWO


@on_both
def test_debug_print(jit: Jit) -> Any:
    @jit
    def f(x: Any, name: str) -> Any:
        jax.debug.print("{n}: {x}", n=name, x=x, ordered=True)
        return x + 1

    found = printed(lambda: [f(ONE, "first"), f(TWO, "first"), f(ONE, "second")])
    assert found == "first: 1.0\nfirst: 2.0\nsecond: 1.0\n"
    return found


@on_both
def test_debug_callback(jit: Jit) -> Any:
    seen: list[Any] = []

    @jit
    def f(x: Any) -> Any:
        jax.debug.callback(lambda v, *, k: seen.append((float(v), k)), x, k="k", ordered=True)
        return x

    f(ONE), f(TWO), jax.lax.scan(lambda c, _: (f(c) + 1, None), ONE, None, length=3)
    jax.effects_barrier()
    found = seen
    assert found == [(1.0, "k"), (2.0, "k"), (1.0, "k"), (2.0, "k"), (3.0, "k")]
    return found


@on_both
def test_printing_of_tracers(jit: Jit) -> Any:
    f = jit(lambda m, n: print(eqx.tree_pformat(m), n))
    return printed(lambda: f(TwoFields(X, "static"), 3))


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
    (found,) = re.findall(r"module @(\w+)", f.lower(TWO).as_text())
    (compiled,) = re.findall(r"HloModule (\w+)", f.lower(TWO).compile().compiled.as_text())
    found = found, compiled
    assert found[0].startswith("jit_")
    return found


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
    jaxpr = jax.make_jaxpr(outer)(ONE)
    found = sorted(set(re.findall(r"jit\(\w+\)|my_scope", text)))
    found = found, [e.params["name"] for e in jaxpr.eqns]
    assert {"jit(inner)", "jit(outer)", "my_scope"} <= set(found[0])
    return found


def messages_of(caplog: pytest.LogCaptureFixture, run: Callable[[], Any]) -> list[str]:
    caplog.clear()
    run()
    return [r.getMessage() for r in caplog.records if r.name.startswith("jax")]


@on_both
def test_explain_cache_misses(jit: Jit, caplog: pytest.LogCaptureFixture) -> Any:
    @jit
    def some_function(x: Any, n: Any) -> Any:
        return x + 1

    with jax.explain_cache_misses(True), caplog.at_level(logging.WARNING):
        told = messages_of(
            caplog,
            lambda: [some_function(x, n) for x, n in ((X, 1), (X[:2], 1), (X, "n"), (X, 1))],
        )
    found = any("some_function" in m for m in told)
    assert found
    return found
