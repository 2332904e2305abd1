"""The entries of a Direct, one for each kind of arrays: what they remember, the plans that fill them,
and when a Direct rests from both.  The hostile matrix has what happens when Python code in the middle
changes things."""

import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import direct_support as ds
import pytest
from core_support import FREE_THREADED, core
from direct_support import Backend, DirectArray, planned, way_of, ways_of
from outcome_support import Interrupt, fail, in_threads, interrupt, raised
from trees_support import Ambiguous


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
    x = DirectArray(sharding=ds.Sharding("mine"))
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
    jit, arrays = ds.DirectJit(backend), kinds(9)
    direct, passed = core.Direct(backend.context, jit, None), kinds(10)[9]

    def value(*arrays: Any) -> Any:
        (result,), trace = core.output_flatten(direct(*arrays))
        return result.value, trace

    expected = []
    for x in arrays:
        program = jit.program([x])
        handlers, trace = program.handlers, program.trace
        direct.add(ds.new_plan(program.execute, b"\1", handlers=handlers, trace=trace), (x,))
        expected.append((program.compute([x])[0].value, program.trace))
    for _ in range(200):  # shardings that are compared again and again, in vain
        for x, right in zip(arrays, expected, strict=True):
            other = DirectArray(x.value, x.aval.name, ds.Sharding("one"))
            assert value(other) == right
    for _ in range(100):
        value(passed)
    assert direct.counts == {"direct": 9 * 200, "aval": 100} and jit.calls == 100
    assert direct.num_entries == 9 and backend.wrong == []
    backend.context.forget()  # as `jax.clear_caches` does
    value(arrays[3])
    assert direct.num_entries == 0 and jit.calls == 101


# ---- shardings and layouts ----


def test_equal_shardings_are_remembered(backend: Backend) -> None:
    compared: list[int] = []

    def fresh() -> ds.Sharding:
        return ds.Sharding("one", lambda: compared.append(1))

    x = DirectArray(sharding=fresh())
    direct = backend.jit()
    # Results have the very sharding, so that they are not compared.
    ds.program_of(direct, x).made = lambda raw, j: DirectArray(raw, sharding=x.sharding)
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
    program = ds.program_of(direct, x)
    direct.jitted.programs = {None: None}  # JAX has dropped the program
    assert ds.program_of(direct, x).trace != program.trace
    program.fails = ValueError()
    assert core.output_flatten(direct(x))[1] == ds.program_of(direct, x).trace
    program.fails = None
    assert core.output_flatten(direct(x))[1] == program.trace
    assert direct.counts["failed"] == 1 and direct.counts["direct"] == 2


def test_why_there_is_no_plan(backend: Backend) -> None:
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
    assert direct.why_no_plan == f"reason {len(asked)}" and direct.num_entries <= 1
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
        direct, x = backend.jit(), ds.DirectHost()
        backend.parts["plan"] = lambda *args, change=change: change(backend.plan(*args))
        assert way_of(direct, x, x) == "waiting"
        if change is interrupt:
            raised(Interrupt, direct, x, x)
        else:
            assert way_of(direct, x, x) == "waiting", i
        assert direct.num_entries == 0 and direct.why_no_plan is None, i
        backend.parts["plan"] = backend.plan
        assert ways_of(direct, *[(x, x)] * 10)[-1] == "direct", i


# ---- resting ----


def test_comparisons_that_take_long(backend: Backend) -> None:
    """Where many shardings are compared in each call, jax.jit is as fast."""
    arrays = [DirectArray(i) for i in range(8)]
    direct = planned(backend, *arrays)

    def call() -> str:
        return way_of(direct, *[DirectArray(i, sharding=ds.Sharding("one")) for i in range(8)])

    assert [call() for _ in range(3)] == ["direct"] * 3
    ways = [call() for _ in range(3000)]
    runs = "".join("d" if way == "direct" else "r" for way in ways).split("d")
    assert set(ways) == {"direct", "sharding"}
    assert [len(run) for run in runs if run][:7] == [8, 16, 32, 64, 128, 256, 256]
    assert ways_of(direct, *[arrays] * 600)[-1] == "direct", "it stops"


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
    assert direct.counts["waiting"] == waited[0] + 2 and direct.why_no_plan is None


@pytest.mark.parametrize("error", [fail, interrupt])
def test_results_that_cannot_be_looked_at(backend: Backend, error: Any) -> None:
    """They were fed back before, so they are to be known to the next call."""
    x, made = DirectArray(0), list[DirectArray]()
    direct = planned(backend, x)
    program, aval = ds.program_of(direct, x), backend.parts["get_aval"]

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


def simple_direct(backend: Backend, flags: bytes = b"\1", constants: Any = ()) -> Any:
    """A Direct whose program returns what it is given."""
    plan = ds.new_plan(lambda given: given, flags, constants=constants, trace=4)
    backend.parts["plan"] = lambda *_: plan
    backend.parts["make_arrays"] = lambda results, handlers: results
    return core.Direct(backend.context, lambda *xs: core.output_unflatten(4, xs), 1)


