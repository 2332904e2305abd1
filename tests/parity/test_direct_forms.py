"""Direct calls in all forms of calling, under transformations, and beside effects.

Where ``jax.jit`` takes the same function, all calls are made with it too, and both must do the same.
"""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.experimental import io_callback
from jax.sharding import PartitionSpec as P

import filterjit
import filterjit.nnx
from support.direct import Beside, counts, outcome, refusals
from support.nnx import needs_this_flax
from support.transforms import TRANSFORMS
from support.versions import auto_mesh, enable_x64, shard_map

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


def _nested() -> Any:
    inner = filterjit.filter_jit(lambda x: x + 1)
    for _ in range(20):
        inner(X)
    return filterjit.filter_jit(lambda x: inner(x) * 2)


MODEL = {"w": X, "b": "static"}
jit: Any = filterjit.filter_jit
of_model: Any = jit(lambda model, x, n: (model["w"] * x + n, n))
closure: Any = jit(lambda x: MODEL["w"] * x)
# The function whose calls are counted, what is called, and with what.
FORMS: dict[str, Callable[[], tuple[Any, Any, list[tuple[Any, ...]]]]] = {
    "statics": lambda: (f := jit(with_statics), f, [(X, {"scale": n, "name": "a"}) for n in (2, 2.5)]),
    "no arrays": lambda: (f := jit(lambda n: jnp.arange(n) * 2), f, [(3,)]),
    "a partial": lambda: (of_model, functools.partial(of_model, MODEL), [(X, 2), (X, 3)]),
    "beside a partial": lambda: (of_model, of_model, [(MODEL, X, 2)]),
    "a closure": lambda: (closure, closure, [(X,)]),
    "a method of a Module": lambda: (Layer.__call__, Layer(X), [(X,)]),
    "a method": lambda: (Counter.times, Counter(2.0).times, [(X,)]),
    "a bound method": lambda: (f := jit(Layer(X).plain), f, [(X,)]),
    "a Module": lambda: (f := jit(eqx.nn.Linear(3, 2, key=jax.random.key(0))), f, [(X,)]),
    "a constant": lambda: (f := jit(lambda x, by=X + 1: x * by), f, [(X,)]),
    "nested": lambda: (f := _nested(), f, [(X,)]),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_forms(form: str) -> None:
    f, call, calls = FORMS[form]()
    for args in calls:
        check_direct(f, call, *args)


@needs_this_flax
def test_nnx() -> None:
    f, theirs = filterjit.nnx.jit(nnx.BatchNorm.__call__), nnx.jit(nnx.BatchNorm.__call__)
    model, other = (nnx.BatchNorm(3, rngs=nnx.Rngs(0)) for _ in range(2))
    for i in range(12):
        x = jnp.eye(3) * i
        np.testing.assert_array_equal(f(model, x), theirs(other, x))
        np.testing.assert_array_equal(model.mean[...], other.mean[...])
    assert counts(f._inner)["direct"], refusals(f._inner)


def test_compiled_under_settings() -> None:
    """A compiled function does what the ``jax.stages.Compiled`` does."""

    def f(x: Any) -> Any:
        return x / x

    ours, theirs = (jit(f).lower(X).compile() for jit in (filterjit.filter_jit, jax.jit))
    contexts = [
        jax.disable_jit, lambda: enable_x64(True), lambda: jax.debug_nans(True), contextlib.nullcontext,
        lambda: jax.default_matmul_precision("float32"),
    ]  # fmt: skip
    for make in contexts * 2:
        with make():
            for _ in range(4):
                assert outcome(ours, (X,)) == outcome(theirs, (X,))
    assert counts(ours)["direct"]


_TRANSFORMED: dict[str, Callable[[Any], Any]] = {
    **{name: lambda f, name=name: TRANSFORMS[name](f)(X) for name in (
        "jit", "grad", "vmap", "jvp", "vjp", "linearize", "scan", "while_loop", "cond",
        "grad of checkpoint",
    )},
    "eval_shape": lambda f: str(jax.eval_shape(f, X)),
    "make_jaxpr": lambda f: str(jax.make_jaxpr(lambda x: f(x) + f(X))(X)),
    "shard_map": lambda f: shard_map(
        f, mesh=auto_mesh("a"), in_specs=P(), out_specs=P()
    )(X),
    # Inside of a trace, with an array of the outside.
    "jit, constant": lambda f: jax.jit(lambda x: f(X) + x)(X),
    "grad, constant": lambda f: jax.grad(lambda x: (f(X) * x).sum())(X),
    "vmap, constant": lambda f: jax.vmap(lambda x: f(X) + x)(jnp.ones((2, 3))),
    "scan, constant": lambda f: jax.lax.scan(lambda c, _: (c + f(X), None), X, length=3),
    "compile time": lambda f: jax.jit(lambda x: _at_compile_time(f) + x)(X),
    "compile time in vmap": lambda f: jax.vmap(lambda x: _at_compile_time(f) + x)(jnp.ones((2, 3))),
    "in a callback": lambda f: filterjit.filter_jit(
        lambda x: jax.pure_callback(lambda y: np.asarray(f(jnp.asarray(np.asarray(y)))), x, x)
    )(X),
    "eager": lambda f: f(X),
}  # fmt: skip


def _at_compile_time(f: Any) -> Any:
    with jax.ensure_compile_time_eval():
        result = f(X)
        assert float(result[1]) == 4
    return result


@pytest.mark.parametrize("name", list(_TRANSFORMED))
def test_transformations(name: str) -> None:
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
        b = Beside(fun)
        for _ in range(5):
            seen.clear()
            b(X)
            jax.effects_barrier()
            assert seen == [1.0, 1.0] or fun is pure
        assert not b.direct
