"""``equinox.debug`` inside a jitted function."""

import contextlib
import io
import sys
from typing import Any

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import pytest

from support.comparison import Jit, first_line, on_both, runtime_message
from support.features import Guard, X, fails, printed
from support.trees import ONE, TWO


@on_both
def test_announce_transform(jit: Jit) -> Any:
    name = f"here {id(jit)}"  # JAX does not announce a name that it has cached

    def f(x: Any) -> Any:
        return eqx.debug.announce_transform(x, name=name) * 2

    text = printed(lambda: (jit(f)(ONE), jax.vmap(jax.grad(jit(f)))(X)))
    found = text.replace(name, "").splitlines()
    assert found
    return found


@on_both
def test_backward_nan(jit: Jit) -> Any:
    def f(x: Any) -> Any:
        return jnp.sqrt(eqx.debug.backward_nan(x, name="root", terminate=False))

    out: list[Any] = []
    text = printed(lambda: out.append(jit(jax.grad(f))(jnp.array(0.0))))
    found = out, text
    assert "root" in found[1]
    return found


@on_both
def test_backward_nan_terminates(jit: Jit) -> Any:
    def f(x: Any) -> Any:
        return 0 * jnp.log(eqx.debug.backward_nan(x)) * jnp.inf

    with contextlib.redirect_stdout(io.StringIO()), pytest.raises(RuntimeError) as info:
        jit(jax.grad(f))(jnp.array(0.0))
    return type(info.value).__name__, runtime_message(info.value)


@on_both
def test_breakpoint_if(jit: Jit, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "stdin", io.StringIO("p x\nc\n"))

    sys.stdin.seek(0)

    @jit
    def f(x: Any) -> Any:
        # Without `num_frames`, JAX flattens the variables of pytest's frames too. Where flattening
        # raises, JAX does not give back the recursion depth that it took, and CPython 3.13 has
        # 10,000 levels for C code: the tests that followed failed with RecursionError.
        eqx.debug.breakpoint_if(x > 1, backend="cli", num_frames=1)
        return x + 1

    out: list[Any] = []
    quiet = printed(lambda: out.append(f(ONE)))
    found = quiet, printed(lambda: out.append(f(TWO))), out
    assert "jdb" in found[1]
    return found


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
    results += [f(ONE), eqx.debug.get_num_traces(f), f.__name__]
    return results


@on_both
def test_get_num_traces_of_methods(jit: Jit) -> Any:
    g = eqx.debug.assert_max_traces(Guard(ONE).method, max_traces=None)
    f = jit(g)
    for x in (TWO, TWO, X + 5):
        f(x)
    return eqx.debug.get_num_traces(f), eqx.debug.get_num_traces(g)


@on_both
def test_store_and_inspect_dce(jit: Jit) -> Any:
    @jit
    def f(x: Any) -> Any:
        kept, dropped = jnp.sin(x), jnp.cos(x)
        kept, dropped = eqx.debug.store_dce((kept, dropped), name=name)
        return kept

    name = f"pair {id(jit)}"
    f(X)
    found = printed(lambda: eqx.debug.inspect_dce(name))
    assert "(f32[3], <DCE'd>)" in found
    return found


@on_both
def test_assert_dce(jit: Jit) -> Any:
    unused = jit(lambda x: (eqxi.assert_dce(x * 2, "still alive"), x)[1])
    used = jit(lambda x: eqxi.assert_dce(x * 2, "still alive"))
    return unused(ONE), fails(lambda: used(ONE))[1]
