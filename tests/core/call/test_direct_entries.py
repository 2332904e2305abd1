"""The entries of a Direct, one for each kind of arrays: what they remember, the plans that fill them,
and when a Direct rests from both.  The hostile matrix has what happens when Python code in the middle
changes things."""

import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from core_support import FREE_THREADED, core
from direct_support import (
    Backend,
    DirectArray,
    DirectHost,
    DirectJit,
    Interrupt,
    Sharding,
    interrupt,
    new_plan,
    planned,
    program_of,
    way_of,
    ways_of,
)
from node_support import Ambiguous
from outcome_support import fail, raised
from thread_support import in_threads


def kinds(count: int) -> list[DirectArray]:
    return [DirectArray(i, f"f32[{i}]") for i in range(count)]


def plan_each(direct: Any, arrays: Sequence[Any]) -> None:
    for x in arrays:
        assert any(way_of(direct, x) == "direct" for _ in range(6000)), x


# ---- entries ----


def test_at_most_four(backend: Backend) -> None:
    direct, arrays = backend.jit(), kinds(5)
    plan_each(direct, arrays[:4])
    assert direct.num_entries == 4
    assert ways_of(direct, *[[x] for x in arrays[:4] * 3]) == ["direct"] * 12
    direct(arrays[0])  # the one that was used longest ago is now that of arrays[1]
    plan_each(direct, arrays[4:])
    assert direct.num_entries == 4
    ways = ways_of(direct, *[[arrays[i]] for i in (0, 2, 3, 4, 1)])
    assert ways == ["direct"] * 4 + ["aval"]


def test_calls_rest_longer_and_longer(backend: Backend) -> None:
    direct = backend.jit()
    backend.context.after = 1
    described, layout = list[Any](), backend.parts["get_layout"]
    backend.parts["get_layout"] = lambda x: (described.append(x), layout(x))[1]
    for i in range(600):
        assert way_of(direct, DirectArray(i, f"f32[{i}]")) in ("waiting", "aval")
        assert direct.num_entries == min(4, len(described))
    noted = [x.value for x in described]
    assert noted[:17] == list(range(1, 18))
    rests = [b - a - 1 for a, b in itertools.pairwise(noted[16:])]
    assert rests == [8, 16, 32, 64, 128, 256]


def test_forget_and_clear(backend: Backend) -> None:
    x = DirectArray(sharding=Sharding("mine"))
    direct, other = planned(backend, x), planned(backend, x)
    backend.context.after = 2
    backend.context.forget()
    for d in (direct, other):
        assert ways_of(d, *[[x]] * 4) == ["waiting"] * 3 + ["direct"]
    assert backend.plans == 4
    backend.context.after = 0
    direct.clear()
    assert direct.num_entries == 0 and ways_of(direct, [x], [x]) == ["waiting", "direct"]
    # What entries hold is dropped with them.
    sharding = weakref.ref(x.sharding)
    del x
    assert sharding() is not None
    backend.context.forget()
    for d in (direct, other):
        d.jitted.programs.clear()
        d(DirectArray())
    assert sharding() is None


# ---- added entries ----


def test_added_entries(backend: Backend) -> None:
    """They are only added: none is learned or replaced, and calls don't pause."""
    jit, arrays = DirectJit(backend), kinds(9)
    direct, passed = core.Direct(backend.context, jit, None), kinds(10)[9]

    def value(*arrays: Any) -> Any:
        (result,), trace = core.output_flatten(direct(*arrays))
        return result.value, trace

    expected = []
    for x in arrays:
        program = jit.program([x])
        handlers, trace = program.handlers, program.trace
        direct.add(new_plan(program.execute, b"\1", handlers=handlers, trace=trace), (x,))
        expected.append((program.compute([x])[0].value, program.trace))
    for _ in range(200):  # shardings that are compared again and again, in vain
        for x, right in zip(arrays, expected, strict=True):
            other = DirectArray(x.value, x.aval.name, Sharding("one"))
            assert value(other) == right
    for _ in range(100):
        value(passed)
    assert direct.counts == {"direct": 9 * 200, "aval": 100} and jit.calls == 100
    assert direct.num_entries == 9 and backend.wrong == []
    backend.context.forget()  # as `jax.clear_caches` does
    value(arrays[3])
    assert direct.num_entries == 0 and jit.calls == 101


