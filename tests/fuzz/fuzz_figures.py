"""Counts of what the fuzzer has done so far."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any


def _count(label: str) -> Any:
    return dataclasses.field(default=0, metadata={"label": label})


@dataclasses.dataclass
class Figures:
    calls: int = _count("calls")
    hits: int = _count("  of them hits")
    calls_with_jax: int = _count("  of them through jax.jit")
    direct: int = _count("    of these direct")
    variants: int = _count("new variants")
    compiled_by_jax: int = _count("  of them compiled by JAX")
    traces: int = _count("traces")
    evictions: int = _count("evictions")
    clears: int = _count("caches cleared")
    threads: int = _count("threads")
    failures: int = _count("calls that must fail")
    donations: int = _count("calls that donate")
    machines: int = _count("machines")
    mutations: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    nodes: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)

    def table(self, **more: int) -> str:
        counts = [x for x in dataclasses.fields(self) if "label" in x.metadata]
        rows = [(x.metadata["label"], getattr(self, x.name)) for x in counts]
        rows.append(("mutations", self.mutations.total()))
        rows += [(f"  of a {name}", n) for name, n in self.mutations.most_common()]
        rows.append(("nodes and leaves traced", self.nodes.total()))
        rows += [(f"  {name}", n) for name, n in self.nodes.most_common()]
        lines = [f"{label:32}{n:>12,}" for label, n in rows]
        return "\n".join(lines + [f"{label:32}{n:>12}" for label, n in more.items()])


figures = Figures()
