"""`lower` and `compile`: what the compiled function accepts and returns."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from support.comparison import Jit, Traces, comparable
from support.modules import Holder
from support.trees import ONE


def test_compiled_for_other_statics(jit: Jit, ours: bool) -> None:
    f = jit(lambda x, n: x * n)
    compiled = f.lower(ONE, 3).compile()
    assert compiled(ONE, 3) == 3
    # By decision a TypeError; Equinox silently runs what was compiled for 3.
    if ours:
        for bad in (4, 3.0, "3", None, ONE):
            with pytest.raises(TypeError):
                compiled(ONE, bad)
    else:
        assert compiled(ONE, 4) == 3
    assert compiled(ONE * 2, 3) == 6


def test_compiled_error_shows_both(jit: Jit, ours: bool) -> None:
    compiled = jit(lambda x, mode: (x, mode)).lower(ONE, "train").compile()
    # By decision a TypeError that shows both values; Equinox silently runs what was compiled.
    if ours:
        with pytest.raises(TypeError, match=r"(?s)compiled for.*train.*called with.*eval"):
            compiled(ONE, "eval")
    else:
        assert compiled(ONE, "eval") == (1, "train")


def test_compiled_shapes(jit: Jit) -> None:
    compiled = jit(lambda x: x + 1).lower(jnp.ones(3)).compile()
    assert compiled(jnp.zeros(3)).tolist() == [1, 1, 1]
    with pytest.raises((TypeError, ValueError)):
        compiled(jnp.ones(4))
    with pytest.raises((TypeError, ValueError)):
        compiled(jnp.ones(3, int))


def test_compiled_results_of_any_structure(jit: Jit) -> None:
    f = jit(lambda x, k: {"x": Holder(x + 1, "s"), "k": k, "n": None})
    compiled = f.lower(ONE, "key").compile()
    for x in (ONE, ONE * 5):
        assert comparable(compiled(x, "key")) == comparable(f(x, "key"))


def test_lowering_shape_dtype_structs(ours: bool, jit: Jit) -> None:
    """By decision `lower` takes it for an array, as ``jax.jit`` does. In a call, and in Equinox's
    `lower`, it is static."""
    f = jit(lambda s: jnp.zeros(s.shape))
    struct = jax.ShapeDtypeStruct((2,), jnp.float32)
    assert f(struct).tolist() == [0, 0]
    compiled = f.lower(struct).compile()
    assert compiled(jnp.ones(2) if ours else struct).tolist() == [0, 0]


def test_text_of_a_lowered_function(jit: Jit) -> None:
    lowered = jit(lambda x, n: jnp.sin(x) * n).lower(ONE, 2)
    assert "sine" in lowered.as_text()
    assert lowered.compile()(ONE, 2) == jnp.sin(ONE) * 2


def test_lower_shares_the_trace(jit: Jit) -> None:
    traces = Traces()
    f = jit(traces.counting(lambda x: x + 1))
    f.lower(ONE).compile()(ONE)
    f(ONE)
    f.lower(ONE)
    assert traces.count == 1


def test_lower_of_methods_and_modules(jit: Jit, ours: bool) -> None:
    class M(eqx.Module):
        w: Any

        @jit
        def method(self, x: Any) -> Any:
            return self.w * x

        def __call__(self, x: Any) -> Any:
            return self.w + x

    assert M.method.lower(M(ONE * 3), ONE).compile()(M(ONE * 4), ONE) == 4
    lowered = jit(M(ONE)).lower(ONE)
    assert lowered.compile()(ONE * 5) == 6
    # Equinox's bound method is a Partial, without `lower`.
    if ours:
        assert M(ONE).method.lower(ONE).compile()(M(ONE * 7), ONE) == 7


def test_aot_of_donating_functions(jit: Jit) -> None:
    f = jit(lambda x: x + 1, donate="all")
    x = jnp.ones(5)
    assert f.lower(x).compile()(x).tolist() == [2] * 5
    assert x.is_deleted()
