"""What JAX and Equinox offer around a jitted function does inside ours what it does inside
Equinox's: runtime errors, debugging, loops, custom rules, callbacks, profiles and logs."""

import contextlib
import functools
import io
import logging
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest

import filterjit
from parity.support import Jit, Traces, check, check_error, first_line, picture, runtime_message

ONE = jnp.array(1.0)
TWO = jnp.array(2.0)
MINUS = jnp.array(-1.0)
KEY = jax.random.key(0)
X = jnp.arange(3.0)


def printed(run: Callable[[], Any]) -> str:
    """What is printed while `run` runs, callbacks' included."""
    with contextlib.redirect_stdout(io.StringIO()) as text:
        run()
        jax.effects_barrier()
    return text.getvalue()


def fails(run: Callable[[], Any]) -> Any:
    """The error of ``error_if`` that `run` ends with: its type, message, and where it points."""
    with pytest.raises(RuntimeError) as info:
        run()
    names = re.findall(r"in (\w+)$", str(info.value), re.M)
    # JAX's and pytest's own frames are around; ours is that of `flat`.
    return type(info.value).__name__, runtime_message(info.value), "positive" in names, info.value


# ---- runtime errors ----


def positive(x: Any) -> Any:
    return eqx.error_if(x, x < 0, "x must be positive")


class Guard(eqx.Module):
    low: Any

    def __call__(self, x: Any) -> Any:
        return eqx.branched_error_if(x, x < self.low, (x < -5).astype(int), ["low", "very low"])

    def method(self, x: Any) -> Any:
        return self(x) + 1


FAILING: dict[str, Callable[[Jit], Any]] = {
    "plain": lambda jit: jit(positive)(MINUS),
    "nested": lambda jit: jit(lambda x: jit(positive)(x) + 1)(MINUS),
    "nested thrice": lambda jit: jit(lambda x: jit(lambda y: jit(positive)(y) * 2)(x) + 1)(MINUS),
    "in jax.jit": lambda jit: jit(lambda x: jax.jit(positive)(x))(MINUS),
    "vmap inside": lambda jit: jit(jax.vmap(positive))(jnp.array([1.0, -1.0])),
    "vmap outside": lambda jit: jax.vmap(jit(positive))(jnp.array([1.0, -1.0])),
    "scan": lambda jit: jit(
        lambda x: jax.lax.scan(lambda c, _: (positive(c - 1), None), x, None, length=5)[0]
    )(TWO),
    "grad inside": lambda jit: jit(jax.grad(lambda x: positive(x) ** 2))(MINUS),
    "grad outside": lambda jit: jax.grad(lambda x: jit(positive)(x) ** 2)(MINUS),
    "cond": lambda jit: jit(lambda x: jax.lax.cond(x < 3, positive, lambda y: y, x))(MINUS),
    "Module": lambda jit: jit(Guard(ONE))(jnp.array(0.0)),
    "method": lambda jit: jit(Guard(ONE).method)(jnp.array(-10.0)),
    "bool": lambda jit: jit(lambda x: eqx.error_if(x, x.sum() > 0, "of a vector"))(X),
    "tree": lambda jit: jit(lambda t: eqx.error_if(t, t["a"] < 0, "of a tree"))(
        {"a": MINUS, "b": "static", "c": [X, None]}
    ),
    "second call": lambda jit: (lambda f: (f(ONE), f(TWO), f(MINUS)))(jit(positive)),
    "eager": lambda jit: positive(MINUS),
    "donated": lambda jit: jit(positive, donate="all")(jnp.array(-1.0)),
    "closure": lambda jit: jit(lambda: positive(MINUS * jnp.ones(())))(),
}


@pytest.mark.parametrize("name", FAILING)
def test_runtime_errors(name: str) -> None:
    def body(jit: Jit) -> Any:
        return fails(lambda: FAILING[name](jit))[:3]

    if name == "closure":  # the predicate is known at once, and so is the error
        check_error(FAILING[name], RuntimeError, "must be positive")
    else:
        check(body)


def test_function_goes_on_after_an_error() -> None:
    def body(jit: Jit) -> Any:
        traces = Traces()
        f = jit(traces.counting(positive))
        results = []
        for x in (ONE, MINUS, TWO, MINUS, ONE):
            results.append(fails(lambda x=x: f(x))[:3] if x is MINUS else f(x))
        return results, traces.count

    check(body)


