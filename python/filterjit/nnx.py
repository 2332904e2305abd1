"""``flax.nnx.jit`` with its dispatch in C. Importing this module imports Flax."""

from typing import Any as _Any

# isort: off
import flax.nnx as _flax_nnx  # noqa: F401 (first: `install` waits for it, and then imports the modules below)

# isort: on
from ._nnx._cached_partial import CachedJit, cached_partial
from ._nnx._nnx_jit import NNXJit, jit

__all__ = ["CachedJit", "NNXJit", "cached_partial", "jit"]


def __getattr__(name: str) -> _Any:
    from ._base._rooms import look_up

    return look_up(globals(), {}, name)
