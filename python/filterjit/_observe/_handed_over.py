"""The calls that ``jax.jit`` or ``flax.nnx.jit`` makes in the place of ours: why, and what helps."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ._wording import count

# What helps, by the beginning of a reason of `_nnx` or csrc/call/variables.c.
_CURES = {
    "a static argument is a Variable or a Module": "Pass it as an argument that is not static.",
    "in_shardings": "Give shardings, a PartitionSpec or None.",
    "out_shardings": "Give shardings, a PartitionSpec or None.",
    "the shardings do not fit": "Such a call raises an error.",
    "jax.jit does not trace": "Turn jax_disable_jit off.",
    "this version": "Install versions that filterjit supports.",
    "an argument is a tracer": "Another jitted function calls it, and holds its program.",
    "an argument has a leaf that is no": (
        "Jit a functools.partial for each value, or make it a static attribute of a Module."
    ),
    "a Module holds a leaf that is no array of JAX": "Make it an array of JAX (`jnp.asarray`).",
    "a Variable or Module occurs twice": "Pass it once, or jit with graph=True.",
    "a static attribute is not hashable": "Make it hashable: a tuple instead of a list, for example.",
    "a static attribute is a tracer": "Make it a Variable.",
    "the result or a new value has a leaf": "Return arrays only.",
}
_OTHER = "The documentation says which calls are covered."


def cure(reason: str) -> str:
    """Returns what to do, so that such calls are not handed over."""
    return next((text for start, text in _CURES.items() if reason.startswith(start)), _OTHER)


def _upstream(decorator: str) -> str:
    return "jax.jit" if decorator == "jit" else "flax.nnx.jit"


def remarks(handed_over: Counter[str], decorator: str) -> list[str]:
    """Returns a remark for each reason, the most frequent first."""
    return [
        f"{_upstream(decorator)} made {n:,} of its calls: {reason}. {cure(reason)}"
        for reason, n in handed_over.most_common()
    ]


def summary(functions: Sequence[dict[str, Any]]) -> str:
    """Returns a sentence on the function of a report with the most calls that were handed over; an
    empty text if there were none."""
    counts = [sum(f["handed_over"].values()) for f in functions]
    most = max(counts, default=0)
    if not most:
        return ""
    function = functions[counts.index(most)]
    reasons = Counter(function["handed_over"])
    ((reason, _),) = reasons.most_common(1)
    upstream = _upstream(function.get("decorator", ""))
    return f"{upstream} made {count(most, 'call')} of {function['name']}: {reason}. {cure(reason)}"