def test_error_points_into_the_function() -> None:
    def body(jit: Jit) -> Any:
        error = fails(lambda: jit(lambda x: jit(positive)(x))(MINUS))[3]
        text = str(error)
        assert "Below is the stack inside of JIT" in text and __file__ in text
        assert "EQX_ON_ERROR=breakpoint" in text
        shown = "".join(traceback.format_exception(error))
        return first_line(error), "another exception" in shown, shown.count("CpuCallback")

    check(body)


def test_failure_of_a_callback_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    def body(jit: Jit) -> Any:
        caplog.clear()
        fails(lambda: jit(positive)(MINUS))
        return [r.getMessage() for r in caplog.records if r.name == "jax._src.callback"]

    assert check(body) == []


def test_branched_messages() -> None:
    def body(jit: Jit) -> Any:
        f = jit(Guard(ONE))
        messages = [fails(lambda x=x: f(jnp.array(x)))[1] for x in (0.0, -6.0, 0.5)]
        both = fails(lambda: jit(eqx.filter_vmap(Guard(ONE)))(jnp.array([0.0, -6.0])))[1]
        return messages, both, f(TWO)

    check(body)


def test_error_at_trace_time() -> None:
    check_error(
        lambda jit: jit(lambda x: eqx.error_if(x, True, "always"))(ONE), RuntimeError, "always"
    )
    check_error(lambda jit: jit(lambda x: eqx.error_if(2, x < 0, "no array"))(ONE), ValueError)


def test_error_that_nobody_uses_is_dropped() -> None:
    def body(jit: Jit) -> Any:
        @jit
        def f(x: Any) -> Any:
            positive(x)
            return x + 1

        return f(MINUS), f(ONE)

    check(body)


@pytest.mark.parametrize("mode", ["nan", "off"])
def test_on_error_argument(mode: str) -> None:
    def body(jit: Jit) -> Any:
        f = jit(lambda x: eqx.error_if((x, 3), x[0] < 0, "negative", on_error=mode)[0])
        return f(X), f(-X - 1)

    check(body)


def test_errors_in_threads_of_their_own() -> None:
    """Each call gets its own message."""
    from concurrent.futures import ThreadPoolExecutor

    def body(jit: Jit) -> Any:
        f = jit(positive)
        f(ONE)
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(lambda _: fails(lambda: f(MINUS))[:2], range(6)))
        return found, f(ONE)

    check(body)


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
    try:
        results.append(f.lower(jnp.array(1.0)).as_text()[:13])
    except Exception as e:
        results.append(type(e).__name__)
    return results

def told(jit):
    with contextlib.redirect_stdout(io.StringIO()) as text:
        results = run(jit)
    return results, text.getvalue()

theirs, ours = told(eqx.filter_jit), told(filterjit.filter_jit)
with filterjit.installed():
    installed = told(eqx.filter_jit)
