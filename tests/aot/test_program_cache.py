"""The program cache in one process: a function that is made anew stands for a second run.

`test_program_cache_edits.py` has many more programs, `test_program_cache_processes.py` what needs other
processes.
"""

import contextlib
import dataclasses
import enum
import functools
import logging
import os
import random
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aot_files
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from aot_support import copied, counts, new_process, same

import filterjit
from filterjit import filter_jit
from filterjit._aot import _program_option, _proofs
from filterjit._aot._store import Store
from filterjit._call import _running
from support.threads import at_once

pytestmark = pytest.mark.usefixtures("no_cache_afterwards")
X = jnp.ones(3)


def kept_of(f: Any, what: str = "state") -> list[str]:
    (row,) = f.report().as_dict()["functions"]
    return [one[what] for variant in row["variants"] for one in variant["kept"]]


# ---- what is kept: each returns a function that it has made, and the results of calls ----


class E(enum.Enum):
    A = 1


@dataclasses.dataclass(frozen=True)
class C:
    e: E
    n: int = 3


class Model(eqx.Module):
    w: jax.Array
    name: str = ""
    other: str = ""
    act: Any = eqx.field(static=True, default=None)
    gate: Any = eqx.field(static=True, default=None)


def _statics() -> Any:
    @filter_jit
    def f(c: Any, x: Any, *, name: str) -> Any:
        return x * c.n, c, E.A, name, {"k": (1.5, None, "s")}

    y, c, e, *rest = f(C(E.A), X, name="n")
    assert type(c) is C and e is E.A and c.e is E.A
    return f, (y, rest)


def _other_statics() -> Any:
    """A model that comes from a program, in one with other statics."""

    @filter_jit
    def f(m: Any, rate: float) -> Any:
        return eqx.tree_at(lambda m: m.w, m, m.gate(m.act(m.w)) * rate)

    name = "".join(["one ", "object"])
    model = Model(X, name, name, lambda x: x + 1, lambda x: x * 2)
    new = model
    for rate in (1.0, 0.5, 1000.5):
        new = f(new, rate)
        assert (type(new), new.name, new.other) == (Model, name, name)
        assert new.act is model.act and new.gate is model.gate
    return f, new.w


