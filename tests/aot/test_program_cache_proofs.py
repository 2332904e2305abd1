"""Proofs of programs that ran at once: traces of all kinds, interrupts, exits, forks, threads,
processes.

Each program is compiled (START is 1), and runs at once in its next start (START is 3), by
``trust="always"``: in each start its results are what they are without the cache, or standard error says
that they are not. `test_program_cache.py` has trials.
"""

import re
import signal
import time
from pathlib import Path

import pytest
from aot_support import Program
from edited_programs import catalogue

from support.processes import started

HEAD = """\
import atexit
LAST = []
atexit.register(lambda: [f() for f in LAST])  # after what else is called at the end
import contextvars, functools, gc, logging, os, signal, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import jax
import jax.numpy as jnp
import filterjit
from filterjit._aot import _proofs

MAIN = threading.main_thread()
PROVEN = os.environ["START"] == "3"
SCALE = float(os.environ.get("SCALE", 2))
X = np.ones(3, np.float32)  # JAX starts with the first call
TRACES = []

def jit(f, **options):
    @functools.wraps(f)
    def traced(*args):
        TRACES.append(threading.current_thread())
        return f(*args)
    return filterjit.filter_jit(traced, **options)

def until(condition):
    while not condition():
        time.sleep(0.01)

def in_proof():
    return threading.current_thread() is not MAIN

def check(y, expected=2.0):
    # A proven program is not traced before its first result, and all others are.
    assert (MAIN in TRACES) != PROVEN, TRACES
    assert np.allclose(y, expected), y

def call_until_the_main_thread_traces(f):
    until(lambda: TRACES)
    for _ in range(1000):
        assert np.allclose(f(X), 2)
        if MAIN in TRACES:
            break
        time.sleep(0.01)

@jit
def stale(x):
    return x * (3 if PROVEN else 2)

"""