assert theirs == ours == installed, f"{theirs}\\n{ours}\\n{installed}"
print(theirs)
"""


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("raise", "EquinoxRuntimeError"),
        ("nan", "Array(nan,"),
        ("off", "Array(-2.,"),
        ("breakpoint", "Entering jdb:"),
    ],
)
def test_environment_variable(mode: str, expected: str) -> None:
    """The debugger finds no input and gives up; until then it has said the same."""
    done = subprocess.run(
        [sys.executable, "-c", ON_ERROR],
        env={**os.environ, "EQX_ON_ERROR": mode},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout


# ---- equinox.debug ----


def test_announce_transform() -> None:
    def body(jit: Jit) -> Any:
        name = f"here {id(jit)}"  # what JAX remembers of the same name is not announced again

        def f(x: Any) -> Any:
            return eqx.debug.announce_transform(x, name=name) * 2

        text = printed(lambda: (jit(f)(ONE), jax.vmap(jax.grad(jit(f)))(X)))
        return text.replace(name, "").splitlines()

    assert check(body)


def test_backward_nan() -> None:
    def body(jit: Jit) -> Any:
        def f(x: Any) -> Any:
            return jnp.sqrt(eqx.debug.backward_nan(x, name="root", terminate=False))

        out: list[Any] = []
        text = printed(lambda: out.append(jit(jax.grad(f))(jnp.array(0.0))))
        return out, text

    assert "root" in check(body)[1]


def test_backward_nan_terminates() -> None:
    def body(jit: Jit) -> Any:
        def f(x: Any) -> Any:
            return 0 * jnp.log(eqx.debug.backward_nan(x)) * jnp.inf

        with contextlib.redirect_stdout(io.StringIO()), pytest.raises(RuntimeError) as info:
            jit(jax.grad(f))(jnp.array(0.0))
        return type(info.value).__name__, runtime_message(info.value)

    check(body)


def test_breakpoint_if(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("p x\nc\n"))

    def body(jit: Jit) -> Any:
        sys.stdin.seek(0)

        @jit
        def f(x: Any) -> Any:
            eqx.debug.breakpoint_if(x > 1, backend="cli")
            return x + 1

        out: list[Any] = []
        quiet = printed(lambda: out.append(f(ONE)))
        return quiet, printed(lambda: out.append(f(TWO))), out

    assert "jdb" in check(body)[1]


def test_assert_max_traces() -> None:
    def body(jit: Jit) -> Any:
        @jit
        @eqx.debug.assert_max_traces(max_traces=2)
        def f(x: Any, y: Any = 1) -> Any:
            return x

        results: list[Any] = [f(ONE), f(TWO), f(X), eqx.debug.get_num_traces(f)]
        with pytest.raises(RuntimeError, match="can only be traced 2 times") as info:
            f(X[:2])
        results.append(first_line(info.value))
        results += [f(ONE), eqx.debug.get_num_traces(f), f.__name__]
        return results

    check(body)


def test_get_num_traces_of_methods() -> None:
    def body(jit: Jit) -> Any:
        g = eqx.debug.assert_max_traces(Guard(ONE).method, max_traces=None)
        f = jit(g)
        for x in (TWO, TWO, X + 5):
            f(x)
        return eqx.debug.get_num_traces(f), eqx.debug.get_num_traces(g)

    check(body)


def test_store_and_inspect_dce() -> None:
    def body(jit: Jit) -> Any:
        @jit
        def f(x: Any) -> Any:
            kept, dropped = jnp.sin(x), jnp.cos(x)
            kept, dropped = eqx.debug.store_dce((kept, dropped), name=name)
            return kept

        name = f"pair {id(jit)}"
        f(X)
        return printed(lambda: eqx.debug.inspect_dce(name))

    assert "(f32[3], <DCE'd>)" in check(body)


def test_assert_dce() -> None:
    def body(jit: Jit) -> Any:
        unused = jit(lambda x: (eqxi.assert_dce(x * 2, "still alive"), x)[1])
        used = jit(lambda x: eqxi.assert_dce(x * 2, "still alive"))
        return unused(ONE), fails(lambda: used(ONE))[1]

    check(body)


# ---- loops ----


@pytest.mark.parametrize("kind", ["lax", "checkpointed", "bounded"])
def test_while_loop(kind: Any) -> None:
    def body(jit: Jit) -> Any:
        traces = Traces()

        def total(model: Any, x: Any, bound: Any) -> Any:
            traces.tick()

            def step(carry: Any) -> Any:
                i, y = carry
                return i + 1, model(y) + y

            options = {} if kind == "lax" else {"checkpoints": 2} if kind == "checkpointed" else {}
            _, y = eqxi.while_loop(
                lambda c: c[0] < bound, step, (0, x), max_steps=6, kind=kind, **options
            )
            return jnp.sum(y)

        model = eqx.nn.Linear(2, 2, key=KEY)
        x = jnp.array([1.0, 2.0])
        results: list[Any] = [jit(total)(model, x, jnp.array(n)) for n in (0, 3, 3, 10)]
        if kind != "lax":
            grad = eqx.filter_grad
            inside = kind == "checkpointed"
            results.append((jit(grad(total)) if inside else grad(jit(total)))(model, x, ONE * 3))
        return results, traces.count

    check(body)


@pytest.mark.parametrize("kind", ["lax", "checkpointed"])
def test_scan(kind: Any) -> None:
    def body(jit: Jit) -> Any:
        def total(cell: Any, xs: Any) -> Any:
            options = {"checkpoints": "all"} if kind == "checkpointed" else {}
            last, every = eqxi.scan(
                lambda h, x: (cell(x, h), jnp.sum(h)), jnp.zeros(2), xs, kind=kind, **options
            )
            return jnp.sum(last) + jnp.sum(every)

        cell = eqx.nn.GRUCell(1, 2, key=KEY)
        return jit(eqx.filter_value_and_grad(total))(cell, X[:, None])

    check(body)


def test_loop_with_buffers_and_errors() -> None:
    def body(jit: Jit) -> Any:
        @jit
        def f(x: Any) -> Any:
            def step(carry: Any) -> Any:
                i, buffer = carry
                value = eqx.error_if(x * i, i * x > 10, "too big")
                return i + 1, buffer.at[i].set(value)

            return eqxi.while_loop(
                lambda c: c[0] < 5,
                step,
                (0, jnp.zeros(5)),
                buffers=lambda c: c[1],
                max_steps=5,
                kind="checkpointed",
            )

        return f(ONE), fails(lambda: f(TWO * 2))[:2], f(TWO)

    check(body)


# ---- functions of Equinox inside and outside ----


def test_filter_checkpoint() -> None:
    def body(jit: Jit) -> Any:
        runs = Traces()
        model = eqx.nn.MLP(2, "scalar", 3, 1, key=KEY)

        @functools.partial(eqx.filter_checkpoint, policy=jax.checkpoint_policies.dots_saveable)
        def f(model: Any, x: Any, mode: str) -> Any:
            runs.tick()
            return model(x) if mode == "plain" else -model(x)

        loss = lambda m, x, mode: f(m, x, mode) ** 2
        results = [jit(eqx.filter_value_and_grad(loss))(model, X[:2], m) for m in ("plain", "neg")]
        return results, eqx.filter_grad(jit(loss))(model, X[:2], "plain"), runs.count

    check(body)


def test_filter_custom_vjp() -> None:
    def body(jit: Jit) -> Any:
        log: list[str] = []

        @eqx.filter_custom_vjp
        def f(vjp_arg: Any, factor: Any, name: str) -> Any:
            return vjp_arg[0] * factor + vjp_arg[1].a

        @f.def_fwd
        def fwd(perturbed: Any, vjp_arg: Any, factor: Any, name: str) -> Any:
            log.append(f"fwd {name} {perturbed[0]}")
            return f(vjp_arg, factor, name), vjp_arg[0]

        @f.def_bwd
        def bwd(
            residuals: Any, grad: Any, perturbed: Any, vjp_arg: Any, factor: Any, name: str
        ) -> Any:
            log.append(f"bwd {name}")
            return residuals * grad, Pair(grad * 10, None)

        arg = (TWO, Pair(ONE, "static"))
        loss = lambda a, s, n: f(a, s, n)
        return (
            jit(f)(arg, 3, "plain"),
            jit(eqx.filter_grad(loss))(arg, 3.0, "inside"),
            eqx.filter_grad(jit(loss))(arg, ONE, "outside"),
            log,
        )

    check(body)


class Pair(eqx.Module):
    a: Any
    b: Any


def test_filter_custom_jvp() -> None:
    def body(jit: Jit) -> Any:
        @eqx.filter_custom_jvp
        def f(x: Any, y: Any, *, name: str) -> Any:
            return x * y.a

        @f.def_jvp
        def f_jvp(primals: Any, tangents: Any, *, name: str) -> Any:
            (x, y), (tx, _) = primals, tangents
            return f(x, y, name=name), tx * 100 * (2 if name == "two" else 1)

        pair = Pair(TWO, "static")
        g = lambda x, n: f(x, pair, name=n)
        return (
            jit(f)(ONE, pair, name="plain"),
            [jit(jax.grad(lambda x, n=n: g(x, n)))(ONE) for n in ("one", "two")],
            [jax.grad(lambda x, n=n: jit(g)(x, n))(ONE) for n in ("one", "two")],
            jit(lambda x: eqx.filter_jvp(lambda y: g(y, "one"), (x,), (x,)))(TWO),
        )

    check(body)


def test_filter_pure_callback() -> None:
    def body(jit: Jit) -> Any:
        calls: list[str] = []

        def host(x: Any, name: str, *, module: Any) -> Any:
            calls.append(name)
            return Pair(np.asarray(x) * np.float32(module.a), np.float32(len(name)))

        @jit
        def f(x: Any, name: str) -> Any:
            shape = Pair(jax.ShapeDtypeStruct(x.shape, x.dtype), jax.ShapeDtypeStruct((), x.dtype))
            return eqx.filter_pure_callback(
                host, x, name, module=Pair(TWO, None), result_shape_dtypes=shape
            )

        return f(X, "one"), f(X + 1, "three"), f(ONE, "one"), calls

    check(body)


def test_failing_callback_of_the_user() -> None:
    def body(jit: Jit) -> Any:
        def host(x: Any) -> Any:
            if x < 0:
                raise KeyError("of the user")
            return np.asarray(x)

        f = jit(lambda x: jax.pure_callback(host, x, x))
        with pytest.raises(Exception, match="of the user") as info:
            f(MINUS)
        return type(info.value).__name__, f(ONE), f(TWO)

    check(body)


def test_filter_shard() -> None:
    def body(jit: Jit) -> Any:
        mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("d",))
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))
        traces = Traces()

        @jit
        def f(tree: Any) -> Any:
            traces.tick()
            tree = eqx.filter_shard(tree, sharding)
            return jtu.tree_map(lambda v: v * 2 if eqx.is_array(v) else v, tree)

        tree = {"x": jnp.arange(4.0), "name": "static"}
        out = f(tree)
        again = f(eqx.filter_shard(tree, sharding))
        return out, again, str(out["x"].sharding.spec), traces.count

    check(body)


def test_filter_eval_shape() -> None:
    def body(jit: Jit) -> Any:
        f = jit(lambda x, n: (x * 2, n, Pair(jnp.sum(x), n)))
        struct = eqx.filter_eval_shape(f, jax.ShapeDtypeStruct((3,), jnp.float32), "name")
        inside = jit(lambda x: eqx.filter_eval_shape(f, x, "inside")[0].shape)(X)
        return str(struct), inside, f(X, "name")

    check(body)


def test_filter_make_jaxpr() -> None:
    def body(jit: Jit) -> Any:
        def function(x: Any, n: Any) -> Any:
            return x * 2, n

        jaxpr, shape, static = eqx.filter_make_jaxpr(jit(function))(X, "name")
        inner = [e for e in jaxpr.eqns if "jit" in e.primitive.name]
        text = str(jaxpr.in_avals), str(jaxpr.out_avals), str(shape), str(static)
        return text, [e.params["name"] for e in inner]

    check(body)


def test_filter_closure_convert() -> None:
    def body(jit: Jit) -> Any:
        @jit
        def f(x: Any, y: Any) -> Any:
            closed = eqx.filter_closure_convert(lambda v: v * y + x, x)
            return closed(x), closed, jax.grad(closed)(x)

        value, closed, grad = f(ONE, TWO)
        return value, grad, jit(closed)(TWO), jit(lambda g, x: g(x))(closed, ONE)

    check(body)


def test_other_transformations_of_equinox() -> None:
    def body(jit: Jit) -> Any:
        model = eqx.nn.MLP(2, 2, 3, 1, key=KEY)
        call = lambda m, x: m(x)
        x = jnp.array([1.0, 2.0])
        return (
            jit(eqx.filter_jacfwd(lambda v: model(v)))(x),
            jit(eqx.filter_hessian(lambda v: model(v)[0]))(x),
            eqx.filter_jvp(jit(call), (model, x), (eqx.filter(model, eqx.is_array), x)),
            jit(lambda v: eqx.filter_vjp(model, v)[1](v))(x),
            eqx.filter_vmap(jit(call), in_axes=(None, 0))(model, jnp.stack([x, x])),
            jit(eqx.filter_vmap(lambda k: eqx.nn.Linear(2, 2, key=k)))(jax.random.split(KEY, 3)),
        )

    check(body)


# ---- printing and logging ----


def test_debug_print() -> None:
    def body(jit: Jit) -> Any:
        @jit
        def f(x: Any, name: str) -> Any:
            jax.debug.print("{n}: {x}", n=name, x=x, ordered=True)
            return x + 1

        return printed(lambda: [f(ONE, "first"), f(TWO, "first"), f(ONE, "second")])

    assert check(body) == "first: 1.0\nfirst: 2.0\nsecond: 1.0\n"


def test_debug_callback() -> None:
    def body(jit: Jit) -> Any:
        seen: list[Any] = []

        @jit
        def f(x: Any) -> Any:
            jax.debug.callback(lambda v, *, k: seen.append((float(v), k)), x, k="k", ordered=True)
            return x

        f(ONE), f(TWO), jax.lax.scan(lambda c, _: (f(c) + 1, None), ONE, None, length=3)
        jax.effects_barrier()
        return seen

    assert check(body) == [(1.0, "k"), (2.0, "k"), (1.0, "k"), (2.0, "k"), (3.0, "k")]


def test_io_callback() -> None:
    def body(jit: Jit) -> Any:
        seen: list[float] = []

        def host(x: Any) -> Any:
            seen.append(float(x))
            return np.float32(len(seen))

        shape = jax.ShapeDtypeStruct((), jnp.float32)
        f = jit(lambda x: jax.experimental.io_callback(host, shape, x, ordered=True))
        return f(ONE), f(TWO), f(ONE), seen

    check(body)


def test_printing_of_tracers() -> None:
    def body(jit: Jit) -> Any:
        f = jit(lambda m, n: print(eqx.tree_pformat(m), n))
        return printed(lambda: f(Pair(X, "static"), 3))

    check(body)


NAMED: dict[str, Callable[[], Any]] = {
    "function": lambda: positive,
    "lambda": lambda: lambda x: x + 1,
    "partial": lambda: functools.partial(jnp.add, 1.0),
    "Module": lambda: Guard(ONE),
    "method": lambda: Guard(ONE).method,
    "filter_grad": lambda: eqx.filter_grad(lambda x: x**2),
    "filter_vmap": lambda: eqx.filter_vmap(lambda x: x**2, in_axes=None, axis_size=2),
    "wrapped": lambda: functools.wraps(positive)(lambda x: x * 3),
    "nested": lambda: eqx.filter_jit(positive),
}


@pytest.mark.parametrize("name", NAMED)
def test_name_of_the_program(name: str) -> None:
    """It is what profiles, dumps and logs show."""

    def body(jit: Jit) -> Any:
        f = jit(NAMED[name]())
        (found,) = re.findall(r"module @(\w+)", f.lower(TWO).as_text())
        (compiled,) = re.findall(r"HloModule (\w+)", f.lower(TWO).compile().compiled.as_text())
        return found, compiled

    assert check(body)[0].startswith("jit_")


def test_names_in_nested_programs() -> None:
    def body(jit: Jit) -> Any:
        @jit
        def inner(x: Any) -> Any:
            return x + 1

        @jit
        def outer(x: Any) -> Any:
            with jax.named_scope("my_scope"):
                return inner(x) * 2

        text = outer.lower(ONE).lowered.as_text(debug_info=True)
        jaxpr = jax.make_jaxpr(outer)(ONE)
        found = sorted(set(re.findall(r"jit\(\w+\)|my_scope", text)))
        return found, [e.params["name"] for e in jaxpr.eqns]

    assert {"jit(inner)", "jit(outer)", "my_scope"} <= set(check(body)[0])


def test_profiler_trace(tmp_path: Path) -> None:
    """The programs are in the profile, under the functions' names."""

    @filterjit.filter_jit
    def a_function_of_ours(x: Any) -> Any:
        return jnp.sin(x) @ x

    @eqx.filter_jit
    def a_function_of_theirs(x: Any) -> Any:
        return jnp.sin(x) @ x

    a_function_of_ours(X), a_function_of_theirs(X)
    with jax.profiler.trace(str(tmp_path)):
        for _ in range(3):
            jax.block_until_ready((a_function_of_ours(X), a_function_of_theirs(X)))
    (profile,) = tmp_path.rglob("*.xplane.pb")
    found = set(re.findall(rb"jit_a_function_of_\w+|PjitFunction\(\w+\)", profile.read_bytes()))
    for whose in (b"ours", b"theirs"):
        assert {
            b"jit_a_function_of_" + whose,
            b"PjitFunction(a_function_of_" + whose + b")",
        } & found


