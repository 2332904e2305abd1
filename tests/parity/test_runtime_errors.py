"""Errors while the program runs, callbacks, and the time at which a call returns."""

import traceback
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from jax.experimental import io_callback
from jax.sharding import PartitionSpec as P

import filterjit
from support.comparison import Jit, Traces, check_error, on_both, runtime_message
from support.features import Guard, fails, positive
from support.processes import environment, run_code
from support.transforms import TRANSFORMS
from support.versions import auto_mesh, shard_map

ONE = jnp.array(1.0)
BAD = jnp.array(-1.0)
VECTOR = jnp.arange(1.0, 4.0)


def checked(x: Any) -> Any:
    return eqx.error_if(x, x < 0, "negative!\nof two lines")


# Functions of a scalar that raise for a negative one, in each place where they can.
PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda x: checked(x) + 1,
    "vmap": lambda x: jax.vmap(checked)(x[None]),
    "cond": lambda x: jax.lax.cond(x < 5, checked, lambda y: y, x),
    "grad": lambda x: jax.value_and_grad(lambda y: checked(y) ** 2)(x),
    **{
        name: lambda x, transform=TRANSFORMS[name]: transform(checked)(x)  # type: ignore[misc]
        for name in (
            *("jit", "scan", "while_loop", "switch", "checkpoint", "custom_jvp", "custom_vjp"),
            *("filter_custom_vjp", "noinline", "filter_closure_convert", "eqxi while_loop"),
        )
    },
    "branched": lambda x: eqx.branched_error_if(
        x, x < 0, jnp.where(x < -5, 0, 1), ["first", "second"]
    ),
    "method": lambda x: Guard(x * 0).method(x),
    "tree": lambda x: eqx.error_if({"a": x, "b": "static", "c": [VECTOR, None]}, x < 0, "tree"),
    "shard_map": lambda x: shard_map(checked, mesh=auto_mesh("i"), in_specs=P(), out_specs=P())(x),
}


def raised(call: Callable[[], Any]) -> tuple[str, str]:
    """Returns the type and the message of the runtime error that a call raises."""
    with pytest.raises(eqx.EquinoxRuntimeError) as info:
        call()
    assert info.value.__cause__ is None
    assert info.value.__suppress_context__
    return type(info.value).__qualname__, runtime_message(info.value)


@pytest.mark.parametrize("name", PROGRAMS)
@on_both
def test_error_at_the_call(jit: Jit, traces: Traces, name: str) -> Any:
    """Errors in the first call and in later ones, before and after good calls, without new traces."""

    def f(x: Any) -> Any:
        traces.tick()
        return PROGRAMS[name](x)

    first, second = jit(f), jit(lambda x: f(x))
    results = [raised(lambda: first(BAD)), raised(lambda: first(BAD)), first(ONE)]
    results += [second(ONE), raised(lambda: second(BAD)), second(ONE), second(ONE)]
    return results


@pytest.mark.parametrize("name", ["plain", "branched"])
@pytest.mark.parametrize("outer", ["filter_jit", "jax.jit in filter_jit", "vmap", "grad", "method", "donated"])  # fmt: skip
@on_both
def test_error_through_nesting(jit: Jit, outer: str, name: str) -> Any:
    def scalar(x: Any) -> Any:
        return jnp.sum(jnp.asarray(jax.tree.leaves(PROGRAMS[name](x))[-1]))

    inner = jit(scalar)

    class M(eqx.Module):
        w: Any = 1.0

        @jit
        def method(self, x: Any) -> Any:
            return inner(x) * self.w

    calls: dict[str, Callable[[Any], Any]] = {
        "filter_jit": jit(lambda x: inner(x)),
        "jax.jit in filter_jit": jit(jax.jit(lambda x: inner(x))),
        "vmap": lambda x: jax.vmap(inner)(x[None]),
        "grad": jax.grad(inner),
        "method": lambda x: M().method(x),
        "donated": lambda x: jit(inner, donate="all")(x + 0),
    }
    call = calls[outer]
    return [raised(lambda: call(BAD)), call(ONE), raised(lambda: call(BAD)), call(ONE)]


def test_the_stack_inside_is_shown(jit: Jit, ours: bool) -> None:
    # (A message that no other test uses: Equinox keeps the stack of the first trace of equal errors.)
    message = f"shown by {'ours' if ours else 'equinox'}"

    @jit
    def function_with_a_name(x: Any) -> Any:
        return eqx.error_if(x, x < 0, message)

    stacks = []
    for _ in range(2):
        with pytest.raises(eqx.EquinoxRuntimeError) as info:
            function_with_a_name(BAD)
        text = str(info.value)
        assert text.startswith("Above is the stack outside of JIT. Below is the stack inside")
        assert "in function_with_a_name" in text and __file__ in text
        assert "EQX_ON_ERROR=breakpoint" in text
        shown = "".join(traceback.format_exception(info.value))
        assert "another exception" not in shown and "CpuCallback" not in shown
        assert runtime_message(info.value) == message
        stacks.append(text.count("File "))
    # At the second call Equinox shows the whole stack of the trace: it draws
    # a new number for each call, and does not find the frame of the first.
    assert stacks[0] == 1
    assert (stacks[1] == 1) is ours


def refuse(x: Any) -> Any:
    if x < 0:
        raise ValueError("no negatives")
    return x


# What traces the function before the call that fails.
TRACED: dict[str, Callable[[Any], Any]] = {
    "in the same call": lambda f: None,
    "in an earlier call": lambda f: f(ONE),
    "inside another function": lambda f: jax.jit(f)(ONE),
    "by lower": lambda f: f.lower(ONE),
}


