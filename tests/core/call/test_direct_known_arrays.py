"""Arrays that a direct call has seen before are not looked at again, unless they may have changed."""

import threading
import weakref
from typing import Any

import pytest
from core_support import FREE_THREADED, core
from direct_support import (
    Backend,
    DirectArray,
    DirectHost,
    DirectKeys,
    Interrupt,
    interrupt,
    planned,
    program_of,
)
from outcome_support import fail
from thread_support import in_threads


def test_they_are_not_kept_alive(backend: Backend) -> None:
    x = DirectArray()
    direct = planned(backend, x)
    direct(x), direct(x)
    ref = weakref.ref(x)
    del x
    assert ref() is None
    results = [weakref.ref(r) for r in direct(DirectArray()).arrays]
    assert [r() for r in results] == [None]


@pytest.mark.skipif(not FREE_THREADED, reason="with a GIL all threads have one lane")
def test_each_lane_of_threads_knows_its_own(backend: Backend) -> None:
    """The arrays of two threads that call in turn are known to both."""
    direct, turn = backend.jit(), threading.Barrier(2)
    asked, asked_late, waited = list[Any](), list[int](), list[int]()
    aval = backend.parts["aval"]
    backend.parts["aval"] = lambda x: (asked.append(x), aval(x))[1]

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
def test_results_that_cannot_be_looked_at(backend: Backend, error: Any) -> None:
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


class Plain:
    """An array without weak references."""

    __slots__ = ()


def test_arrays_without_weak_references() -> None:
    """They are checked in each call."""
    same, asked, results = lambda *args: True, list[Any](), (5,)
    plan = lambda source, arrays: (lambda inputs: results, [1], (), b"\1", 3, False, ())
    context = core.DirectContext(
        *(Plain, asked.append, *[same] * 4, DirectKeys, same, same, DirectHost, DirectHost, same),
        *(tuple, same, (), lambda: False, list, list, lambda results, handlers: results, plan),
    )
    context.enabled = 1
    x, direct = Plain(), core.Direct(context, lambda x: core.output_unflatten(3, results), None)
    for calls in range(2, 12):
        assert core.output_flatten(direct(x)) == (results, 3)
        assert len(asked) >= calls - 1
    assert direct.counts == {"waiting": 1, "direct": 9}