def way_of_call(direct: Any, *arrays: Any) -> str:
    before = direct.counts
    direct(*arrays)
    (way,) = (k for k, n in direct.counts.items() if n > before.get(k, 0))
    return str(way)


# ---- what changes between calls ----

Patch = pytest.MonkeyPatch
CHANGES: dict[str, Callable[[Patch, Backend], Any]] = {
    "off": lambda m, b: m.setattr(b.context, "enabled", 0),
    "profiler": lambda m, b: m.setattr(b, "is_profiled", True),
    "configuration": lambda m, b: m.setattr(b.settings[1], "value", "other"),
    "configuration 1": lambda m, b: m.setattr(b, "configuration", (True, "low", None)),
    "configuration 2": lambda m, b: m.setattr(b, "configuration", (1, "highest", None)),
    "configuration 3": lambda m, b: m.setattr(b, "configuration", ()),
    "configuration 4": lambda m, b: m.setitem(b.parts, "configuration", lambda: None),
    "configuration 5": lambda m, b: m.setitem(b.parts, "configuration", list),
    "configuration 6": lambda m, b: m.setitem(
        b.parts, "configuration", type("T", (tuple,), {"__slots__": ()})
    ),
    "configuration 7": lambda m, b: m.setitem(b.parts, "configuration", fail),
}


def test_a_change_between_calls(monkeypatch: Patch) -> None:
    for name, change in CHANGES.items():
        backend, x, y = Backend(), DirectArray(1), DirectArray(2)
        direct = planned(backend, x, y)
        with monkeypatch.context() as patch:
            change(patch, backend)
            way, again = ways_of(direct, (x, y), (x, y))
            assert way == name.split()[0] and again in (way, "direct"), name
        assert way_of(direct, x, y) == "direct", name


def matrix(i: int = 5, **other: Any) -> DirectArray:
    """An array that can have another layout."""
    return DirectArray(i, other.pop("name", "f32[3,4]"), **other)


def test_other_arrays(backend: Backend) -> None:
    """In each place, also at the address of a dead array or of a result."""
    others: list[tuple[Callable[[], Any], str]] = [
        (lambda: matrix(name="f32[3]"), "aval"),
        (lambda: matrix(sharding=ds.TWO), "sharding"),
        (lambda: matrix(sharding=ds.OtherSharding("one")), "sharding"),
        (lambda: matrix(committed=False), "sharding"),
        (lambda: matrix(layout=ds.COLUMNS), "layout"),
        (lambda: ds.SubArray(5, "f32[3,4]"), "type"),
    ]
    for make, way in others:
        for place in range(3):
            arrays: list[Any] = [matrix(i) for i in range(3)]
            direct = planned(backend, *arrays)
            for i in range(6):
                arrays[place] = None
                arrays[place] = make() if i % 2 else matrix(7)
                ways = {0: ["direct"], 1: [way]}.get(i, [way, "direct"])
                assert way_of(direct, *arrays) in ways, (way, place)
            direct = planned(backend, *[matrix(i) for i in range(3)])
            results: list[Any] = list(direct(*[matrix(i) for i in range(3)]).arrays)
            results[place] = None
            results[place] = make()
            assert way_of(direct, *results) == way


def test_a_configuration_that_is_equal_but_another_object(backend: Backend) -> None:
    """Its values are compared by type and equality, and those that were equal remembered."""
    compared: list[int] = []
    direct = simple_direct(backend)

    def fresh(name: str = "name", hook: Any = lambda: compared.append(1)) -> Any:
        return 1, ds.Layout(name, hook)

    def way(configuration: Any) -> str:
        backend.configuration = configuration
        return way_of_call(direct, DirectArray())

    assert [way(fresh()), way(fresh())] == ["waiting", "direct"]
    backend.context.after = 10**6
    other = fresh()
    compared.clear()
    assert [way(other), way(other), way((*other[:1], other[1]))] == ["direct"] * 3
    assert len(compared) == 2, "both sides of one comparison"
    assert way(fresh(hook=fail)) == "configuration"
    raised(Interrupt, way, fresh(hook=interrupt))
    for other in (fresh("other"), (True, fresh()[1]), (1.0, fresh()[1]), (1, ds.Sharding("name"))):
        direct = simple_direct(backend)
        backend.context.after = 0
        assert [way(fresh()), way(fresh())] == ["waiting", "direct"]
        assert way(other) == "configuration"
    backend.context.after = 1
    assert way(fresh(hook=lambda: backend.context.forget())) == "direct"
    assert way(fresh()) == "waiting" and direct.num_entries == 0


@pytest.mark.parametrize("checks", [True, False])
def test_deleted(backend: Backend, checks: bool) -> None:
    """Where other processes run the program too, no deleted array goes to the executable."""
    host, x, y = ds.DirectHost(), DirectArray(1), DirectArray(2)
    backend.checks_deleted = checks
    direct = planned(backend, host, x, y, reads=lambda i: i < 2)
    program = ds.program_of(direct, host, x, y)
    y.delete()
    assert way_of(direct, host, x, y) == ("deleted" if checks else "direct")
    x.delete()
    raised(ds.DeletedError, direct, host, x, y)
    assert direct.counts["deleted" if checks else "failed"] == 2 - (not checks)
    assert program.runs == (1 if checks else 3)
    if checks:
        backend.parts["is_deleted"] = fail
        assert way_of(direct, host, DirectArray(), y) == "deleted"


