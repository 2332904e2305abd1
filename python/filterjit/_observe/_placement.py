"""Placements of a call's arrays, compared with its program and with earlier calls."""

from collections.abc import Sequence
from typing import Any

from jax.sharding import NamedSharding

from .._base._arrays import Placed, placement, same_spec
from .._base._errors import format_path
from . import _table
from ._causes import Cause, cause_of
from ._records import AS_TRACED
from ._wording import shorten


def compare_placements(
    paths: Sequence[list[Any]], was: Sequence[Placed], now: Sequence[Placed]
) -> list[Cause]:
    """Explains why JAX compiles a call without retracing it: by its arrays' placements."""
    causes = []
    for path, a, b in zip(paths, was, now, strict=True):
        if a is AS_TRACED or b is AS_TRACED:
            continue
        if not _committed(a) and not _committed(b) and (a is None or b is None):
            continue  # JAX treats NumPy arrays as uncommitted
        if a is not None and b is not None and a[1] == b[1] and same_spec(a[0], b[0]):
            continue  # JAX finds the same program for ``P()`` and ``P(None)``
        devices = [None if one is None else one[0].device_set for one in (a, b)]
        elsewhere = devices[0] != devices[1] or _committed(a) != _committed(b)
        row = _table.DEVICE if elsewhere else _table.SHARDING
        words = _describe_placed(a), _describe_placed(b)
        causes.append(cause_of(row, format_path(path), *words))
    return causes


def compare_sharding(sharding: Any, x: Any) -> tuple[str, str] | None:
    """Describes the sharding that a compiled program expects, and that of `x`. Returns None if the
    program accepts `x`."""
    placed = placement(x)
    if sharding is None or placed is None or not placed[1]:
        return None
    if sharding.is_equivalent_to(placed[0], x.ndim):
        return None
    return shorten(sharding), shorten(placed[0])


def _committed(placed: Placed) -> bool:
    return placed is not None and placed[1]


def _describe_placed(placed: Placed) -> str:
    """Describes an array's placement."""
    if placed is None:
        return "an array of NumPy"
    sharding, committed = placed
    return f"{_describe(sharding)} ({'committed' if committed else 'not committed'})"


def _describe(sharding: Any) -> str:
    devices = sorted(f"{device.platform}:{device.id}" for device in sharding.device_set)
    if isinstance(sharding, NamedSharding):
        return f"{sharding.spec} on {len(devices)} devices"
    return devices[0] if len(devices) == 1 else f"{len(devices)} devices"
