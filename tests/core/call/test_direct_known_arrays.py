"""Arrays that a direct call has seen before are not looked at again, unless they may have changed."""

import operator
import weakref
from typing import Any

import pytest
from core_support import core
from direct_support import (
    TWO,
    Backend,
    DirectArray,
    DirectHost,
    DirectKeys,
    Interrupt,
    SubArray,
    interrupt,
    noting,
    planned,
    program_of,
    ways_of,
)
from outcome_support import fail


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

    def test_results_that_are_fed_back(self, backend: Backend, asked: list[Any]) -> None:
        state, x = [DirectArray(0), DirectArray(1, "f32[3,4]")], DirectArray("x", "i32[]")
        direct = planned(backend, *state, x)
        for i in range(40):
            asked.clear()
            output = direct(*state, x)
            assert i < 4 or asked == []
            state = output.arrays[:2]
        assert direct.counts["direct"] == 41 and backend.wrong == []

    @pytest.mark.parametrize("error", [fail, interrupt])
    def test_results_that_cannot_be_looked_at(self, backend: Backend, error: Any) -> None:
        """They were fed back before, so they are to be known to the next call."""
        x, made = DirectArray(0), list[DirectArray]()
        direct = planned(backend, x)
        program, aval = program_of(direct, x), backend.parts["aval"]

        def make(raw: int, j: int) -> DirectArray:
            made.append(DirectArray(raw + j))
            return made[-1]

        program.made = make
        backend.parts["aval"] = lambda y: error() if made and y is made[-1] else aval(y)
        errors = 0
        for _ in range(20):
            try:
                (x,) = direct(x).arrays
            except Interrupt:
                errors += 1
            made.clear()
        assert (errors > 0) == (error is interrupt)
        assert backend.wrong == [] and direct.jitted.calls == 1

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
            return run, handlers, (data,), b"\3\1", 4, False, ()

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

    @pytest.mark.parametrize("part", ["data", "impl"])
    @pytest.mark.parametrize("error", [fail, interrupt])
    def test_keys_that_fail(self, backend: Backend, part: str, error: Any) -> None:
        """An error is a reason to pass the call on, an interrupt is not swallowed."""
        keys = DirectKeys(DirectArray(3))
        backend.parts["plan"] = lambda *args: (lambda given: given, [], (), b"\3", 0, False, ())
        working = backend.parts[part]
        direct = core.Direct(backend.context, lambda x: core.output_unflatten(0, ()), None)

        def call(keys: DirectKeys) -> int:
            """How many direct calls it is."""
            before = direct.counts.get("direct", 0)
            backend.parts[part] = error
            if error is fail:
                direct(keys)
            else:
                with pytest.raises(Interrupt):
                    direct(keys)
            backend.parts[part] = working
            return direct.counts.get("direct", 0) - before

        assert call(keys) == 0 and direct.num_entries == 0, "it cannot be noted"
        for _ in range(3):
            direct(keys)
        assert call(DirectKeys(DirectArray(4))) == 0
        if part == "data":  # of keys that are known, only the array in them is asked for
            assert call(keys) == 0
        before = direct.counts["direct"]
        direct(keys)
        assert direct.counts["direct"] == before + 1

    def test_arrays_without_weak_references(self) -> None:
        """They are checked in each call."""

        class Plain:
            __slots__ = ("aval",)

            def __init__(self) -> None:
                self.aval = "aval"

        aval = operator.attrgetter("aval")
        same = lambda *args: True
        context = core.DirectContext(
            Plain, aval, *[same] * 4, DirectKeys, same, same, DirectHost, DirectHost, same, lambda: (), same, (), lambda: 0, lambda: 0,
            lambda results, handlers: [results],
            lambda source, arrays: (lambda inputs: 5, [1], (), b"\1", 3, False, ()),
        )  # fmt: skip
        context.enabled = 1
        x = Plain()
        direct = core.Direct(context, lambda x: core.output_unflatten(3, (5,)), None)
        for _ in range(10):
            assert core.output_flatten(direct(x)) == ((5,), 3)
        assert direct.counts == {"waiting": 1, "direct": 9}
