"""Random sequences of calls of a Direct: each returns what the right program computes.

``python test_direct_random.py CALLS [SEED]`` makes more calls, each thousand in a new world.
"""

from __future__ import annotations

import gc
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import pytest
from core_support import core
from direct_support import (
    COLUMNS,
    ONE,
    ROWS,
    TWO,
    Backend,
    DeletedError,
    DirectArray,
    OtherSharding,
    Sharding,
    SubArray,
    check_output,
)

NAMES = ("f32[3]", "f32[3,4]", "i32[]")
CONFIGURATIONS = [(True, "highest"), (False, "highest"), (True, "low"), (True,)]


class World:
    """A Direct, arrays that live for some time, and random calls with them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.backend = Backend(self.random.choice([0, 0, 1, 3]))
        self.backend.checks_deleted = self.random.random() < 0.2
        self.backend.parts["plan"] = self.plan
        mask = self.random.choice([7, 7, 5, 2])
        self.direct = self.backend.jit(lambda i: bool(mask >> (i % 3) & 1))
        self.constants = tuple(DirectArray(f"c{i}") for i in range(self.random.choice([0, 0, 2])))
        self.shape = [self.random.choice(NAMES) for _ in range(self.random.choice([1, 3, 3, 8]))]
        self.held: list[list[DirectArray]] = [[] for _ in self.shape]
        self.results: list[DirectArray] = []
        self.last: list[DirectArray] | None = None
        self.fed: tuple[int, int] | None = None  # this argument is to be this result
        self.calm = self.random.choice([0.5, 0.9, 0.98])  # how often nothing is odd
        self.depth = 0
        self.errors = 0

    def odd(self) -> bool:
        return self.random.random() > self.calm

    def plan(self, source: Any, arrays: Any) -> Any:
        if self.odd():
            return self.random.choice(["no", None, (), self.backend.plan(source, arrays)[:-1]])
        if self.odd():
            self.disturb()
        if self.odd():
            raise ValueError("no plan")
        return self.backend.plan(source, arrays)

    # ---- arrays ----

    def sharding(self) -> Any:
        if not self.odd():
            return ONE
        hook = self.disturb if self.odd() else None
        kind, name, hook = self.random.choice(
            [
                *((Sharding, "one", hook), (Sharding, "one", None), (Sharding, "two", hook)),
                *((OtherSharding, "one", None), (None, "", None)),
            ]
        )
        return TWO if kind is None else kind(name, hook)

    def array(self, name: str) -> Any:
        if self.odd():
            name = self.random.choice(NAMES)
        cls = SubArray if self.odd() and self.odd() else DirectArray
        return cls(
            self.random.randrange(1000),
            name,
            self.sharding(),
            not self.odd(),
            COLUMNS if self.odd() else ROWS,
        )

    def argument(self, i: int) -> Any:
        held = self.held[i]
        choice = self.random.random()
        if choice < 0.2 and i < len(self.results):
            return self.results[i]
        if choice < 0.27 and self.results:
            return self.random.choice(self.results)
        if choice < 0.8 and held:
            return self.random.choice(held)
        if choice < 0.9 and held:
            # Another array gets the address of one that dies.
            del held[self.random.randrange(len(held))]
        made = self.array(self.shape[i])
        if len(held) < 3:
            held.append(made)
        return made

    def arguments(self) -> list[Any]:
        if self.fed is not None:
            (i, j), self.fed = self.fed, None
            if self.last is not None and j < len(self.results):
                return [*self.last[:i], self.results[j], *self.last[i + 1 :]]
        if self.last is not None and len(self.results) > 1 and self.random.random() < 0.1:
            # An array gets the address of a result, which is then passed in its place.
            i, j = self.random.randrange(len(self.last)), self.random.randrange(len(self.results))
            if i < len(self.shape):
                self.fed = i, j
                del self.results[j]
                return [*self.last[:i], DirectArray(1, self.shape[i]), *self.last[i + 1 :]]
        if self.last is not None and self.random.random() < 0.3:
            return self.last
        if self.odd() and self.odd():
            return [self.array(name) for name in self.shape[: self.random.randrange(9)]]
        return [self.argument(i) for i in range(len(self.shape))]

    # ---- what happens between calls, and within them ----

    def disturb(self) -> None:
        backend, choose = self.backend, self.random.choice
        actions: list[Callable[[], Any]] = [
            lambda: setattr(backend, "configuration", choose(CONFIGURATIONS)),
            lambda: setattr(choose(backend.settings), "value", choose(["clean", None, "other"])),
            lambda: setattr(backend, "is_profiled", self.odd()),
            lambda: setattr(backend.context, "enabled", not self.odd()),
            backend.context.forget,
            self.direct.clear,
            lambda: setattr(backend.context, "after", choose([0, 0, 1, 3])),
            lambda: vars(self).update(last=None, results=[]),
            lambda: choose(self.held).clear(),
            lambda: [x.delete() for x in choose(self.held)[: self.odd()]],
            lambda: self.call() if self.depth < 3 else None,
            lambda: gc.collect(0),
            self.let_programs_fail,
            *[self.calm_down] * 3,
        ]
        choose(actions)()

    def let_programs_fail(self) -> None:
        for program in self.direct.jitted.programs.values():
            program.fails = ValueError("on purpose") if self.odd() else None

    def calm_down(self) -> None:
        self.backend.configuration = CONFIGURATIONS[0]
        self.backend.is_profiled, self.backend.context.enabled = False, True
        for setting in self.backend.settings:
            setting.value = "clean"

    def call(self) -> None:
        """Within a call all may change, even the configuration: jax.jit's own key was made before
        that or after.  So the result is compared with that of each configuration of the call."""
        arrays = self.arguments()
        jitted = self.direct.jitted
        before = len(jitted.programs)
        program = jitted.program(arrays)
        if len(jitted.programs) > before:
            program.constants = self.constants
        is_outermost, self.depth = self.depth == 0, self.depth + 1
        try:
            output = self.direct(*arrays)
        except DeletedError:
            assert any(x.deleted for x in arrays)
            self.errors += 1
            return
        finally:
            self.depth -= 1
        trace = core.output_flatten(output)[1]
        found = next(p for p in jitted.programs.values() if p.trace == trace)
        assert found.key[1] == program.key[1], "a program for other arrays"
        if not any(getattr(x.sharding, "on_eq", None) for x in arrays) and is_outermost:
            assert found is program or self.backend.key() != program.key[0]
        # A program that another configuration was set for within a call is no error.
        self.backend.wrong = [w for w in self.backend.wrong if w[0] != "configuration"]
        check_output(jitted, output, found, arrays)
        self.results = list(output.arrays) if self.random.random() < 0.9 else []
        self.last = arrays if self.random.random() < 0.8 else None


def run(calls: int, seed: int) -> Counter[str]:
    world = World(seed)
    for _ in range(calls):
        if world.odd():
            world.disturb()
        world.call()
    counts = Counter[str](world.direct.counts)
    assert sum(counts.values()) >= calls
    counts["errors"] = world.errors
    return counts


@pytest.mark.parametrize("seed", range(12))
def test_random_calls(seed: int) -> None:
    run(300, seed)


def test_each_way_is_met() -> None:
    total: Counter[str] = sum((run(300, seed) for seed in range(100, 120)), Counter())
    assert all(total[way] for way in WAYS), total
    assert total["direct"] > total.total() / 4, total


WAYS = (
    *("direct", "off", "waiting", "profiler", "configuration", "type", "aval", "sharding"),
    *("layout", "failed", "resting"),
)

if __name__ == "__main__":
    calls, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    total: Counter[str] = Counter()
    for seed in range(first, first + calls // 1000):
        print(seed, file=sys.stderr, flush=True)
        total += run(1000, seed)
    print(total)
