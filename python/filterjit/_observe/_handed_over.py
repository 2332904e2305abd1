"""The calls that ``jax.jit`` and ``flax.nnx.jit`` make in the place of `filterjit.jit` and
`filterjit.nnx.jit`: why, and what helps."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ._words import count

# What makes the calls of a function, by what jitted it.
_UPSTREAM = {"jit": "jax.jit", "nnx.jit": "flax.nnx.jit"}

# What helps, by the beginning of a reason of `_nnx`, `_call` or csrc/call/variables.c.
_CURES = {
    "static_arg": "Jit a functools.partial for each value instead.",
    "in_shardings": "Place the arrays before the first call instead: `filterjit.place(...)`.",
    "out_shardings": "Use jax.lax.with_sharding_constraint in the function instead.",
    "donate_argnums": "Give donate_argnames instead.",
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


def cure(decorator: str, reason: str) -> str:
    """Returns what to do, so that such calls of functions of `decorator` are not handed over."""
    other = f"The page on filterjit.{decorator} says which calls are covered."
    return next((text for start, text in _CURES.items() if reason.startswith(start)), other)


def remarks(decorator: str, handed_over: Counter[str]) -> list[str]:
    """Returns a remark for each reason, the most frequent first."""
    return [
        f"{_UPSTREAM[decorator]} made {n:,} of its calls: {reason}. {cure(decorator, reason)}"
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
    decorator = function["decorator"]
    return (
        f"{_UPSTREAM[decorator]} made {count(most, 'call')} of {function['name']}: {reason}. "
        f"{cure(decorator, reason)}"
    )