def _flax() -> Any:
    nnx, optax = map(pytest.importorskip, ("flax.nnx", "optax"))

    class Layer(nnx.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            self.linear, self.calls = (
                nnx.Linear(3, 3, rngs=nnx.Rngs(0)),
                nnx.Variable(jnp.zeros(())),
            )

        def __call__(self, x: Any) -> Any:
            self.calls[...] += 1
            return self.linear(x)

    @filterjit.nnx.jit
    def f(model: Any, optim: Any, x: Any) -> Any:
        loss, grads = nnx.value_and_grad(lambda m: (m(x) ** 2).sum())(model)
        optim.update(model, grads)
        return loss

    if f.handed_over:
        pytest.skip("this version of Flax is not supported")
    model = Layer()
    optim = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    losses = [f(model, optim, jnp.ones((2, 3))) for _ in range(3)]
    assert float(model.calls[...]) == 3
    return f, (losses, model.linear.kernel[...])


def _donation() -> Any:
    """And NumPy arrays, keys, and a trace that logs and prints."""

    @filter_jit(donate="all-except-first")
    def f(x: Any, key: Any, y: Any) -> Any:
        logging.getLogger("program").debug("traced")
        print(end="")
        return x + jax.random.normal(key, (3,)), y * 2

    y = jnp.ones(5)
    for _ in range(3):
        x, z = f(np.ones(3, np.float32), jax.random.key(1), y)
        assert y.is_deleted()
        y = z
    return f, (x, y)


def _no_arrays() -> Any:
    f = filter_jit(lambda x: ("a", x.shape[0]))
    return f, f(X)


def _wide() -> Any:
    f = filter_jit(lambda x: x * 2)
    with jax.enable_x64(True):
        return f, f(np.ones(3)) + 0


def _shardings() -> Any:
    mesh, spec = jax.make_mesh((1,), ("d",)), jax.sharding.PartitionSpec("d")

    @filter_jit(
        in_shardings={"m": spec, "x": spec}, out_shardings=(spec, spec), mesh=mesh, donate=("m",)
    )
    def f(m: Any, x: Any) -> Any:
        return jax.tree_util.tree_map(lambda w: w + x, m), x * 2

    m = {"w": X + 0}
    for _ in range(3):
        m, y = f(m, X)
    return f, (m, y)


def _frozen(n: int = 2) -> Any:
    m = {"w": X * n, "act": lambda x: x}
    f = filter_jit(lambda m, x: (m["w"] * x, m["act"])).freeze(m)
    y, act = f(X)
    assert act is m["act"]
    return f, y


KEPT = [_statics, _other_statics, _flax, _donation, _no_arrays, _wide, _shardings, _frozen]


def start(folder: Path, program: Callable[[], Any]) -> tuple[Any, tuple[int, int], list[str]]:
    """Returns what a program returns, how often it was traced and loaded before proofs, and its states
    after them."""
    new_process()
    with filterjit.program_cache(folder):
        f, result = program()
        found = counts(f)
    return result, found, kept_of(f)


@pytest.mark.parametrize("program", KEPT)
def test_a_second_start_compiles_nothing_and_a_third_traces_nothing(
    program: Callable[[], Any], tmp_path: Path
) -> None:
    first, (traces, loaded), states = start(tmp_path, program)
    assert traces > 0 and loaded == 0 and set(states) == {"compiled"}
    for is_traced in (True, False):
        result, (traces, loaded), now = start(tmp_path, program)
        assert (traces > 0) == is_traced and loaded == len(states) and set(now) == {"proven"}
        assert same(result, first)
    if program is _frozen:  # other arrays have another program
        result, (_, loaded), _ = start(tmp_path, lambda: _frozen(3))
        assert loaded == 0 and float(result[0]) == 3.0


# ---- what is not kept, and told ----


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (lambda x: (jax.debug.callback(lambda x: None, x), x)[1], "effects"),
        (lambda x: jax.pure_callback(lambda x: x, x, x), "host callbacks"),
        (lambda x: (x, jax.tree_util.tree_structure([1, 2])), "PyTreeDef([*, *])"),
    ],
)
def test_what_cannot_be_kept_is_told(body: Any, reason: str, tmp_path: Path) -> None:
    for _ in range(2):
        new_process()
        f = filter_jit(copied(body))
        with filterjit.program_cache(tmp_path):
            f(X)
        assert (counts(f), kept_of(f)) == ((1, 0), [""])
        (why,) = kept_of(f, "why")
        assert reason in why and f"is not kept in the program cache: {why}" in str(f.report())


# ---- what a key does not tell ----


def _scaled() -> Any:
    @filter_jit
    def f(x: Any) -> Any:
        return x * float(os.environ["SCALE"])

    found: list[Any] = []
    for _ in range(40):
        try:
            found.append(float(f(X)[0]))
        except filterjit.StaleProgramError as e:
            found.append(str(e))
        if len(found) < 4:
            time.sleep(0.3)
    return f, (found, f)


def test_a_call_after_a_stale_program(tmp_path: Path, monkeypatch: Any) -> None:
    """The next call raises, and those after it run what is traced."""
    for scale in "223":
        monkeypatch.setenv("SCALE", scale)
        (result, f), _, states = start(tmp_path, _scaled)
    assert result[0] == 2.0 and result[2:] == [3.0] * 38 and states == ["stale"]
    for words in ("1 call of `", "f` ran a program", "is not the one", "2.0000", "3.0000"):
        assert words in result[1]
    assert "3.000000e+00" in str(f.report())
    assert start(tmp_path, _scaled)[2] == ["proven"]


@pytest.mark.parametrize("calls", [0, 1])
def test_a_warm_up_is_no_call_of_a_stale_program(
    calls: int, tmp_path: Path, monkeypatch: Any
) -> None:
    def warmed() -> Any:
        f = filter_jit(lambda x: x * float(os.environ["SCALE"]))
        f.warm_up(X)
        return f, [f(X) for _ in range(calls)]

    for _ in range(2):
        monkeypatch.setenv("SCALE", "2")
        start(tmp_path, warmed)
    monkeypatch.setenv("SCALE", "3")
    ran = "^1 call of `.*` ran a program of" if calls else "^`.*` has loaded a program of"
    with pytest.raises(filterjit.StaleProgramError, match=ran):
        start(tmp_path, warmed)


