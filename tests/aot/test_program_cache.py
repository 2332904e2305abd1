"""The program cache in one process: a module that is imported anew stands for a second run.

`test_program_cache_processes.py` has what needs other processes.
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
from aot_support import copied, counts, new_process, same

import filterjit
from filterjit import filter_jit
from filterjit._aot import _program_option, _proofs, _world
from filterjit._aot._store import Store
from filterjit._call import _running

HEAD = """
import contextvars, dataclasses, datetime, enum, functools, itertools, os, pathlib, random, sys
import threading, time
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import filterjit
from filterjit import filter_jit
"""


pytestmark = pytest.mark.usefixtures("no_cache_afterwards")


class Run:
    """One start of a program: its module, what its `main` has returned, and what was done until then.

    Attributes:
        traces, compiles, loaded: of the function `f`, before proofs.
        states: of its programs, after proofs.
        reasons: why programs are not kept.
    """

    def __init__(self, folder: Path, source: str, monkeypatch: Any, **options: Any) -> None:
        new_process()
        self.module = types.ModuleType("program")
        self.module.__file__ = str(folder / "program.py")
        monkeypatch.setitem(__import__("sys").modules, "program", self.module)
        text = HEAD + textwrap.dedent(source)
        Path(self.module.__file__).write_text(text)
        exec(compile(text, self.module.__file__, "exec"), self.module.__dict__)
        _world._digests.clear()
        with filterjit.program_cache(folder / "cache", **options):
            self.result = jax.tree_util.tree_map(
                lambda x: np.asarray(x) if isinstance(x, jax.Array) else x, self.module.main()
            )
            row = self._row()
            self.traces, self.compiles, self.loaded = (
                row[name] for name in ("traces", "compiles", "loaded")
            )
        kept = [one for v in self._row()["variants"] for one in v["kept"]]
        self.states = [one["state"] for one in kept]
        self.reasons = [one["why"] for one in kept if one["why"]]

    def _row(self) -> Any:
        (row,) = self.module.f.report().as_dict()["functions"]
        return row


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


def starts(run: Any, source: str) -> tuple[Run, Run, Run]:
    """Starts a program three times: it compiles; traces and compiles nothing; does neither before its
    first result."""
    first, second, third = (run(source) for _ in range(3))
    assert first.loaded == 0 and first.traces > 0 and set(first.states) == {"compiled"}
    assert second.compiles == 0 and second.traces > 0 and second.loaded == len(first.states)
    assert set(second.states) == {"proven"}
    assert (third.traces, third.compiles) == (0, 0) and third.loaded == len(first.states)
    assert set(third.states) == {"proven"}
    assert first.reasons == second.reasons == third.reasons == []
    assert same(first.result, second.result) and same(first.result, third.result)
    return first, second, third


@pytest.mark.parametrize("name", KEPT)
def test_a_second_start_compiles_nothing_and_a_third_traces_nothing(run: Any, name: str) -> None:
    starts(run, KEPT[name])


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
    if run(source).module.f.handed_over:
        pytest.skip("this version of Flax is not supported")
    assert float(run(source).result[2]) == 3
    third = run(source)
    assert (third.traces, set(third.states)) == (0, {"proven"})
    assert float(third.result[2]) == 3


# ---- what is not kept, and told ----

NOT_KEPT = {
    "a callback": ("jax.debug.callback(print_nothing, x); return x", "effects"),
    "a callback with a result": (
        "return jax.pure_callback(lambda x: x, x, x)", "host callbacks",
    ),
    "a result that cannot be written": (
        "return x, jax.tree_util.tree_structure([1, 2])", "PyTreeDef([*, *])",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_KEPT)
def test_what_cannot_be_kept_is_told(run: Any, name: str) -> None:
    body, reason = NOT_KEPT[name]
    source = f"""
        def print_nothing(x): pass
        @filter_jit
        def f(x):
            {body}
        def main(): return jax.tree_util.tree_leaves(f(jnp.ones(3)))[0]
    """
    for one in (run(source), run(source)):
        assert (one.traces, one.loaded, one.states) == (1, 0, [""])
        (text,) = one.reasons
        assert reason in text
        assert f"is not kept in the program cache: {text}" in str(one.module.f.report())


# ---- what a key does not tell ----

DIFFERS = {
    "a file": ("return x * float(pathlib.Path(PATH).read_text())", "write(3)"),
    "the environment": ("return x * float(os.environ['SCALE'])", "os.environ['SCALE'] = '3'"),
    "an object that is nothing but another one": ("return x * (2 if s is A else 3)", "S = B"),
    "what a module in C keeps": (
        "return x * decimal.getcontext().prec", "decimal.getcontext().prec = 3",
    ),
    "a value in builtins": ("return x * builtins.SCALE", "builtins.SCALE = 3"),
    "a static of the result": ("return x * 2, int(os.environ['SCALE'])", "os.environ['SCALE'] = '3'"),
    "a weak type": (
        "return x.sum() if os.environ['SCALE'] == '2' else jax.lax.full_like(x.sum(), 3.0) * 2.0",
        "os.environ['SCALE'] = '3'",
    ),
    "which arguments are used": ("return (x, y)[int(os.environ['SCALE']) - 2]", "os.environ['SCALE'] = '3'"),
    "a trace that raises": ("return 1 // (3 - int(os.environ['SCALE'])) * x", "os.environ['SCALE'] = '3'"),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERS)
@pytest.mark.parametrize("trust", ["proven", "always", "never"])
def test_what_a_key_does_not_tell(run: Any, name: str, trust: str, monkeypatch: Any) -> None:
    """A program that runs and is another one is told, once; a trial and `trust="never"` see it before
    it runs."""
    body, change = DIFFERS[name]
    source = """
        import builtins, decimal
        PATH = os.path.join(os.path.dirname(__file__), "scale")
        def write(scale):
            with open(PATH, "w") as file: file.write(str(scale))
        builtins.SCALE = 2
        A, B = object(), object()
        S, os.environ["SCALE"], decimal.getcontext().prec = A, "2", 2
        write(2)
        @filter_jit
        def f(x, y, s):
            BODY
        def main():
            if TIMES > 2: CHANGE
            return f(jnp.ones(3), jnp.zeros(3), S)
    """.replace("BODY", body).replace("CHANGE", f"global S; {change}")
    times = iter(range(1, 9))
    monkeypatch.setenv("SCALE", "2")  # which the program sets
    monkeypatch.setattr("builtins.TIMES", 0, raising=False)

    def start() -> Any:
        monkeypatch.setattr("builtins.TIMES", next(times), raising=False)
        try:
            return run(source, trust=trust)
        except (filterjit.StaleProgramError, ZeroDivisionError) as e:
            return e

    with decimal.localcontext():
        first, second, third, fourth = (start() for _ in range(4))
    assert same(first.result, second.result)
    if trust == "never":
        assert not isinstance(third, filterjit.StaleProgramError)
    else:
        assert isinstance(third, filterjit.StaleProgramError)
        assert "1 call of `f` ran a program" in str(third) and "is not the one" in str(third)
    if "raises" in name:
        assert isinstance(fourth, ZeroDivisionError)
    else:
        assert not same(first.result, fourth.result)


def test_a_program_that_is_another_one_each_time_is_traced_first(run: Any) -> None:
    source = """
        @filter_jit
        def f(x): return x * int(time.perf_counter_ns() % 1_000_000)
        def main(): return f(jnp.ones(3))
    """
    states = [run(source).states for _ in range(4)]
    assert states == [["compiled"], *[["traced first"]] * 3]


def test_what_depends_on_a_thread_is_no_false_alarm(run: Any) -> None:
    source = """
        local = threading.local()
        local.n = 3
        @filter_jit
        def f(x): return x * getattr(local, "n", 5)
        def main():
            for _ in range(3):
                y = f(jnp.ones(3))
                time.sleep(0.3)
            return y
    """
    for state in ("compiled", "proven", "proven"):
        one = run(source)
        assert one.states == [state] and float(one.result[0]) == 3.0


def test_a_false_alarm_is_raised_once(run: Any) -> None:
    """A global that is set around the call only, and nothing else tells: from the next start on, the
    call is traced first."""
    source = """
        n = 2
        @filter_jit
        def f(x): return x * n
        def main():
            global n
            n = 3
            y = f(jnp.ones(3))
            n = 2
            return y
    """
    states = []
    for _ in range(6):
        try:
            one = run(source)
        except filterjit.StaleProgramError:
            states.append("stale")
        else:
            assert float(one.result[0]) == 3.0
            states += one.states
    assert states == ["compiled", "proven", "stale", *["traced first"] * 3]


def test_a_call_after_a_stale_program(run: Any, monkeypatch: Any) -> None:
    """The next call raises, and those after it run what is traced."""
    source = """
        @filter_jit
        def f(x): return x * float(os.environ["SCALE"])
        def main():
            found = []
            for _ in range(40):
                try:
                    found.append(float(f(jnp.ones(3))[0]))
                except filterjit.StaleProgramError as e:
                    found.append(str(e))
                if len(found) < 4:
                    time.sleep(0.3)
            return found
    """
    monkeypatch.setenv("SCALE", "2")
    run(source), run(source)
    monkeypatch.setenv("SCALE", "3")
    one = run(source)
    assert one.result[0] == 2.0 and one.result[2:] == [3.0] * 38
    assert "2.000000e+00" in one.result[1] and "3.000000e+00" in one.result[1]
    assert one.states == ["stale"] and "3.000000e+00" in str(one.module.f.report())
    assert run(source).states == ["proven"]


def test_direct_calls_after_a_stale_program(run: Any, monkeypatch: Any) -> None:
    """Calls of two kinds, which one object makes."""
    source = """
        lock = threading.RLock()  # proofs wait for it
        @filter_jit
        def f(x):
            with lock:
                return x * float(os.environ["SCALE"])
        def call():
            return [float(f(jnp.ones(n))[0]) for n in (3, 4)]
        def main():
            with lock:
                found = [call() for _ in range(60)]
            told, end = 0, time.monotonic() + 60
            while os.environ["SCALE"] == "3" and told < 2 and time.monotonic() < end:
                time.sleep(0.1)
                try:
                    call()
                except filterjit.StaleProgramError:
                    told += 1
            return found, told, [call() for _ in range(60)]
    """
    monkeypatch.setenv("SCALE", "2")
    run(source), run(source)
    monkeypatch.setenv("SCALE", "3")
    before, told, after = run(source).result
    assert before[0] == [2.0, 2.0] and told == 2 and after == [[3.0, 3.0]] * 60


def test_a_static_that_is_changed_in_place_before_its_proof(run: Any) -> None:
    source = """
        class M(eqx.Module):
            w: jax.Array
            sizes: list = eqx.field(static=True)
        @filter_jit
        def f(m): return m.w * sum(m.sizes)
        def main():
            m = M(jnp.ones(3), [1, 2])
            y = f(m)
            m.sizes.append(3)
            return y, f(m)
    """
    states = []
    for _ in range(5):
        try:
            one = run(source)
        except filterjit.StaleProgramError as e:
            assert "changed in place" in str(e)
        else:
            assert [float(y[0]) for y in one.result] == [3.0, 6.0]
            states.append(one.states)
    first, second, *later = states
    assert (first, second) == (["compiled"] * 2, ["proven"] * 2)
    assert later == [["traced first", "proven"]] * 2


# ---- what makes another program ----

CHANGED = {
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
    "the arguments of the program": (
        "f(jnp.ones(2), 1)",
        "sys.argv.append('x') or f(jnp.ones(2), 1)",
    ),
}


@pytest.mark.parametrize("name", CHANGED)
def test_another_call_has_another_program(run: Any, name: str, monkeypatch: Any) -> None:
    """What is seen without a trace."""
    monkeypatch.setattr("sys.argv", ["program"])
    source = """
        class P:
            def __init__(self, n): self.n = n
        DATA = [1]
        @filter_jit
        def f(x, s):
            n = s.n if isinstance(s, P) else 5
            return jnp.sinc(x) * n + len(DATA) + len(sys.argv), repr(s) if type(s) is not P else ""
        def main(): return {}
    """
    before, after = CHANGED[name]
    run(source.format(before)), run(source.format(before))
    last = run(source.format(after))
    assert last.loaded == 0 or last.traces == 1  # found by what it is


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


SHARDED = """
    mesh = jax.make_mesh((1,), ("d",))
    spec = jax.sharding.PartitionSpec("d")
    @filter_jit(in_shardings={"m": spec, "x": spec}, out_shardings=(spec, spec), mesh=mesh, donate=("m",))
    def f(m, x): return jax.tree_util.tree_map(lambda w: w + x, m), x * 2
    def main():
        m = {"w": jnp.ones(3)}
        for _ in range(3):
            m, y = f(m, jnp.ones(3))
        return m, y
