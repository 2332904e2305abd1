"""Direct calls in all forms of calling, under transformations, beside effects, and in threads.

Where ``jax.jit`` takes the same function, all calls are made with it too, and both must do the same.
"""

import contextlib
import functools
import gc
import importlib.util
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback

import filterjit
from filterjit._call import _direct
from support.direct import Beside, counts, refusals
from support.threads import at_once
from support.transforms import TRANSFORMS

pytestmark = pytest.mark.usefixtures("direct")

X = jnp.arange(3.0)


def with_statics(x: Any, n: Any) -> Any:
    return {"x": x * n["scale"], "name": n["name"], "shape": x.shape}


def check_direct(f: Any, call: Callable[..., Any], *args: Any, count: int = 3) -> None:
    """Makes calls with the same arguments. The last ones must be direct and return the same."""
    first = call(*args)
    for _ in range(4):
        call(*args)
    before = counts(f).get("direct", 0)
    for _ in range(count):
        assert eqx.tree_equal(call(*args), first)
    assert counts(f).get("direct", 0) == before + count, (counts(f), refusals(f))


# ---- forms of calls ----


def test_statics() -> None:
    f = filterjit.filter_jit(with_statics)
    for scale in (2, 3, 2.5):
        check_direct(f, f, X, {"scale": scale, "name": "a"})
    assert len(f.variants) == 3


def test_no_arrays() -> None:
    f = filterjit.filter_jit(lambda n: jnp.arange(n) * 2)
    check_direct(f, f, 3)


def test_partial() -> None:
    f = filterjit.filter_jit(lambda model, x, n: (model["w"] * x + n, n))
    partial = f.partial({"w": X, "b": "static"})
    check_direct(f, partial, X, 2)
    check_direct(f, f, {"w": X, "b": "static"}, X, 2)
    other = f.partial({"w": X + 1, "b": "static"}, n=3)
    check_direct(f, other, X)


def test_freeze() -> None:
    f = filterjit.filter_jit(lambda model, x: model["w"] @ x)
    frozen = f.freeze({"w": jnp.ones((100, 100))})
    check_direct(frozen, frozen, jnp.ones(100))


class Layer(eqx.Module):
    weight: Any
    name: Any = eqx.field(static=True, default="layer")

    @filterjit.filter_jit
    def __call__(self, x: Any) -> Any:
        return self.weight * x, self.name

    def plain(self, x: Any) -> Any:
        return self.weight + x


class Counter:
    def __init__(self, scale: float) -> None:
        self.scale = scale

    @filterjit.filter_jit
    def times(self, x: Any) -> Any:
        return x * self.scale


def test_methods() -> None:
    layer = Layer(X)
    check_direct(Layer.__call__, layer, X)
    counter = Counter(2.0)
    check_direct(Counter.times, counter.times, X)
    bound = filterjit.filter_jit(layer.plain)
    check_direct(bound, bound, X)
    called = filterjit.filter_jit(functools.partial(Layer.plain, layer))
    check_direct(called, called, X)


def test_functions_with_arrays() -> None:
    scale = X + 1
    f = filterjit.filter_jit(eqx.nn.Linear(3, 2, key=jax.random.key(0)))
    check_direct(f, f, X)
    g = filterjit.filter_jit(lambda x: x * scale)  # a constant of the program
    check_direct(g, g, X)


def test_nnx() -> None:
    if importlib.util.find_spec("flax") is None:
        pytest.skip("needs Flax")
    from flax import nnx

    import filterjit.nnx

    def step(model: Any, x: Any) -> Any:
        model.count[...] += 1
        return model(x)

    class Model(nnx.Module):
        def __init__(self) -> None:
            self.linear = nnx.Linear(3, 3, rngs=nnx.Rngs(0))
            self.count = nnx.Variable(jnp.zeros((), int))

        def __call__(self, x: Any) -> Any:
            return self.linear(x)

    f, theirs = filterjit.nnx.jit(step), nnx.jit(step)
    model, other = Model(), Model()
    for i in range(1, 12):
        np.testing.assert_array_equal(f(model, X), theirs(other, X))
        assert model.count[...] == i == other.count[...]
    assert counts(f._inner)["direct"], refusals(f._inner)


def test_ahead_of_time(tmp_path: Path) -> None:
    f = filterjit.filter_jit(with_statics)
    args = X, {"scale": 2, "name": "a"}
    compiled = f.lower(*args).compile()
    check_direct(compiled, compiled, *args)
    compiled.save(tmp_path / "file.jit")
    loaded = filterjit.load(tmp_path / "file.jit")
    check_direct(loaded, loaded, *args)
    for c in (compiled, loaded):
        with pytest.raises(filterjit.MismatchError, match="float32"):
            c(jnp.arange(3), args[1])
        with pytest.raises(filterjit.MismatchError):
            c(jnp.arange(4.0), args[1])
        with pytest.raises(filterjit.MismatchError):
            c(X, {"scale": 3, "name": "a"})
        np.testing.assert_array_equal(c(np.ones(3, np.float32), args[1])["x"], np.full(3, 2))
        check_direct(c, c, *args)


