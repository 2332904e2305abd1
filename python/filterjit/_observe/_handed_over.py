"""The calls that ``jax.jit`` or ``flax.nnx.jit`` makes in the place of ours, and those that are not
direct, and why."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from .. import _core
from .._base._errors import array_paths, format_path
from ._wording import count

# Why a call is not direct, by the names of the ways in csrc/call/direct_entry.h.
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


def _sentence(decorator: str, calls: str, reason: str) -> str:
    upstream = "flax.nnx.jit" if decorator == "nnx.jit" else "jax.jit"
    return f"{upstream} made {calls}: {reason}."


def remarks(row: dict[str, Any]) -> list[str]:
    """Returns remarks on the calls of a function, given its row in a report: one for each reason for
    which calls were handed over, and one where ``jax.jit`` made most, for a reason of the calls."""
    handed_over = Counter(row["handed_over"]).most_common()
    found = [_sentence(row["decorator"], f"{n:,} of its calls", why) for why, n in handed_over]
    for reason, n in Counter(row["passed_on"]).most_common(1):
        usual = reason in (_REASONS["waiting"], _REASONS["off"])
        if n >= _OFTEN and n > row["direct"] and not usual:
            found.append(f"jax.jit made {n:,} of its calls: {reason}.")
    return found


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """Returns a sentence on the function of a report with the most calls that were handed over; an
    empty text if there were none."""
    row = max(rows, key=lambda row: sum(row["handed_over"].values()), default=None)
    if row is None or not row["handed_over"]:
        return ""
    reasons = Counter(row["handed_over"])
    calls = f"{count(reasons.total(), 'call')} of {row['name']}"
    return _sentence(row["decorator"], calls, reasons.most_common(1)[0][0])


def direct_calls(variant: _core.Variant) -> tuple[int, dict[str, int]]:
    """Returns how many calls of a variant were direct, and how many ``jax.jit`` made, by reason."""
    call = variant.call
    counts: dict[str, int] = dict(getattr(call, "counts", {}))
    direct = counts.pop("direct", 0)
    refusal = getattr(call, "refusal", None)
    reasons = {_REASONS[way]: count for way, count in counts.items()}
    if refusal is not None and not direct and "waiting" in counts:
        paths = array_paths(variant.function, variant.structure)  # for the numbers of arrays
        told = re.sub(r"#(\d+)", lambda found: format_path(paths[int(found[1])]), refusal)
        reasons[told] = reasons.pop(_REASONS["waiting"])
    return direct, reasons