# Each runs without a word, unless a pattern behind its name says what is in standard error when it is
# proven.
PROGRAMS = catalogue(r"""
## prints
@jit
def f(x):
    print("traced")
    return x * 2
check(f(X))

## counts
COUNT = 0
@jit
def f(x):
    global COUNT
    COUNT += 1
    return x * 2 * COUNT
check(f(X))
check(f(X))

## draws random numbers
np.random.seed(0)
f = jit(lambda x: x * np.random.rand())
check(f(X), 0.5488135)

## takes a lock that the main thread holds
LOCK, at_lock = threading.RLock(), threading.Event()
@jit
def f(x):
    at_lock.set()
    with LOCK:
        return x * 2
with LOCK:
    for _ in range(100):
        check(f(X))
    at_lock.wait()
    for _ in range(100):
        check(f(X))

## raises: (?s)StaleProgramError.*a word of the trace
@jit
def f(x):
    if PROVEN:
        raise RuntimeError("a word of the trace")
    return x * 2
check(f(X))

## raises in a thread
@jit
def f(x):
    if in_proof():
        raise RuntimeError("not the main thread")
    return x * 2
check(f(X))
if PROVEN:
    call_until_the_main_thread_traces(f)
    assert MAIN in TRACES

## ends the thread
f = jit(lambda x: sys.exit(7) if in_proof() else x * 2)
check(f(X))

## never ends: \bf\b
@jit
def f(x):
    if in_proof():
        until(lambda: False)
    return x * 2
check(f(X))
print("last", flush=True)

## calls other jitted functions
inner = jit(lambda x: x + 1)
plain = jax.jit(lambda x: inner(x))
f = jit(lambda x: inner(x) * plain(x) / 2)
check(f(X))
check(inner(X))
check(jax.vmap(f)(jnp.ones((2, 3))) if not PROVEN else 2)

## uses a mesh, a setting, and a context variable
N = contextvars.ContextVar("n", default=1)
f = jit(lambda x: x * len(jax.sharding.get_abstract_mesh().axis_names[0]) * N.get())
token = N.set(0.5)
with jax.set_mesh(jax.make_mesh((1,), ("abcd",), axis_types=(jax.sharding.AxisType.Auto,))):
    with jax.enable_x64(True):
        y = f(np.ones(3))
N.reset(token)
check(y)
assert y.dtype == np.float64

## uses what belongs to the thread
LOCAL = threading.local()
LOCAL.n = 2
f = jit(lambda x: x * LOCAL.n)
check(f(X))
if PROVEN:
    call_until_the_main_thread_traces(f)

## is forgotten
y = jit(lambda x: x * SCALE)(X)
gc.collect()
check(y)

## is interrupted
@jit
def f(x):
    if in_proof():
        time.sleep(0.5)
    return x * 2
check(f(X))
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
    raise SystemExit("not interrupted")
except KeyboardInterrupt:
    check(f(X))

## is interrupted while it is waited for
cache = filterjit.program_cache(os.environ["CACHE"], trust="always")
@jit
def f(x):
    if in_proof():
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)
    return x * 2
check(f(X))
if PROVEN:
    try:
        cache.wait()
        time.sleep(60)
        raise SystemExit("not interrupted")
    except KeyboardInterrupt:
        assert np.allclose(f(X), 2)

## exits: StaleProgramError
check(stale(X))
sys.exit(0)

## fails: (?s)ZeroDivisionError.*StaleProgramError|StaleProgramError.*ZeroDivisionError
check(stale(X))
if PROVEN:
    print(f"{1 / 0}")

## is called at the end: StaleProgramError
del __file__  # as Python does at the end of a script
atexit.register(lambda: check(stale(X))) if PROVEN else stale(X)

## is called at the very end
del __file__
def call():
    assert np.allclose(stale(X), 3 if PROVEN else 2)
LAST.append(call) if PROVEN else call()

## is called by a thread that outlives the main one
f = jit(lambda x: x * 2)
def call():
    MAIN.join()
    assert np.allclose(f(X), 2)
threading.Thread(target=call).start()

## a fork
LOCK = threading.RLock()
@jit
def f(x):
    with LOCK:
        return x * 2
with LOCK:
    check(f(X))
    import warnings
    warnings.simplefilter("ignore")
    child = os.fork()
    if child == 0:
        assert np.allclose(f(X), 2)
        os._exit(0)
assert os.waitpid(child, 0)[1] == 0
check(f(X))

## a parent that ends at once: StaleProgramError
check(stale(X))
if PROVEN:
    if os.fork():
        os._exit(0)
    try:
        for _ in range(200):
            stale(X)
            time.sleep(0.01)
    except filterjit.StaleProgramError as e:
        print(repr(e), file=sys.stderr, flush=True)
    os._exit(0)  # JAX fails at the end of a forked process

## a child that only ends: StaleProgramError
check(stale(X))
if PROVEN and os.fork():
    os._exit(0)

## a child of multiprocessing that its parent has called before: StaleProgramError
import multiprocessing, warnings
warnings.simplefilter("ignore")
check(stale(X))
def call():
    try:
        check(stale(X))
    except filterjit.StaleProgramError:
        os._exit(7)
process = multiprocessing.get_context("fork").Process(target=call)
process.start()
process.join()
assert process.exitcode == (7 if PROVEN else 0), process.exitcode

## a pool of processes: StaleProgramError
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
def call(_):
    check(stale(X))
with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
    list(pool.map(call, [1]))

## standard error is closed: StaleProgramError
logging.basicConfig(filename=os.environ["CACHE"] + ".log")
check(stale(X))
@atexit.register
def tell():
    os.dup2(copy, 2)
    sys.stderr = open(2, "w")
    sys.stderr.write(open(os.environ["CACHE"] + ".log").read())
    sys.stderr.flush()
# Is called before `tell`.
atexit.unregister(_proofs._finish)
atexit.register(_proofs._finish)
copy = os.dup(2)
sys.stderr.close()

## is never called again: ^told$
_proofs._SOME_SECONDS = 0.5
log = open(os.environ["CACHE"] + ".log", "w+")
logging.basicConfig(stream=log)
check(stale(X))
def told():
    log.seek(0)
    return "`stale`" in log.read()
if PROVEN:
    until(told)
    print("told", file=sys.stderr, flush=True)
    os._exit(0)

## another one is traced while it waits for a lock: traces a function before the proof
_proofs._SHORT = 0.5
LOCK = threading.RLock()
@jit
def f(x):
    with LOCK:
        return x * 2
with LOCK:
    check(f(X))
    other = filterjit.filter_jit(lambda x, start: x * 3)
    assert np.allclose(other(X, os.environ["START"]), 3)

## exits in each trace: (?s)`f` has raised SystemExit.*StaleProgramError.*`stale`
@jit
def f(x):
    return sys.exit(7) if PROVEN else x * 2
check(f(X))
check(stale(X))

## eight programs: StaleProgramError(?!(?s:.*)StaleProgramError)
def make(n):
    return jit(lambda x: x * (n + (n == 5 and PROVEN)), on_retrace="ignore")
for n, f in enumerate([make(n) for n in range(8)]):
    check(f(X), n)

## a static argument that changes
f, ns = jit(lambda x, ns: x * sum(ns)), [1, 1]
y = f(X, ns)
ns.append(5)
check(y)

## says which call
calls = 0
check(stale(X))
try:
    while PROVEN:
        calls += 1
        assert np.allclose(stale(X), 2)
        time.sleep(0.01)
except filterjit.StaleProgramError as e:
    assert "`stale`" in str(e) and str(calls) in str(e), (calls, str(e))
    try:
        with filterjit.forbid_compile():
            stale(X)
    except filterjit.ForbiddenCompileError as forbidden:
        assert "its program in the program cache was stale" in str(forbidden)
    else:
        raise AssertionError("it traces")
    assert np.allclose(stale(X), 3), "what a stale program is followed by"

## what a trace sets, another one reads
# Whatever traces waits for the proofs.
N = 1
@jit
def f(x, how):
    global N
    N = 2
    return x * 2
def times_n(x, how, start):
    return x * N
other, start = filterjit.filter_jit(times_n), os.environ["START"]  # it is traced in each start
WAYS = {
    "a call": lambda *args: other(X, *args),
    "stages": lambda *args: other.lower(X, *args).compile()(X, *args),
    "vmap": lambda *args: jax.vmap(lambda x: other(x, *args))(X),
    "grad": lambda *args: jax.grad(lambda x: other(x, *args).sum())(X),
    "jit": lambda *args: jax.jit(lambda x: other(x, *args))(X),
    "no jit": lambda *args: jax.disable_jit()(other)(X, *args),
    "warm_up": lambda *args: (other.warm_up_all([((X, *args), {})]), other(X, *args))[1],
    "a thread": lambda *args: ThreadPoolExecutor(1).submit(other, X, *args).result(),
    "nnx": lambda *args: filterjit.nnx.jit(times_n, static_argnums=(1, 2))(X, *args),
    "filterjit.jit": lambda *args: filterjit.jit(times_n, static_argnums=(1, 2))(X, *args),
}
for how, way in WAYS.items():
    N = 1
    check(f(X, how)) if how == "a call" else f(X, how)
    y = float(jnp.sum(way(how, start)))
    assert y == 6.0, (how, y)
""")