def test_compiled_under_settings() -> None:
    """A compiled function does what the ``jax.stages.Compiled`` does."""

    def f(x: Any) -> Any:
        return x / x

    ours = filterjit.filter_jit(f).lower(X).compile()
    theirs = jax.jit(f).lower(X).compile()
    contexts = [
        jax.disable_jit, jax.enable_x64, lambda: jax.debug_nans(True), contextlib.nullcontext,
        lambda: jax.default_matmul_precision("float32"), lambda: jax.no_execution(True),
    ] if hasattr(jax, "no_execution") else [
        jax.disable_jit, lambda: jax.debug_nans(True), contextlib.nullcontext,
    ]  # fmt: skip
    for make in contexts * 2:
        with make():
            for _ in range(4):
                found = []
                for call in (ours, theirs):
                    try:
                        found.append(np.asarray(call(X)).tobytes())
                    except Exception as e:
                        found.append(type(e))  # type: ignore[arg-type]
                assert found[0] == found[1]
    assert counts(ours)["direct"]


def test_options_of_jit() -> None:
    for options in ({"keep_unused": True}, {"inline": True}, {"compiler_options": {}}):
        b = Beside(lambda x, y: x + 1, **options)
        b.until_direct(X, X)
        assert b.is_direct(X, jnp.ones(3))


def test_turned_off() -> None:
    f = filterjit.filter_jit(lambda x: x + 1)
    check_direct(f, f, X)
    before = counts(f)["direct"]
    _direct._context.enabled = 0  # type: ignore[union-attr]
    f(X)
    assert counts(f) == {**counts(f), "direct": before, "off": 1}
    _direct._context.enabled = 1  # type: ignore[union-attr]
    check_direct(f, f, X)


# ---- traces ----


_TRANSFORMED: dict[str, Callable[[Any], Any]] = {
    **{name: lambda f, name=name: TRANSFORMS[name](f)(X) for name in (
        "jit", "grad", "vmap", "jvp", "vjp", "linearize", "scan", "while_loop", "cond",
        "grad of checkpoint",
    )},
    "eval_shape": lambda f: str(jax.eval_shape(f, X)),
    "make_jaxpr": lambda f: str(jax.make_jaxpr(lambda x: f(x) + 1)(X).out_avals),
    "shard_map": lambda f: jax.shard_map(
        f, mesh=jax.make_mesh((1,), ("a",)), in_specs=jax.P(), out_specs=jax.P()
    )(X),
    # Inside of a trace, with an array of the outside.
    "jit, constant": lambda f: jax.jit(lambda x: f(X) + x)(X),
    "grad, constant": lambda f: jax.grad(lambda x: (f(X) * x).sum())(X),
    "vmap, constant": lambda f: jax.vmap(lambda x: f(X) + x)(jnp.ones((2, 3))),
    "scan, constant": lambda f: jax.lax.scan(lambda c, _: (c + f(X), None), X, length=3),
    "compile time": lambda f: jax.jit(lambda x: _at_compile_time(f) + x)(X),
    "compile time in vmap": lambda f: jax.vmap(lambda x: _at_compile_time(f) + x)(jnp.ones((2, 3))),
    "eager": lambda f: f(X),
}  # fmt: skip


def _at_compile_time(f: Any) -> Any:
    with jax.ensure_compile_time_eval():
        result = f(X)
        assert float(result[1]) == 4
    return result


@pytest.mark.parametrize("name", list(_TRANSFORMED))
def test_transformations(name: str) -> None:
    if name == "shard_map" and not hasattr(jax, "shard_map"):
        pytest.skip("needs jax.shard_map")

    def fun(x: Any) -> Any:
        return x * x + 3

    f = filterjit.filter_jit(fun)
    expected = _TRANSFORMED[name](jax.jit(fun))
    for _ in range(3):
        check_direct(f, f, X)
        found = _TRANSFORMED[name](f)
        leaves = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
        for a, b in leaves:
            np.testing.assert_array_equal(a, b)
            assert type(a) is type(b)
    # The first call of all may also be one that is traced.
    g = filterjit.filter_jit(fun)
    for _ in range(3):
        _TRANSFORMED[name](g)
    check_direct(g, g, X)


def test_no_direct_call_is_recorded_inside_of_a_trace() -> None:
    """A call with arrays alone is part of the program that is being traced."""
    f = filterjit.filter_jit(lambda x: x + 1)
    check_direct(f, f, X)
    direct = counts(f)["direct"]
    text = str(jax.make_jaxpr(lambda x: x + f(X))(X))
    assert counts(f)["direct"] == direct
    assert text == str(jax.make_jaxpr(lambda x: x + jax.jit(lambda x: x + 1)(X))(X))


