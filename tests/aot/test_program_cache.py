"""The program cache in one process: a module that is imported anew stands for a second run.

`test_program_cache_restarts.py` and `test_program_cache_processes.py` have what needs other processes.
"""

import decimal
import textwrap
import threading
import types
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from aot_support import copied, counts, same

import filterjit
from filterjit import filter_jit
from filterjit._aot import _program_cache, _program_option, _trace_watch
from filterjit._functions._code import nested

HEAD = """
import contextvars, dataclasses, datetime, enum, functools, itertools, os, random, sys, threading, time
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import filterjit
from filterjit import filter_jit
"""


pytestmark = pytest.mark.usefixtures("no_cache_afterwards")


class Run:
    """One run of a program: its module, and what its `main` has returned."""

    def __init__(self, folder: Path, source: str, monkeypatch: Any, **options: Any) -> None:
        self.module = types.ModuleType("program")
        self.module.__file__ = str(folder / "program.py")
        monkeypatch.setitem(__import__("sys").modules, "program", self.module)
        code = compile(HEAD + textwrap.dedent(source), self.module.__file__, "exec")
        exec(code, self.module.__dict__)
        with filterjit.program_cache(folder / "cache", **options):
            self.result = jax.tree_util.tree_map(
                lambda x: np.asarray(x) if isinstance(x, jax.Array) else x, self.module.main()
            )
        (row,) = self.module.f.report().as_dict()["functions"]
        self.traces, self.loaded = row["traces"], row["loaded"]
        self.reasons = [text for v in row["variants"] for text in v["remarks"] if "kept" in text]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: Any) -> Any:
    return lambda source, **options: Run(tmp_path, source, monkeypatch, **options)


# ---- what is kept ----

