"""When a call goes straight to an executable, when it is noted, planned or passed on, and what an
interrupt leaves behind."""

from typing import Any

import pytest
from core_support import core
from direct_support import (
    COLUMNS,
    TWO,
    Backend,
    DeletedError,
    DirectArray,
    DirectFloat,
    DirectHost,
    DirectScalar,
    Interrupt,
    Layout,
    OtherSharding,
    Sharding,
    SubArray,
    interrupt,
    planned,
    program_of,
    way_of,
    ways_of,
)
from outcome_support import fail


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
        backend.parts["plan"] = lambda *args: (lambda inputs: 5, [1], (), b"\1", 0, False, ())
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

    def test_arrays_of_the_host(self, backend: Backend) -> None:
        """What they are can change in place, so it is looked at in each call."""
        x, y = DirectHost(1), DirectArray(2)
        direct = planned(backend, x, y)
        for value in range(20):
            x.value = value
            assert way_of(direct, x, y) == "direct"
        for name, other in (("dtype", "f64"), ("shape", (4,)), ("shape", (3, 1))):
            before = getattr(x, name)
            setattr(x, name, other)
            assert way_of(direct, x, y) == "aval"
            setattr(x, name, before)
            assert way_of(direct, x, y) == "direct"
        for array in (DirectArray(1), DirectScalar(1)):
            assert way_of(direct, array, y) == "type"
        backend.parts["put"] = fail
        assert way_of(direct, x, y) == "failed"

    @pytest.mark.parametrize("is_read", [True, False])
    def test_scalars_and_numbers(self, backend: Backend, is_read: bool) -> None:
        y = DirectArray(2)
        for x in (DirectFloat(1, shape=()), 1, 2.0, True, 1j):
            direct = planned(backend, x, y, reads=lambda i: is_read or i == 1)
            assert ways_of(direct, *[(x, y)] * 3) == ["direct"] * 3
            for other in (1, 2.0, True, 1j, DirectScalar(1, shape=())):
                if type(other) is not type(x):
                    assert way_of(direct, other, y) == "type"

    def test_other_numbers_of_arrays(self, backend: Backend) -> None:
        x = DirectArray()
        direct = planned(backend, x, x)
        calls = [(), (x,), (x, x, x), (x,) * 40, (x, x)]
        assert ways_of(direct, *calls) == ["aval"] * 4 + ["direct"]

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
        calls: list[Any] = [([],), (None, "a"), (DirectArray(), "a"), ([], {})]
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