def test_direct_calls_after_a_stale_program(tmp_path: Path, monkeypatch: Any) -> None:
    """Calls of two kinds, which one object makes."""
    lock = threading.RLock()  # proofs wait for it

    def program() -> Any:
        @filter_jit
        def f(x: Any) -> Any:
            with lock:
                return x * float(os.environ["SCALE"])

        def call() -> list[float]:
            return [float(f(jnp.ones(n))[0]) for n in (3, 4)]

        with lock:
            found = [call() for _ in range(60)]
        told, end = 0, time.monotonic() + 60
        while os.environ["SCALE"] == "3" and told < 2 and time.monotonic() < end:
            time.sleep(0.1)
            try:
                call()
            except filterjit.StaleProgramError:
                told += 1
        return f, (found, told, [call() for _ in range(60)])

    for scale in "223":
        monkeypatch.setenv("SCALE", scale)
        (before, told, after), _, _ = start(tmp_path, program)
    assert before[0] == [2.0, 2.0] and told == 2 and after == [[3.0, 3.0]] * 60


class Sized(eqx.Module):
    w: jax.Array
    sizes: list[int] = eqx.field(static=True)


def test_a_static_that_is_changed_in_place_before_its_proof(tmp_path: Path) -> None:
    def program() -> Any:
        f, m = filter_jit(lambda m: m.w * sum(m.sizes)), Sized(X, [1, 2])
        y = f(m)
        m.sizes.append(3)
        return f, [float(y[0]), float(f(m)[0])]

    found = []
    for _ in range(5):
        try:
            result, _, states = start(tmp_path, program)
        except filterjit.StaleProgramError as e:
            assert "changed in place" in str(e)
        else:
            assert result == [3.0, 6.0]
            found.append(states)
    assert found == [["compiled"] * 2, ["proven"] * 2, *[["traced first", "proven"]] * 2]


# ---- what makes another program ----


class P:
    def __init__(self, n: int) -> None:
        self.n = n


def called(x: Any, s: Any) -> Any:
    n = s.n if isinstance(s, P) else 5
    return jnp.sinc(x) * n + len(sys.argv), repr(s) if type(s) is not P else ""


ARRAY, INTS, WEAK = jnp.ones(2), jnp.ones(2, int), jnp.asarray(1.0)
precision = lambda: jax.default_matmul_precision("float32")
CHANGED: list[tuple[tuple[Any, Any], tuple[Any, Any], Callable[[], Any]]] = [
    ((ARRAY, 1), (ARRAY, True), contextlib.nullcontext),
    ((ARRAY, 0.0), (ARRAY, -0.0), contextlib.nullcontext),
    ((ARRAY, 1), (INTS, 1), contextlib.nullcontext),
    ((WEAK, 1), (jnp.ones(()), 1), contextlib.nullcontext),
    ((ARRAY, P(1)), (ARRAY, P(2)), contextlib.nullcontext),
    ((ARRAY, 1), (ARRAY, 1), precision),
    ((ARRAY, 1), (ARRAY, 1), lambda: sys.argv.append("x")),
    ((ARRAY, 1), (ARRAY, 1), lambda: os.environ.update(XLA_OF_A_TEST="1")),
    ((ARRAY, 1), (ARRAY, 1), lambda: os.environ.update(JAX_OF_A_TEST="1")),
]


@pytest.mark.parametrize(("before", "after", "change"), CHANGED)
def test_another_call_has_another_program(
    before: Any, after: Any, change: Callable[[], Any], tmp_path: Path, monkeypatch: Any
) -> None:
    """What is seen without a trace."""
    monkeypatch.setattr("sys.argv", ["program"])
    monkeypatch.setattr("os.environ", os.environ.copy())
    f = kept(tmp_path, called, *before)
    with filterjit.program_cache(tmp_path), change() or contextlib.nullcontext():
        f(*after)
        assert counts(f)[0] == 1


# ---- calls ----


def kept(folder: Path, f: Any, *args: Any, **options: Any) -> Any:
    """Returns a jitted function whose program for these arguments is proven in the folder."""
    for state in ("compiled", "proven"):
        new_process()
        jitted = filter_jit(copied(f), **options)
        with filterjit.program_cache(folder):
            jitted(*(x + 0 if isinstance(x, jax.Array) else x for x in args))  # may be donated
        assert kept_of(jitted) == [state]
    new_process()
    return filter_jit(copied(f), **options)


def double(x: Any) -> Any:
    return x * 2 @ jnp.eye(2) if x.ndim == 2 else x * 2