KEPT = {
    "plain": """
        @filter_jit
        def f(x): return x * 2
        def main(): return f(jnp.ones(3))
    """,
    "statics of all kinds": """
        class E(enum.Enum):
            A = 1
        @dataclasses.dataclass(frozen=True)
        class C:
            e: E
            n: int = 3
        @filter_jit
        def f(c, x, *, name): return x * c.n, c, E.A, name, {"k": (1.5, None, "s")}
        def main():
            y, c, e, *rest = f(C(E.A), jnp.ones(2), name="n")
            assert type(c) is C and e is E.A and c.e is E.A
            return y, rest
    """,
    "a model with a lambda, returned": """
        class M(eqx.Module):
            w: jax.Array
            act: object = eqx.field(static=True)
        @filter_jit
        def f(m, x): return eqx.tree_at(lambda m: m.w, m, m.w * 2), m.act(x)
        def main():
            model = M(jnp.ones(3), lambda x: x + 1)
            new, y = f(model, jnp.ones(2))
            assert type(new) is M and new.act is model.act
            return new.w, y
    """,
    "a method": """
        class M(eqx.Module):
            w: jax.Array
            @filter_jit
            def __call__(self, x: jax.Array) -> jax.Array: return self.w * x
        f = M.__dict__["__call__"]
        def main(): return M(jnp.ones(3))(jnp.ones(3))
    """,
    "a pytree of the user's": """
        class P:
            def __init__(self, a, n): self.a, self.n = a, n
        jax.tree_util.register_pytree_node(P, lambda p: ((p.a,), p.n), lambda n, c: P(c[0], n))
        @filter_jit
        def f(p): return P(p.a * p.n, "x")
        def main():
            found = f(P(jnp.ones(3), 2))
            return found.a, found.n
    """,
    "training": """
        import optax
        optim = optax.adam(1e-3)
        @filter_jit(donate="all")
        def f(model, state, x):
            loss, grads = eqx.filter_value_and_grad(lambda m: jnp.sum(jax.vmap(m)(x) ** 2))(model)
            updates, state = optim.update(grads, state, model)
            return eqx.apply_updates(model, updates), state, loss
        def main():
            model = eqx.nn.MLP(4, 4, 8, 2, key=jax.random.key(0))
            state = optim.init(eqx.filter(model, eqx.is_array))
            for _ in range(3):
                model, state, loss = f(model, state, jnp.ones((2, 4)))
            return loss
    """,
    "filterjit.jit": """
        @filterjit.jit(static_argnames="n")
        def f(x, s, n): return x * n + s
        def main(): return f(jnp.ones(3), 2.0, n=3)
    """,
    "NumPy, keys, donation": """
        @filter_jit(donate="all-except-first")
        def f(x, key, y): return x + jax.random.normal(key, (3,)), y * 2
        def main():
            y = jnp.ones(5)
            out = f(np.ones(3, np.float32), jax.random.key(1), y)
            assert y.is_deleted()
            return out
    """,
    "a large constant": """
        table = np.arange(100_000.0, dtype=np.float32)
        @filter_jit
        def f(x): return x + table
        def main(): return f(jnp.ones(100_000))
    """,
    "no arrays": """
        @filter_jit
        def f(x): return "a", x.shape[0]
        def main(): return f(jnp.ones(3))
    """,
    "a packed tree": """
        @filter_jit
        def f(packed): return filterjit.pack(packed.unpack())
        def main(): return f(filterjit.pack({"a": jnp.ones(3), "b": jnp.ones(2)})).unpack()
    """,
    "an inner jit, custom derivatives, logging, printing": """
        import logging
        @jax.jit
        def inner(x): return x + 1
        @jax.custom_vjp
        def h(x): return x * 2
        h.defvjp(lambda x: (h(x), x), lambda x, g: (g * 3,))
        @filter_jit
        def f(x):
            logging.getLogger("program").debug("traced")
            print(end="")
            return inner(x) + jax.grad(lambda x: h(x).sum())(x)
        def main():
            inner(jnp.ones(3))
            return f(jnp.ones(3))
    """,
    "a model that comes from a program, in one with other statics": """
        class M(eqx.Module):
            w: jax.Array
            name: str
            other: str
            act: object = eqx.field(static=True)
            gate: object = eqx.field(static=True)
        @filter_jit
        def f(m, rate): return eqx.tree_at(lambda m: m.w, m, m.gate(m.act(m.w)) * rate)
        def main():
            name = "".join(["one ", "object"])
            model = M(jnp.ones(3), name, name, lambda x: x + 1, lambda x: x * 2)
            new = model
            for rate in (1.0, 0.5, 1000.5):
                new = f(new, rate)
                assert (new.name, new.other) == (name, name)
                assert new.act is model.act and new.gate is model.gate
            return new.w
    """,
    "64 bits": """
        @filter_jit
        def f(x): return x * 2
        def main():
            with jax.enable_x64(True):
                return f(np.ones(3)) + 0
    """,
}


@pytest.mark.parametrize("name", KEPT)
def test_a_second_run_traces_nothing(run: Any, name: str) -> None:
    first, second = run(KEPT[name]), run(KEPT[name])
    assert (first.loaded, first.reasons) == (0, []) and first.traces > 0
    assert second.traces == 0 and second.loaded == first.traces
    assert same(first.result, second.result)


def test_nnx(run: Any) -> None:
    pytest.importorskip("flax.nnx")
    source = """
        import optax
        from flax import nnx
        class Model(nnx.Module):
            def __init__(self, rngs):
                self.linear, self.calls = nnx.Linear(3, 3, rngs=rngs), nnx.Variable(jnp.zeros(()))
            def __call__(self, x):
                self.calls[...] += 1
                return self.linear(x)
        @filterjit.nnx.jit
        def f(model, optim, x):
            loss, grads = nnx.value_and_grad(lambda m: (m(x) ** 2).sum())(model)
            optim.update(model, grads)
            return loss
        def main():
            model = Model(nnx.Rngs(0))
            optim = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
            losses = [f(model, optim, jnp.ones((2, 3))) for _ in range(3)]
            return losses, model.linear.kernel[...], model.calls[...]
    """
    first, second = run(source), run(source)
    if first.module.f.handed_over:
        pytest.skip("this version of Flax is not supported")
    assert second.traces == 0 and second.loaded > 0
    assert same(first.result, second.result) and float(second.result[2]) == 3


