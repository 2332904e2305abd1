"""Where the arrays of a call are, where its program needs them, and where those of earlier calls were.

A program over several devices needs each array in the place that `in_shardings` says, or on the
devices of the arrays that are committed. JAX copies the others in each call. An explanation looks
at the arrays of its call, a report at the records of the calls that were traced.
"""

import math
from collections.abc import Sequence
from typing import Any

from jax.sharding import NamedSharding

from .. import _core
from .._base._arrays import Aval, Placed, placement, same_spec
from .._base._errors import format_path
from .._compat import _jax_compat
from . import _records
from ._causes import Cause, Move
from ._records import TraceRecord, VariantRecord
from ._wording import shorten

HOST = "the host"
_PLACE_SAME = "Place it the same way on every call: `jax.device_put(x, sharding)`."


def moves_of(
    paths: Sequence[list[Any]],
    avals: Sequence[Aval],
    placed: Sequence[Placed],
    wanted: Sequence[Any],
) -> tuple[Move, ...]:
    """Returns the arrays that each such call copies to other devices, the largest first.

    Arguments:
        paths: of its arrays.
        avals: of its arrays; a program of NNX takes numbers too.
        placed: where they are; see ``_records.placement``.
        wanted: the sharding that `in_shardings` gives to each, or None.
    """
    devices: set[Any] = set()  # which the arrays decide the program to run on
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
        else:  # XLA chooses how it is divided
            moved = several and (here is None or here.device_set != devices)
        if moved:
            size = math.prod(aval.shape) * getattr(aval.dtype, "itemsize", 0)
            where = HOST if here is None else _describe_sharding(here)
            there = _describe_sharding(on) if on is not None else f"{len(devices)} devices"
            moves.append(Move(format_path(path), size, where, there))
    return tuple(sorted(moves, key=lambda move: -move.bytes))


def recorded_moves(variant: _core.Variant, paths: Sequence[list[Any]]) -> tuple[Move, ...]:
    """Returns the moves of the latest call that was traced and has run, as `moves_of` does.

    The arrays that filterjit has placed in the first call are as good as placed, unless a later
    call has passed arrays that are not.
    """
    record = _records.record_of(variant)
    for trace in reversed(record.traces):
        if trace.placements is not None:
            wanted = trace.wanted or (None,) * len(paths)
            placed = list(trace.placements)
            if _jax_compat.signatures_of(variant.call) == 1:
                for i in list(record.placed):
                    placed[i] = wanted[i] and (wanted[i], True)
            return moves_of(paths, trace.avals, placed, wanted)
    return ()


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


def compare_placements(
    paths: Sequence[list[Any]], was: Sequence[Placed], now: Sequence[Placed]
) -> list[Cause]:
    """Returns why JAX compiles a call again without tracing it again: its arrays are placed
    elsewhere."""
    causes = []
    for path, a, b in zip(paths, was, now, strict=True):
        if not _committed(a) and not _committed(b) and (a is None or b is None):
            continue  # to JAX, an array of NumPy is one that is not committed
        if a is not None and b is not None and a[1] == b[1] and same_spec(a[0], b[0]):
            continue  # for ``P()`` and ``P(None)``, JAX finds the program again
        devices = [None if one is None else one[0].device_set for one in (a, b)]
        elsewhere = devices[0] != devices[1] or _committed(a) != _committed(b)
        kind = "device" if elsewhere else "sharding"
        words = _describe_placed(a), _describe_placed(b)
        causes.append(Cause(kind, format_path(path), *words, _PLACE_SAME))
    return causes


def compare_sharding(sharding: Any, x: Any) -> tuple[str, str] | None:
    """Returns the sharding that a compiled program expects and that of the array `x`, in words;
    None if the program accepts `x` as it is placed."""
    placed = placement(x)
    if sharding is None or placed is None or not placed[1]:
        return None
    if sharding.is_equivalent_to(placed[0], x.ndim):
        return None
    return shorten(sharding), shorten(placed[0])


def _committed(placed: Placed) -> bool:
    return placed is not None and placed[1]


def _describe_placed(placed: Placed) -> str:
    """Returns in words where an array is."""
    if placed is None:
        return "an array of NumPy"
    sharding, committed = placed
    if isinstance(sharding, NamedSharding):
        where = f"{sharding.spec} on {len(sharding.device_set)} devices"
    elif len(sharding.device_set) == 1:
        (device,) = sharding.device_set
        where = f"on {device.platform}:{device.id}"
    else:
        where = shorten(sharding)
    return f"{where} ({'committed' if committed else 'not committed'})"


def _describe_sharding(sharding: Any) -> str:
    """Returns in words where a program needs an array, or where it is beside that."""
    if isinstance(sharding, NamedSharding):
        return str(sharding.spec)
    devices = sorted(str(device) for device in sharding.device_set)
    return devices[0] if len(devices) == 1 else f"{len(devices)} devices"
