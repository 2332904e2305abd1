"""Several threads use one FilterJit at once, and each gets its own result.

Threads switch as often as the interpreter allows, and hooks let another thread run in the middle
of a call: while a variant is made, and while a static is hashed or compared.
"""

import gc
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from core_support import Array, Hooks, Hostile, Linear, Value, make_jit, make_registry, same
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