# ---- what is not kept, and told ----

NOT_KEPT = {
    "open": ("with open(os.devnull) as file: return x * len(file.read())", "open"),
    "time": ("t = time.perf_counter(); return x", "time.perf_counter"),
    "now": ("return x * datetime.datetime.now().year", "datetime.now"),
    "random": ("return x * random.random()", "random"),
    "numpy.random": ("return x * np.random.normal()", "numpy.random"),
    "environ[]": ("return x * len(os.environ['PATH'])", "os._Environ"),
    "environ.get": ("return x * len(os.environ.get('PATH', ''))", "os._Environ"),
    "getenv": ("return x * len(os.getenv('PATH', ''))", "os.getenv"),
    "id": ("return x * (id(x) % 2)", "id"),
    "hash": ("return x * (hash('a') % 2)", "hash"),
    "eval": ("return eval('x * 2')", "eval"),
    "a helper": ("return helper(x)", "helper"),
    "a counter": ("global count; count += 1; return x", "count"),
    "a list": ("seen.append(1); return x", "seen"),
    "an iterator": ("return x * next(numbers)", "count"),
    "a context variable": ("return x * variable.get()", "variable"),
    "thread-local": ("return x * local.n", "local"),
    "a file read before": ("return x * remembered(1)", "remembered"),
    "an older trace": ("return x * older(x)", "SCALE"),
    "a callback": ("jax.debug.callback(print_nothing, x); return x", "effects"),
}


@pytest.mark.parametrize("name", NOT_KEPT)
def test_what_is_not_known_is_not_kept(run: Any, name: str) -> None:
    body, reason = NOT_KEPT[name]
    source = f"""
        count, seen, numbers = 0, [], itertools.count(2)
        variable, local = contextvars.ContextVar("v", default=2), threading.local()
        local.n = 3
        SCALE = 2.0
        def print_nothing(x): pass
        def helper(x): return x * len(os.listdir("/"))
        @functools.cache
        def remembered(n):
            with open(os.devnull) as file: return len(file.read()) + n
        @jax.jit
        def older(x): return x * SCALE
        @filter_jit
        def f(x):
            {body}
        def main():
            remembered(1), older(jnp.ones(3))
            return f(jnp.ones(3))
    """
    runs = run(source), run(source)
    for one in runs:
        assert (one.traces, one.loaded) == (1, 0)
        (text,) = one.reasons
        assert "is not kept in the program cache" in text and reason in text


def test_a_result_that_cannot_be_written_is_told(run: Any) -> None:
    source = """
        @filter_jit
        def f(x): return x, jax.tree_util.tree_structure([1, 2])
        def main(): return f(jnp.ones(3))[0]
    """
    (text,) = run(source).reasons
    assert "a static value of its result cannot be written: PyTreeDef([*, *])" in text


def test_frozen_functions_and_shardings_are_not_kept(run: Any) -> None:
    frozen = """
        @filter_jit
        def g(m, x): return m["w"] * x
        f = g.freeze({"w": jnp.ones(3)})
        def main(): return f(jnp.ones(3))
    """
    sharded = """
        mesh = jax.make_mesh((1,), ("d",))
        spec = jax.sharding.PartitionSpec("d")
        @filter_jit(in_shardings={"x": spec}, mesh=mesh)
        def f(x): return x * 2
        def main(): return f(jnp.ones(3))
    """
    for source in (frozen, frozen):
        assert "freeze" in run(source).reasons[0]
    assert run(sharded).loaded == 0 and run(sharded).loaded == 0


# ---- what makes another program ----

