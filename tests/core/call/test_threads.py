"""Several threads use one FilterJit or one Direct at once, and each gets its own result.

Threads switch as often as the interpreter allows, and hooks let another thread run in the middle
of a call: while a variant is made, and while a static is hashed or compared.
"""

import contextlib
import gc
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from core_support import Array, Hostile, Linear, Pair, Slots, Value, make_registry, same
from direct_support import Backend, DirectArray, Sharding, program_of
from hooks_support import Hooks, make_jit
from outcome_support import THREADS, in_threads, raised


@pytest.fixture(autouse=True)
def _switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def give_way(*args: Any) -> None:
    """Lets another thread run."""
    time.sleep(0)


def fun(x: Any, *rest: Any) -> Any:
    give_way()
    if rest[-1:] == ("fails",):
        raise ZeroDivisionError
    return x, rest


def jit(maxsize: int = 4096) -> Any:
    """A FilterJit whose hooks let another thread run."""
    options = Hooks(make_registry(), maxsize)
    for hook in ("prepare", "compile", "finish"):
        options.on[hook] = give_way
    return make_jit(fun, options)


def tree(n: Any) -> Any:
    return Linear(weight=[Array(), (Array(), n)], bias=None, size=n, activation=f"name {n}")


# ---- threads with arguments of their own ----

# The arguments of the i-th call of a thread, and the largest number of variants that are kept.
CALLS: dict[str, tuple[int, Callable[[int, int], Any]]] = {
    "hit": (1, lambda number, i: (tree(1), 1)),
    "compile the same": (40, lambda number, i: (tree(i % 40), i % 40)),
    "evict": (2, lambda number, i: (tree(0), n := (i * (number + 1)) % 7, Value(n))),
    # Calls that fail remove only their own variants.
    "fail": (5, lambda number, i: (Array(), i % 12, *["fails"] * (i % 3 == 0))),
    # Another thread runs while statics are hashed and compared in a probe of the table.
    "hash and compare": (
        *(3, lambda number, i: (Array(), Hostile(give_way, give_way, hash_value=i % 2), i % 3)),
    ),
}


def test_threads() -> None:
    for name, (maxsize, arguments) in CALLS.items():
        f = jit(maxsize)

        def work(number: int, f: Any = f, arguments: Any = arguments) -> None:
            for i in range(120):
                x, *rest = arguments(number, i)
                if rest[-1] == "fails":
                    raised(ZeroDivisionError, f, x, *rest)
                else:
                    assert same(f(x, *rest), (x, tuple(rest)))

        in_threads(work)
        kept = len(f._parts()[0].variants())
        assert kept == maxsize if name in ("hit", "compile the same") else kept <= maxsize + THREADS


def test_threads_clear() -> None:
    f = jit()
    stop = threading.Event()

    def work(number: int) -> None:
        if number == 0:
            while not stop.is_set():
                f._parts()[0].clear()
                f._parts()[0].variants()
                gc.collect()
                give_way()
            return
        try:
            for i in range(100):
                x = tree(i % 3)
                assert same(f(x, number), (x, (number,)))
        finally:
            stop.set()

    in_threads(work)


def test_threads_begin_together() -> None:
    """All threads use the cache of the fastest, and meet a new type at once."""
    for _ in range(15):
        f, fresh = jit(), type("Fresh", (Linear,), {})
        found: list[Any] = []

        def work(number: int, f: Any = f, fresh: Any = fresh, found: Any = found) -> None:
            found.append(f._parts()[0])
            x = fresh(weight=Array(), bias=None, size=1, activation=2)
            assert same(f(x), (x, ()))

        in_threads(work)
        assert all(cache is found[0] for cache in found)


def test_threads_use_a_direct(backend: Backend) -> None:
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
                direct.clear() if i % 40 else backend.context.forget()
                gc.collect()

    in_threads(work)
    assert backend.wrong == [] and direct.counts["direct"] > 100
    assert direct.num_entries <= 4


# ---- an argument that another thread changes ----


def changing() -> dict[str, tuple[Any, Callable[[int], Any]]]:
    """Trees, each with a function that changes it a little."""
    a, b = Array(), Array()
    items = [a, b, (a, b)] * 4
    keys = {f"k{i}": a for i in range(12)}
    linear = Linear(weight=[a], bias=a, size=1, activation=[1, {"x": {1}}])
    pair, slots = Pair(x=a, y=b, tag=1), Slots(x=a, y=b, tag="tag")
    static, large = linear.activation, [tree(n) for n in range(40)]

    def attribute(x: Any, name: str, i: int) -> None:
        if i % 3:
            object.__setattr__(x, name, Array())
        elif hasattr(x, name):
            object.__delattr__(x, name)

    return {
        "list": (items, lambda i: items.append(Array()) if i % 2 else items.pop(i % 7)),
        "list that is assigned": (items, lambda i: items.__setitem__(i % 9, Array())),
        "large": (large, lambda i: large.__setitem__(i % 40, tree(i % 40))),
        "dict": (keys, lambda i: keys.pop(f"k{i % 12}", None) if i % 2 else keys.update(k3=b)),
        "dict of other keys": (keys, lambda i: keys.update({i % 5: b}) if i % 2 else keys.clear()),
        "attributes": (linear, lambda i: attribute(linear, ("weight", "bias", "more")[i % 3], i)),
        "__dict__": (
            linear,
            lambda i: object.__setattr__(linear, "__dict__", {**vars(linear), "bias": Array()}),
        ),
        "attributes by name": (pair, lambda i: attribute(pair, "xy"[i % 2], i)),
        "slots": (slots, lambda i: attribute(slots, "xy"[i % 2], i)),
        "static": (linear, lambda i: static.append(i) if i % 2 else static.pop()),
        "static in a dict": (linear, lambda i: static[1].update({i % 4: i})),
        "set": (linear, lambda i: static[1]["x"].symmetric_difference_update({i % 4})),
    }


@pytest.mark.parametrize("kind", changing())
def test_a_thread_changes_what_others_call_with(kind: str) -> None:
    """A call gets what was there, or what is there now, or raises an error that says so."""
    f = jit(maxsize=8)
    x, change = changing()[kind]
    finished: set[int] = set()

    def work(number: int) -> None:
        for i in itertools.count():
            if number == 0:
                change(i)
                give_way()
                if len(finished) == THREADS - 1:
                    return
            elif i == 150:
                return finished.add(number)
            else:
                with contextlib.suppress(RuntimeError, AttributeError, TypeError):
                    found, rest = f(x, number)
                    assert type(found) is type(x) and rest == (number,)
                    assert kind != "large" or all(type(row) is Linear for row in found)

    in_threads(work)
