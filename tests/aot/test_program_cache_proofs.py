"""Proofs of programs that ran at once: traces of all kinds, interrupts, exits, forks, threads,
processes, damaged files.

Each program is compiled (START is 1), and runs at once in its next start (START is 3), by
``trust="always"``: in each start its results are what they are without the cache, or standard error says
that they are not. `test_program_cache.py` has trials.
"""

import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from support.processes import environment, run, started

HEAD = """\
import atexit
LAST = []
atexit.register(lambda: [f() for f in LAST])  # after what else is called at the end
import contextvars, functools, gc, json, os, signal, sys, threading, time
import numpy as np
import jax
import jax.numpy as jnp
import filterjit

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

"""

# Each runs without a word, unless a pattern says what is in standard error when it is proven.
PROGRAMS: dict[str, tuple[str, str]] = {
    "prints": (
        """
        @jit
        def f(x):
            print("traced")
            return x * 2
        check(f(X))
        """,
        "",
    ),
    "counts": (
        """
        COUNT = 0
        @jit
        def f(x):
            global COUNT
            COUNT += 1
            return x * 2 * COUNT
        check(f(X))
        check(f(X))
        """,
        "",
    ),
    "draws random numbers": (
        """
        np.random.seed(0)
        @jit
        def f(x):
            return x * np.random.rand()
        check(f(X), 0.5488135)
        """,
        "",
    ),
    "takes a lock that the main thread holds": (
        """
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
        """,
        "",
    ),
    "raises": (
        """
        @jit
        def f(x):
            if PROVEN:
                raise RuntimeError("a word of the trace")
            return x * 2
        check(f(X))
        """,
        r"(?s)StaleProgramError.*a word of the trace",
    ),
    "raises in a thread": (
        """
        @jit
        def f(x):
            if in_proof():
                raise RuntimeError("not the main thread")
            return x * 2
        check(f(X))
        if PROVEN:
            until(lambda: TRACES)
            for _ in range(1000):
                y = f(X)
                if MAIN in TRACES:
                    break
                time.sleep(0.01)
            assert MAIN in TRACES and np.allclose(y, 2)
        """,
        "",
    ),
    "ends the thread": (
        """
        @jit
        def f(x):
            if in_proof():
                sys.exit(7)
            return x * 2
        check(f(X))
        """,
        "",
    ),
    "never ends": (
        """
        @jit
        def f(x):
            if in_proof():
                until(lambda: False)
            return x * 2
        check(f(X))
        print("last")
        """,
        r"\bf\b",
    ),
    "calls other jitted functions": (
        """
        @jit
        def inner(x):
            return x + 1
        @jax.jit
        def plain(x):
            return inner(x)
        @jit
        def f(x):
            return inner(x) * plain(x) / 2
        check(f(X))
        check(inner(X))
        check(jax.vmap(f)(jnp.ones((2, 3))) if not PROVEN else 2)
        """,
        "",
    ),
    "uses a mesh": (
        """
        @jit
        def f(x):
            return x * len(jax.sharding.get_abstract_mesh().axis_names[0])
        with jax.set_mesh(jax.make_mesh((1,), ("ab",), axis_types=(jax.sharding.AxisType.Auto,))):
            check(f(X))
        """,
        "",
    ),
    "uses a setting": (
        """
        @jit
        def f(x):
            return x * 2.0
        with jax.enable_x64(True):
            y = f(np.ones(3))
        check(y)
        assert y.dtype == np.float64
        """,
        "",
    ),
    "uses a context variable": (
        """
        N = contextvars.ContextVar("n", default=1)
        @jit
        def f(x):
            return x * N.get()
        token = N.set(2)
        check(f(X))
        N.reset(token)
        """,
        "",
    ),
    "uses what belongs to the thread": (
        """
        LOCAL = threading.local()
        LOCAL.n = 2
        @jit
        def f(x):
            return x * LOCAL.n
        check(f(X))
        if PROVEN:
            until(lambda: TRACES)
            for _ in range(1000):
                assert np.allclose(f(X), 2)
                if MAIN in TRACES:
                    break
                time.sleep(0.01)
        """,
        "",
    ),
    "is forgotten": (
        """
        y = jit(lambda x: x * SCALE)(X)
        gc.collect()
        check(y)
        """,
        "",
    ),
    "is interrupted": (
        """
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
        """,
        "",
    ),
    "is interrupted while it is waited for": (
        """
        from filterjit import program_cache
        cache = program_cache(os.environ["CACHE"], trust="always")
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
        """,
        "",
    ),
    "exits": (
        """
        @jit
        def f(x):
            return x * (3 if PROVEN else 2)
        check(f(X))
        sys.exit(0)
        """,
        "StaleProgramError",
    ),
    "fails": (
        """
        @jit
        def f(x):
            return x * (3 if PROVEN else 2)
        check(f(X))
        if PROVEN:
            print(f"{1 / 0}")
        """,
        "(?s)ZeroDivisionError.*StaleProgramError|StaleProgramError.*ZeroDivisionError",
    ),
    "is called at the end": (
        """
        del __file__  # as Python does at the end of a script
        @jit
        def f(x):
            return x * (3 if PROVEN else 2)
        if PROVEN:
            atexit.register(lambda: check(f(X)))
        else:
            f(X)
        """,
        "StaleProgramError",
    ),
    "is called at the very end": (
        """
        del __file__  # as Python does at the end of a script
        @jit
        def f(x):
            return x * (3 if PROVEN else 2)
        def call():
            assert np.allclose(f(X), 3 if PROVEN else 2)
        LAST.append(call) if PROVEN else call()
        """,
        "",
    ),
    "is called by a thread that outlives the main one": (
        """
        @jit
        def f(x):
            return x * 2
        def call():
            MAIN.join()
            assert np.allclose(f(X), 2)
        threading.Thread(target=call).start()
        """,
        "",
    ),
    "a fork": (
        """
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
        """,
        "",
    ),
    "a parent that ends at once": (
        """
        @jit
        def f(x):
            return x * (3 if PROVEN else 2)
        check(f(X))
        if PROVEN:
            if os.fork():
                os._exit(0)
            try:
                for _ in range(200):
                    f(X)
                    time.sleep(0.01)
            except filterjit.StaleProgramError as e:
                print(repr(e), file=sys.stderr, flush=True)
            os._exit(0)  # JAX fails at the end of a forked process
        """,
        "StaleProgramError",
    ),
    "a child of multiprocessing": (
        """
        import multiprocessing
        @jit
        def f(x):
            return x * (3 if PROVEN else 2)
        process = multiprocessing.get_context("fork").Process(target=lambda: check(f(X)))
        process.start()
        process.join()
        assert process.exitcode == 0
        """,
        "StaleProgramError",
    ),
    "a child that only ends": (
        """
        @jit
        def f(x):
            return x * (3 if PROVEN else 2)
        check(f(X))
        if PROVEN and os.fork():
            os._exit(0)
        """,
        "StaleProgramError",
    ),
    "a child of multiprocessing that its parent has called before": (
        """
        import multiprocessing, warnings
        warnings.simplefilter("ignore")
        @jit
        def f(x):
            return x * (3 if PROVEN else 2)
        check(f(X))
        def call():
            try:
                check(f(X))
            except filterjit.StaleProgramError:
                os._exit(7)
        process = multiprocessing.get_context("fork").Process(target=call)
        process.start()
        process.join()
        assert process.exitcode == (7 if PROVEN else 0), process.exitcode
        """,
        "StaleProgramError",
    ),
    "a pool of processes": (
        """
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor
        @jit
        def f(x):
            return x * (3 if PROVEN else 2)
        def call(_):
            check(f(X))
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
            list(pool.map(call, [1]))
        """,
        "StaleProgramError",
    ),
    "standard error is closed": (
        """
        import logging
        from filterjit._aot import _proofs
        logging.basicConfig(filename=os.environ["CACHE"] + ".log")
        @jit
        def f(x):
            return x * (3 if PROVEN else 2)
        check(f(X))
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
        """,
        "StaleProgramError",
    ),
    "is never called again": (
        """
        import logging
        from filterjit._aot import _proofs
        _proofs._SOME_SECONDS = 0.5
        log = open(os.environ["CACHE"] + ".log", "w+")
        logging.basicConfig(stream=log)
        @jit
        def f(x):
            return x * (3 if PROVEN else 2)
        check(f(X))
        def told():
            log.seek(0)
            return "`f`" in log.read()
        if PROVEN:
            until(told)
            print("told", file=sys.stderr, flush=True)
            os._exit(0)
        """,
        "^told$",
    ),
    "another one is traced while it waits for a lock": (
        """
        from filterjit._aot import _proofs
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
        """,
        "traces a function before the proof",
    ),
    "exits in each trace": (
        """
        @jit
        def f(x):
            return sys.exit(7) if PROVEN else x * 2
        @jit
        def g(x):
            return x * (3 if PROVEN else 2)
        check(f(X))
        check(g(X))
        """,
        "(?s)`f` has raised SystemExit.*StaleProgramError.*`g`",
    ),
    "eight programs": (
        """
        def make(n):
            return jit(lambda x: x * (n + (n == 5 and PROVEN)))
        fs = [make(n) for n in range(8)]
        for n, f in enumerate(fs):
            check(f(X), n)
        """,
        r"StaleProgramError(?!(?s:.*)StaleProgramError)",
    ),
    "a server": (
        """
        from concurrent.futures import ThreadPoolExecutor
        @jit
        def f(x):
            return jnp.sum(x * 2)
        def answer(n):
            assert np.allclose(f(np.ones(n % 4 + 1, np.float32)), 2 * (n % 4 + 1))
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(answer, range(400)))
        """,
        "",
    ),
    "calls beside it": (
        """
        @jit
        def f(x):
            if in_proof():
                time.sleep(0.3)
            return x * 2
        for _ in range(500):
            check(f(X))
            time.sleep(0.001)
        """,
        "",
    ),
    "donates": (
        """
        f = jit(lambda x: x * 2, donate="all")
        x = jnp.ones(3)
        check(f(x))
        assert x.is_deleted()
        """,
        "",
    ),
    "a static argument that changes": (
        """
        @jit
        def f(x, ns):
            return x * sum(ns)
        ns = [1, 1]
        y = f(X, ns)
        ns.append(5)
        check(y)
        """,
        "",
    ),
    "says which call": (
        """
        @jit
        def f(x):
            return x * (3 if PROVEN else 2)
        calls = 0
        check(f(X))
        try:
            while PROVEN:
                calls += 1
                assert np.allclose(f(X), 2)
                time.sleep(0.01)
        except filterjit.StaleProgramError as e:
            print(e)
            assert "f" in str(e) and str(calls) in str(e), (calls, str(e))
            assert np.allclose(f(X), 3), "what a stale program is followed by"
        """,
        "",
    ),
}