CHANGED = {
    "a sentinel": ("f(jnp.ones(2), A)", "f(jnp.ones(2), B)"),
    "an int for a bool": ("f(jnp.ones(2), 1)", "f(jnp.ones(2), True)"),
    "zero": ("f(jnp.ones(2), 0.0)", "f(jnp.ones(2), -0.0)"),
    "a dtype": ("f(jnp.ones(2), 1)", "f(jnp.ones(2, int), 1)"),
    "a weak type": ("f(jnp.asarray(1.0), 1)", "f(jnp.ones(()), 1)"),
    "NumPy": ("f(jnp.ones(2), 1)", "f(np.ones(2, np.float32), 1)"),
    "a list": ("f(jnp.ones(2), 1)", "DATA.append(1) or f(jnp.ones(2), 1)"),
    "an argument of a class": ("f(jnp.ones(2), P(1))", "f(jnp.ones(2), P(2))"),
    "precision": (
        "f(jnp.ones(2), 1)",
        "jax.default_matmul_precision('float32')(f)(jnp.ones(2), 1)",
    ),
    "a function of a package": (
        "f(jnp.ones(2), 1)",
        "setattr(jnp, 'sinc', jnp.cos) or f(jnp.ones(2), 1)",
    ),
    "the arguments of the program": (
        "f(jnp.ones(2), 1)",
        "sys.argv.append('x') or f(jnp.ones(2), 1)",
    ),
}


