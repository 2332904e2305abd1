"""Counts of what the fuzzer has done so far."""

from __future__ import annotations

import collections
import dataclasses


@dataclasses.dataclass
class Figures:
    calls: int = 0
    hits: int = 0
    traces: int = 0
    variants: int = 0
    evictions: int = 0
    mutations: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    clears: int = 0
    threads: int = 0
    failures: int = 0
    donations: int = 0
    partials: int = 0
    machines: int = 0
    compiled_by_jax: int = 0
    calls_with_jax: int = 0
    direct: int = 0
    nodes: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)


figures = Figures()
