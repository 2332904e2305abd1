"""JAX's and Equinox's transformations of jitted functions, and inside jitted functions."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import pytest

from support.callables import Affine, square
from support.comparison import Jit, Traces, check, on_both
from support.trees import ONE, TWO

VECTOR = jnp.arange(1.0, 4.0)


# Each maps a function of one array, of any shape, to a function of one array.
Transform = Callable[[Any], Callable[[Any], Any]]

TRANSFORMS: dict[str, Transform] = {
    "jit": jax.jit,
    "vmap": jax.vmap,
    "vmap of vmap": lambda f: lambda x: jax.vmap(jax.vmap(f))(jnp.stack([x, x])),
    "grad": lambda f: jax.grad(lambda x: jnp.sum(f(x))),
    "value_and_grad": lambda f: jax.value_and_grad(lambda x: jnp.sum(f(x))),
    "grad of grad": lambda f: lambda x: jax.grad(lambda y: jnp.sum(jax.grad(lambda z: jnp.sum(f(z)))(y)))(x),
    "hessian": lambda f: jax.hessian(lambda x: jnp.sum(f(x))),
    "jacfwd": jax.jacfwd,
    "jacrev": jax.jacrev,
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (jnp.ones_like(x),)),
    "vjp": lambda f: lambda x: (lambda out, pull: (out, pull(jnp.ones_like(out))))(*jax.vjp(f, x)),
    "linearize": lambda f: lambda x: (lambda out, lin: (out, lin(x)))(*jax.linearize(f, x)),
    "linear_transpose": lambda f: lambda x: jax.linear_transpose(lambda y: jax.jvp(f, (x,), (y,))[1], x)(x),
    "checkpoint": jax.checkpoint,
    "grad of checkpoint": lambda f: jax.grad(lambda x: jnp.sum(jax.checkpoint(f)(x))),
    "scan": lambda f: lambda x: jax.lax.scan(lambda c, _: (f(c) * 0.1, c), x, None, length=3),
    "grad of scan": lambda f: jax.grad(lambda x: jnp.sum(jax.lax.scan(lambda c, _: (f(c) * 0.1, None), x, None, length=3)[0])),
    "while_loop": lambda f: lambda x: jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, f(c[1]) * 0.1), (0, x)),
    "fori_loop": lambda f: lambda x: jax.lax.fori_loop(0, 3, lambda i, c: f(c) * 0.1, x),
    "cond": lambda f: lambda x: jax.lax.cond(jnp.sum(x) > 0, f, lambda y: y, x),
    "switch": lambda f: lambda x: jax.lax.switch(1, [lambda y: y, f], x),
    "map": lambda f: lambda x: jax.lax.map(f, x),
    "eval_shape": lambda f: lambda x: jax.eval_shape(f, x),
    "closed_call": lambda f: lambda x: jax.jit(lambda: f(x))(),
    "custom_jvp": lambda f: _custom_jvp(f),
    "custom_vjp": lambda f: _custom_vjp(f),
    "grad of custom_vjp": lambda f: jax.grad(lambda x: jnp.sum(_custom_vjp(f)(x))),
    "filter_vmap": eqx.filter_vmap,
    "filter_grad": lambda f: eqx.filter_grad(lambda x: jnp.sum(f(x))),
    "filter_value_and_grad": lambda f: eqx.filter_value_and_grad(lambda x: (jnp.sum(f(x)), "aux"), has_aux=True),
    "filter_jvp": lambda f: lambda x: eqx.filter_jvp(f, (x,), (jnp.ones_like(x),)),
    "filter_vjp": lambda f: lambda x: (lambda out, pull: (out, pull(jnp.ones_like(out))))(*eqx.filter_vjp(f, x)),
    "filter_checkpoint": eqx.filter_checkpoint,
    "filter_closure_convert": lambda f: lambda x: eqx.filter_closure_convert(f, x)(x),
    "filter_eval_shape": lambda f: lambda x: eqx.filter_eval_shape(f, x),
    "filter_hessian": lambda f: eqx.filter_hessian(lambda x: jnp.sum(f(x))),
    "filter_jacrev": eqx.filter_jacrev,
    "filter_custom_vjp": lambda f: jax.grad(lambda x: jnp.sum(_filter_custom_vjp(f)(x))),
    "filter_custom_jvp": lambda f: jax.grad(lambda x: jnp.sum(_filter_custom_jvp(f)(x))),
    "noinline": lambda f: eqxi.noinline(f),
    "eqxi scan": lambda f: lambda x: eqxi.scan(lambda c, _: (f(c) * 0.1, None), x, None, length=2, kind="checkpointed")[0],
    "pure_callback beside": lambda f: lambda x: f(x) + jax.pure_callback(lambda y: y, x, x),
}  # fmt: skip


def _custom_jvp(f: Any) -> Any:
    @jax.custom_jvp
    def g(x: Any) -> Any:
        return f(x)

    g.defjvp(lambda primals, tangents: (g(*primals), f(tangents[0]) * 2))
    return g


def _custom_vjp(f: Any) -> Any:
    @jax.custom_vjp
    def g(x: Any) -> Any:
        return f(x)

    g.defvjp(lambda x: (f(x), x), lambda residual, t: (t * f(residual),))
    return g


def _filter_custom_vjp(f: Any) -> Any:
    @eqx.filter_custom_vjp
    def g(x: Any) -> Any:
        return f(x)

    g.def_fwd(lambda perturbed, x: (f(x), x))
    g.def_bwd(lambda residual, t, perturbed, x: t * f(residual))
    return g


def _filter_custom_jvp(f: Any) -> Any:
    @eqx.filter_custom_jvp
    def g(x: Any) -> Any:
        return f(x)

    g.def_jvp(lambda primals, tangents: (g(*primals), tangents[0] * 2))
    return g


@pytest.mark.parametrize("name", TRANSFORMS)
def test_outside_and_inside(name: str) -> None:
    """Each transformation of a jitted function and in a jitted function: results and traces."""
    transform = TRANSFORMS[name]

    def body(jit: Jit) -> Any:
        traces = Traces()

        def counted(x: Any) -> Any:
            traces.tick()
            return square(x)

        outside = transform(jit(counted))
        results = [outside(VECTOR), outside(VECTOR + 1)]
        counts = [traces.count]
        inside = jit(transform(lambda x: counted(x)))
        results += [inside(VECTOR), inside(VECTOR + 1)]
        counts.append(traces.count)
        both = jit(transform(lambda x: jit(counted)(x)))
        results += [both(VECTOR), both(VECTOR * 2)]
        counts.append(traces.count)
        model = jit(Affine(TWO))
        results.append(transform(lambda x: model(x))(VECTOR))
        return results, counts

    check(body)


@pytest.mark.parametrize("inner", ["grad", "vmap", "scan", "custom_vjp", "checkpoint", "jit"])
@pytest.mark.parametrize("outer", ["grad", "vmap", "scan", "filter_vmap", "jvp", "jit"])
@on_both
def test_between_two_transformations(jit: Jit, outer: str, inner: str) -> Any:
    scalar = jit(lambda x: jax.tree.leaves(TRANSFORMS[inner](lambda y: jnp.sin(y) * y)(x))[0])
    if inner in ("vmap", "scan") and outer in ("vmap", "filter_vmap"):
        return TRANSFORMS[outer](scalar)(jnp.ones((2, 3)))
    if inner == "custom_vjp" and outer == "jvp":
        with pytest.raises(TypeError, match="can't apply forward-mode"):
            TRANSFORMS[outer](scalar)(VECTOR)
        return scalar(VECTOR)
    return TRANSFORMS[outer](scalar)(VECTOR if inner == "vmap" or outer != "vmap" else ONE[None])


def test_jaxprs_are_alike() -> None:
    """The jaxpr holds one nested jit with the function's name and the same equations."""

    def body(jit: Jit) -> Any:
        def named(x: Any, y: Any) -> Any:
            return jnp.sin(x) * y, "static"

        jaxpr = jax.make_jaxpr(lambda x, y: jit(named)(x, y)[0])(ONE, TWO)
        (equation,) = jaxpr.eqns
        inner = equation.params["jaxpr"].jaxpr
        return equation.params["name"], [e.primitive.name for e in inner.eqns]

    assert check(body) == ("named", ["sin", "mul"])