@pytest.mark.parametrize("name", TRACED)
def test_failure_of_a_callback_is_not_logged(
    jit: Jit, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    f = jit(lambda x: positive(x))  # a new function, which no other test has traced
    TRACED[name](f)
    caplog.clear()
    fails(lambda: f(BAD))
    assert [r.getMessage() for r in caplog.records if r.name == "jax._src.callback"] == []


def test_error_at_trace_time() -> None:
    check_error(
        lambda jit: jit(lambda x: eqx.error_if(x, True, "always"))(ONE), RuntimeError, "always"
    )
    check_error(lambda jit: jit(lambda x: eqx.error_if(2, x < 0, "no array"))(ONE), ValueError)
    constant = lambda jit: jit(lambda: positive(BAD * jnp.ones(())))()
    check_error(constant, RuntimeError, "must be positive")


ON_ERROR = """
import contextlib, io, os, warnings
warnings.simplefilter("ignore")
import jax.numpy as jnp, equinox as eqx, filterjit

def run(jit):
    @jit
    def f(x):
        return {"y": jit(lambda x: eqx.error_if(x, x < 0, "x is negative"))(x) * 2, "static": "text"}

    for value in (1.0, -1.0, 2.0, -2.0):
        try:
            print(f(jnp.array(value)))
        except Exception as e:
            print(type(e).__name__)
    print(eqx.filter_grad(lambda x: f(x)["y"])(1.0))
    if jit is not eqx.filter_jit or os.environ["EQX_ON_ERROR"] != "breakpoint":
        # Equinox puts a function without `lower` in the place of jax.jit for its breakpoints.
        assert f.lower(jnp.array(1.0)).as_text().startswith("module @jit_f")

def output(jit):
    with contextlib.redirect_stdout(io.StringIO()) as text:
        run(jit)
    return text.getvalue()

theirs, ours = output(eqx.filter_jit), output(filterjit.filter_jit)
with filterjit.install():
    installed = output(eqx.filter_jit)
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


CALLBACKS: dict[str, Callable[[Any], Any]] = {
    # A call that is made for its error only: its value must be used all the same.
    "no outputs": lambda x: (jax.debug.callback(refuse, x), "static")[1],
    "pure_callback": lambda x: jax.pure_callback(refuse, x, x),
    "io_callback": lambda x: io_callback(refuse, x, x),
    "ordered io_callback": lambda x: io_callback(refuse, x, x, ordered=True),
    "debug.callback": lambda x: (jax.debug.callback(refuse, x), x + 1)[1],
    "ordered debug.callback": lambda x: (jax.debug.callback(refuse, x, ordered=True), x + 1)[1],
    "all outputs are inputs": lambda x: (jax.debug.callback(refuse, x), x)[1],
}


@pytest.mark.parametrize("name", CALLBACKS)
@on_both
def test_callbacks_that_raise(jit: Jit, traces: Traces, name: str) -> Any:
    f = jit(traces.counting(lambda x: CALLBACKS[name](x)))
    results = []
    for x in (ONE, BAD, BAD, ONE):
        try:
            results.append(f(x))
        except (jax.errors.JaxRuntimeError, ValueError) as e:  # JAX raises one or the other
            results.append(("raised", "no negatives" in str(e)))
    assert results[1] == results[2] == ("raised", True)
    assert traces.count == 1
    return results


def test_retrace_with_an_error_in_one_shape_only(jit: Jit) -> None:
    """Whether a program can raise belongs to its trace, not to its variant."""

    @jit
    def f(x: Any) -> Any:
        return checked(x) if x.ndim == 0 else x * 2

    for _ in range(2):
        assert f(VECTOR).tolist() == [2, 4, 6]
        assert f(ONE) == 1
        assert raised(lambda: f(BAD))[1].startswith("negative!")
        assert f(VECTOR).tolist() == [2, 4, 6]


def test_first_called_within_a_trace(jit: Jit, traces: Traces) -> None:
    """Inside a trace it is not yet known whether the program can raise. A later call raises."""
    f = jit(traces.counting(lambda x: checked(x)))
    assert jax.jit(lambda x: f(x))(ONE) == 1
    assert jax.eval_shape(f, ONE).shape == ()
    assert raised(lambda: f(BAD))[1].startswith("negative!")
    assert f(ONE) == 1
    assert traces.count == 1


# ---- when a call returns ----


def long_chain(x: Any) -> Any:
    return jax.lax.fori_loop(0, 100, lambda _, y: jnp.tanh(y @ x), x)


def test_a_call_returns_before_the_device_is_done() -> None:
    # By decision; Equinox waits in each call.
    x = jnp.eye(300)
    ours, theirs = filterjit.filter_jit(long_chain), eqx.filter_jit(long_chain)
    for f in (ours, theirs):
        f(x).block_until_ready()
    # On a busy machine, some calls return late.
    assert any(not jax.block_until_ready((ours(x).is_ready(),))[0] for _ in range(100))
    assert theirs(x).is_ready()


def test_a_call_waits_where_the_program_calls_back(jit: Jit) -> None:
    def f(x: Any) -> Any:
        y = long_chain(x)
        return eqx.error_if(y, jnp.any(y > 100), "too large"), y[0, 0]

    x = jnp.eye(200)
    jitted = jit(f)
    for _ in range(3):
        assert all(y.is_ready() for y in jitted(x))
