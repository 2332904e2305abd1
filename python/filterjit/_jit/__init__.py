"""The decorators `filter_jit` and `jit`, and the methods of jitted functions."""

import warnings

from .._base import _versions

if (_text := _versions.too_old()) is not None:
    warnings.warn(_text, stacklevel=2)
