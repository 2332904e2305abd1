"""Optimistix: roots, minima, least squares and fixed points, their gradients and errors."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from support.comparison import Traces, check_installed_error, on_install

pytestmark = pytest.mark.slow

optx = pytest.importorskip("optimistix")

Y0 = {"x": jnp.array(0.3), "y": jnp.array([0.5, 0.7])}


def residual(y: Any, args: Any) -> Any:
    return y["x"] ** 2 - args[0], jnp.cos(y["y"]) - y["y"] * args[1]


def rosenbrock(y: Any, args: Any) -> Any:
    return (1 - y[0]) ** 2 + args * (y[1] - y[0] ** 2) ** 2


ARGS = (jnp.array(2.0), jnp.array([1.0, 1.5]))
ROOTS = {
    "Newton": lambda: optx.Newton(rtol=1e-5, atol=1e-5),
    "LevenbergMarquardt": lambda: optx.LevenbergMarquardt(rtol=1e-5, atol=1e-5),
}


@pytest.mark.parametrize("name", ROOTS)
@on_install
def test_root(name: str) -> Any:
    solution = optx.root_find(residual, ROOTS[name](), Y0, ARGS)
    ok = bool(solution.result == optx.RESULTS.successful)
    assert ok
    return solution.value, solution.stats, solution.aux, ok


@on_install
def test_implicit_gradients() -> Any:
    def value(args: Any) -> Any:
        found = optx.root_find(residual, optx.Newton(rtol=1e-5, atol=1e-5), Y0, args).value
        return found["x"] + jnp.sum(found["y"])

    return jax.grad(value)(ARGS), eqx.filter_jit(eqx.filter_value_and_grad(value))(ARGS)


@on_install
def test_minimum() -> Any:
    made = optx.BFGS(rtol=1e-4, atol=1e-4)
    start = jnp.array([-0.5, 0.5])
    found = optx.minimise(rosenbrock, made, start, jnp.array(5.0), max_steps=500)
    return found.value, found.stats["num_steps"]


@on_install
def test_least_squares() -> Any:
    model = eqx.nn.MLP(1, 1, 3, 1, activation=jnp.tanh, key=jax.random.key(0))
    xs = jnp.linspace(-1.0, 1.0, 8)[:, None]

    def residuals(model: Any, data: Any) -> Any:
        xs, ys = data
        return jax.vmap(model)(xs) - ys

    solver = optx.LevenbergMarquardt(rtol=1e-2, atol=1e-2)
    params, static = eqx.partition(model, eqx.is_array)
    fun = lambda params, data: residuals(eqx.combine(params, static), data)
    found = optx.least_squares(fun, solver, params, (xs, xs**2), max_steps=20, throw=False)
    return found.value, found.stats["num_steps"]


@on_install
def test_fixed_point_in_a_batch() -> Any:
    def solve(a: Any) -> Any:
        solver = optx.FixedPointIteration(rtol=1e-5, atol=1e-5)
        return optx.fixed_point(lambda y, a: jnp.cos(a * y), solver, jnp.array(0.5), a).value

    a = jnp.array([0.1, 0.5, 0.9])
    return jax.vmap(solve)(a), jax.vmap(jax.grad(solve))(a), eqx.filter_vmap(solve)(a)


def no_root(**options: Any) -> Any:
    solver = optx.Newton(rtol=1e-6, atol=1e-6)
    fun = lambda y, args: y**2 + 1.0
    return optx.root_find(fun, solver, jnp.array(0.4), max_steps=5, **options)


def test_error() -> None:
    check_installed_error(no_root, "maximum number of")
    check_installed_error(lambda: eqx.filter_jit(no_root)(), "maximum number of")


@on_install
def test_failure_without_an_error() -> Any:
    found = no_root(throw=False)
    return found.value, optx.RESULTS[found.result], found.stats["num_steps"]


@on_install
def test_loop_is_traced_once() -> Any:
    traces = Traces()

    def fun(y: Any, args: Any) -> Any:
        traces.tick()
        return y**3 - args

    y, counts = jnp.ones(()), []
    for target in (2.0, 3.0, 4.0):
        solver = optx.Newton(rtol=1e-5, atol=1e-5)
        y = optx.root_find(fun, solver, y, jnp.full((), target)).value
        counts.append(traces.count)
    assert len(set(counts)) == 1
    return y, counts


@on_install
def test_solver_stepped_by_hand() -> Any:
    """The solver's state is an argument and a result of a jitted function."""

    solver = optx.BFGS(rtol=1e-4, atol=1e-4)
    y, args = jnp.array([0.0, 0.5]), jnp.array(3.0)
    shape = jax.ShapeDtypeStruct((), jnp.float32)
    fn = eqx.filter_closure_convert(lambda y, args: (rosenbrock(y, args), None), y, args)

    @eqx.filter_jit
    def init(y: Any) -> Any:
        return solver.init(fn, y, args, {}, shape, None, frozenset())

    @eqx.filter_jit
    def step(y: Any, state: Any) -> Any:
        y, state, _ = solver.step(fn, y, args, {}, state, frozenset())
        return y, state, solver.terminate(fn, y, args, {}, state, frozenset())[0]

    state = init(y)
    for _ in range(4):
        y, state, done = step(y, state)
    return y, done, state.f_info.f
