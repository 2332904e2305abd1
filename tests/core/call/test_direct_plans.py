"""Plans of direct calls: what a plan may say, and when a Direct rests from planning."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from core_support import core
from direct_support import (
    Backend,
    DirectArray,
    Interrupt,
    Layout,
    Sharding,
    interrupt,
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

    def test_a_plan_that_is_interrupted(self, backend: Backend) -> None:
        x = DirectArray()
        direct = backend.jit()
        direct(x)
        backend.parts["plan"] = interrupt
        with pytest.raises(Interrupt):
            direct(x)
        assert direct.num_entries == 0 and direct.counts == {"waiting": 1}
        backend.parts["plan"] = backend.plan
        assert "direct" in ways_of(direct, *[(x,)] * 8)

    def test_a_plan_that_forgets(self, backend: Backend) -> None:
        x = DirectArray()
        direct = backend.jit()
        direct(x)
        backend.parts["plan"] = lambda *args: (backend.context.forget(), backend.plan(*args))[1]
        assert ways_of(direct, [x], [x], [x]) == ["direct", "waiting", "direct"]

    def test_a_plan_that_clears(self, backend: Backend) -> None:
        x = DirectArray()
        direct = backend.jit()
        direct(x)
        backend.parts["plan"] = lambda *args: (direct.clear_cache(), backend.plan(*args))[1]
        assert way_of(direct, x) == "direct" and direct.num_entries == 0
        assert ways_of(direct, [x], [x]) == ["waiting", "direct"]

    def test_a_plan_that_calls(self, backend: Backend) -> None:
        """Only one of two plans is used."""
        x = DirectArray()
        direct = backend.jit()
        direct(x)

        def plan(*args: Any) -> Any:
            backend.parts["plan"] = backend.plan
            assert way_of(direct, x) == "direct"
            return backend.plan(*args)

        backend.parts["plan"] = plan
        assert direct(x).arrays[0].value == program_of(direct, x).values([x])
        assert ways_of(direct, [x], [x]) == ["direct"] * 2 and direct.num_entries == 1

    def test_a_plan_that_calls_and_is_interrupted(self, backend: Backend) -> None:
        x = DirectArray()
        direct = backend.jit()
        direct(x)

        def plan(*args: Any) -> Any:
            backend.parts["plan"] = backend.plan
            assert way_of(direct, x) == "direct"
            raise Interrupt

        backend.parts["plan"] = plan
        with pytest.raises(Interrupt):
            direct(x)
        assert way_of(direct, x) == "direct"

    @pytest.mark.parametrize("method", ["__index__", "__bool__"])
    def test_a_plan_whose_items_call(self, backend: Backend, method: str) -> None:
        """Another plan is made while one is being read."""
        x, y = DirectArray(1), DirectArray(2)
        direct = backend.jit()
        ways: list[str] = []

        class Item:
            def call(self) -> int:
                backend.parts["plan"] = backend.plan
                ways.append(way_of(direct, x, y))
                return 0

            def __index__(self) -> int:
                return self.call()

            def __bool__(self) -> bool:
                return bool(self.call())

        def plan(*args: Any) -> Any:
            *items, trace, checks_deleted = backend.plan(*args)
            if method == "__index__":
                return *items, Item(), checks_deleted
            return *items, trace, Item()

        direct(x, y)
        backend.parts["plan"] = plan
        output = direct(x, y)
        assert output.arrays[0].value == program_of(direct, x, y).values([x, y])
        assert ways == ["direct"] and backend.wrong == []
        assert ways_of(direct, *[(x, y)] * 5) == ["direct"] * 5

    def test_a_plan_that_drops_layouts(self, backend: Backend) -> None:
        """A finalizer of one makes the call again."""
        x, y = DirectArray(1), DirectArray(2)
        direct = backend.jit()
        ways: list[str] = []

        class Mortal(Layout):
            hook: Any = None

            def __del__(self) -> None:
                if self.hook is not None:
                    ways.append(way_of(direct, x, y))

        class Loud(Mortal):
            hook = 1

            def __eq__(self, other: object) -> bool:
                return True

            __hash__ = Layout.__hash__

        backend.parts["layout"] = lambda x: Loud("rows")
        direct(x, y)
        backend.parts["layout"] = lambda x: Mortal("rows")
        Mortal.__eq__ = lambda self, other: True  # type: ignore[method-assign]
        assert ways == []
        output = direct(x, y)
        assert output.arrays[0].value == program_of(direct, x, y).values([x, y])
        assert ways == ["direct"] * 2 and backend.wrong == []

    def test_a_plan_of_another_number_of_results(self, backend: Backend) -> None:
        """The number of handlers is only how many results are looked at."""
        x = DirectArray()
        direct = backend.jit()
        made = program_of(direct, x, x).handlers
        for handlers in ([], [1], [1] * 5):
            direct.clear_cache()
            backend.parts["plan"] = lambda *args, n=handlers: (lambda p: (p[0], n, *p[2:]))(
                backend.plan(*args)
            )
            backend.parts["consume"] = lambda results, handlers: [
                handler(results) for handler in made
            ]
            for _ in range(12):
                x, y = direct(x, x).arrays
                x, y = direct(x, y).arrays
            assert direct.counts["direct"] > 0 and backend.wrong == []


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

    def test_it_stops(self, backend: Backend) -> None:
        arrays = [DirectArray(i) for i in range(8)]
        direct = planned(backend, *arrays)
        for _ in range(4):
            way_of(direct, *[DirectArray(i, sharding=Sharding("one")) for i in range(8)])
        for _ in range(8):
            direct(*arrays)
        ways = ways_of(direct, *[arrays] * 300)
        assert ways.count("resting") <= 16 and ways[-1] == "direct"

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