@pytest.mark.parametrize("plan", ["no plan", {"trace": 1}])
def test_bad_added_entries(backend: Backend, plan: Any) -> None:
    jit = DirectJit(backend)
    with pytest.raises(TypeError):
        core.Direct(backend.context, jit, None).add(plan, (DirectArray(),))
    for direct, args in (
        (core.Direct(backend.context, jit, jit), (plan, ())),
        (core.Direct(backend.context, jit, None), (plan, [])),
    ):
        with pytest.raises(TypeError, match="add takes a plan"):
            direct.add(*args)
    assert direct.num_entries == 0


# ---- shardings and layouts ----


def test_equal_shardings_are_remembered(backend: Backend) -> None:
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


# ---- plans ----


def test_the_trace_stays_when_jitted_traces_again(backend: Backend) -> None:
    """A call that the executable refuses is traced again; the executable is that of before."""
    x = DirectArray(1)
    direct = planned(backend, x)
    program = program_of(direct, x)
    direct.jitted.programs = {None: None}  # JAX has dropped the program
    assert program_of(direct, x).trace != program.trace
    program.fails = ValueError()
    assert core.output_flatten(direct(x))[1] == program_of(direct, x).trace
    program.fails = None
    assert core.output_flatten(direct(x))[1] == program.trace
    assert direct.counts["failed"] == 1 and direct.counts["direct"] == 2


def test_refusal(backend: Backend) -> None:
    """It is asked for again after longer and longer rests."""
    x = DirectArray()
    direct = backend.jit()
    asked: list[int] = []

    def plan(source: Any, arrays: Any) -> str:
        asked.append(sum(direct.counts.values()))
        return f"reason {len(asked)}"

    backend.parts["plan"] = plan
    for _ in range(1500):
        assert way_of(direct, x) == "waiting"
    assert direct.refusal == f"reason {len(asked)}" and direct.num_entries <= 1
    gaps = [b - a for a, b in itertools.pairwise(asked)]
    assert gaps == sorted(gaps) and gaps[0] == 2 and gaps[-1] > 2 * 256