def messages_of(caplog: pytest.LogCaptureFixture, run: Callable[[], Any]) -> list[str]:
    caplog.clear()
    run()
    return [r.getMessage() for r in caplog.records if r.name.startswith("jax")]


def test_log_compiles(caplog: pytest.LogCaptureFixture) -> None:
    def body(jit: Jit) -> Any:
        @jit
        def some_function(x: Any) -> Any:
            return x + 1

        with jax.log_compiles(), caplog.at_level(logging.WARNING):
            first = messages_of(caplog, lambda: some_function(X))
            second = messages_of(caplog, lambda: some_function(X + 1))
        assert any("some_function" in m for m in first)
        named = [m for m in second if "some_function" in m]
        own = [m for m in first if "some_function" in m]
        patterns = ["tracing", "Compiling", "XLA compilation"]
        return [any(p in m for m in own) for p in patterns], named

    check(body)


def test_explain_cache_misses(caplog: pytest.LogCaptureFixture) -> None:
    def body(jit: Jit) -> Any:
        @jit
        def some_function(x: Any, n: Any) -> Any:
            return x + 1

        with jax.explain_cache_misses(True), caplog.at_level(logging.WARNING):
            told = messages_of(
                caplog,
                lambda: [some_function(x, n) for x, n in ((X, 1), (X[:2], 1), (X, "n"), (X, 1))],
            )
        return sum("some_function" in m for m in told) > 0

    assert check(body)


