"""Several threads use one FilterJit at once, and each gets its own result.

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
from core_support import (
    Array,
    Hooks,
    Hostile,
    Linear,
    Pair,
    Slots,
    Value,
    make_jit,
    make_registry,
    same,
)
from thread_support import THREADS, in_threads


@pytest.fixture(autouse=True)
def _switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def give_way(*args: Any) -> None:
    """Lets another thread run."""
    time.sleep(0)


def jit(maxsize: int = 4096) -> Any:
    """A FilterJit whose hooks let another thread run."""
    options = Hooks(make_registry(), maxsize)
    for hook in ("prepare", "compile", "inspect_new_trace"):
        options.on[hook] = give_way
    return make_jit(lambda x, *rest: (x, rest), options)


def tree(n: Any) -> Any:
    return Linear(weight=[Array(), (Array(), n)], bias=None, size=n, activation=f"name {n}")


def test_threads_hit() -> None:
    f = jit()
    f(tree(1), 1)

    def work(number: int) -> None:
        for _ in range(300):
            x = tree(1)
            assert same(f(x, 1), (x, (1,)))

    in_threads(work)
    assert f._hooks.count("compile") == 1


def test_threads_share_a_large_argument() -> None:
    """One thread changes the argument while the others call with it."""
    f = jit()
    shared = [tree(n) for n in range(40)]

    def work(number: int) -> None:
        for i in range(100):
            if number == 0:
                shared[i % 40] = tree(i % 40)
                give_way()
            (found, rest) = f(shared, number)
            assert rest == (number,) and len(found) == 40
            assert all(type(x) is Linear for x in found)

    in_threads(work)


def changing(kind: str) -> tuple[Any, Callable[[int], Any]]:
    """A tree, and a function that changes it a little."""
    a, b = Array(), Array()
    items = [a, b, (a, b)] * 4
    keys = {f"k{i}": a for i in range(12)}
    linear = Linear(weight=[a], bias=a, size=1, activation=[1, {"x": {1}}])
    pair, slots = Pair(x=a, y=b, tag=1), Slots(x=a, y=b, tag="tag")
    static = linear.activation

    def attribute(x: Any, name: str, i: int) -> None:
        if i % 3:
            object.__setattr__(x, name, Array())
        elif hasattr(x, name):
            object.__delattr__(x, name)

    changes: dict[str, tuple[Any, Callable[[int], Any]]] = {
        "list": (items, lambda i: items.append(Array()) if i % 2 else items.pop(i % 7)),
        "list that is assigned": (items, lambda i: items.__setitem__(i % 9, Array())),
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
    return changes[kind]


CHANGING = (
    "list", "list that is assigned", "dict", "dict of other keys", "attributes", "__dict__",
    "attributes by name", "slots", "static", "static in a dict", "set",
)  # fmt: skip


@pytest.mark.parametrize("kind", CHANGING)
def test_a_thread_changes_what_others_call_with(kind: str) -> None:
    """A call gets what was there, or what is there now, or raises an error that says so."""
    f = jit(maxsize=8)
    x, change = changing(kind)
    finished: set[int] = set()

    def work(number: int) -> None:
        for i in itertools.count():
            if number == 0:
                change(i)
                if len(finished) == THREADS - 1:
                    return
            elif i == 150:
                return finished.add(number)
            else:
                with contextlib.suppress(RuntimeError, AttributeError, TypeError):
                    found, rest = f(x, number)
                    assert type(found) is type(x) and rest == (number,)

    in_threads(work)


def test_threads_compile_the_same() -> None:
    """The first of the equal variants is kept."""
    f = jit()

    def work(number: int) -> None:
        for n in range(40):
            x = tree(n)
            assert same(f(x, n), (x, (n,)))

    in_threads(work)
    assert len(f._parts()[0].variants()) == 40


def test_threads_evict() -> None:
    f = jit(maxsize=2)

    def work(number: int) -> None:
        for i in range(150):
            x, n = tree(0), (i * (number + 1)) % 7
            assert same(f(x, n, Value(n)), (x, (n, Value(n))))

    in_threads(work)
    assert len(f._parts()[0].variants()) <= 2 + THREADS


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


def test_threads_in_the_middle_of_statics() -> None:
    """Another thread runs while statics are hashed and compared in a probe of the table."""
    f = jit(maxsize=3)

    def work(number: int) -> None:
        for i in range(60):
            x = Array()
            static = Hostile(on_hash=give_way, on_eq=give_way, hash_value=i % 2)
            assert f(x, static, i % 3)[0] is x

    in_threads(work)


def test_threads_fail() -> None:
    """Calls that fail remove only their own variants."""

    def fun(x: Any, n: int) -> Any:
        give_way()
        if n % 3 == 0:
            raise ZeroDivisionError
        return x, n

    f = make_jit(fun, Hooks(make_registry(), 5))
    f._hooks.on["compile"] = give_way

    def work(number: int) -> None:
        for i in range(100):
            x = Array()
            if i % 3 == 0:
                with pytest.raises(ZeroDivisionError):
                    f(x, i % 12)
            else:
                assert f(x, i % 12) == (x, i % 12)

    in_threads(work)


def test_threads_prepare_the_same() -> None:
    """All threads use the cache of the fastest."""
    for _ in range(20):
        f = jit()
        found: list[Any] = []
        in_threads(lambda number, f=f, found=found: found.append(f._parts()[0]))
        assert all(cache is found[0] for cache in found)


def test_threads_meet_a_type() -> None:
    """All threads meet a new type at once."""
    for _ in range(10):
        f = jit()
        fresh = type("Fresh", (Linear,), {})

        def work(number: int, f: Any = f, fresh: Any = fresh) -> None:
            x = fresh(weight=Array(), bias=None, size=1, activation=2)
            assert same(f(x), (x, ()))

        in_threads(work)
        assert f._hooks.count("compile") >= 1
