"""Threads, forks and interpreters: each program is compiled once, and nothing deadlocks."""

import gc
import json
import logging
import os
import pathlib
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import filterjit
from filterjit._call import _caches
from filterjit._observe._recorder import recorder
from filterjit._observe._records import Streaks
from support.processes import CORE, run_code
from support.threads import at_once

X = jnp.arange(3.0)


def test_a_variant_is_traced_and_compiled_once() -> None:
    """As with ``jax.jit``, all but the first caller of one signature wait."""

    def slow_body(x: jax.Array) -> jax.Array:
        time.sleep(0.1)
        return x + 1

    f = filterjit.filter_jit(slow_body)
    results = at_once(16, lambda i: f(X))
    assert all(r.tolist() == [1, 2, 3] for r in results)
    (row,) = f.report().as_dict()["functions"]
    assert row["traces"] == row["compiles"] == 1


@pytest.fixture
def switching() -> Iterator[None]:
    """Makes threads switch as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_caches_are_made_once(switching: None) -> None:
    """The race to store the caches in the function's ``__dict__``, many times."""
    for _ in range(100):

        def fun() -> None:
            pass

        fun.__dict__["__filterjit_caches__"] = _caches.Owned(len.__class__, {})  # another's
        found = at_once(4, lambda i, fun=fun: _caches.caches_of(fun))
        assert len({id(x) for x in found}) == 1


def test_explanations_while_functions_of_the_same_code_are_made(switching: None) -> None:
    made = []

    def make(_: int) -> None:
        for _ in range(250):
            made.append(filterjit.filter_jit(lambda x: x + 1))
            assert not made[-1].explain(X)

    assert at_once(4, make) == [None] * 4


def test_a_report_while_calls_find_causes(switching: None) -> None:
    misses, is_over = Streaks(), threading.Event()

    def add(i: int) -> None:
        if i:
            while not is_over.is_set():
                misses.counts["static", str(len(misses.counts) % 300)] += 1
                if len(misses.counts) == 300:
                    misses.counts.clear()
            return
        try:
            for _ in range(2000):
                Streaks().merge(misses)
        finally:
            is_over.set()

    assert at_once(2, add) == [None] * 2


@pytest.mark.parametrize(("error", "fails"), [(ZeroDivisionError, 2), (KeyboardInterrupt, 4)])
def test_a_trace_that_fails_in_some_threads(error: type[BaseException], fails: int) -> None:
    """The call that fails removes the variant while other calls wait to trace it; these go on."""
    traces = []
    lock = threading.Lock()

    def fun(x: jax.Array) -> jax.Array:
        with lock:
            traces.append(0)
            count = len(traces)
        time.sleep(0.05)
        if count <= fails:
            raise error
        return x + 1

    f = filterjit.filter_jit(fun)
    results = at_once(4, lambda i: f(X))
    assert [type(r) for r in results if isinstance(r, BaseException)] == [error] * fails
    assert f.cache_info().variants == (fails < 4) and recorder._thread.stack == []
    count = len(traces)
    assert filterjit.filter_jit(fun)(X).tolist() == [1, 2, 3], "of another wrapper"
    assert len(traces) == count + (fails == 4)


def test_calls_at_once_defer_apart() -> None:
    """A setting that one thread's trace has turned on is not turned off by another thread's call."""
    inside, go_on = threading.Event(), threading.Event()
    seen: list[Any] = []

    def fun(x: jax.Array) -> jax.Array:
        if x.shape == (5,):
            inside.set()
            assert go_on.wait(30)
            seen.append(_donation_filters())
            seen.append(len(recorder._thread.stack))
        return x + 1

    def _donation_filters() -> int:
        # Those of the context, where each has its own.
        filters = getattr(warnings, "_get_filters", lambda: warnings.filters)()
        return sum("donated" in str(getattr(x[1], "pattern", "")) for x in filters)

    before = _donation_filters()
    f = filterjit.filter_jit(fun, donate="all")
    first = threading.Thread(target=lambda: f(jnp.zeros(5)))
    first.start()
    assert inside.wait(30)
    for n in (2, 3):
        f(jnp.zeros(n)), f(jnp.zeros(n))
    go_on.set()
    first.join(30)
    assert seen == [before + 1, 1]
    assert _donation_filters() == before


def test_a_nested_call_of_the_same_variant() -> None:
    depth: list[int] = []

    def fun(x: jax.Array) -> jax.Array:
        if x.ndim:
            before = len(recorder._thread.stack)
            f(x[0]), f(x[0])
            depth.append(len(recorder._thread.stack) - before)
        return x + 1

    f = filterjit.filter_jit(fun, donate="warn")
    f(jnp.zeros(3))
    assert depth == [0] and recorder._thread.stack == []


