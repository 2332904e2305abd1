"""The registry of `filterjit.nnx`: the leaf rule is that of ``jax.jit``, numbers are traced, and a
Variable or Module that occurs twice in the arguments is one object."""

from .. import _core
from .._compat import _nnx_compat
from .._trees import _registry

registry: _core.Registry = _registry.registry.with_policy(
    traced=_registry.NUMBERS,
    by_identity=(_nnx_compat.VARIABLE_TYPE, _nnx_compat.Pytree),
)
