"""How many calls of a variant went straight to its executable, and why the others did not."""

import re
from collections import Counter

from .. import _core
from .._base._errors import array_paths, format_path

# By the names of the ways in csrc/call/direct_entry.h.
_REASONS = {
    "off": "direct calls are turned off",
    "waiting": "such calls had not been made often enough",
    "profiler": "a profiler was running",
    "configuration": "JAX's configuration was not that of earlier calls",
    "type": "an argument was of another type than in earlier calls, or no array, as a tracer is",
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
        reasons[_with_paths(refusal, variant)] = reasons.pop(_REASONS["waiting"])
    return direct, reasons


def _with_paths(refusal: str, variant: _core.Variant) -> str:
    """Returns why a variant has no plan, with the paths of the arrays in the place of their numbers."""
    paths = array_paths(variant.function, variant.structure)
    return re.sub(r"#(\d+)", lambda found: format_path(paths[int(found[1])]), refusal)


def remarks(direct: int, passed_on: Counter[str]) -> list[str]:
    """Returns a remark where ``jax.jit`` made most calls, for a reason of the calls."""
    usual = {_REASONS["waiting"], _REASONS["off"]}
    found = [(reason, n) for reason, n in passed_on.most_common(1) if reason not in usual]
    return [
        f"jax.jit made {n:,} of its calls: {reason}."
        for reason, n in found
        if n >= _OFTEN and n > direct
    ]