# ---- nesting ----


def test_recursion(jit: Jit) -> None:
    traces = Traces()

    @jit
    def factorial(n: Any, x: Any) -> Any:
        traces.tick()
        return x if n == 0 else x * n * factorial(n - 1, x)

    assert factorial(5, ONE) == 120
    assert traces.count == 6
    assert factorial(3, ONE) == 6
    assert factorial(6, ONE) == 720
    assert traces.count == 7


def test_a_jitted_function_that_wraps_itself(jit: Jit) -> None:
    """A variant that is called in its own trace raises RecursionError and does not crash."""

    @jit
    def f(x: Any) -> Any:
        return f(x)

    with pytest.raises(RecursionError):
        f(ONE)


def test_closures_over_tracers(jit: Jit) -> None:
    def f(x: Any, y: Any) -> Any:
        @jit
        def g(z: Any) -> Any:
            return x * z

        return g(y) + g(y + 1)

    assert f(TWO, ONE) == 6
    assert jax.jit(f)(TWO, ONE) == 6
    assert jit(f)(TWO, ONE) == 6
    assert jax.grad(f)(TWO, ONE) == 3
    assert jax.grad(jit(f), argnums=1)(TWO, ONE) == 4
    assert jax.vmap(f, in_axes=(0, None))(VECTOR, ONE).tolist() == [3, 6, 9]


