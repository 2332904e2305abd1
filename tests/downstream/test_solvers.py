"""Diffrax, Lineax and Optimistix: solves, their gradients, batches, errors, and counts of traces."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from support.comparison import Traces, check_installed_error, on_install

pytestmark = pytest.mark.slow

diffrax = pytest.importorskip("diffrax")
lx = pytest.importorskip("lineax")
optx = pytest.importorskip("optimistix")

Y0 = jnp.array([1.0, 0.0])


def decay(t: Any, y: Any, args: Any) -> Any:
    return -args * y


def oscillate(t: Any, y: Any, args: Any) -> Any:
    return jnp.array([[0.0, 1.0], [-1.0, 0.0]]) @ y * args


def solved(field: Any, t1: Any = 1.0, y0: Any = Y0, dt0: Any = 0.1, **options: Any) -> Any:
    solver = options.pop("solver", None) or diffrax.Tsit5()
    return diffrax.diffeqsolve(diffrax.ODETerm(field), solver, 0.0, t1, dt0, y0, **options)


def adaptive(tolerance: float) -> Any:
    return diffrax.PIDController(rtol=tolerance, atol=tolerance)


@on_install
def test_solution_of_an_equation() -> Any:
    """Returns the contents of a solution: times, values, statistics and result."""
    saveat = diffrax.SaveAt(ts=jnp.linspace(0.0, 2.0, 5), dense=True)
    options = {"stepsize_controller": adaptive(1e-4), "saveat": saveat, "max_steps": 64}
    solution = solved(oscillate, 2.0, dt0=None, args=jnp.array(2.0), **options)
    ok = bool(solution.result == diffrax.RESULTS.successful)
    interpolated = [solution.evaluate(t) for t in (0.3, 0.3, 1.7)]
    # A jitted method, and a jitted method under vmap.
    many = jax.vmap(solution.evaluate)(jnp.linspace(0.1, 1.9, 4))
    assert ok
    return solution.ts, solution.ys, solution.stats, ok, interpolated, many


@on_install
def test_gradients_by_the_backward_solve() -> Any:
    def loss(model: Any, y0: Any) -> Any:
        adjoint = diffrax.BacksolveAdjoint()
        options = {"solver": diffrax.Heun(), "adjoint": adjoint, "max_steps": 8}
        solution = solved(lambda t, y, model: model(y), 1.0, y0, 0.25, args=model, **options)
        return jnp.sum(solution.ys**2)

    model = eqx.nn.Linear(2, 2, key=jax.random.key(0))
    jitted = eqx.filter_jit(eqx.filter_value_and_grad(loss))
    return jitted(model, Y0), jitted(model, Y0 * 2)


def decaying(t1: Any, y0: Any = Y0, dt0: Any = 0.1, **options: Any) -> Any:
    return solved(decay, t1, y0, dt0, **{"args": 1.0, "max_steps": 4, **options})


def too_few_steps(**options: Any) -> Any:
    return decaying(10.0, **options)


@on_install
def test_solves_again_after_an_error() -> Any:
    solve = lambda n: decaying(n, dt0=0.5, solver=diffrax.Euler()).ys
    before = solve(jnp.array(1.0))
    with pytest.raises(RuntimeError, match="maximum number"):
        solve(jnp.array(9.0))
    return before, solve(jnp.array(1.5)), solve(jnp.array(1.0))


A = jax.random.normal(jax.random.key(0), (3, 3))
B = jnp.array([1.0, 2.0, 3.0])
OPERATORS = {
    "matrix": lambda: lx.MatrixLinearOperator(A),
    "sum": lambda: lx.MatrixLinearOperator(A) + 2 * lx.IdentityLinearOperator(
        jax.ShapeDtypeStruct((3,), jnp.float32)
    ),
    "function": lambda: lx.FunctionLinearOperator(lambda x: A @ x, jax.eval_shape(lambda: B)),
    "jacobian": lambda: lx.JacobianLinearOperator(lambda x, args: jnp.sin(A @ x) + x, B),
    "pytree": lambda: lx.PyTreeLinearOperator(
        {"a": {"a": A, "b": A[:, 0]}, "b": {"a": A[0], "b": jnp.array(5.0)}},
        {"a": jax.eval_shape(lambda: B), "b": jax.eval_shape(lambda: B[0])},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
@on_install
def test_linear_solve(name: str) -> Any:
    operator = OPERATORS[name]()
    vector = {"a": B, "b": B[0]} if name == "pytree" else B
    solution = lx.linear_solve(operator, vector)
    inside = eqx.filter_jit(lambda op, v: (lx.linear_solve(op, v).value, op.mv(v)))
    return solution.value, solution.stats, inside(operator, vector)


def singular(**options: Any) -> Any:
    return lx.linear_solve(lx.MatrixLinearOperator(jnp.zeros((3, 3))), B, lx.LU(), **options)


START = {"x": jnp.array(0.3), "y": jnp.array([0.5, 0.7])}


def residual(y: Any, args: Any) -> Any:
    return y["x"] ** 2 - args[0], jnp.cos(y["y"]) - y["y"] * args[1]


ARGS = (jnp.array(2.0), jnp.array([1.0, 1.5]))


@on_install
def test_root() -> Any:
    solution = optx.root_find(residual, optx.Newton(rtol=1e-5, atol=1e-5), START, ARGS)
    ok = bool(solution.result == optx.RESULTS.successful)
    assert ok
    return solution.value, solution.stats, solution.aux, ok


def no_root(**options: Any) -> Any:
    solver = optx.Newton(rtol=1e-6, atol=1e-6)
    fun = lambda y, args: y**2 + 1.0
    return optx.root_find(fun, solver, jnp.array(0.4), max_steps=5, **options)


FAILS = {
    too_few_steps: (diffrax.RESULTS, "maximum number of solver steps was reached"),
    singular: (lx.RESULTS, "linear solver returned non-finite"),
    no_root: (optx.RESULTS, "maximum number of"),
}


@pytest.mark.parametrize("fails", FAILS)
def test_error(fails: Callable[..., Any]) -> None:
    _, words = FAILS[fails]
    check_installed_error(fails, words)
    check_installed_error(lambda: eqx.filter_jit(fails)(), words)


@pytest.mark.parametrize("fails", FAILS)
@on_install
def test_failure_without_an_error(fails: Callable[..., Any]) -> Any:
    found, (results, _) = fails(throw=False), FAILS[fails]
    text = results[found.result]
    assert text != ""
    return found.ys if fails is too_few_steps else found.value, text, found.stats


@on_install
def test_a_loop_of_solves_is_traced_once() -> Any:
    """Solvers and options are made again each time, as in users' programs."""
    traces = Traces()

    def field(t: Any, y: Any, args: Any) -> Any:
        traces.tick()
        return -y * args["rate"]

    y, counts = Y0, []
    for i in range(4):
        options = {"saveat": diffrax.SaveAt(t1=True), "stepsize_controller": adaptive(1e-3)}
        y = solved(field, 0.5, y, args={"rate": jnp.array(float(i + 2))}, **options).ys[0]
        counts.append(traces.count)
    assert len(set(counts)) == 1
    return y, counts