# ---- typed keys ----


@pytest.mark.parametrize("part", ["get_data", "get_impl"])
def test_keys_that_fail(backend: Backend, part: str) -> None:
    """An error is a reason to pass the call on, an interrupt is not swallowed."""
    keys, working = ds.DirectKeys(DirectArray(3)), backend.parts[part]
    direct = simple_direct(backend, b"\3")

    def check(keys: ds.DirectKeys) -> None:
        for backend.parts[part] in (fail, interrupt):
            before = direct.counts.get("direct", 0)
            if backend.parts[part] is fail:
                direct(keys)
            else:
                raised(Interrupt, direct, keys)
            assert direct.counts.get("direct", 0) == before
        backend.parts[part] = working

    check(keys)
    assert direct.num_entries == 0, "it cannot be noted"
    assert [way_of_call(direct, keys) for _ in range(3)] == ["waiting", "direct", "direct"]
    check(ds.DirectKeys(DirectArray(4)))
    if part == "get_data":  # of keys that are known, only the array in them is asked for
        check(keys)
    assert way_of_call(direct, keys) == "direct"


# ---- arrays of the host ----


def test_arrays_of_the_host(backend: Backend) -> None:
    """What they are can change in place, so it is looked at in each call."""
    x, y = ds.DirectHost(1), DirectArray(2)
    direct = planned(backend, x, y)
    for x.value in range(20):
        assert way_of(direct, x, y) == "direct"
    for name, other in (("dtype", "f64"), ("shape", (4,)), ("shape", (3, 1))):
        before = getattr(x, name)
        setattr(x, name, other)
        assert way_of(direct, x, y) == "aval"
        setattr(x, name, before)
        assert way_of(direct, x, y) == "direct"
    for array in (DirectArray(1), ds.DirectScalar(1)):
        assert way_of(direct, array, y) == "type"
    backend.parts["put"] = fail
    assert way_of(direct, x, y) == "failed"


def test_what_is_passed_on_is_a_copy(backend: Backend, monkeypatch: Patch) -> None:
    """Of an array of the host's, which may be read after the call, and be written meanwhile."""
    x, y, given = ds.DirectHost(1), DirectArray(2), list[Any]()
    direct = core.Direct(backend.context, lambda *args, **kwargs: given.append(args), 1)

    def is_passed_on(*arrays: Any, **kwargs: Any) -> list[bool]:
        """Whether each array itself is, and no copy."""
        direct(*arrays, **kwargs)
        return [a is b for a, b in zip(given[-1], arrays, strict=True)]

    for count in (1, 20):
        assert is_passed_on(*(x, y) * count) == [False, True] * count
    assert is_passed_on(x, y=y) == [True]
    monkeypatch.setattr(x, "copy", fail)
    assert is_passed_on(x, y) == [False, True]
    backend.is_disabled = True
    assert is_passed_on(x, y) == [True, True]
    backend.is_disabled = False
    monkeypatch.setattr(ds.DirectHost, "copy", fail)
    for _ in range(2):
        for count in (1, 40):
            raised(ZeroDivisionError, direct, *[y] * count, x)
        backend.parts["is_disabled"] = fail


# ---- what fails ----


def test_failures_that_are_not_made_again(backend: Backend) -> None:
    """An interrupt, and what fails after the device has begun."""
    x = DirectArray(1)
    direct = planned(backend, x)
    before, counts = direct.jitted.calls, direct.counts
    ds.program_of(direct, x).fails = Interrupt()
    raised(Interrupt, direct, x)
    ds.program_of(direct, x).fails = None
    for consume, error in (
        (fail, ZeroDivisionError),
        (interrupt, Interrupt),
        (lambda results, handlers: None, TypeError),
        (lambda results, handlers: map(fail, [1]), ZeroDivisionError),
    ):
        backend.parts["make_arrays"] = consume
        raised(error, direct, x)
    assert direct.jitted.calls == before and direct.counts == counts


@pytest.mark.parametrize("given", [None, (), core.output_unflatten(-1, ())])
def test_results_that_have_not_passed_through_jax(backend: Backend, given: Any) -> None:
    direct = core.Direct(backend.context, lambda *args: given, 1)
    for _ in range(4):
        assert direct(DirectArray()) is given
    assert direct.counts == {"waiting": 4} and backend.plans == 0


def test_collect(backend: Backend) -> None:
    x = DirectArray()
    direct, other = planned(backend, x), planned(backend, x)
    for _ in range(23):
        direct(x), other(x)
    assert backend.collected == 3, "each 16 direct calls of all"
    backend.parts["collect"] = fail
    assert ways_of(direct, *[(x,)] * 40) == ["direct"] * 40