# ---- JAX's options ----


def test_disable_jit() -> None:
    """The function itself runs each time, on the arrays themselves."""

    def body(jit: Jit) -> Any:
        traces = Traces()

        @jit
        def f(tree: Any, name: str) -> Any:
            traces.tick()
            return {"out": jtu.tree_map(jnp.sin, tree), "name": name}, float(tree["a"].sum()) > 0

        with jax.disable_jit():
            results = [f({"a": X, "b": [ONE]}, "name") for _ in range(3)]
            grad = jax.grad(lambda x: jit(lambda y: (y**2, "static"))(x)[0])(2.0)
        return results, traces.count, grad

    check(body)


def test_debug_nans() -> None:
    def body(jit: Jit) -> Any:
        f = jit(lambda x: (jnp.log(x), "static"))
        with jax.debug_nans(True):
            good = f(ONE)
            with pytest.raises(FloatingPointError) as info:
                f(MINUS)
        return good, first_line(info.value), f(ONE)

    check(body)


def test_checking_leaks() -> None:
    def body(jit: Jit) -> Any:
        leaked: list[Any] = []
        with jax.checking_leaks():
            good = jit(lambda x: x + 1)(ONE)
            with pytest.raises(Exception, match="Leaked") as info:
                jit(lambda x: (leaked.append(x), x)[1])(ONE)
        return good, type(info.value).__name__

    check(body)


def test_enable_x64() -> None:
    def body(jit: Jit) -> Any:
        f = jit(lambda x: (x * 2, jnp.zeros(()), 1.5))
        before = f(np.ones(2))
        with jax.enable_x64(True):
            inside = f(np.ones(2))
        return before, inside, f(np.ones(2))

    check(body)


def test_default_matmul_precision() -> None:
    def body(jit: Jit) -> Any:
        traces = Traces()
        f = jit(traces.counting(lambda x: x @ x))
        f(X)
        with jax.default_matmul_precision("highest"):
            f(X)
        f(X)
        return traces.count

    check(body)


def test_transfer_guard() -> None:
    def body(jit: Jit) -> Any:
        f = jit(lambda x: x + 1)
        with jax.transfer_guard("disallow"):
            out = f(ONE)
            with pytest.raises(Exception, match=r"[Dd]isallowed") as info:
                f(np.ones(2))
        return out, type(info.value).__name__

    check(body)


def test_no_tracer_is_left_behind() -> None:
    """After all of the above, an ordinary call."""
    assert picture(check(lambda jit: jit(lambda x: x + 1)(ONE))) == picture(TWO)