def with_part(name: str, change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Changes a part of a plan."""
    return lambda plan: plan | {name: change(plan[name])}


def without(plan: dict[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in plan.items() if name != "puts"}


WRONG_PLANS: list[Callable[[Any], Any]] = [
    *(lambda plan: None, list, without, lambda plan: plan | {"more": 1}, fail, interrupt),
    *(
        with_part("handlers", tuple),
        with_part("constants", list),
        with_part("flags", lambda flags: flags + b"\1"),
    ),
    *(with_part("flags", lambda flags, wrong=wrong: wrong) for wrong in (b"", "\1\1")),  # type: ignore[misc]
    *(with_part("trace", lambda trace, wrong=wrong: wrong) for wrong in ("0", 2**70)),  # type: ignore[misc]
    *(
        with_part("trace", lambda trace: trace + 1),
        with_part("checks_deleted", lambda checks: Ambiguous()),
    ),
    *(with_part("puts", list), with_part("puts", lambda puts: puts[:1])),
    with_part("puts", lambda puts: (puts[0][:2],) * 2),
    with_part("puts", lambda puts: (None, None)),
    with_part("puts", lambda puts: ((*puts[0][:2], ()),) * 2),
]


def test_plans_that_are_wrong(backend: Backend) -> None:
    for i, change in enumerate(WRONG_PLANS):
        direct, x = backend.jit(), DirectHost()
        backend.parts["plan"] = lambda *args, change=change: change(backend.plan(*args))
        assert way_of(direct, x, x) == "waiting"
        if change is interrupt:
            raised(Interrupt, direct, x, x)
        else:
            assert way_of(direct, x, x) == "waiting", i
        assert direct.num_entries == 0 and direct.refusal is None, i
        backend.parts["plan"] = backend.plan
        assert ways_of(direct, *[(x, x)] * 10)[-1] == "direct", i


# ---- resting ----


def test_comparisons_that_take_long(backend: Backend) -> None:
    """Where many shardings are compared in each call, jax.jit is as fast."""
    arrays = [DirectArray(i) for i in range(8)]
    direct = planned(backend, *arrays)

    def call() -> str:
        return way_of(direct, *[DirectArray(i, sharding=Sharding("one")) for i in range(8)])

    assert [call() for _ in range(3)] == ["direct"] * 3
    ways = [call() for _ in range(3000)]
    runs = "".join("d" if way == "direct" else "r" for way in ways).split("d")
    assert set(ways) == {"direct", "sharding"}
    assert [len(run) for run in runs if run][:7] == [8, 16, 32, 64, 128, 256, 256]
    assert ways_of(direct, *[arrays] * 600)[-1] == "direct", "it stops"


def test_checks_in_vain(backend: Backend) -> None:
    """Fresh arrays are checked, and the last is always another."""
    direct = planned(backend, *[DirectArray(i) for i in range(9)])
    compared, configuration = list[int](), backend.parts["configuration"]
    backend.parts["configuration"] = lambda: (compared.append(1), configuration())[1]
    for i in range(4, 1000):
        last = DirectArray(i, f"f32[{i}]")
        assert way_of(direct, *map(DirectArray, range(8)), last) == "aval"
    assert 16 < len(compared) < 32


@pytest.mark.parametrize("count", [2, 3, 4])
def test_calls_that_alternate_do_not_rest(backend: Backend, count: int) -> None:
    """Where an entry is found, the comparisons with others were not in vain."""
    direct, kept = backend.jit(), [DirectArray(i) for i in range(8)]
    for kind in kinds(count):
        while way_of(direct, *kept, kind) != "direct":
            pass
    for i in range(100):
        fresh = map(DirectArray, range(8))
        assert way_of(direct, *fresh, kinds(count)[i % count]) == "direct"


def test_kinds_that_come_later_are_noted(backend: Backend) -> None:
    """A state that is fed back, and batches of three shapes."""
    backend.context.after = 16
    direct, state = backend.jit(), [DirectArray(i) for i in range(8)]
    batches = kinds(3)
    for i in range(1500):
        state = direct(*state, batches[i % 3]).arrays[:8]
    assert direct.num_entries == 3 and backend.wrong == []
    for i in range(30):
        assert way_of(direct, *state, batches[i % 3]) == "direct"


# ---- arrays that were seen before are not looked at again, unless they may have changed ----


@pytest.mark.skipif(not FREE_THREADED, reason="with a GIL all threads have one lane")
def test_each_lane_of_threads_knows_its_own(backend: Backend) -> None:
    """The arrays of two threads that call in turn are known to both."""
    direct, turn = backend.jit(), threading.Barrier(2)
    asked, asked_late, waited = list[Any](), list[int](), list[int]()
    aval = backend.parts["get_aval"]
    backend.parts["get_aval"] = lambda x: (asked.append(x), aval(x))[1]

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
    program, aval = program_of(direct, x), backend.parts["get_aval"]

    def make(raw: int, j: int) -> DirectArray:
        made.append(DirectArray(raw + j))
        return made[-1]

    program.made = make
    backend.parts["get_aval"] = lambda y: error() if made and y is made[-1] else aval(y)
    errors = 0
    for _ in range(20):
        try:
            (x,) = direct(x).arrays
        except Interrupt:
            errors += 1
        made.clear()
    assert (errors > 0) == (error is interrupt)
    assert backend.wrong == [] and direct.jitted.calls == 1