@pytest.mark.parametrize("warmed", [0, 1, 2])
def test_calls_after_a_warm_up_are_the_hits_that_explain_tells(warmed: int, tmp_path: Path) -> None:
    f = kept(tmp_path, double, jnp.ones(2))
    kinds = [jax.ShapeDtypeStruct((2,), np.float32), np.ones(2, np.float32), jnp.ones(2)]
    with filterjit.program_cache(tmp_path):
        assert f.warm_up(kinds[warmed]).loaded
        for x in (*kinds[1:], np.ones(2)[::-1]):
            assert f.explain(x).hit
            assert same(f(x), 2 * jnp.ones(2))
        assert f.cache_info().hits == 3 and counts(f) == (0, 1)


def test_calls_of_other_kinds(tmp_path: Path, monkeypatch: Any) -> None:
    called: list[Any] = []  # no call runs the program of the trace of a proof
    monkeypatch.setattr(_running.RunningHooks, "before_raising_call", lambda *_: called.append(1))
    f = kept(tmp_path, double, jnp.ones(2))
    with filterjit.program_cache(tmp_path) as cache:
        f(jnp.ones(2))
        cache.wait()
        called.clear()
        for _ in range(40):
            assert same(f(jnp.ones(2)), 2 * jnp.ones(2))
        assert counts(f) == (0, 1) and called == []
        assert same(f(jnp.ones(3)), 2 * jnp.ones(3))  # another shape
        assert counts(f) == (1, 1)
        assert same(f(np.ones(2, np.float32)), 2 * jnp.ones(2))  # from the host
        assert f(jnp.asarray(1.0)).weak_type and not f(jnp.ones(())).weak_type
        assert counts(f) == (3, 1)  # the NumPy array has the program of the other
        assert same(jax.vmap(f)(jnp.ones((3, 2))), 2 * jnp.ones((3, 2)))
        assert same(jax.grad(lambda x: f(x).sum())(jnp.ones(2)), 2 * jnp.ones(2))
        assert same(jax.jit(f)(jnp.ones(2)), 2 * jnp.ones(2))
        with jax.disable_jit():
            assert same(f(jnp.ones(2)), 2 * jnp.ones(2))
        traces = counts(f)[0]
        for _ in range(40):
            assert same(f(jnp.ones(2)), 2 * jnp.ones(2))
            assert same(f(jnp.ones(3)), 2 * jnp.ones(3))
        assert counts(f) == (traces, 1)
    g = filter_jit(copied(double))
    with filterjit.program_cache(tmp_path):
        for shape in ((2,), (3,), (2,), ()):
            assert same(g(jnp.ones(shape)), 2 * jnp.ones(shape))
        assert counts(g) == (3, 3)  # two are on trial, and `f` had the key of the third
        assert g.cache_info()[:3] == (1, 3, 1)


def test_a_call_under_another_configuration(tmp_path: Path) -> None:
    f = kept(tmp_path, double, jnp.ones((2, 2)))
    with filterjit.program_cache(tmp_path):
        for _ in range(30):  # so that calls are direct
            f(jnp.ones((2, 2)))
        assert counts(f) == (0, 1)
        with jax.default_matmul_precision("float32"):
            f(jnp.ones((2, 2)))
            assert counts(f) == (1, 1)
        with jax.numpy_dtype_promotion("strict"), pytest.raises(Exception, match="promotion"):
            f(jnp.ones((2, 2), "bfloat16"))
        with jax.debug_nans(True), pytest.raises(FloatingPointError):
            f(jnp.full((2, 2), jnp.nan))
        f(jnp.ones((2, 2)))


def test_deleted_arrays_and_wrong_arguments_raise_as_always(tmp_path: Path) -> None:
    f = kept(tmp_path, double, jnp.ones(2), donate="all")
    with filterjit.program_cache(tmp_path):
        x = jnp.ones(2)
        f(x)
        assert counts(f) == (0, 1) and x.is_deleted()
        with pytest.raises((RuntimeError, ValueError), match="deleted"):
            f(x)
        with pytest.raises(TypeError, match="argument"):
            f()
        assert same(f(jnp.ones(2)), 2 * jnp.ones(2))


def test_stages_and_clearing(tmp_path: Path) -> None:
    f = kept(tmp_path, double, jnp.ones(2))
    with filterjit.program_cache(tmp_path):
        f(jnp.ones(2))
        assert "hit" in str(f.explain(jnp.ones(2)))
        assert same(f.lower(jnp.ones(2)).compile()(jnp.ones(2)), 2 * jnp.ones(2))
        assert f.eval_shape(jnp.ones(5)).shape == (5,)
        f.clear_cache()
        assert same(f(jnp.ones(2)), 2 * jnp.ones(2))
        jax.clear_caches()
        assert same(f(jnp.ones(2)), 2 * jnp.ones(2))
        filterjit.clear_caches()


