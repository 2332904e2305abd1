"""`lower` and `compile`: what the compiled function accepts and returns."""

import jax
import jax.numpy as jnp
import pytest

from support.comparison import Jit
from support.trees import ONE


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


def test_lowering_shape_dtype_structs(ours: bool, jit: Jit) -> None:
    """By decision `lower` takes it for an array, as ``jax.jit`` does. In a call, and in Equinox's
    `lower`, it is static."""
    f = jit(lambda s: jnp.zeros(s.shape))
    struct = jax.ShapeDtypeStruct((2,), jnp.float32)
    assert f(struct).tolist() == [0, 0]
    compiled = f.lower(struct).compile()
    assert compiled(jnp.ones(2) if ours else struct).tolist() == [0, 0]
