"""Plans of direct calls: what a plan may say, and when a Direct rests from planning."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from core_support import core
from direct_support import (
    Backend,
    DirectArray,
    Sharding,
    noting,
    planned,
    program_of,
    way_of,
    ways_of,
)
from node_support import Ambiguous
from outcome_support import fail


class TestPlans:
    def test_output_has_the_trace_of_the_plan(self, backend: Backend) -> None:
        x, y = DirectArray(), DirectArray(name="i32[]")
        direct = backend.jit()
        backend.context.after = 0
        for arrays in [(x,), (x,), *[(y,)] * 7, (x,), (y,)]:
            way_of(direct, *arrays)
        assert direct.num_entries == 2
        traces = [core.output_flatten(direct(a))[1] for a in (x, y, x)]
        assert traces == [0, 1, 0] and direct.counts["direct"] >= 4

    def test_the_trace_stays_when_jitted_traces_again(self, backend: Backend) -> None:
        """A call that the executable refuses is traced again; the executable is that of before."""
        x = DirectArray(1)
        direct = planned(backend, x)
        program = program_of(direct, x)
        direct.jitted.programs = {None: None}  # JAX has dropped the program
        assert program_of(direct, x).trace != program.trace
        program.fails = ValueError()
        trace = core.output_flatten(direct(x))[1]
        assert trace == program_of(direct, x).trace and direct.counts["failed"] == 1
        program.fails = None
        assert core.output_flatten(direct(x))[1] == program.trace and direct.counts["direct"] == 2

    def test_a_plan_of_another_trace(self, backend: Backend) -> None:
        x = DirectArray(1)
        direct = backend.jit()
        direct(x)
        backend.parts["plan"] = lambda *args: (
            *(plan := backend.plan(*args))[:4],
            plan[4] + 1,
            plan[5],
        )
        assert way_of(direct, x) == "waiting" and direct.num_entries == 0

    def test_constants_come_first(self, backend: Backend) -> None:
        arrays = [DirectArray(i) for i in range(4)]
        constants = DirectArray("c"), DirectArray("d")
        direct = backend.jit(lambda i: i in (1, 3))
        program = program_of(direct, *arrays)
        program.constants = constants
        seen: list[Any] = []
        program.execute = noting(seen, program.execute)
        assert ways_of(direct, *[arrays] * 3) == ["waiting", "direct", "direct"]
        assert seen == [(*constants, arrays[1], arrays[3])] * 2

    def test_refusal(self, backend: Backend) -> None:
        """It is asked for again ever more seldom."""
        x = DirectArray()
        direct = backend.jit()
        reasons = iter(range(100))
        asked: list[int] = []

        def plan(source: Any, arrays: Any) -> str:
            asked.append(sum(direct.counts.values()))
            return f"reason {next(reasons)}"

        backend.parts["plan"] = plan
        for _ in range(1500):
            assert way_of(direct, x) == "waiting"
        assert direct.refusal == f"reason {len(asked) - 1}" and direct.num_entries <= 1
        gaps = [b - a for a, b in itertools.pairwise(asked)]
        assert len(gaps) > 6 and all(b > 3 * a for a, b in itertools.pairwise(gaps[3:]))

    @pytest.mark.parametrize(
        "change",
        [
            lambda plan: None,
            lambda plan: list(plan),
            lambda plan: plan[:-1],
            lambda plan: (*plan, 1),
            lambda plan: (plan[0], tuple(plan[1]), *plan[2:]),
            lambda plan: (*plan[:2], list(plan[2]), *plan[3:]),
            lambda plan: (*plan[:3], plan[3] + b"\1", *plan[4:]),
            lambda plan: (*plan[:3], b"", *plan[4:]),
            lambda plan: (*plan[:3], "\1\1", *plan[4:]),
            lambda plan: (*plan[:4], "0", plan[5]),
            lambda plan: (*plan[:4], 2**70, plan[5]),
            lambda plan: (*plan[:5], Ambiguous()),
            fail,
        ],
    )
    def test_plans_that_are_wrong(self, backend: Backend, change: Callable[[Any], Any]) -> None:
        x = DirectArray()
        direct = backend.jit()
        backend.parts["plan"] = lambda *args: change(backend.plan(*args))
        assert ways_of(direct, *[(x, x)] * 2) == ["waiting"] * 2
        assert direct.num_entries == 0 and direct.refusal is None
        backend.parts["plan"] = backend.plan
        assert ways_of(direct, *[(x, x)] * 10)[-1] == "direct"


class TestResting:
    def test_comparisons_that_take_long(self, backend: Backend) -> None:
        """Where many shardings are compared in each call, jax.jit is as fast."""
        direct = planned(backend, *[DirectArray(i) for i in range(8)])

        def call() -> str:
            return way_of(direct, *[DirectArray(i, sharding=Sharding("one")) for i in range(8)])

        assert [call() for _ in range(3)] == ["direct"] * 3
        ways = [call() for _ in range(3000)]
        runs = "".join("d" if way == "direct" else "r" for way in ways).split("d")
        assert set(ways) == {"direct", "resting"}
        assert [len(run) for run in runs if run][:7] == [8, 16, 32, 64, 128, 256, 256]

    def test_checks_in_vain(self, backend: Backend) -> None:
        """Fresh arrays are checked, and the last is always another."""
        direct = planned(backend, *[DirectArray(i) for i in range(9)])
        backend.context.after = 10**6
        ways = [
            way_of(direct, *map(DirectArray, range(8)), DirectArray(i, f"f32[{i}]"))
            for i in range(4, 1000)
        ]
        assert ways[:3] == ["aval"] * 3 and set(ways) == {"aval", "resting"}
        assert ways.count("aval") < 20

    @pytest.mark.parametrize("count", [2, 3, 4])
    def test_calls_that_alternate_do_not_rest(self, backend: Backend, count: int) -> None:
        """Where an entry is found, the comparisons with others were not in vain."""
        direct, kept = backend.jit(), [DirectArray(i) for i in range(8)]
        kinds = [DirectArray(0, f"f32[{i}]") for i in range(count)]
        for kind in kinds:
            while way_of(direct, *kept, kind) != "direct":
                pass
        for i in range(100):
            fresh = map(DirectArray, range(8))
            assert way_of(direct, *fresh, kinds[i % count]) == "direct"

    def test_kinds_that_come_later_are_noted(self, backend: Backend) -> None:
        """A state that is fed back, and batches of three shapes."""
        backend.context.after = 16
        direct, state = backend.jit(), [DirectArray(i) for i in range(8)]
        batches = [DirectArray(0, f"f32[{i}]") for i in range(3)]
        for i in range(1500):
            state = direct(*state, batches[i % 3]).arrays[:8]
        assert direct.num_entries == 3 and backend.wrong == []
        for i in range(30):
            assert way_of(direct, *state, batches[i % 3]) == "direct"