def test_direct_inside_of_direct() -> None:
    inner = filterjit.filter_jit(lambda x: x + 1)
    outer = filterjit.filter_jit(lambda x: inner(x) * 2)
    check_direct(inner, inner, X)
    check_direct(outer, outer, X)
    check_direct(inner, inner, X)


def test_leaked_tracers() -> None:
    f = filterjit.filter_jit(lambda x: x + 1)
    check_direct(f, f, X)
    leaked: list[Any] = []
    jax.jit(lambda x: leaked.append(x))(X)
    for _ in range(2):
        with pytest.raises(jax.errors.UnexpectedTracerError):
            f(leaked[0])
    check_direct(f, f, X)


# ---- effects, callbacks, errors ----


def test_callbacks() -> None:
    """Programs with callbacks or effects are left to ``jax.jit``."""
    seen: list[float] = []

    def pure(x: Any) -> Any:
        return jax.pure_callback(lambda x: np.asarray(x) * 2, x, x)

    def io(x: Any) -> Any:
        return io_callback(lambda x: seen.append(float(x[1])), None, x), x + 1

    def ordered(x: Any) -> Any:
        io_callback(lambda x: seen.append(float(x[1])), None, x, ordered=True)
        return x + 1

    def debug(x: Any) -> Any:
        jax.debug.callback(lambda x: seen.append(float(x[1])), x)
        return x + 1

    for fun in (pure, io, ordered, debug):
        ours, theirs = filterjit.filter_jit(fun), jax.jit(fun)
        for _ in range(5):
            seen.clear()
            a = ours(X)
            jax.effects_barrier()
            mine = list(seen)
            seen.clear()
            b = theirs(X)
            jax.effects_barrier()
            assert mine == seen
            for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
                np.testing.assert_array_equal(x, y)
        assert "direct" not in counts(ours)


def test_calls_in_a_callback() -> None:
    inner = filterjit.filter_jit(lambda x: x * 3)
    check_direct(inner, inner, jnp.ones(2))

    def host(x: Any) -> Any:
        return np.asarray(inner(jnp.asarray(np.asarray(x))))

    outer = filterjit.filter_jit(lambda x: jax.pure_callback(host, x, x))
    for _ in range(4):
        np.testing.assert_array_equal(outer(jnp.ones(2)), np.full(2, 3))


# ---- threads and interrupts ----


def test_threads() -> None:
    f = filterjit.filter_jit(lambda x, y: (x + y, x.sum()))
    arrays = [jnp.full((3,), i, d) for i in range(3) for d in ("float32", "int32")]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)

    def work(i: int) -> None:
        for k in range(150):
            x = arrays[(i + k) % len(arrays)] if k % 5 else jnp.full((3,), k, "float32")
            got, total = f(x, arrays[0])
            assert got.dtype == (x.dtype if x.dtype == arrays[0].dtype else jnp.float32)
            np.testing.assert_array_equal(got, np.asarray(x) + np.asarray(arrays[0]))
            assert total == np.asarray(x).sum()

    try:
        assert at_once(4, work) == [None] * 4
    finally:
        sys.setswitchinterval(before)
    assert counts(f)["direct"]


def test_settings_of_threads() -> None:
    """Threads with settings of their own call one function at once."""
    f = filterjit.filter_jit(lambda x: (x + 1, jnp.asarray(1.0)))
    check_direct(f, f, X)

    def work(i: int) -> None:
        with jax.enable_x64(bool(i % 2)):
            for _ in range(60):
                assert str(f(X)[1].dtype) == ("float64" if i % 2 else "float32")

    assert at_once(4, work) == [None] * 4
    check_direct(f, f, X)


def test_donation_in_threads() -> None:
    f = filterjit.filter_jit(lambda x: x + 1, donate="all")

    def work(i: int) -> None:
        x = jnp.full(3, i, "float32")
        for _ in range(100):
            x = f(x)
        np.testing.assert_array_equal(x, np.full(3, i + 100))

    assert at_once(4, work) == [None] * 4
    assert counts(f)["direct"]


@pytest.mark.skipif(
    not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread(),
    reason="needs signals",
)
def test_interrupts() -> None:
    """A KeyboardInterrupt at any moment of a call leaves nothing half done."""
    f = filterjit.filter_jit(lambda x, y: (x / 2 + y, x.sum()))
    y, interrupts = jnp.ones(3), 0

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    gc.disable()  # whose callbacks cannot be interrupted
    try:
        for i in range(100):
            if i % 10 == 0:
                f.clear_cache()
                f(X, y)  # JAX turns an interrupt of a trace into other errors
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-4 * (i % 20 + 1))
                x = X
                for _ in range(2_000):
                    x, _ = f(x, y)
            except KeyboardInterrupt:
                interrupts += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            got, total = f(X, y)
            np.testing.assert_array_equal(got, [1, 1.5, 2])
            assert total == 3
    finally:
        gc.enable()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupts > 50 and counts(f)["direct"]
    check_direct(f, f, X, y)