ALWAYS, PROVEN = ({"FILTERJIT_PROGRAM_CACHE_TRUST": trust} for trust in ("always", "proven"))
_DOUBLES = """
f = jit(lambda x: x * SCALE)
y = f(X)
print(float(y[0]))
"""


def program(folder: Path, source: str, **trust: str) -> Program:
    return Program(folder, HEAD + source, CACHE=str(folder / "cache"), **trust or ALWAYS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, tmp_path: Path) -> None:
    one = program(tmp_path, PROGRAMS[name])
    assert one.start(START="1")[1] == ""
    kind, _, pattern = name.partition(": ")
    status = 1 if kind == "fails" else None if pattern else 0
    _, said = one.start(START="3", status=status)
    assert re.search(pattern, said) if pattern else said == "", said


def test_an_interrupt_at_the_end(tmp_path: Path) -> None:
    (source,) = (text for name, text in PROGRAMS.items() if name.startswith("never ends"))
    one = program(tmp_path, source)
    one.start(START="1")
    with started(one.path, env=one.variables(START="3")) as process:
        assert process.stdout is not None and process.stdout.readline() == "last\n"
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    assert "was interrupted" in said, said


@pytest.mark.parametrize("scale", ["2", "3"])
def test_four_processes_at_once(tmp_path: Path, scale: str) -> None:
    """Each is right or loud, whatever the others do to the folder."""
    one = program(tmp_path, _DOUBLES, **PROVEN)
    for number in "123":
        scales = ["2", scale if number == "3" else "2"] * 2
        starts = [{"START": number, "SCALE": s} for s in scales]
        for (value, said), s in zip(one.starts(starts, status=None), scales, strict=True):
            assert float(value) == float(s) or "StaleProgramError" in said, said
            assert scale == "3" or said == "", said


TRUST = {"proven": [False, False, True], "always": [False, True, True], "never": [False] * 3}


@pytest.mark.parametrize("trust", TRUST)
@pytest.mark.parametrize("by_variable", [False, True])
def test_trust(tmp_path: Path, trust: str, by_variable: bool) -> None:
    """Which starts return a result before the main thread traces; an edit is right or loud."""
    named = "" if by_variable else f'filterjit.program_cache(os.environ["CACHE"], trust={trust!r})'
    used = trust if by_variable else "proven"
    source = f"{named}\n{_DOUBLES}print(MAIN in TRACES)\n"
    one = program(tmp_path, source, FILTERJIT_PROGRAM_CACHE_TRUST=used)
    for number, at_once in enumerate(TRUST[trust], 1):
        assert one.start(START=str(number)) == (f"2.0\n{not at_once}\n", "")
    value, said = one.start(START="4", SCALE="3", status=None)
    assert value.startswith("3.0" if trust == "never" else "2.0")
    assert ("StaleProgramError" in said) == (trust != "never")


@pytest.mark.parametrize("end", ["cache.wait()", "cache.close()", "pass"])
def test_the_end_of_a_block(tmp_path: Path, end: str) -> None:
    """Raises what no call has raised, and hides no other error."""
    source = f"""
f = jit(lambda x: x * SCALE)
try:
    with filterjit.program_cache(os.environ["CACHE"]) as cache:
        f(X)
        {end}
except filterjit.StaleProgramError as e:
    print("stale", "<lambda>" in str(e))
"""
    one = program(tmp_path, source)
    for number in "123":
        assert one.start(START=number) == ("", "")
    assert one.start(START="4", SCALE="3") == ("stale True\n", "")
    assert one.start(START="5", SCALE="3") == ("", "")
