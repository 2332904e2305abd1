"""``eqx.error_if`` inside a jitted function: when it raises, which error, and the state afterwards."""

import traceback
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from support.comparison import Jit, check, check_error, first_line, on_both
from support.features import MINUS, Guard, X, fails, positive
from support.processes import environment, run_code
from support.trees import ONE, TWO

FAILING: dict[str, Callable[[Jit], Any]] = {
    "Module": lambda jit: jit(Guard(ONE))(jnp.array(0.0)),
    "method": lambda jit: jit(Guard(ONE).method)(jnp.array(-10.0)),
    "bool": lambda jit: jit(lambda x: eqx.error_if(x, x.sum() > 0, "of a vector"))(X),
    "tree": lambda jit: jit(lambda t: eqx.error_if(t, t["a"] < 0, "of a tree"))(
        {"a": MINUS, "b": "static", "c": [X, None]}
    ),
    "eager": lambda jit: [positive(x) for x in (ONE, MINUS)],  # which JAX traces once
    "donated": lambda jit: jit(positive, donate="all")(jnp.array(-1.0)),
    "closure": lambda jit: jit(lambda: positive(MINUS * jnp.ones(())))(),
}


@pytest.mark.parametrize("name", FAILING)
def test_runtime_errors(name: str) -> None:
    def body(jit: Jit) -> Any:
        return fails(lambda: FAILING[name](jit))[:3]

    if name == "closure":  # the predicate is constant, so the error is raised at once
        check_error(FAILING[name], RuntimeError, "must be positive")
    else:
        check(body)


@on_both
def test_error_points_into_the_function(jit: Jit) -> Any:
    error = fails(lambda: jit(lambda x: jit(positive)(x))(MINUS))[3]
    text = str(error)
    assert "Below is the stack inside of JIT" in text and __file__ in text
    assert "EQX_ON_ERROR=breakpoint" in text
    shown = "".join(traceback.format_exception(error))
    return first_line(error), "another exception" in shown, shown.count("CpuCallback")


# What traces the function before the call that fails.
TRACED: dict[str, Callable[[Any], Any]] = {
    "in the same call": lambda f: None,
    "in an earlier call": lambda f: f(ONE),
    "inside another function": lambda f: jax.jit(f)(ONE),
    "by lower": lambda f: f.lower(ONE),
}


@pytest.mark.parametrize("name", TRACED)
@on_both
def test_failure_of_a_callback_is_not_logged(
    jit: Jit, name: str, caplog: pytest.LogCaptureFixture
) -> Any:
    def fun(x: Any) -> Any:  # a new function, which no other test has traced
        return positive(x)

    f = jit(fun)
    TRACED[name](f)
    caplog.clear()
    fails(lambda: f(MINUS))
    found = [r.getMessage() for r in caplog.records if r.name == "jax._src.callback"]
    assert found == []
    return found


@on_both
def test_branched_messages(jit: Jit) -> Any:
    f = jit(Guard(ONE))
    messages = [fails(lambda x=x: f(jnp.array(x)))[1] for x in (0.0, -6.0, 0.5)]
    both = fails(lambda: jit(eqx.filter_vmap(Guard(ONE)))(jnp.array([0.0, -6.0])))[1]
    return messages, both, f(TWO)


def test_error_at_trace_time() -> None:
    check_error(
        lambda jit: jit(lambda x: eqx.error_if(x, True, "always"))(ONE), RuntimeError, "always"
    )
    check_error(lambda jit: jit(lambda x: eqx.error_if(2, x < 0, "no array"))(ONE), ValueError)


@on_both
def test_an_error_whose_value_is_not_used_is_dropped(jit: Jit) -> Any:
    @jit
    def f(x: Any) -> Any:
        positive(x)
        return x + 1

    return f(MINUS), f(ONE)


@pytest.mark.parametrize("mode", ["nan", "off"])
@on_both
def test_on_error_argument(jit: Jit, mode: str) -> Any:
    f = jit(lambda x: eqx.error_if((x, 3), x[0] < 0, "negative", on_error=mode)[0])
    return f(X), f(-X - 1)


@on_both
def test_errors_in_threads_of_their_own(jit: Jit) -> Any:
    """Each call gets its own message."""

    from concurrent.futures import ThreadPoolExecutor

    f = jit(positive)
    f(ONE)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: fails(lambda: f(MINUS))[:2], range(6)))
    return found, f(ONE)


ON_ERROR = """
import contextlib, io, os, re, sys, warnings
warnings.simplefilter("ignore")
import jax, jax.numpy as jnp, equinox as eqx, filterjit

def run(jit):
    @jit
    def inner(x):
        return {"y": eqx.error_if(x, x < 0, "x is negative"), "static": "text"}

    @jit
    def f(x):
        found = inner(x)
        return found["y"] * 2, found, "more"

    results = []
    for value in (1.0, -1.0, 2.0, -2.0):
        try:
            results.append(str(f(jnp.array(value))))
        except Exception as e:
            results.append(type(e).__name__)
    results.append(str(inner(jnp.array(3.0))))
    results.append(str(eqx.filter_grad(lambda x: f(x)[0])(1.0)))
    if jit is not eqx.filter_jit or os.environ["EQX_ON_ERROR"] != "breakpoint":
        # Equinox puts a function without `lower` in the place of jax.jit for its breakpoints.
        assert f.lower(jnp.array(1.0)).as_text().startswith("module @jit_f")
    return results

def results_and_output(jit):
    with contextlib.redirect_stdout(io.StringIO()) as text:
        results = run(jit)
    return results, text.getvalue()

theirs, ours = results_and_output(eqx.filter_jit), results_and_output(filterjit.filter_jit)
with filterjit.install():
    installed = results_and_output(eqx.filter_jit)
assert theirs == ours == installed, f"{theirs}\\n{ours}\\n{installed}"
print(theirs)
"""


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        pytest.param("raise", "EquinoxRuntimeError", marks=pytest.mark.slow),  # as without it
        ("nan", "Array(nan,"),
        pytest.param("off", "Array(-2.,", marks=pytest.mark.slow),
        pytest.param("breakpoint", "Entering jdb:", marks=pytest.mark.slow),
    ],
)
def test_environment_variable(mode: str, expected: str) -> None:
    """The debugger finds no input and gives up, after it has printed the same text."""
    done = run_code(ON_ERROR, env=environment(EQX_ON_ERROR=mode))
    assert expected in done.stdout