"""
FROZEN = """
    @filter_jit
    def g(m, x): return m["w"] * x, m["act"]
    m = {"w": jnp.ones(3) * 2, "act": lambda x: x}
    f = g.freeze(m)
    def main():
        y, act = f(jnp.ones(3))
        assert act is m["act"]
        return y
"""


@pytest.mark.parametrize("source", [SHARDED, FROZEN])
def test_sharded_and_frozen_functions_are_kept(run: Any, source: str) -> None:
    starts(run, source)


def test_other_frozen_arrays_have_another_program(run: Any) -> None:
    for _ in range(2):
        run(FROZEN)
    other = run(FROZEN.replace("* 2", "* 3"))
    assert other.loaded == 0 and float(other.result[0]) == 3.0


# ---- calls ----


def kept(folder: Path, f: Any, *args: Any, **options: Any) -> Any:
    """Returns a jitted function whose program for these arguments is proven in the folder."""
    for state in ("compiled", "proven"):
        new_process()
        jitted = filter_jit(copied(f), **options)
        with filterjit.program_cache(folder):
            jitted(*(x + 0 for x in args))  # may be donated
        (row,) = jitted.report().as_dict()["functions"]
        assert [one["state"] for v in row["variants"] for one in v["kept"]] == [state]
    new_process()
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
        assert counts(f) == (4, 2)  # the NumPy array has the program of the other
        assert same(jax.vmap(f)(jnp.ones((3, 2))), 2 * jnp.ones((3, 2)))
        assert same(jax.grad(lambda x: f(x).sum())(jnp.ones(2)), 2 * jnp.ones(2))
        assert same(jax.jit(f)(jnp.ones(2)), 2 * jnp.ones(2))
        with jax.disable_jit():
            assert same(f(jnp.ones(2)), 2 * jnp.ones(2))
        traces = counts(f)[0]
        for _ in range(40):
            assert same(f(jnp.ones(2)), 2 * jnp.ones(2))
            assert same(f(jnp.ones(3)), 2 * jnp.ones(3))
        assert counts(f) == (traces, 2)
    g = filter_jit(copied(double))
    with filterjit.program_cache(tmp_path):
        for shape in ((2,), (3,), (2,), ()):
            assert same(g(jnp.ones(shape)), 2 * jnp.ones(shape))
        assert counts(g) == (3, 3)  # two are on trial, and `f` had the key of the third
        assert g.cache_info()[:3] == (1, 3, 1)


def test_a_hit_of_a_loaded_program_calls_no_hook(tmp_path: Path, monkeypatch: Any) -> None:
    """Neither after its trial nor after its proof: no call runs the program of that trace."""
    called: list[Any] = []
    monkeypatch.setattr(_running.RunningHooks, "before_raising_call", lambda *_: called.append(1))
    for loaded in (0, 1, 1):
        new_process()
        f = filter_jit(copied(double))
        with filterjit.program_cache(tmp_path):
            f(jnp.ones(2))
        called.clear()
        for _ in range(3):
            f(jnp.ones(2))
        assert counts(f)[1] == loaded and called == []


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
    for loaded in (0, 4, 4):
        new_process()
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
        assert counts(f)[1] >= loaded
    assert counts(f)[0] == 0


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