def test_traced_functions_that_wait_for_threads() -> None:
    """Other functions can be traced despite the locks that JAX holds while it traces."""

    def inner(x: jax.Array, n: int) -> jax.Array:
        return x * n

    g = filterjit.filter_jit(inner)

    def outer(x: jax.Array) -> jax.Array:
        results = at_once(4, lambda i: g(jnp.arange(3.0), i % 2))
        return x + sum(r.sum() for r in results)

    f = filterjit.filter_jit(outer)
    assert at_once(4, lambda i: f(X))[0].tolist() == [6, 7, 8]


@pytest.mark.parametrize("seconds", [2, pytest.param(10, marks=pytest.mark.slow)])
def test_storm(seconds: int) -> None:
    """16 threads that call, miss, evict, clear, ask, install and uninstall."""
    filters, callback = list(warnings.filters), logging.getLogger("jax._src.callback").filters[:]
    original = eqx.filter_jit

    def fun(x: jax.Array, n: int) -> jax.Array:
        return x * n

    def fails(x: jax.Array, n: int) -> jax.Array:
        raise ZeroDivisionError(n)

    equinox_made = eqx.filter_jit(fun)
    small, donating = filterjit.filter_jit(fun, maxsize=3), filterjit.filter_jit(fun, donate="all")
    bad = filterjit.filter_jit(fails)
    end = time.monotonic() + seconds

    def work(i: int) -> None:
        step = i
        while time.monotonic() < end:
            step += 1
            n = (step * 7 + i) % 6
            assert small(X, n).tolist() == [0, n, 2 * n]
            assert donating(jnp.arange(3.0), n % 2)[1] == n % 2
            assert equinox_made(X, n)[2] == 2 * n
            with pytest.raises(ZeroDivisionError):
                bad(X, n)
            match step % 10:
                case 0:
                    small.clear_cache()
                case 1:
                    filterjit.install()
                case 2:
                    filterjit.uninstall()
                case 3:
                    small.explain(X, n), donating.cache_info()
                case 4:
                    str(filterjit.report())
                case 5:
                    assert filterjit.filter_jit(fun, maxsize=3)(X, n)[1] == n
                case 6:
                    gc.collect(0)
                case 7:
                    assert small.lower(X, n).compile()(X, n)[1] == n

    assert at_once(16, work, 120) == [None] * 16
    filterjit.uninstall()
    assert eqx.filter_jit is original
    assert len(small.variants) <= 3 and small.cache_info().maxsize == 3
    assert all(v.num_traces > 0 for v in (*small.variants, *donating.variants))
    assert bad.variants == []
    assert list(warnings.filters) == filters
    assert logging.getLogger("jax._src.callback").filters == callback


