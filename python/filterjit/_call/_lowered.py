"""What a lowered program is: its text without locations, and what it is compiled with.

Two programs with one digest compute the same, whatever Python has made them: the text is the same in
each process, with any hash seed and in any thread. A program cache finds executables by it, and
several processes compare it before they run a program together.
"""

import hashlib
import json
from typing import Any

import jax
import numpy as np

from .._compat import _executable_compat


class UnknownProgramError(Exception):
    """This version of JAX does not tell what a program is compiled with."""


def text_of(lowered: Any) -> str:
    """Returns the text of a ``jax.stages.Lowered``: a line of what it is compiled with, and StableHLO.

    Raises UnknownProgramError."""
    found = _executable_compat.lowered_facts(lowered)
    text = lowered.as_text()
    if found is None or not text:
        raise UnknownProgramError(
            "this version of JAX does not tell what a program is compiled with"
        )
    facts, constants = found
    facts["constants"] = list(map(_digest_of_array, constants))
    return f"{json.dumps(facts)}\n{text}"


def digest_of(text: str) -> str:
    """Returns the digest of what `text_of` returns."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _digest_of_array(x: Any) -> str:
    if isinstance(x, jax.Array) and jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    values = np.asarray(x)
    digest = hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()
    return f"{values.dtype}{list(values.shape)} {digest}"
