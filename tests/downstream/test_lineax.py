"""Lineax: linear solves of all operators, gradients, batches, errors."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from support.comparison import Traces, check_installed_error, on_install

pytestmark = pytest.mark.slow

lx = pytest.importorskip("lineax")

A = jax.random.normal(jax.random.key(0), (3, 3))
POSITIVE = A @ A.T + jnp.eye(3)
B = jnp.array([1.0, 2.0, 3.0])
OPERATORS = {
    "matrix": lambda: lx.MatrixLinearOperator(A),
    "positive": lambda: lx.MatrixLinearOperator(POSITIVE, lx.positive_semidefinite_tag),
    "diagonal": lambda: lx.DiagonalLinearOperator(B),
    "tridiagonal": lambda: lx.TridiagonalLinearOperator(B, B[:2], B[1:]),
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
def test_solve(name: str) -> Any:
    operator = OPERATORS[name]()
    vector = {"a": B, "b": B[0]} if name == "pytree" else B
    solution = lx.linear_solve(operator, vector)
    inside = eqx.filter_jit(lambda op, v: (lx.linear_solve(op, v).value, op.mv(v)))
    return solution.value, solution.stats, inside(operator, vector)


@pytest.mark.parametrize("solver", ["CG", "GMRES", "BiCGStab"])
@on_install
def test_iterative_solvers(solver: str) -> Any:
    operator = OPERATORS["positive"]()
    solution = lx.linear_solve(operator, B, getattr(lx, solver)(rtol=1e-5, atol=1e-5))
    return solution.value, solution.stats, bool(solution.result == lx.RESULTS.successful)


@on_install
def test_least_squares() -> Any:
    tall = lx.MatrixLinearOperator(jnp.vstack([A, A[:1] + 1]))
    b = jnp.append(B, 4.0)
    return lx.linear_solve(tall, b, lx.QR()).value, lx.linear_solve(tall, b, lx.SVD()).value


@on_install
def test_gradients_and_batches() -> Any:
    def solve(matrix: Any, b: Any) -> Any:
        return jnp.sum(lx.linear_solve(lx.MatrixLinearOperator(matrix), b, lx.LU()).value ** 2)

    batch = jnp.stack([A, POSITIVE])
    return (
        jax.grad(solve, argnums=(0, 1))(A, B),
        eqx.filter_jit(jax.vmap(jax.grad(solve), in_axes=(0, None)))(batch, B),
    )


@on_install
def test_state_kept_between_solves() -> Any:
    """A factorisation as argument and result of jitted functions."""

    solver, operator = lx.LU(), OPERATORS["matrix"]()
    state = eqx.filter_jit(lambda op: solver.init(op, {}))(operator)
    solve = eqx.filter_jit(lambda op, b, state: lx.linear_solve(op, b, solver, state=state).value)
    return [solve(operator, b, state) for b in (B, B * 2)], state


def singular(**options: Any) -> Any:
    return lx.linear_solve(lx.MatrixLinearOperator(jnp.zeros((3, 3))), B, lx.LU(), **options)


def test_error() -> None:
    check_installed_error(singular, "linear solver returned non-finite")
    check_installed_error(lambda: eqx.filter_jit(singular)(), "linear solver returned non-finite")


@on_install
def test_failure_without_an_error() -> Any:
    solution = singular(throw=False)
    return solution.value, lx.RESULTS[solution.result]


@on_install
def test_loop_is_traced_once() -> Any:
    traces = Traces()

    def matvec(x: Any) -> Any:
        traces.tick()
        return POSITIVE @ x

    operator = lx.FunctionLinearOperator(
        matvec, jax.eval_shape(lambda: B), lx.positive_semidefinite_tag
    )
    b, counts = B, []
    for _ in range(3):
        b = lx.linear_solve(operator, b, lx.CG(rtol=1e-4, atol=1e-4)).value
        counts.append(traces.count)
    assert len(set(counts)) == 1
    return b, counts