def variables(place: Path, number: int, **others: str) -> dict[str, str]:
    cache = str(place / "cache")
    own = {"FILTERJIT_PROGRAM_CACHE": cache, "CACHE": cache, "START": str(number)}
    return environment(**{**own, "FILTERJIT_PROGRAM_CACHE_TRUST": "always", **others})


PROVEN = {"FILTERJIT_PROGRAM_CACHE_TRUST": "proven"}  # with a trial


def written(place: Path, source: str) -> Path:
    path = place / "program.py"
    path.write_text(HEAD + textwrap.dedent(source))
    return path


def start(path: Path, number: int, status: int | None = 0, **others: str) -> tuple[str, str]:
    """Returns what a start writes."""
    env = variables(path.parent, number, **others)
    done = run(path, env=env, timeout=120, status=status)
    return done.stdout, done.stderr


def compiled(place: Path, source: str) -> Path:
    """Starts a program: in the next start it runs at once."""
    path = written(place, source)
    assert start(path, 1)[1] == ""
    return path


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, tmp_path: Path) -> None:
    source, pattern = PROGRAMS[name]
    _, said = start(compiled(tmp_path, source), 3, 1 if name == "fails" else None if pattern else 0)
    assert re.search(pattern, said) if pattern else said == "", said


_NEED_A_TRACE = """
from concurrent.futures import ThreadPoolExecutor
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
"""


