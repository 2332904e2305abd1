"""Arrays that a direct call has seen before are not looked at again, unless they may have changed."""

import operator
import threading
import weakref
from typing import Any

import pytest
from core_support import FREE_THREADED, core
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
)
from outcome_support import fail
from thread_support import in_threads


class TestKnownArrays:
    """Arrays that are not asked what they are."""

    @pytest.fixture
    def asked(self, backend: Backend) -> list[Any]:
        """The values of the arrays whose aval was asked for."""
        asked: list[Any] = []
        aval = backend.parts["aval"]
        backend.parts["aval"] = lambda x: noting(asked, lambda value: aval(x))(x.value)
        return asked

    def test_they_are_not_kept_alive(self, backend: Backend) -> None:
        x = DirectArray()
        direct = planned(backend, x)
        direct(x), direct(x)
        ref = weakref.ref(x)
        del x
        assert ref() is None
        results = [weakref.ref(r) for r in direct(DirectArray()).arrays]
        assert [r() for r in results] == [None]

    @pytest.mark.skipif(not FREE_THREADED, reason="with a GIL all threads have one lane")
    def test_each_lane_of_threads_knows_its_own(self, backend: Backend, asked: list[Any]) -> None:
        """The arrays of two threads that call in turn are known to both."""
        direct, turn = backend.jit(), threading.Barrier(2)
        asked_late, waited = [], []

        def work(number: int) -> None:
            x = DirectArray(number)
            for i in range(20):
                for of in range(2):
                    turn.wait(60)
                    if of == number:
                        before = len(asked)
                        direct(x)
                        asked_late.append(len(asked) - before if i > 15 else 0)
            turn.wait(60)
            if number == 0:
                assert sum(direct.counts.values()) == 40
                waited.append(direct.counts["waiting"])
                direct.clear()
            turn.wait(60)
            direct(x)

        in_threads(work, 2)
        assert sum(asked_late) == 0 and asked
        assert direct.counts["waiting"] == waited[0] + 2 and direct.refusal is None

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
            Plain, aval, *[same] * 4, DirectKeys, same, same, DirectHost, DirectHost, same, lambda: (), same, (), lambda: False, lambda: 0, lambda: 0,
            lambda results, handlers: [results],
            lambda source, arrays: (lambda inputs: 5, [1], (), b"\1", 3, False, ()),
        )  # fmt: skip
        context.enabled = 1
        x = Plain()
        direct = core.Direct(context, lambda x: core.output_unflatten(3, (5,)), None)
        for _ in range(10):
            assert core.output_flatten(direct(x)) == ((5,), 3)
        assert direct.counts == {"waiting": 1, "direct": 9}
