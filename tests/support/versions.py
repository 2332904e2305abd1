"""What older versions of JAX and Flax lack, or have under another name.

Tests ask for the feature, and not for the version.
"""

from typing import Any

import jax
import jax.experimental
import jax.experimental.layout as _layout
import pytest

from filterjit._compat import _executable_compat

needs_saved_executables = pytest.mark.skipif(
    not _executable_compat.can_save(), reason="executables of this JAX cannot be saved"
)

enable_x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64

if (shard_map := getattr(jax, "shard_map", None)) is None:
    from jax.experimental.shard_map import shard_map  # noqa: F401

# An order of dimensions, and a layout with a sharding.
Layout = getattr(_layout, "DeviceLocalLayout", _layout.Layout)
Format = getattr(_layout, "Format", _layout.Layout)


def auto_mesh(*axes: str) -> Any:
    """Returns a mesh of one device."""
    options: dict[str, Any] = {}
    if hasattr(jax.sharding, "AxisType"):
        options["axis_types"] = (jax.sharding.AxisType.Auto,) * len(axes)
    return jax.make_mesh((1,) * len(axes), axes, **options)