def test_what_a_trace_sets_another_one_reads(tmp_path: Path) -> None:
    """Whatever traces waits for the proofs."""
    path = written(tmp_path, _NEED_A_TRACE)
    for number in (1, 3):
        assert start(path, number) == ("", "")


_DOUBLES = """
f = jit(lambda x: x * SCALE)
y = f(X)
print(float(y[0]))
"""
_NEVER_ENDS = PROGRAMS["never ends"][0].replace('print("last")', 'print("last", flush=True)')


def test_an_interrupt_at_the_end(tmp_path: Path) -> None:
    path = compiled(tmp_path, _NEVER_ENDS)
    with started(path, env=variables(tmp_path, 3)) as process:
        assert process.stdout is not None and process.stdout.readline() == "last\n"
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    assert "was interrupted" in said, said


@pytest.mark.parametrize("scale", ["2", "3"])
def test_four_processes_at_once(tmp_path: Path, scale: str) -> None:
    """Each is right or loud, whatever the others do to the folder."""
    path = written(tmp_path, _DOUBLES)
    for number in (1, 2, 3):
        found = {"2", scale} if number == 3 else {"2"}
        running = [
            subprocess.Popen(
                [sys.executable, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env=variables(tmp_path, number, SCALE=s, **PROVEN), encoding="utf-8",
            )
            for s in [*found] * (4 // len(found))
        ]  # fmt: skip
        try:
            outputs = [process.communicate(timeout=120) for process in running]
        finally:
            for process in running:
                process.kill()
        for (value, said), s in zip(outputs, [*found] * (4 // len(found)), strict=True):
            assert float(value) == float(s) or "StaleProgramError" in said, outputs
            assert scale == "3" or said == "", said


def test_a_full_disk(tmp_path: Path) -> None:
    """A limit on the size of files stands for it; later starts find what there is."""
    limit = """
    import resource
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(os.environ["BYTES"]), hard))
    """
    path = written(tmp_path, textwrap.dedent(limit) + _DOUBLES)
    for number, size in enumerate(["300", "2000", "0", "10000000", "0", "300", "10000000"]):
        value, said = start(path, number, BYTES=size, SCALE=str(2 + number % 2), **PROVEN)
        assert float(value) == 2 + number % 2 or "StaleProgramError" in said, (number, said)


_DAMAGES = """
import pathlib, random, shutil
rng = random.Random(int(os.environ["SEED"]))
folder, whole = pathlib.Path(os.environ["FOLDER"]), pathlib.Path(os.environ["CACHE"])

def make(n):
    return filterjit.filter_jit(functools.partial(lambda n, x: x * n, n))

def use(where):
    loud = False
    try:
        with filterjit.program_cache(where):
            right = all(np.allclose(make(n)(X), n) for n in range(3))
    except filterjit.StaleProgramError:
        loud = True
    assert right or loud
    return right and not loud

def flip(file, data):
    at = rng.randrange(len(data))
    file.write_bytes(data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :])

DAMAGES = [
    flip,
    flip,
    lambda file, data: file.write_bytes(data[: rng.randrange(len(data))]),
    lambda file, data: file.write_bytes(data + b"\\\\0"),
    lambda file, data: file.write_bytes(rng.choice([f for f in files if f.is_file()]).read_bytes()),
    lambda file, data: file.write_bytes(b""),
    lambda file, data: file.unlink(),
    lambda file, data: (file.unlink(), file.mkdir()),
]
for _ in range(3):
    assert use(whole)
for _ in range(60):
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder)
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    for file in rng.sample(files, rng.randint(1, 2)):
        if file.is_file():
            rng.choice(DAMAGES)(file, file.read_bytes())
    assert use(folder), files
    assert use(folder)
"""


@pytest.mark.parametrize("seed", ["1", pytest.param("2", marks=pytest.mark.thorough)])
def test_damaged_files(tmp_path: Path, seed: str) -> None:
    """Any file of the folder, cut, changed, exchanged or no file at all: the results are right."""
    path = written(tmp_path, _DAMAGES.replace("\\\\", "\\"))
    folder = str(tmp_path / "damaged")
    done = run(path, timeout=300, env=variables(tmp_path, 1, SEED=seed, FOLDER=folder))
    assert "StaleProgramError" not in done.stderr


TRUST = {"proven": [False, False, True], "always": [False, True, True], "never": [False] * 3}


@pytest.mark.parametrize("trust", TRUST)
@pytest.mark.parametrize("by_variable", [False, True])
def test_trust(tmp_path: Path, trust: str, by_variable: bool) -> None:
    """Which starts return a result before the main thread traces; an edit is right or loud."""
    named = f'filterjit.program_cache(os.environ["CACHE"], trust={trust!r})'
    path = written(tmp_path, f"{'' if by_variable else named}\n{_DOUBLES}print(MAIN in TRACES)\n")
    own = {"FILTERJIT_PROGRAM_CACHE_TRUST": trust} if by_variable else PROVEN
    for number, at_once in enumerate(TRUST[trust], 1):
        assert start(path, number, **own) == (f"2.0\n{not at_once}\n", "")
    value, said = start(path, 4, None, SCALE="3", **own)
    assert value.startswith("3.0" if trust == "never" else "2.0")
    assert ("StaleProgramError" in said) == (trust != "never")


@pytest.mark.parametrize("end", ["cache.wait()", "cache.close()", "pass"])
def test_the_end_of_a_block(tmp_path: Path, end: str) -> None:
    """Raises what no call has raised, and hides no other error."""
    source = f"""
    import contextlib
    STALE = contextlib.nullcontext()
    f = jit(lambda x: x * SCALE)
    try:
        with filterjit.program_cache(os.environ["CACHE"]) as cache:
            f(X)
            {end}
    except filterjit.StaleProgramError as e:
        print("stale", "<lambda>" in str(e))
    """
    path = written(tmp_path, source)
    for number in (1, 2, 3):
        assert start(path, number) == ("", "")
    assert start(path, 4, SCALE="3") == ("stale True\n", "")
    assert start(path, 5, SCALE="3") == ("", "")