@pytest.mark.parametrize("name", CHANGED)
def test_another_call_has_another_program(run: Any, name: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(jnp, "sinc", jnp.sinc)
    monkeypatch.setattr("sys.argv", ["program"])
    source = """
        A, B, DATA = object(), object(), [1]
        class P:
            def __init__(self, n): self.n = n
        @filter_jit
        def f(x, s):
            n = 2 if s is A else s.n if isinstance(s, P) else 5
            return jnp.sinc(x) * n + len(DATA) + len(sys.argv), repr(s) if type(s) is not P and n == 5 and s is not B else ""
        def main(): return {}
    """
    before, after = CHANGED[name]
    first = run(source.format(before))
    second = run(source.format(after))
    assert first.reasons == second.reasons == []
    assert (second.traces, second.loaded) == (1, 0)
    monkeypatch.undo()


def test_a_pytree_that_is_registered_in_another_way(run: Any) -> None:
    source = """
        class P:
            def __init__(self, a): self.a = a
        jax.tree_util.register_pytree_node(P, lambda p: ((p.a,), None), lambda _, c: P(c[0] * {}))
        @filter_jit
        def f(p): return jax.tree_util.tree_map(lambda x: x + 1, p).a
        def main(): return f(P(jnp.ones(3)))
    """
    first, second = run(source.format(1)), run(source.format(2))
    assert second.loaded == 0 and not same(first.result, second.result)


# ---- calls ----


def kept(folder: Path, f: Any, *args: Any, **options: Any) -> Any:
    """Returns a jitted function whose program for these arguments is in the folder."""
    jitted = filter_jit(copied(f), **options)
    with filterjit.program_cache(folder):
        jitted(*args)
    (row,) = jitted.report().as_dict()["functions"]
    assert [text for v in row["variants"] for text in v["remarks"] if "kept" in text] == []
    return filter_jit(copied(f), **options)


def double(x: Any) -> Any:
    return x * 2 @ jnp.eye(2) if x.ndim == 2 else x * 2


def test_calls_of_other_kinds(tmp_path: Path) -> None:
    f = kept(tmp_path, double, jnp.ones(2))
    with filterjit.program_cache(tmp_path):
        for _ in range(40):
            assert same(f(jnp.ones(2)), 2 * jnp.ones(2))
        assert counts(f) == (0, 1)
        assert same(f(jnp.ones(3)), 2 * jnp.ones(3))  # another shape
        assert counts(f) == (1, 1)
        assert same(f(np.ones(2, np.float32)), 2 * jnp.ones(2))  # from the host
        assert f(jnp.asarray(1.0)).weak_type and not f(jnp.ones(())).weak_type
        assert counts(f) == (4, 1)
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
        assert counts(g) == (0, 3)
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


def _call(f: Any, n: int, results: list[Any]) -> None:
    results.append((n, f(jnp.ones(n))))


def test_threads(tmp_path: Path) -> None:
    sizes = [1, 2, 3, 4] * 4
    for expected in (0, 4):
        f = filter_jit(copied(double))
        results: list[Any] = []
        with filterjit.program_cache(tmp_path):
            threads = [threading.Thread(target=_call, args=(f, n, results)) for n in sizes]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(results) == 16
            assert all(same(y, 2 * jnp.ones(n)) for n, y in results)
            if expected == 0:
                for n in range(1, 5):  # what two threads have traced at once was not kept
                    filter_jit(copied(double))(jnp.ones(n))
    assert counts(f)[0] == 0


# ---- options ----


def test_one_function(tmp_path: Path) -> None:
    def triple(x: Any) -> Any:
        return x * 3

    for loaded in (0, 1):
        f = filter_jit(copied(triple), program_cache=tmp_path)
        f(jnp.ones(2))
        _program_cache._worker.wait()
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


@pytest.mark.parametrize("path", ["", 3, True])
def test_bad_paths(path: Any) -> None:
    for make in (filterjit.program_cache, lambda path: filter_jit(double, program_cache=path)):
        with pytest.raises((TypeError, ValueError), match="program cache"):
            make(path)
    assert _program_option.current is None


def test_verify(tmp_path: Path) -> None:
    """The trace reads what a module in C keeps to itself, which nothing can see."""

    def f(x: Any) -> Any:
        return x * decimal.getcontext().prec

    def call(expected: int) -> Any:
        g = filter_jit(copied(f))
        assert same(g(jnp.ones(2)), expected * jnp.ones(2))
        return g

    with decimal.localcontext(prec=3):
        with filterjit.program_cache(tmp_path):
            call(3)
        with filterjit.program_cache(tmp_path, verify=True) as cache:
            g = call(3)
            cache.wait()
            assert counts(g)[1] == 1
            assert same(g(jnp.ones(2)), 3 * jnp.ones(2))
    with decimal.localcontext(prec=4):
        with (
            pytest.raises(
                filterjit.StaleProgramError, match=r"`.*<locals>.f` in the program cache"
            ),
            filterjit.program_cache(tmp_path, verify=True),
        ):
            g = call(3)
        with pytest.raises(filterjit.StaleProgramError, match="jit it with program_cache=False"):
            g(jnp.ones(2))
        with filterjit.program_cache(tmp_path, verify=True):  # the program was removed
            call(4)


# ---- what a trace runs ----


def _surprises(f: Any, *known: Any) -> list[str]:
    codes = [code for g in (f, *known) for code in nested(g.__code__)]
    with _trace_watch.watching(codes) as watch:
        f()
    return list(watch.surprises)


def test_code_that_is_not_known_is_a_surprise() -> None:
    def helper() -> int:
        return 1

    def f() -> list[int]:
        return [helper(), *sorted([2, 1], key=lambda n: -n)]

    assert _surprises(f, helper) == []
    (text,) = _surprises(f)
    assert "helper" in text and "test_program_cache.py" in text
    assert _surprises(f) == [text]  # each watch sees it


def test_watches_in_several_threads_and_in_each_other() -> None:
    def shared() -> None:
        pass

    def f() -> None:
        shared()

    def both() -> None:
        shared()
        found.append(_surprises(f))
        shared()

    found: list[list[str]] = []
    outer = _surprises(both, f, _surprises)
    assert any("shared" in text for text in outer) and all("shared" in s[0] for s in found)
    threads = [threading.Thread(target=lambda: found.append(_surprises(f))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 5 and all(len(s) == 1 and "shared" in s[0] for s in found)