def test_tracers_in_every_place(jit: Jit) -> None:
    """Tracers in containers, fields, keywords, and in the function itself."""
    traces = Traces()

    @jit
    def f(x: Any, *rest: Any, k: Any, **more: Any) -> Any:
        traces.tick()
        return x["a"].w * rest[0][0] + k + more["m"].b

    def g(x: Any) -> Any:
        return f({"a": Affine(x)}, [x], k=x, m=Affine(1, x)) + jit(Affine(x))(x)

    assert g(TWO) == 2 * 2 + 2 + 2 + 5
    assert jax.jit(g)(TWO) == 13
    assert jax.grad(g)(TWO) == 4 + 1 + 1 + 4
    assert jax.vmap(g)(VECTOR).tolist() == [x * x + 2 * x + x * x + 1 for x in (1.0, 2.0, 3.0)]
    assert traces.count == 2  # under vmap, the constants of g are not weakly typed


def test_statics_stay_static_under_transformations(jit: Jit) -> None:
    traces = Traces()

    @jit
    def f(x: Any, power: Any, flag: Any) -> Any:
        traces.tick()
        assert isinstance(power, int)
        return x**power if flag else x

    for _ in range(2):
        assert jax.grad(f)(TWO, 3, True) == 12
        assert jax.vmap(lambda x: f(x, 2, True))(VECTOR).tolist() == [1, 4, 9]
        assert jax.jit(lambda x: f(x, 2, False))(TWO) == 2
    assert traces.count == 3


# ---- errors in transformations ----


@on_both
def test_concretisation_errors(jit: Jit) -> Any:
    """JAX's own errors come through unchanged."""
    kinds = []
    for fun in (
        lambda x: float(x),
        lambda x: x if x > 0 else -x,
        lambda x: [0, 1][x.astype(int)],
    ):
        with pytest.raises(Exception) as info:
            jit(fun)(ONE)
        kinds.append(type(info.value).__name__)
    return kinds


def test_errors_of_the_function(jit: Jit) -> None:
    """An exception while tracing is raised unchanged, with the user's frames, in each call."""
    traces = Traces()
    error = KeyError("mine")

    @jit
    def f(x: Any, fail: Any) -> Any:
        traces.tick()
        if fail:
            raise error
        return x

    assert f(ONE, False) == 1
    for n in range(3):
        with pytest.raises(KeyError) as info:
            f(ONE, True)
        assert info.value is error
        names = [entry.name for entry in info.traceback]
        assert names[-1] == "f"
        assert traces.count == n + 2
    assert f(ONE, False) == 1
    assert traces.count == 4


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, StopIteration])
def test_base_exceptions_pass(jit: Jit, kind: type[BaseException]) -> None:
    @jit
    def f(x: Any, fail: Any) -> Any:
        if fail:
            raise kind
        return x

    with pytest.raises(kind):
        f(ONE, True)
    assert f(ONE, False) == 1
