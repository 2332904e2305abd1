"""When a call goes straight to an executable, when it is noted, planned or passed on, and what a call
that fails or is interrupted leaves behind.

direct_support.py has a stand-in for JAX.  Its programs note whether they were run with arrays that
they were not compiled for, and `way_of` compares each result with that of the right program.
"""

from collections.abc import Callable
from typing import Any

import pytest
from core_support import core
from direct_support import (
    COLUMNS,
    TWO,
    Backend,
    DeletedError,
    DirectArray,
    DirectHost,
    DirectKeys,
    DirectScalar,
    Interrupt,
    Layout,
    OtherSharding,
    Sharding,
    SubArray,
    interrupt,
    new_plan,
    planned,
    program_of,
    way_of,
    ways_of,
)
from outcome_support import fail, raised


def simple_direct(backend: Backend, flags: bytes = b"\1", constants: Any = ()) -> Any:
    """A Direct whose program returns what it is given."""
    plan = new_plan(lambda given: given, flags, constants=constants, trace=4)
    backend.parts["plan"] = lambda *_: plan
    backend.parts["consume"] = lambda results, handlers: results
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
        (lambda: matrix(sharding=TWO), "sharding"),
        (lambda: matrix(sharding=OtherSharding("one")), "sharding"),
        (lambda: matrix(committed=False), "sharding"),
        (lambda: matrix(layout=COLUMNS), "layout"),
        (lambda: SubArray(5, "f32[3,4]"), "type"),
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
        return 1, Layout(name, hook)

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
    for other in (fresh("other"), (True, fresh()[1]), (1.0, fresh()[1]), (1, Sharding("name"))):
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
    x, y = DirectArray(1), DirectArray(2)
    backend.checks_deleted = checks
    direct = planned(backend, x, y, reads=lambda i: i == 0)
    program = program_of(direct, x, y)
    y.delete()
    assert way_of(direct, x, y) == ("deleted" if checks else "direct")
    x.delete()
    raised(DeletedError, direct, x, y)
    assert direct.counts["deleted" if checks else "failed"] == 2 - (not checks)
    assert program.runs == (1 if checks else 3)
    if checks:
        backend.parts["is_deleted"] = fail
        assert way_of(direct, DirectArray(), y) == "deleted"


# ---- typed keys ----


@pytest.mark.parametrize("part", ["get_data", "get_impl"])
def test_keys_that_fail(backend: Backend, part: str) -> None:
    """An error is a reason to pass the call on, an interrupt is not swallowed."""
    keys, working = DirectKeys(DirectArray(3)), backend.parts[part]
    direct = simple_direct(backend, b"\3")

    def check(keys: DirectKeys) -> None:
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
    check(DirectKeys(DirectArray(4)))
    if part == "get_data":  # of keys that are known, only the array in them is asked for
        check(keys)
    assert way_of_call(direct, keys) == "direct"


# ---- arrays of the host ----


def test_arrays_of_the_host(backend: Backend) -> None:
    """What they are can change in place, so it is looked at in each call."""
    x, y = DirectHost(1), DirectArray(2)
    direct = planned(backend, x, y)
    for x.value in range(20):
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


def test_what_is_passed_on_is_a_copy(backend: Backend, monkeypatch: Patch) -> None:
    """Of an array of the host's, which may be read after the call, and be written meanwhile."""
    x, y, given = DirectHost(1), DirectArray(2), list[Any]()
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
    monkeypatch.setattr(DirectHost, "copy", fail)
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
    program_of(direct, x).fails = Interrupt()
    raised(Interrupt, direct, x)
    program_of(direct, x).fails = None
    for consume, error in (
        (fail, ZeroDivisionError),
        (interrupt, Interrupt),
        (lambda results, handlers: None, TypeError),
        (lambda results, handlers: map(fail, [1]), ZeroDivisionError),
    ):
        backend.parts["consume"] = consume
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
