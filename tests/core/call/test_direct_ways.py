"""When a call goes straight to an executable, when it is noted, planned or passed on, and what an
interrupt leaves behind."""

from typing import Any

import pytest
from core_support import core
from direct_support import (
    Backend,
    DeletedError,
    DirectArray,
    DirectFloat,
    DirectHost,
    DirectScalar,
    Interrupt,
    Layout,
    Sharding,
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

    def test_what_is_passed_on_is_a_copy(
        self, backend: Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of an array of the host's, which may be read after the call, and be written meanwhile."""
        x, y, given = DirectHost(1), DirectArray(2), []
        direct = core.Direct(backend.context, lambda *args, **kwargs: given.append(args), None)
        for many in ((x, y), (x, y) * 20):
            direct(*many)
            assert [a is b for a, b in zip(given[-1], many, strict=True)] == [False, True] * (
                len(many) // 2
            )
        direct(x, y=y)
        assert given[-1][0] is x
        x.copy = fail  # type: ignore[method-assign]
        direct(x, y)
        assert given[-1][0] is not x
        backend.is_disabled = True
        direct(x, y)
        assert given[-1][0] is x
        backend.is_disabled = False
        monkeypatch.setattr(DirectHost, "copy", fail)
        for _ in range(2):
            for count in (1, 40):
                with pytest.raises(ZeroDivisionError):
                    direct(*[y] * count, x)
            backend.parts["is_disabled"] = fail

    @pytest.mark.parametrize("is_read", [True, False])
    def test_scalars_and_numbers(self, backend: Backend, is_read: bool) -> None:
        y = DirectArray(2)
        for x in (DirectFloat(1, shape=()), 1, 2.0, True, 1j):
            direct = planned(backend, x, y, reads=lambda i: is_read or i == 1)
            assert ways_of(direct, *[(x, y)] * 3) == ["direct"] * 3
            for other in (1, 2.0, True, 1j, DirectScalar(1, shape=())):
                if type(other) is not type(x):
                    assert way_of(direct, other, y) == "type"

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
