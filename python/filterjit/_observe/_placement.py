"""Where the arrays of a call are, and where its program needs them; for explanations and reports.

A program over several devices needs each array in the place that `in_shardings` says, or on the
devices of the arrays that are committed. JAX copies the others in each call. An explanation looks
at the arrays of its call, a report at the records of the calls that were traced.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from jax.sharding import NamedSharding

from .. import _core
from .._base._errors import format_path
from .._compat import _jax_compat
from . import _records
from ._causes import Move
from ._records import Aval, Placed, TraceRecord, VariantRecord

HOST = "the host"
_LARGE = 1 << 20  # bytes: of smaller arrays, it is not said that they are replicated


@dataclasses.dataclass(frozen=True)
class Placement:
    """Where the arrays of a call are, and where its program needs them.

    Attributes:
        moves: the arrays that the call copies to other devices, the largest first.
        replicated: ``(path, bytes)`` of the large arrays that are whole on each device.
        bytes_a_device: the bytes of the arguments on one device; None for a program on one device.
    """

    moves: tuple[Move, ...] = ()
    replicated: tuple[tuple[str, int], ...] = ()
    bytes_a_device: int | None = None


def placement_of(
    paths: Sequence[list[Any]],
    avals: Sequence[Aval],
    placed: Sequence[Placed],
    wanted: Sequence[Any],
) -> Placement:
    """Returns what is known of the placement of a call.

    Arguments:
        paths: of its arrays.
        avals: of its arrays; a program of NNX takes numbers too.
        placed: where they are; see ``_records.placement``.
        wanted: the sharding that `in_shardings` gives to each, or None.
    """
    devices = {
        device for one, to in zip(placed, wanted, strict=True) for device in _devices_of(one, to)
    }
    several = len(devices) > 1
    moves, replicated, total = [], [], 0
    for path, aval, one, to in zip(paths, avals, placed, wanted, strict=True):
        size = math.prod(aval.shape) * getattr(aval.dtype, "itemsize", 0)
        here = None if one is None else one[0]
        on = here if to is None and several and _committed(one) else to
        if on is not None:
            moved = here is None or not here.is_equivalent_to(on, len(aval.shape))
            if on.is_fully_replicated and len(on.device_set) > 1 and size >= _LARGE:
                replicated.append((format_path(path), size))
            total += size * math.prod(on.shard_shape(aval.shape)) // (math.prod(aval.shape) or 1)
        else:  # XLA chooses how it is divided
            moved = several and (here is None or here.device_set != devices)
            total += size
        if moved:
            where = HOST if here is None else describe_sharding(here)
            there = describe_sharding(on) if on is not None else f"{len(devices)} devices"
            moves.append(Move(format_path(path), size, where, there))
    moves.sort(key=lambda move: -move.bytes)
    return Placement(tuple(moves), tuple(replicated), total if several else None)


def recorded_placement(variant: _core.Variant, paths: Sequence[list[Any]]) -> Placement:
    """Returns the placement of the latest call that was traced and has run.

    The arrays that filterjit has placed in the first call are as good as placed, unless a later
    call has passed arrays that are not.
    """
    record = _records.record_of(variant)
    for trace in reversed(record.traces):
        if trace.placements is not None:
            wanted = trace.wanted or (None,) * len(paths)
            placed = list(trace.placements)
            if _jax_compat.signatures_of(variant.call) == 1:
                for i in record.placed:
                    placed[i] = wanted[i] and (wanted[i], True)
            return placement_of(paths, trace.avals, placed, wanted)
    return Placement()


def unplaced(paths: Sequence[list[Any]], record: VariantRecord) -> list[str]:
    """Returns the arrays because of which there were two compilations: in some calls they were on a
    mesh, or committed to devices, and in others they were not."""
    found: set[int] = set()
    first: dict[Any, TraceRecord] = {}
    run = [trace for trace in record.traces if trace.placements is not None]
    for trace in run:
        key = tuple((aval.shape, aval.dtype, aval.weak_type) for aval in trace.avals)
        was = first.setdefault(key, trace)
        if was.context == trace.context:
            found |= {
                i
                for i, (a, b) in enumerate(zip(was.avals, trace.avals, strict=True))
                if (a.sharding is None) != (b.sharding is None)
            }
    placed = run[-1].placements if run and record.cost.recompiles else None
    found |= {i for i, one in enumerate(placed or ()) if one is not None and not one[1]}
    return [format_path(paths[i]) for i in sorted(found)]


def _committed(placed: Placed) -> bool:
    return placed is not None and placed[1]


def _devices_of(placed: Placed, wanted: Any) -> Any:
    """Returns the devices that an array decides the program to run on."""
    if wanted is not None:
        return wanted.device_set
    return placed[0].device_set if placed is not None and placed[1] else ()


def describe_sharding(sharding: Any) -> str:
    """Returns in words where an array is."""
    if isinstance(sharding, NamedSharding):
        return str(sharding.spec)
    devices = sorted(str(device) for device in sharding.device_set)
    return devices[0] if len(devices) == 1 else f"{len(devices)} devices"
