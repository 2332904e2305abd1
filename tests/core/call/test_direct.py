"""Direct and DirectContext: calls that go straight to an executable.

direct_support.py has a stand-in for JAX.  Its programs note whether they were run with arrays that
they were not compiled for, and `way_of` compares each result with that of the right program.
"""

import gc
import itertools
import operator
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from core_support import core
from direct_support import (
    COLUMNS,
    ROWS,
    TWO,
    Backend,
    DeletedError,
    DirectArray,
    DirectKeys,
    Layout,
    OtherSharding,
    Sharding,
    SubArray,
    another_at,
    way_of,
    ways_of,
)
from outcome_support import fail, raised
from thread_support import in_threads


class Interrupt(BaseException):
    """As KeyboardInterrupt, it must not be swallowed."""


def interrupt(*args: Any) -> Any:
    raise Interrupt


def planned(backend: Backend, *arrays: Any, **options: Any) -> Any:
    """A Direct that calls with such arrays go through.  No others are noted."""
    backend.context.after = 0
    direct = backend.jit(**options)
    assert ways_of(direct, arrays, arrays) == ["waiting", "direct"]
    backend.context.after = 10**6
    return direct


def noting(seen: list[Any], function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that adds its argument to `seen` and calls another one."""

    def call(x: Any) -> Any:
        seen.append(x)
        return function(x)

    return call


def program_of(direct: Any, *arrays: Any) -> Any:
    return direct.jitted.program(arrays)


@pytest.fixture
def backend() -> Backend:
    return Backend()


class TestContext:
    def test_defaults(self, backend: Backend) -> None:
        parts = [DirectArray, *[len] * 5, DirectKeys, *[len] * 4, (), *[len] * 4]
        context = core.DirectContext(*parts)
        assert (context.enabled, context.after) == (0, 0)
        context.enabled, context.after = 1, 7
        assert (context.enabled, context.after) == (1, 7)
        assert context.forget() is None

    @pytest.mark.parametrize("change", [{0: 1}, {6: 1}, {11: []}, {11: None}])
    def test_bad_parts(self, change: Any) -> None:
        parts: list[Any] = [DirectArray, *[len] * 5, DirectKeys, *[len] * 4, (), *[len] * 4]
        for i, part in change.items():
            parts[i] = part
        with pytest.raises(TypeError, match="takes 16 objects"):
            core.DirectContext(*parts)

    def test_bad_arguments(self) -> None:
        parts: list[Any] = [DirectArray, *[len] * 5, DirectKeys, *[len] * 4, (), *[len] * 4]
        for wrong in ((), parts[:-1], [*parts, len]):
            with pytest.raises(TypeError):
                core.DirectContext(*wrong)
        with pytest.raises(TypeError):
            core.DirectContext(*parts, more=1)
        with pytest.raises(TypeError):
            type("Sub", (core.DirectContext,), {})
        context = core.DirectContext(*parts)
        for name, value in (("enabled", "yes"), ("after", 1.5), ("other", 1)):
            with pytest.raises((TypeError, AttributeError)):
                setattr(context, name, value)

    def test_it_is_freed(self) -> None:
        backend = Backend()
        ref = weakref.ref(backend)
        direct = planned(backend, DirectArray())
        assert gc.is_tracked(backend.context) and backend.context in gc.get_referents(direct)
        del backend, direct
        gc.collect()
        assert ref() is None


WHERE = ["configuration", "setting", "sharding", "layout", "plan", "refusal"]


class TestDirect:
    def test_bad_arguments(self, backend: Backend) -> None:
        for args, kwargs in (
            ((), {}),
            ((backend.context, len), {}),
            ((backend.context, len, len, len), {}),
            ((None, len, len), {}),
            ((backend.context, len, len), {"more": 1}),
        ):
            with pytest.raises(TypeError):
                core.Direct(*args, **kwargs)
        with pytest.raises(TypeError):
            type("Sub", (core.Direct,), {})

    def test_keywords(self, backend: Backend) -> None:
        direct = core.Direct(context=backend.context, jitted=len, source=None)
        assert direct.jitted is len and direct([1, 2]) == 2

    def test_attributes(self, backend: Backend) -> None:
        direct = backend.jit()
        assert direct.name == "an attribute" and direct.jitted.calls == direct.calls == 0
        assert direct.refusal is None and direct.num_entries == 0 and direct.counts == {}
        assert direct.clear_cache() == "cleared" and direct.cleared == 1
        with pytest.raises(AttributeError, match="no_such"):
            _ = direct.no_such
        for name in ("jitted", "refusal", "num_entries", "counts", "other", "name"):
            with pytest.raises((AttributeError, TypeError)):
                setattr(direct, name, 1)
        with pytest.raises(TypeError):
            getattr(direct, 3)  # type: ignore[call-overload]

    def test_vectorcall(self, backend: Backend) -> None:
        x = DirectArray(1)
        direct = planned(backend, x)
        for output in (*map(direct, [x]), direct.__call__(x), type(direct).__call__(direct, x)):
            assert output.arrays[0].value == program_of(direct, x).values([x])
        assert direct.counts["direct"] == 4

    def test_weak_references(self, backend: Backend) -> None:
        direct = planned(backend, DirectArray())
        died: list[Any] = []
        ref = weakref.ref(direct, died.append)
        assert ref() is direct
        del direct
        assert ref() is None and died == [ref]

    def test_it_is_freed_in_a_cycle(self, backend: Backend) -> None:
        x = DirectArray()
        direct = planned(backend, x)
        direct.jitted.me = direct
        ref, jitted = weakref.ref(direct), weakref.ref(direct.jitted)
        del direct
        assert ref() is not None
        gc.collect()
        assert ref() is None is jitted()

    @pytest.mark.parametrize("where", WHERE)
    def test_a_cycle_through_an_entry_is_freed(self, backend: Backend, where: str) -> None:
        class Value(Layout):
            me: Any
            value: Any

        class Text(str):
            me: Any

        value: Any = Value("value")
        if where == "refusal":
            backend.parts["plan"] = lambda *args: Text("no")
        x = DirectArray(name="f32[3,4]", layout=value if where == "layout" else ROWS)
        if where == "configuration":
            backend.configuration = (True, value)
        if where == "setting":
            backend.settings[0].value = value
        if where == "sharding":
            x = DirectArray(sharding=value)
        direct = backend.jit()
        if where == "plan":
            value.value = 5
            program_of(direct, x).constants = (value,)
        direct(x), direct(x)
        if where == "refusal":
            value = direct.refusal
        assert direct.num_entries == (where != "refusal")
        value.me = direct
        ref = weakref.ref(direct)
        backend.configuration, backend.settings[0].value = (), None
        del value, direct, x
        gc.collect()
        assert ref() is None

    def test_it_dies_in_its_own_call(self, backend: Backend) -> None:
        x = DirectArray(1)
        box = [planned(backend, x)]
        program = program_of(box[0], x)

        def consume(results: Any, handlers: Any) -> Any:
            box.clear()
            gc.collect()
            return [handler(results) for handler in handlers]

        backend.parts["consume"] = consume
        output = box[0](x)
        assert box == [] and output.arrays[0].value == program.values([x])


class TestWays:
    @pytest.mark.parametrize("after", [0, 1, 5])
    def test_until_it_is_direct(self, after: int) -> None:
        backend, x = Backend(after), DirectArray()
        direct = backend.jit()
        assert ways_of(direct, *[(x,)] * (after + 4)) == ["waiting"] * (after + 1) + ["direct"] * 3
        assert direct.jitted.calls == after + 1 and backend.plans == 1
        assert direct.counts == {"waiting": after + 1, "direct": 3} and direct.num_entries == 1
        assert direct.refusal is None

    def test_off(self, backend: Backend) -> None:
        x = DirectArray()
        direct = planned(backend, x)
        backend.context.enabled = 0
        assert ways_of(direct, [x], [x]) == ["off"] * 2
        backend.context.enabled = 1
        assert way_of(direct, x) == "direct"

    def test_profiler(self, backend: Backend) -> None:
        x = DirectArray()
        direct = planned(backend, x)
        backend.is_profiled = True
        assert ways_of(direct, [x], [x]) == ["profiler"] * 2
        backend.is_profiled = False
        assert way_of(direct, x) == "direct"
        backend.parts["is_profiled"] = fail
        assert way_of(direct, x) == "profiler"

    def test_configuration(self, backend: Backend) -> None:
        x, before = DirectArray(), backend.configuration
        direct = planned(backend, x)
        for other in ((*before, 1), before[:-1], (), (False, *before[1:]), (1, *before[1:])):
            backend.configuration = other
            assert way_of(direct, x) == "configuration"
        backend.configuration = (*before[:1], *before[1:])
        assert backend.configuration is not before and way_of(direct, x) == "direct"

    def test_configuration_that_is_equal_but_another_object(self, backend: Backend) -> None:
        """Its values are compared by type and equality, and those that were equal remembered."""
        backend.parts["plan"] = lambda *args: (lambda inputs: 5, [1], (), b"\1", 0, False)
        backend.parts["consume"] = lambda results, handlers: [results]
        direct = core.Direct(backend.context, lambda x: core.output_unflatten(0, (5,)), None)
        x, compared = DirectArray(), []

        def fresh(name: str = "name") -> Any:
            return 1, Layout(name, lambda: compared.append(1))

        def way(configuration: Any) -> str:
            backend.configuration, before = configuration, direct.counts
            assert direct(x).arrays == (5,)
            (way,) = (k for k, n in direct.counts.items() if n > before.get(k, 0))
            return str(way)

        assert [way(fresh()), way(fresh())] == ["waiting", "direct"]
        backend.context.after = 10**6
        compared.clear()
        other = fresh()
        assert [way(other), way(other), way((*other[:1], other[1]))] == ["direct"] * 3
        assert len(compared) == 2, "both sides of one comparison"
        for other in (fresh("other"), (True, fresh()[1]), (1.0, fresh()[1]), (1, Sharding("name"))):
            assert way(other) == "configuration"
        assert way((1, Layout("name", fail))) == "configuration"
        with pytest.raises(Interrupt):
            way((1, Layout("name", interrupt)))
        clear = lambda: backend.context.forget()
        assert way((1, Layout("name", clear))) == "direct"
        assert way(fresh()) == "waiting" and direct.num_entries == 0

    @pytest.mark.parametrize("given", [None, [], 1, type("T", (tuple,), {})()])
    def test_configuration_that_is_no_tuple(self, backend: Backend, given: Any) -> None:
        x = DirectArray()
        direct = planned(backend, x)
        backend.parts["configuration"] = lambda: given
        assert way_of(direct, x) == "configuration"
        backend.parts["configuration"] = fail
        assert way_of(direct, x) == "configuration"

    @pytest.mark.parametrize("i", [0, 1])
    def test_settings(self, backend: Backend, i: int) -> None:
        x = DirectArray()
        direct = planned(backend, x)
        before, backend.settings[i].value = backend.settings[i].value, "another"
        assert way_of(direct, x) == "configuration"
        backend.settings[i].value = before
        assert way_of(direct, x) == "direct"
        backend.parts["setting"] = fail
        assert way_of(direct, x) == "configuration"

    @pytest.mark.parametrize("is_read", [True, False])
    @pytest.mark.parametrize("place", [0, 2])
    def test_other_arrays(self, backend: Backend, place: int, is_read: bool) -> None:
        """Arguments that the program does not read are checked too."""
        arrays = [DirectArray(i, name) for i, name in enumerate(("f32[3]", "i32[]", "f32[3,4]"))]
        direct = planned(backend, *arrays, reads=lambda i: is_read or i != place)
        name = arrays[place].aval.name
        others = [
            (SubArray(1, name), "type"),
            (DirectArray(1, "f32[4]"), "aval"),
            (DirectArray(1, name, TWO), "sharding"),
            (DirectArray(1, name, committed=False), "sharding"),
            (DirectArray(1, name, OtherSharding("one")), "sharding"),
            (DirectArray(1, name, layout=COLUMNS), "layout" if place == 2 else "direct"),
            (DirectArray(1, name, Sharding("one"), layout=Layout("rows")), "direct"),
        ]
        for other, way in others * 3:
            changed = [*arrays[:place], other, *arrays[place + 1 :]]
            assert ways_of(direct, changed, arrays) == [way, "direct"]

    def test_other_numbers_of_arrays(self, backend: Backend) -> None:
        x = DirectArray()
        direct = planned(backend, x, x)
        calls = [(), (x,), (x, x, x), (x,) * 40, (x, x)]
        assert ways_of(direct, *calls) == ["aval"] * 4 + ["direct"]

    def test_no_arrays(self, backend: Backend) -> None:
        planned(backend)

    def test_no_arrays_are_read(self, backend: Backend) -> None:
        x = DirectArray()
        assert way_of(planned(backend, x, x, reads=lambda i: False), x, x) == "direct"

    def test_many_arrays(self, backend: Backend) -> None:
        arrays = [DirectArray(i, f"f32[{i}]") for i in range(300)]
        direct = planned(backend, *arrays, reads=lambda i: i % 3 != 0)
        assert ways_of(direct, *[arrays] * 20) == ["direct"] * 20

    def test_keywords(self, backend: Backend) -> None:
        x, y = DirectArray(1), DirectArray(2)
        direct = planned(backend, x, y)
        for _ in range(3):
            output = direct(x, y=y)
            assert output.arrays[0].value == program_of(direct, x, y).values([x, y])
        assert direct.counts == {"waiting": 1, "direct": 1, "type": 3}
        none: dict[str, Any] = {}
        assert direct(x, y, **none) and direct.counts["direct"] == 2

    def test_values_that_are_no_arrays(self, backend: Backend) -> None:
        direct = core.Direct(backend.context, lambda *args: args, None)
        calls: list[Any] = [(1,), (None, "a"), (DirectArray(), 1), ([], {})]
        for args in calls * 3:
            assert direct(*args) == args
        assert direct.counts == {"type": 12} and direct.num_entries == 0

    def test_deleted(self, backend: Backend) -> None:
        """Where other processes run the program too, no deleted array goes to the executable."""
        x, y = DirectArray(1), DirectArray(2)
        backend.checks_deleted = True
        direct = planned(backend, x, y, reads=lambda i: i == 0)
        assert ways_of(direct, *[(x, y)] * 5) == ["direct"] * 5
        runs = program_of(direct, x, y).runs
        y.delete()
        assert way_of(direct, x, y) == "deleted" and program_of(direct, x, y).runs == runs
        x.delete()
        with pytest.raises(DeletedError):
            direct(x, y)
        assert direct.counts["deleted"] == 2 and program_of(direct, x, y).runs == runs
        backend.parts["is_deleted"] = fail
        assert way_of(direct, DirectArray(), y) == "deleted"

    def test_deleted_arrays_fail(self, backend: Backend) -> None:
        """The executable notices, and the error is jax.jit's."""
        x, y = DirectArray(1), DirectArray(2, "f32[3,4]")
        direct = planned(backend, x, y)
        assert ways_of(direct, *[(x, y)] * 3) == ["direct"] * 3
        x.delete()
        with pytest.raises(DeletedError):
            direct(x, y)
        assert direct.counts["failed"] == 1 and direct.jitted.calls == 2
        y = DirectArray(2, "f32[3,4]")
        y.delete()
        with pytest.raises(DeletedError):
            direct(DirectArray(), y)
        assert direct.counts["layout"] == 1, "a deleted array has no layout"

    def test_failed(self, backend: Backend) -> None:
        x = DirectArray(1)
        direct = planned(backend, x)
        program = program_of(direct, x)
        program.fails = ValueError("no memory")
        before = direct.jitted.calls
        assert ways_of(direct, [x], [x]) == ["failed"] * 2
        assert direct.jitted.calls == before + 2
        program.fails = None
        assert way_of(direct, x) == "direct"
        direct.jitted.fails = program.fails = KeyError()
        with pytest.raises(KeyError):
            direct(x)

    def test_failures_that_are_not_made_again(self, backend: Backend) -> None:
        """An interrupt, and what fails after the device has begun."""
        x = DirectArray(1)
        direct = planned(backend, x)
        before, counts = direct.jitted.calls, direct.counts
        program_of(direct, x).fails = Interrupt()
        with pytest.raises(Interrupt):
            direct(x)
        program_of(direct, x).fails = None
        for consume, error in (
            (fail, ZeroDivisionError),
            (interrupt, Interrupt),
            (lambda results, handlers: None, TypeError),
            (lambda results, handlers: map(fail, [1]), ZeroDivisionError),
        ):
            backend.parts["consume"] = consume
            with pytest.raises(error):
                direct(x)
        assert direct.jitted.calls == before and direct.counts == counts

    def test_jitted_fails(self, backend: Backend) -> None:
        """A call that fails is not planned."""
        x = DirectArray(1)
        direct = backend.jit()
        direct.jitted.fails = KeyError()
        for _ in range(4):
            with pytest.raises(KeyError):
                direct(x)
        assert direct.counts == {"waiting": 4} and backend.plans == 0
        direct.jitted.fails = None
        assert ways_of(direct, [x], [x]) == ["waiting", "direct"]

    @pytest.mark.parametrize("given", [None, (), core.output_unflatten(-1, ())])
    def test_results_that_have_not_passed_through_jax(self, backend: Backend, given: Any) -> None:
        direct = core.Direct(backend.context, lambda *args: given, None)
        for _ in range(4):
            assert direct(DirectArray()) is given
        assert direct.counts == {"waiting": 4} and backend.plans == 0

    def test_collect(self, backend: Backend) -> None:
        x = DirectArray()
        direct = planned(backend, x)
        other = planned(backend, x)
        for _ in range(23):
            direct(x), other(x)
        assert backend.collected == 3, "each 16 direct calls of all"
        backend.parts["collect"] = fail
        assert ways_of(direct, *[(x,)] * 40) == ["direct"] * 40


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


class Ambiguous:
    def __bool__(self) -> bool:
        raise ValueError("ambiguous")


class TestEntries:
    def kinds(self, count: int) -> list[DirectArray]:
        return [DirectArray(i, f"f32[{i}]") for i in range(count)]

    def plan_each(self, direct: Any, arrays: Any) -> None:
        for x in arrays:
            for _ in range(6000):
                if way_of(direct, x) == "direct":
                    break
            else:
                raise AssertionError(x)

    def test_four_are_kept(self, backend: Backend) -> None:
        direct, arrays = backend.jit(), self.kinds(5)
        self.plan_each(direct, arrays[:4])
        assert direct.num_entries == 4
        assert ways_of(direct, *[[x] for x in arrays[:4] * 3]) == ["direct"] * 12
        direct(arrays[0])  # the one that was used longest ago is now that of arrays[1]
        self.plan_each(direct, arrays[4:])
        assert direct.num_entries == 4
        ways = ways_of(direct, *[[x] for x in arrays])
        assert ways == ["direct", "aval", "direct", "direct", "direct"]

    def test_the_last_one_comes_first(self, backend: Backend) -> None:
        direct, arrays = backend.jit(), self.kinds(3)
        self.plan_each(direct, arrays)
        asked: list[Any] = []
        backend.parts["aval"] = noting(asked, backend.parts["aval"])
        for i, entries in ((0, 3), (0, 1), (1, 3), (0, 2), (2, 3)):
            asked.clear()
            x = DirectArray(1, f"f32[{i}]")
            assert way_of(direct, x) == "direct"
            assert asked.count(x) == entries

    def test_calls_are_noted_ever_more_seldom(self, backend: Backend) -> None:
        direct = backend.jit()
        backend.context.after = 1
        described: list[Any] = []
        backend.parts["layout"] = noting(described, backend.parts["layout"])
        for i in range(600):
            assert way_of(direct, DirectArray(i, f"f32[{i}]")) in ("waiting", "aval")
            assert direct.num_entries == min(4, len(described))
        noted = [x.value for x in described]
        assert noted == [1, 3, 5, 7, 16, 53, 202]

    def test_forget(self, backend: Backend) -> None:
        x = DirectArray()
        direct, other = planned(backend, x), planned(backend, x)
        backend.context.after = 2
        backend.context.forget()
        for d in (direct, other):
            assert ways_of(d, *[[x]] * 4) == ["waiting"] * 3 + ["direct"]
        assert backend.plans == 4

    def test_forget_drops_what_entries_hold(self, backend: Backend) -> None:
        x = DirectArray(sharding=Sharding("mine"))
        sharding = weakref.ref(x.sharding)
        direct = backend.jit()
        direct(x)
        del x
        assert sharding() is not None
        backend.context.forget()
        direct.jitted.programs.clear()
        direct(DirectArray())
        assert sharding() is None

    def test_clear_cache(self, backend: Backend) -> None:
        x = DirectArray()
        direct = planned(backend, x)
        backend.context.after = 0
        assert direct.clear_cache() == "cleared" and direct.cleared == 1
        assert direct.num_entries == 0
        assert ways_of(direct, [x], [x]) == ["waiting", "direct"]

    def test_clear_cache_of_a_callable_without(self, backend: Backend) -> None:
        with pytest.raises(AttributeError, match="clear_cache"):
            core.Direct(backend.context, len, None).clear_cache()

    def test_after_changes(self, backend: Backend) -> None:
        x = DirectArray()
        direct = backend.jit()
        backend.context.after = sys.maxsize
        assert ways_of(direct, *[[x]] * 9) == ["waiting"] * 9
        backend.context.after = 3
        assert ways_of(direct, [x], [x]) == ["waiting", "direct"]

    @pytest.mark.parametrize("part", ["aval", "sharding", "committed", "layout", "setting"])
    def test_a_note_that_fails(self, backend: Backend, part: str) -> None:
        x, before = DirectArray(), backend.parts[part]
        direct = backend.jit()
        backend.parts[part] = fail
        assert way_of(direct, x) == "waiting" and direct.num_entries == 0
        backend.parts[part] = before
        assert ways_of(direct, *[[x]] * 3) == ["waiting", "direct", "direct"]


class TestShardings:
    def test_equal_ones_are_remembered(self, backend: Backend) -> None:
        compared: list[int] = []

        def fresh() -> Sharding:
            return Sharding("one", lambda: compared.append(1))

        x = DirectArray(sharding=fresh())
        direct = backend.jit()
        # Results have the very sharding, so that they are not compared.
        program_of(direct, x).made = lambda raw, j: DirectArray(raw, sharding=x.sharding)
        direct(x), direct(x)
        backend.context.after = 10**6
        other = fresh()
        compared.clear()
        for _ in range(5):
            direct(DirectArray(sharding=other))
        assert len(compared) == 2, "both sides of one comparison"
        for _ in range(3):
            direct(DirectArray(sharding=fresh()))
        assert len(compared) == 2 + 3 * 2 and direct.counts["direct"] == 9

    def test_one_at_the_address_of_another(self, backend: Backend) -> None:
        direct = planned(backend, DirectArray(sharding=Sharding("one")))
        for _ in range(20):
            equal = Sharding("one")
            assert way_of(direct, DirectArray(sharding=equal)) == "direct"
            address = id(equal)
            del equal
            other = another_at(address, lambda: Sharding("two")) or Sharding("two")
            assert way_of(direct, DirectArray(sharding=other)) == "sharding"

    def test_comparisons_that_fail(self, backend: Backend) -> None:
        direct = planned(backend, DirectArray())
        direct(DirectArray())
        broken = DirectArray(sharding=Sharding("one", fail))
        assert way_of(direct, broken) == "sharding"
        interrupted = DirectArray(sharding=Sharding("one", interrupt))
        for _ in range(2):
            with pytest.raises(Interrupt):
                direct(interrupted)
        assert way_of(direct, DirectArray()) == "direct"

    def test_comparisons_that_call(self, backend: Backend) -> None:
        direct = planned(backend, DirectArray())
        depth: list[str] = []

        def again() -> None:
            if len(depth) < 8:
                depth.append("")
                depth.append(way_of(direct, DirectArray(sharding=Sharding("one", again))))

        assert way_of.__name__ and direct(DirectArray(sharding=Sharding("one", again)))
        assert "direct" in depth and backend.wrong == []

    @pytest.mark.parametrize("equal", [True, False])
    @pytest.mark.parametrize("count", [1, 3])
    def test_comparisons_that_clear(self, backend: Backend, equal: bool, count: int) -> None:
        direct = backend.jit()
        TestEntries().plan_each(direct, [DirectArray(i, f"f32[{i}]") for i in range(count)])
        assert direct.num_entries == count
        for i in range(count):
            sharding = Sharding("one" if equal else "two", direct.clear_cache)
            for _ in range(3):
                direct(DirectArray(1, f"f32[{i}]", sharding))
                assert direct.num_entries <= 4 and backend.wrong == []
        gc.collect()
        direct.clear_cache()
        assert ways_of(direct, *[[DirectArray()]] * 3) == ["waiting", "direct", "direct"]

    @pytest.mark.parametrize("error", [ZeroDivisionError, Interrupt])
    def test_comparisons_that_clear_and_raise(self, backend: Backend, error: type) -> None:
        direct = planned(backend, DirectArray(sharding=Sharding("one")))

        def clear() -> None:
            direct.clear_cache()
            gc.collect()
            raise error

        x = DirectArray(sharding=Sharding("one", clear))
        if error is Interrupt:
            raised(Interrupt, direct, x)
        else:
            direct(x)
        assert direct.num_entries <= 1 and backend.wrong == []

    def test_comparisons_that_evict(self, backend: Backend) -> None:
        """Enough calls with others to evict the entry that is being compared."""
        direct = planned(backend, DirectArray())
        backend.context.after = 0
        done: list[int] = []

        def evict() -> None:
            if not done:
                done.append(1)
                direct.clear_cache()
                for i in range(5):
                    TestEntries().plan_each(direct, [DirectArray(1, f"f32[9{i}]")])
                gc.collect()

        x = DirectArray(1, "f32[3]", Sharding("one", evict))
        assert direct(x).arrays[0].value == program_of(direct, x).values([x])
        assert done and direct.num_entries == 4 and backend.wrong == []

    def test_recursion_without_end(self, backend: Backend) -> None:
        direct = planned(backend, DirectArray())
        backend.context.after = 10**6

        def again() -> None:
            direct(DirectArray(sharding=Sharding("one", again)))

        try:
            direct(DirectArray(sharding=Sharding("one", again)))
        except RecursionError:
            pass
        assert way_of(direct, DirectArray()) == "direct"

    def test_layouts_that_fail(self, backend: Backend) -> None:
        direct = planned(backend, DirectArray(1, "f32[3,4]"))
        x = DirectArray(1, "f32[3,4]", layout=Layout("rows", fail))
        assert way_of(direct, x) == "layout"

    def test_layouts_that_are_interrupted(self, backend: Backend) -> None:
        direct = planned(backend, DirectArray(1, "f32[3,4]"))
        with pytest.raises(Interrupt):
            direct(DirectArray(1, "f32[3,4]", layout=Layout("rows", interrupt)))


PARTS = ("is_profiled", "configuration", "setting", "aval", "sharding", "committed", "layout")


class TestInterrupts:
    """An interrupt is never swallowed, wherever Python code runs."""

    @pytest.mark.parametrize("part", [*PARTS, "is_deleted", "consume", "collect"])
    def test_of_direct_calls(self, backend: Backend, part: str) -> None:
        backend.checks_deleted = True
        direct = planned(backend, DirectArray(1, "f32[3,4]"))
        backend.parts[part] = interrupt
        with pytest.raises(Interrupt):
            for _ in range(16):
                direct(DirectArray(1, "f32[3,4]"))

    @pytest.mark.parametrize("part", PARTS)
    def test_of_notes(self, backend: Backend, part: str) -> None:
        direct = backend.jit()
        backend.parts[part] = interrupt
        with pytest.raises(Interrupt):
            direct(DirectArray(1, "f32[3,4]"))


class TestKnownArrays:
    """Arrays that are not asked what they are."""

    @pytest.fixture
    def asked(self, backend: Backend) -> list[Any]:
        """The values of the arrays whose aval was asked for."""
        asked: list[Any] = []
        aval = backend.parts["aval"]
        backend.parts["aval"] = lambda x: noting(asked, lambda value: aval(x))(x.value)
        return asked

    def test_arrays_that_stay(self, backend: Backend, asked: list[Any]) -> None:
        x, y = DirectArray("x"), DirectArray("y", "f32[3,4]")
        direct = planned(backend, x, y)
        direct(x, y)
        asked.clear()
        assert ways_of(direct, *[(x, y)] * 9) == ["direct"] * 9 and asked == []
        z = DirectArray("z", "f32[3,4]")
        assert ways_of(direct, *[(x, z)] * 4) == ["direct"] * 4
        assert asked.count("z") == 2 and "x" not in asked
        assert ways_of(direct, (y, x), (x, y)) == ["aval", "direct"]

    def test_they_are_not_kept_alive(self, backend: Backend) -> None:
        x = DirectArray()
        direct = planned(backend, x)
        direct(x), direct(x)
        ref = weakref.ref(x)
        del x
        assert ref() is None
        results = [weakref.ref(r) for r in direct(DirectArray()).arrays]
        assert [r() for r in results] == [None]

    @pytest.mark.parametrize(
        ("other", "way"),
        [
            (lambda: DirectArray(0, "f32[4]"), "aval"),
            (lambda: DirectArray(0, "f32[3]", TWO), "sharding"),
            (lambda: DirectArray(0, "f32[3]", committed=False), "sharding"),
        ],
    )
    def test_another_array_at_the_address_of_a_known_one(
        self, backend: Backend, other: Callable[[], Any], way: str
    ) -> None:
        met = 0
        for _ in range(20):
            x = DirectArray()
            direct = planned(backend, x)
            ways_of(direct, *[(x,)] * 3)
            address = id(x)
            del x
            y = another_at(address, other)
            if y is not None:
                met += 1
                assert ways_of(direct, (y,), (y,)) == [way] * 2
                again = DirectArray()
                assert way_of(direct, again) == "direct"
        if not met:
            pytest.skip("this allocator does not use an address again")

    def test_results_that_are_fed_back(self, backend: Backend, asked: list[Any]) -> None:
        state, x = [DirectArray(0), DirectArray(1, "f32[3,4]")], DirectArray("x", "i32[]")
        direct = planned(backend, *state, x)
        for i in range(40):
            asked.clear()
            output = direct(*state, x)
            assert i < 4 or asked == []
            state = output.arrays[:2]
        assert direct.counts["direct"] == 41 and backend.wrong == []

    def test_results_that_are_fed_back_elsewhere(self, backend: Backend, asked: list[Any]) -> None:
        """The second result is the first argument of the next call."""
        a, b = DirectArray(0), DirectArray(1)
        direct = planned(backend, a, b)
        for i in range(40):
            asked.clear()
            b, a = direct(a, b).arrays
            assert i < 4 or asked == []
        assert direct.counts["direct"] == 41 and backend.wrong == []

    def test_results_that_are_not_fed_back(self, backend: Backend) -> None:
        """After some calls with results as arguments, others are checked again."""
        x = DirectArray(0)
        direct = planned(backend, x)
        for _ in range(12):
            (x,) = direct(x).arrays
        for other, way in (
            (DirectArray(1, "f32[4]"), "aval"),
            (DirectArray(1, sharding=TWO), "sharding"),
            (SubArray(), "type"),
            (DirectArray(1), "direct"),
        ):
            assert ways_of(direct, (other,), (x,), (other,)) == [way, "direct", way]
            for _ in range(3):
                (x,) = direct(x).arrays

    @pytest.mark.parametrize("fed", [0, 1, 3])
    def test_results_that_are_unlike_the_argument(self, backend: Backend, fed: int) -> None:
        """An array with the address of a former result is passed, while that result is of another
        kind: it is not taken for known, even if other results were."""
        met = 0
        for _ in range(60):
            x, y = DirectArray(1), DirectArray(2, "i32[]")
            direct = planned(backend, x, y)
            for _ in range(fed):
                (x, _) = direct(x, y).arrays
            _, result = direct(x, y).arrays  # is like y
            address = id(result)
            del result
            z = another_at(address, DirectArray)  # is like x
            if z is not None:
                met += 1
                _, result = direct(z, y).arrays
                assert way_of(direct, result, y) == "aval"
                assert way_of(direct, DirectArray(), y) == "direct"
        if not met:
            pytest.skip("this allocator does not use an address again")

    def test_results_whose_kind_changes(self, backend: Backend) -> None:
        """What a program returns is proven once, as it does not change; an argument that is not
        known is checked each time."""
        x = DirectArray(0)
        direct = planned(backend, x)
        program = program_of(direct, x)
        program.made = lambda raw, j: DirectArray(raw, sharding=TWO)
        for _ in range(5):
            (y,) = direct(x).arrays
            assert direct(y) and direct.counts["sharding"] >= 1
            assert backend.wrong == []

    def test_keys(self, backend: Backend) -> None:
        """Of keys, the array in them is checked, and what they are keys of."""
        data, impl = DirectArray(3), "rbg"
        keys, x = DirectKeys(data, impl), DirectArray(5)
        inputs: list[Any] = []

        def jitted(*arrays: Any) -> Any:
            return core.output_unflatten(4, arrays)

        def plan(source: Any, arrays: Any) -> Any:
            run = lambda given: inputs.append(given) or given
            handlers = [lambda found: found[0], lambda found: found[-1]]
            return run, handlers, (data,), b"\3\1", 4, False

        backend.parts["plan"] = plan
        direct = core.Direct(backend.context, jitted, None)
        for _ in range(4):
            direct(keys, x)
        assert direct.counts == {"waiting": 1, "direct": 3}
        assert all(a is b is data and y is x for a, b, y in inputs)  # the first is the constant
        direct(DirectKeys(DirectArray(7), impl), x)
        assert direct.counts["direct"] == 4 and inputs[-1][1].value == 7
        for other, way in (
            (DirectKeys(data, "threefry"), "aval"),
            (DirectKeys(DirectArray(3, "f32[4]"), impl), "aval"),
            (DirectKeys(DirectArray(3, sharding=TWO), impl), "sharding"),
            (DirectKeys(DirectArray(3, committed=False), impl), "sharding"),
            (DirectKeys(SubArray(3), impl), "type"),
            (data, "type"),
        ):
            before = direct.counts.get(way, 0)
            direct(other, x)
            assert direct.counts[way] == before + 1, other
        before = direct.counts["type"]
        direct(keys, DirectKeys(x))
        assert direct.counts["type"] == before + 1

    def test_keys_are_freed(self, backend: Backend) -> None:
        keys = DirectKeys(DirectArray(3))
        direct = core.Direct(backend.context, lambda x: core.output_unflatten(0, ()), None)
        run = lambda given: given
        backend.parts["plan"] = lambda source, arrays: (run, [], (), b"\3", 0, False)
        for _ in range(4):
            direct(keys)
        assert direct.counts == {"waiting": 1, "direct": 3}
        refs = weakref.ref(keys), weakref.ref(keys.data)
        del keys
        assert [ref() for ref in refs] == [None, None]

    def test_arrays_without_weak_references(self) -> None:
        """They are checked in each call."""

        class Plain:
            __slots__ = ("aval",)

            def __init__(self) -> None:
                self.aval = "aval"

        aval = operator.attrgetter("aval")
        same = lambda *args: True
        context = core.DirectContext(
            Plain, aval, *[same] * 4, DirectKeys, same, same, lambda: (), same, (), lambda: 0, lambda: 0,
            lambda results, handlers: [results],
            lambda source, arrays: (lambda inputs: 5, [1], (), b"\1", 3, False),
        )  # fmt: skip
        context.enabled = 1
        x = Plain()
        direct = core.Direct(context, lambda x: core.output_unflatten(3, (5,)), None)
        for _ in range(10):
            assert core.output_flatten(direct(x)) == ((5,), 3)
        assert direct.counts == {"waiting": 1, "direct": 9}


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


class TestThreads:
    @pytest.fixture(autouse=True)
    def _switches(self) -> Iterator[None]:
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        yield
        sys.setswitchinterval(before)

    def test_threads(self, backend: Backend) -> None:
        """Threads plan, call, feed back, clear and forget at once."""
        direct = backend.jit()

        def work(number: int) -> None:
            state = DirectArray(number, f"f32[{number % 3}]")
            for i in range(150):
                program = program_of(direct, state)
                expected = program.values([state])
                (state,) = direct(state).arrays
                assert state.value == expected and state.key == program.key[1][0]
                if i % 5 == 0:
                    direct(DirectArray(i, f"f32[{i % 6}]", Sharding("one")))
                if number == 0 and i % 20 == 0:
                    direct.clear_cache() if i % 40 else backend.context.forget()
                    gc.collect()

        in_threads(work)
        assert backend.wrong == [] and direct.counts["direct"] > 100
        assert direct.num_entries <= 4

    def test_threads_compare_shardings(self, backend: Backend) -> None:
        direct = planned(backend, *[DirectArray()] * 3)

        def work(number: int) -> None:
            for _ in range(150):
                fresh = [DirectArray(i, sharding=Sharding("one", lambda: None)) for i in range(3)]
                expected = program_of(direct, *fresh).values(fresh)
                assert direct(*fresh).arrays[0].value == expected
                if number == 0:
                    direct.clear_cache()

        in_threads(work)
        assert backend.wrong == []
