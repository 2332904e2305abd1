"""How many calls of a variant went straight to its executable, and why the others did not."""

from collections import Counter
from collections.abc import Sequence

import jax
import numpy as np

from .. import _core
from .._base._errors import array_paths, format_path

# By the names of the ways in csrc/call/direct_entry.h.
_REASONS = {
    "off": "direct calls are turned off",
    "waiting": "such calls had not been made often enough",
    "profiler": "a profiler was running",
    "configuration": "JAX's configuration was not that of earlier calls",
    "type": "an argument was no array of JAX: NumPy's, a number or a tracer",
    "aval": "an array had another shape, dtype or weak type than in earlier calls",
    "sharding": "an array was not on the devices of earlier calls, or in another way",
    "layout": "an array had another layout in memory than in earlier calls, or was deleted",
    "deleted": "an array was deleted",
    "failed": "the executable refused the arguments",
    "resting": "to compare the arrays of many calls with earlier ones was in vain",
}
_OFTEN = 100  # calls that are worth a remark


def direct_calls(variant: _core.Variant) -> tuple[int, dict[str, int]]:
    """Returns how many calls of a variant were direct, and how many ``jax.jit`` made, by reason."""
    call = variant.call
    counts: dict[str, int] = dict(getattr(call, "counts", {}))
    direct = counts.pop("direct", 0)
    refusal = getattr(call, "refusal", None)
    reasons = {_REASONS[way]: count for way, count in counts.items()}
    if refusal is not None and not direct and "waiting" in counts:
        reasons[refusal] = reasons.pop(_REASONS["waiting"])
    return direct, reasons


def foreign_argument(variant: _core.Variant) -> str | None:
    """Returns what the last argument was that was no array of JAX, and what helps; None if none was."""
    found: tuple[int, type] | None = getattr(variant.call, "foreign", None)
    if found is None:
        return None
    at, cls = found
    path = format_path(array_paths(variant.function, variant.structure)[at])
    if issubclass(cls, jax.core.Tracer):
        return f"`{path}` was a tracer. Another jitted function calls it, and holds its program."
    if issubclass(cls, np.ndarray):
        return (
            f"`{path}` was a NumPy array, which each call copies to the device. Pass "
            f"`jnp.asarray({path})`, made once for all calls that have it."
        )
    return (
        f"`{path}` was of type {cls.__name__}, of which each call makes an array. Where many calls have the "
        f"same, pass `jnp.asarray({path})`, made once."
    )


def remarks(direct: int, passed_on: Counter[str], foreign: Sequence[str]) -> list[str]:
    """Returns a remark where ``jax.jit`` made most calls, for a reason of the calls. `foreign` has what
    `foreign_argument` has returned for the variants."""
    usual = {_REASONS["waiting"], _REASONS["off"]}
    found = [(reason, n) for reason, n in passed_on.most_common(1) if reason not in usual]
    return [
        f"jax.jit made {n:,} of its calls: "
        + (foreign[0] if foreign and reason == _REASONS["type"] else f"{reason}.")
        for reason, n in found
        if n >= _OFTEN and n > direct
    ]