@pytest.mark.skipif(
    not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread(),
    reason="needs signals",
)
def test_a_signal_whose_handler_calls_the_same_function() -> None:
    """At any moment of a call, with the arguments of the call, with others, and with new ones."""
    f = filterjit.filter_jit(lambda x, n: [x * n, n])
    handled, n = 0, 1

    def handle(*_: Any) -> None:
        nonlocal handled
        handled += 1
        for n in (1, 2, 3 + handled // 10):
            assert f(X, n)[1] == n

    before = signal.signal(signal.SIGALRM, handle)
    try:
        for i in range(60):
            signal.setitimer(signal.ITIMER_REAL, 1e-4 * (1 + i % 20))
            while handled <= i:
                n = 1 + n % 2
                assert f(X, n)[1] == n
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert handled == 60
    np.testing.assert_array_equal(f(X, 2)[0], np.asarray(X) * 2)


def test_each_lock_is_made_by_the_helper() -> None:
    """So that a program of `PROGRAMS` has seen each kind of it."""
    package = pathlib.Path(filterjit.__file__).parent
    made = re.compile(
        r"(?<!type\()\bthreading\.(?:R?Lock|Condition|(?:Bounded)?Semaphore|Barrier)\("
        r"|from threading import|allocate_lock"
    )
    found = {
        (file.name, match[0])
        for file in package.rglob("*.py")
        for match in made.finditer(file.read_text())
    }
    assert found == {("_locks.py", "threading.RLock(")}


# ---- programs, each in a process of its own ----

# XLA's threads do not exist in a child, where plain ``jax.jit`` hangs when it runs or compiles. So a
# child only looks up variants and traces.
PROGRAMS = {
    "a fork of the core": """
import os, signal, threading
from core_support import Array
from hooks_support import make_jit
f = make_jit(lambda x, n: (n, x))
def call(n):
    x = Array()
    return f(x, n) == (n, x)
assert call(1) and call(2)
stop = False
def busy():
    n = 0
    while not stop:
        n += 1
        call(n % 7 + 3)
threads = [threading.Thread(target=busy, daemon=True) for _ in range(2)]
for t in threads: t.start()
for _ in range(6):
    pid = os.fork()
    if not pid:
        signal.alarm(60)
        ok = all(call(n) for n in (1, 2, 1, 100, 101, 1, 100))
        os._exit(0 if ok else 1)
    assert os.waitpid(pid, 0)[1] == 0
stop = True
""",
    "a thread that does not exist in the child holds each lock of the package; then the one that calls": """
import os, signal, threading
import jax, jax.numpy as jnp, filterjit
from jax.sharding import PartitionSpec
from filterjit import _install, _processes
from filterjit._base import _locks
from filterjit._call import _caches
x, step = jnp.arange(3.0), 0
f = filterjit.filter_jit(lambda x, n: x * n, donate="all")
with jax.set_mesh(jax.make_mesh((1,), ("x",))):
    g = filterjit.filter_jit(lambda x, n: x * n, in_shardings=PartitionSpec())
def calls():
    global step
    step += 1
    f(jnp.arange(3.0), step)
    h = filterjit.filter_jit(lambda x: x + step)
    with jax.set_mesh(jax.make_mesh((1,), ("x",))):
        assert g(x, step).tolist() == [0, step, 2 * step]
    assert h(x).tolist() == [step, 1 + step, 2 + step]
    filterjit.report()
calls()
locks = list(_locks._all)
assert len(locks) >= 8, locks
held, done = threading.Event(), threading.Event()
def hold():
    for lock in locks: lock.acquire()
    held.set(); done.wait(60)
    for lock in locks: lock.release()
t = threading.Thread(target=hold); t.start(); assert held.wait(60)
pid = os.fork()
if not pid:
    signal.alarm(60)
    for lock in locks:
        assert lock.acquire(blocking=False), lock
        lock.release()
    f.eval_shape(x, 2); filterjit.install(); filterjit.uninstall()
    os._exit(0)
assert not any(lock.acquire(blocking=False) for lock in locks)  # still held here
done.set(); t.join()
assert os.waitpid(pid, 0)[1] == 0
for lock in locks: lock.acquire()
calls(); filterjit.clear_caches()  # as in the handler of a signal, or a finalizer
""",
    "the thread that forks holds a lock": """
import os, signal
from filterjit._base._locks import RLock
lock = RLock()
with lock:
    pid = os.fork()
    if not pid:
        signal.alarm(60)
        with lock:  # of the child, which nothing holds
            pass
if not pid:
    with lock:
        os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
""",
    "first calls at once are all recorded, while one of them imports what records": """
import threading
import jax.numpy as jnp, filterjit
x, begin, calls = jnp.ones(2), threading.Barrier(8), []
def work(n):
    f = filterjit.filter_jit(lambda x: x + n)
    begin.wait()
    f(x)
    calls.append(f.report().as_dict()["functions"][0]["calls"])
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
for t in threads: t.start()
for t in threads: t.join()
assert calls == [1] * 8, calls
""",
    "installing while another thread imports Equinox": """
import sys, threading, time
import filterjit
filterjit.install()
inside, errors = threading.Event(), []
class Slow:
    def find_spec(self, name, path, target=None):
        if name == "equinox._jit":
            inside.set(); time.sleep(0.5)
sys.meta_path.insert(0, Slow())
def load():
    import equinox
def again():
    assert inside.wait(60)
    try:
        filterjit.install()
    except BaseException as e:
        errors.append(e)
threads = [threading.Thread(target=f, daemon=True) for f in (load, again)]
for t in threads: t.start()
for t in threads: t.join(60)
assert not any(t.is_alive() for t in threads), "a deadlock"
assert not errors, errors
import equinox
assert equinox.filter_jit is filterjit.filter_jit
""",
    "the core in another interpreter, or its import is refused, as in Python 3.12 and later": """
import importlib, sys
from hooks_support import make_jit
interpreters = importlib.import_module("_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters")
code = f"import sys; sys.path[:] = {sys.path}" + '''
try:
    from core_support import Array
    from hooks_support import make_jit
except ImportError as e:
    assert sys.version_info >= (3, 12), e
else:
    f, x = make_jit(lambda x, n: (n, x)), Array()
    for n in (1, 2, 1, 1):
        assert f(x, n) == (n, x)
    assert f._hooks.count("compile") == 2
'''
for _ in range(3):
    one = interpreters.create()
    error = interpreters.run_string(one, code)
    assert error is None, error
    interpreters.destroy(one)
    f = make_jit(lambda x, n: (n, x))
    assert f(1, 2) == (2, 1) == f(1, 2)
""",
}
# Forks a process for each program. Importing JAX takes longer than most of them; it is not started.
_RUN = """
import json, os, sys
import jax
sys.path.insert(0, sys.argv[1])
for name, code in json.loads(sys.stdin.read()).items():
    pid = os.fork()
    if not pid:
        exec(compile(code, name, "exec"), {"__name__": "__main__"})
        sys.exit()
    if os.waitpid(pid, 0)[1]:
        print(name, flush=True)
print("done")
"""


@pytest.mark.thorough
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_programs() -> None:
    done = run_code(_RUN, CORE, options=("-W", "ignore"), stdin=json.dumps(PROGRAMS), timeout=600)
    assert done.stdout == "done\n", done.stdout + done.stderr
