"""Diffrax: solves, gradients by each adjoint, errors, batches, and counts of traces."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from support.comparison import Traces, check_installed_error, on_install

pytestmark = pytest.mark.slow

diffrax = pytest.importorskip("diffrax")

Y0 = jnp.array([1.0, 0.0])


def decay(t: Any, y: Any, args: Any) -> Any:
    return -args * y


def oscillate(t: Any, y: Any, args: Any) -> Any:
    return jnp.array([[0.0, 1.0], [-1.0, 0.0]]) @ y * args


@on_install
def test_solution() -> Any:
    """Returns the contents of a solution: times, values, statistics and result."""

    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(oscillate),
        diffrax.Tsit5(),
        t0=0.0,
        t1=2.0,
        dt0=None,
        y0=Y0,
        args=jnp.array(2.0),
        saveat=diffrax.SaveAt(ts=jnp.linspace(0.0, 2.0, 5), dense=True),
        stepsize_controller=diffrax.PIDController(rtol=1e-4, atol=1e-4),
        max_steps=64,
    )
    ok = bool(solution.result == diffrax.RESULTS.successful)
    interpolated = [solution.evaluate(t) for t in (0.3, 0.3, 1.7)]
    # A jitted method, and a jitted method under vmap.
    many = jax.vmap(solution.evaluate)(jnp.linspace(0.1, 1.9, 4))
    assert ok
    return solution.ts, solution.ys, solution.stats, ok, interpolated, many


def loss_of(adjoint: Any) -> Any:
    def loss(model: Any, y0: Any) -> Any:
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, model: model(y)),
            diffrax.Heun(),
            0.0,
            1.0,
            0.25,
            y0,
            args=model,
            adjoint=adjoint,
            max_steps=8,
        )
        return jnp.sum(solution.ys**2)

    return loss


@on_install
def test_gradients_by_the_backward_solve() -> Any:
    model = eqx.nn.Linear(2, 2, key=jax.random.key(0))

    grad = eqx.filter_value_and_grad(loss_of(diffrax.BacksolveAdjoint()))
    jitted = eqx.filter_jit(grad)
    return jitted(model, Y0), jitted(model, Y0 * 2)


@on_install
def test_forward_mode() -> Any:
    model = eqx.nn.Linear(2, 2, key=jax.random.key(0))

    loss = loss_of(diffrax.ForwardMode())
    return eqx.filter_jvp(loss, (model, Y0), (eqx.filter(model, eqx.is_array), Y0))


def decaying(solver: Any, t1: Any, y0: Any = Y0, dt0: Any = 0.1, **options: Any) -> Any:
    return diffrax.diffeqsolve(
        diffrax.ODETerm(decay), solver, 0.0, t1, dt0, y0, **{"args": 1.0, "max_steps": 4, **options}
    )


def too_few_steps(**options: Any) -> Any:
    return decaying(diffrax.Tsit5(), 10.0, **options)


def test_too_few_steps() -> None:
    check_installed_error(too_few_steps, "maximum number of solver steps was reached")
    check_installed_error(lambda: eqx.filter_jit(too_few_steps)(), "maximum number of solver steps")


def test_error_under_vmap() -> None:
    def solve(y0: Any) -> Any:
        return decaying(diffrax.Euler(), 1.0, y0).ys[0]

    check_installed_error(lambda: jax.vmap(solve)(jnp.ones(2)), "maximum number of solver steps")


@on_install
def test_failure_without_an_error() -> Any:
    solution = too_few_steps(throw=False)
    reached = bool(solution.result == diffrax.RESULTS.max_steps_reached)
    assert reached
    return solution.ys, reached, diffrax.RESULTS[solution.result], solution.stats


@on_install
def test_solves_again_after_an_error() -> Any:
    solve = lambda n: decaying(diffrax.Euler(), n, dt0=0.5).ys
    before = solve(jnp.array(1.0))
    with pytest.raises(RuntimeError, match="maximum number"):
        solve(jnp.array(9.0))
    return before, solve(jnp.array(1.5)), solve(jnp.array(1.0))


@on_install
def test_batch_of_solves() -> Any:
    def solve(y0: Any, rate: Any) -> Any:
        controller = diffrax.PIDController(rtol=1e-3, atol=1e-3)
        return decaying(
            diffrax.Tsit5(),
            1.0,
            y0,
            None,
            args=rate,
            stepsize_controller=controller,
            max_steps=4096,
        )

    rates = jnp.array([1.0, 10.0, 30.0])
    jitted = eqx.filter_jit(eqx.filter_vmap(solve, in_axes=(None, 0)))(Y0, rates)
    return jitted.ys, jitted.stats, jitted.ts


@on_install
def test_events() -> Any:
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, y, args: jnp.array([y[1], -9.8])),
        diffrax.Tsit5(),
        0.0,
        jnp.inf,
        0.1,
        jnp.array([1.0, 0.0]),
        event=diffrax.Event(lambda t, y, args, **kwargs: y[0] < 0.0),
    )
    return solution.ts, solution.ys, solution.event_mask


@on_install
def test_interpolation() -> Any:
    ts, ys = jnp.linspace(0.0, 1.0, 4), jnp.arange(8.0).reshape(4, 2) ** 2
    control = diffrax.CubicInterpolation(
        ts, diffrax.backward_hermite_coefficients(ts, ys, fill_forward_nans_at_end=True)
    )
    linear = diffrax.LinearInterpolation(ts, diffrax.linear_interpolation(ts, ys))
    return (
        control.evaluate(0.3),
        control.derivative(0.4),
        jax.vmap(linear.evaluate)(jnp.array([0.1, 0.9])),
        diffrax.rectilinear_interpolation(ts, ys),
    )


@on_install
def test_loop_of_solves_is_traced_once() -> Any:
    traces = Traces()

    def field(t: Any, y: Any, args: Any) -> Any:
        traces.tick()
        return -y * args["rate"]

    y, counts = Y0, []
    for i in range(4):
        # Everything is recreated each time, as in users' programs.
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(field),
            diffrax.Tsit5(),
            0.0,
            0.5,
            0.1,
            y,
            args={"rate": jnp.array(float(i))},
            saveat=diffrax.SaveAt(t1=True),
            stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-3),
        )
        y = solution.ys[0]
        counts.append(traces.count)
    assert len(set(counts)) == 1
    return y, counts


@on_install
def test_solve_in_a_step_by_step_loop() -> Any:
    """Solvers and their states as arguments and results of a jitted step."""

    term, solver = diffrax.ODETerm(oscillate), diffrax.Tsit5()
    args = jnp.array(1.0)

    @eqx.filter_jit
    def step(solver: Any, t: Any, y: Any, state: Any, made_jump: Any) -> Any:
        t1 = t + 0.1
        y, error, _, state, _ = solver.step(term, t, t1, y, args, state, made_jump)
        return t1, y, state, error

    t, y = jnp.array(0.0), Y0
    state = solver.init(term, t, t + 0.1, y, args)
    for _ in range(3):
        t, y, state, error = step(solver, t, y, state, False)
    return t, y, state, error
