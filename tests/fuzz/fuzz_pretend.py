"""A stand-in for ``jax.jit``, which most machines use.

It traces by running the function with placeholder arrays, and remembers from which argument each
array of the result came. That costs a thousandth of a compilation. All other code is filterjit's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from fuzz_oracle import aval

from filterjit import _core
from filterjit._call import _direct
from filterjit._call._hooks import FunctionHooks


class Pretend:
    """Traces `flat` once for each combination of avals. Further calls only select arrays."""

    def __init__(self, flat: Callable[..., Any]) -> None:
        self.flat = flat
        self.traces: dict[Any, tuple[int, list[Any]]] = {}

    def __call__(self, *given: Any) -> Any:
        key = tuple(map(aval, given))
        traced = self.traces.get(key)
        if traced is None:
            marks = [np.empty(x.shape, x.dtype) for x in given]
            places = {id(mark): i for i, mark in enumerate(marks)}
            found, trace = _core.output_flatten(self.flat(*marks))
            traced = self.traces[key] = trace, [places.get(id(x), x) for x in found]
        trace, program = traced
        result = [given[x] if type(x) is int else x for x in program]
        return _core.output_unflatten(trace, tuple(result))


class PretendOptions(FunctionHooks):
    """filterjit's options, with `Pretend` in the place of ``jax.jit``."""

    def compile(self, f: Any, variant: Any) -> Any:
        jitted = _direct.jitted_of(super().compile(f, variant))
        return Pretend(jitted.__wrapped__)

    def inspect_new_trace(self, variant: Any, arrays: Any, outputs: Any) -> bool | None:
        return False