def test_threads(tmp_path: Path) -> None:
    for loaded in (0, 4, 4):
        new_process()
        f = filter_jit(copied(double))
        with filterjit.program_cache(tmp_path):
            results = at_once(16, lambda i, f=f: f(jnp.ones(i % 4 + 1)))
            assert all(same(y, 2 * jnp.ones(i % 4 + 1)) for i, y in enumerate(results))
        assert counts(f)[1] >= loaded
    assert counts(f)[0] == 0


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_damaged_folders(tmp_path: Path, seed: int) -> None:
    """Any file, cut, changed, exchanged or no file at all: the results are right."""
    source, whole, folder = random.Random(seed), tmp_path / "whole", tmp_path / "damaged"

    def use(where: Path) -> bool:
        """Returns whether nothing was said; what is wrong is."""
        new_process()
        jitted = [filter_jit(functools.partial(lambda n, x: x * n, n)) for n in range(3)]
        try:
            with filterjit.program_cache(where):
                found = [float(f(jnp.ones(()))) for f in jitted]
        except filterjit.StaleProgramError:
            return False
        assert found == [0, 1, 2]
        return True

    assert [use(whole) for _ in range(3)] == [True] * 3
    for _ in range(40):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole, folder)
        files = {file: file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}
        for file in source.sample(list(files), source.randint(1, 2)):
            data, other = files[file], source.choice(list(files.values()))
            file.unlink()
            match source.randrange(10):
                case 0:
                    file.mkdir()
                case n if n > 1:
                    file.write_bytes(aot_files.damaged(data, other, source))
        assert use(folder), list(files)
        assert use(folder)


# ---- options ----


def test_one_function(tmp_path: Path) -> None:
    def triple(x: Any) -> Any:
        return x * 3

    for loaded in (0, 1):
        f = filter_jit(copied(triple), program_cache=tmp_path)
        f(jnp.ones(2))
        _proofs.writer.wait()
        assert counts(f)[1] == loaded
    with filterjit.program_cache(tmp_path):
        off = filter_jit(copied(triple), program_cache=False)
        off(jnp.ones(2))
        assert counts(off) == (1, 0)
        with filterjit.program_cache(None):
            g = filter_jit(copied(triple))
            g(jnp.ones(2))
            assert counts(g) == (1, 0)
        h = filterjit.jit(copied(triple), program_cache=False)
        h(jnp.ones(2))
        assert counts(h) == (1, 0)


def test_a_list_has_the_arguments(tmp_path: Path) -> None:
    """Those of the program, without the arrays in the function itself."""
    w = jnp.ones(2)
    f = filter_jit(
        jax.tree_util.Partial(lambda w, tree, *, n: w * tree["x"] * n, w), program_cache=tmp_path
    )
    f({"x": jnp.ones(2), "y": jnp.ones((3, 1))}, n=2)
    f.warm_up({"x": jax.ShapeDtypeStruct((1,), "float32"), "y": None}, n=2)
    _proofs.writer.wait()
    found = [one.arguments for one in Store(tmp_path).listed()]
    one, array = {"n": "the int 2"}, "an array float32"
    assert {"tree['x']": f"{array}[2]", "tree['y']": f"{array}[3,1]", **one} in found
    assert {"tree['x']": f"{array}[1]", "tree['y']": "None", **one} in found


@pytest.mark.parametrize("path", ["", 3, True])
def test_bad_paths(path: Any) -> None:
    for make in (filterjit.program_cache, lambda path: filter_jit(double, program_cache=path)):
        with pytest.raises((TypeError, ValueError), match="program cache"):
            make(path)
    assert _program_option.current is None


def test_a_worker_is_waited_for_while_its_next_thread_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thread that was not started cannot be joined."""
    worker, done, is_made = _proofs.Worker(daemon=True), [], threading.Event()

    class Thread(threading.Thread):
        def start(self) -> None:
            is_made.set()
            time.sleep(0.2)
            super().start()

        def join(self, timeout: float | None = None) -> None:
            super().join(timeout)
            if done == [1]:
                is_made.clear()
                other.start()
                is_made.wait(5)

    other = threading.Thread(target=worker.do, args=(lambda: done.append(2),))
    monkeypatch.setattr(threading, "Thread", Thread)
    worker.do(lambda: done.append(1))
    assert worker.wait(5) and done == [1, 2]
