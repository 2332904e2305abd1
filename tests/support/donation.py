"""Arrays to donate."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu


def array(value: float = 1.0, size: int = 4) -> jax.Array:
    return jnp.full((size,), float(value))


def deleted(*trees: Any) -> list[bool]:
    """Returns which of the arrays in the trees are deleted, in order."""
    return [x.is_deleted() for x in jtu.tree_leaves(trees) if isinstance(x, jax.Array)]
