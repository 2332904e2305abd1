"""``flax.nnx.jit`` with its dispatch in C.

Importing this module imports Flax.
"""

from ._nnx._cached_partial import CachedJit, cached_partial
from ._nnx._jit import NNXJit, jit

__all__ = ["CachedJit", "NNXJit", "cached_partial", "jit"]
