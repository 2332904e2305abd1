"""Placements of a call's arrays, compared with its program and with earlier calls.

A program on several devices needs each array placed by `in_shardings`, or on the devices of the
committed arrays. JAX copies all other arrays in each call.
"""

import math
from collections.abc import Sequence
from typing import Any

from jax.sharding import NamedSharding, PartitionSpec

from .._base._arrays import Aval, Placed, is_tracing, placement, same_spec
from .._base._errors import format_path
from .._compat import _jax_compat
from . import _table
from ._causes import Cause, Move, cause_of
from ._records import AS_TRACED
from ._wording import shorten


def moves_of(
    paths: Sequence[list[Any]],
    avals: Sequence[Aval],
    placed: Sequence[Placed],
    specs: Sequence[Any],
) -> tuple[Move, ...]:
    """Returns the arrays that each such call copies to other devices, the largest first.

    `avals` include numbers in NNX. `placed` are from ``_records.placement``, and `specs` from
    `in_shardings`, or None.
    """
    wanted = _shardings_of(specs)
    devices: set[Any] = set()  # of the program, as decided by the arrays
    for one, to in zip(placed, wanted, strict=True):
        if to is not None:
            devices |= to.device_set
        elif one is not None and one[1]:
            devices |= one[0].device_set
    several = len(devices) > 1
    moves = []
    for path, aval, one, to in zip(paths, avals, placed, wanted, strict=True):
        here = None if one is None else one[0]
        on = here if to is None and several and _committed(one) else to
        if on is not None:
            moved = here is None or not here.is_equivalent_to(on, len(aval.shape))
        else:  # XLA chooses the sharding
            moved = several and (here is None or here.device_set != devices)
        if moved:
            size = math.prod(aval.shape) * getattr(aval.dtype, "itemsize", 0)
            where = "the host" if here is None else _describe(here)
            there = f"{len(devices)} devices" if on is None else _describe(on)
            moves.append(Move(format_path(path), size, where, there))
    return tuple(sorted(moves, key=lambda move: -move.bytes))


def _shardings_of(specs: Sequence[Any]) -> list[Any]:
    """Returns the sharding of each spec under the current mesh, or None."""
    mesh = None
    if any(isinstance(spec, PartitionSpec) for spec in specs):
        mesh = None if is_tracing() else _jax_compat.concrete_mesh()
    return [
        (None if mesh is None else NamedSharding(mesh, spec))
        if isinstance(spec, PartitionSpec)
        else spec
        for spec in specs
    ]


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
