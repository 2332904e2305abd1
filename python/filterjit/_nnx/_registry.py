"""The registry of `filterjit.nnx`: the leaf rule is that of ``jax.jit``, numbers are traced, and a
Variable or Module that occurs twice in the arguments is one object."""

from typing import Any

import jax

from .. import _core
from .._compat import _jax_compat, _nnx_compat
from .._trees import _registry

_NUMBERS = frozenset({bool, int, float, complex})


def is_traced(x: Any) -> bool:
    """Whether ``jax.jit`` takes and returns `x`."""
    return type(x) in _NUMBERS or isinstance(x, (*_jax_compat.ARRAY_TYPES, jax.core.Tracer))


registry: _core.Registry = _registry.registry.with_policy(
    traced=tuple(_NUMBERS),
    by_identity=(_nnx_compat.VARIABLE_TYPE, _nnx_compat.Pytree),
)
