"""What happens at a retrace: `on_retrace`, and the switch `explain`."""

import logging
import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from explain_support import Plain, jitted, switched

from filterjit import RetraceError, RetraceWarning, filter_jit
from filterjit.types import Explanation

X = jnp.ones(2)


def test_explain_all(caplog: pytest.LogCaptureFixture) -> None:
    f, _ = jitted()
    with caplog.at_level(logging.WARNING, "filterjit"), switched(explain=True):
        f(X)
        caplog.clear()
        f(jnp.ones(3))
    f(jnp.ones(4))
    assert len(caplog.records) == 1 and "float32[3]" in caplog.text


def test_each_retrace_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    f, _ = jitted(on_retrace="log")
    with caplog.at_level(logging.WARNING, "filterjit"):
        for i in range(8):
            f(X, i)
        f(jnp.ones(3), 7)  # another cause
        for i in range(10, 12):
            f(X, i)
    assert {record.name for record in caplog.records} == {"filterjit"}
    said = [record.getMessage() for record in caplog.records]
    # Of programs that are as close, that of the call before is told.
    assert [f"was the int {i}, is the int {i + 1}" in text for i, text in enumerate(said[:7])] == (
        [True] * 7
    )
    assert [text.count("\n") > 0 for text in said] == [True] * 3 + [False] * 4 + [True] * 3
    begin, _, cause = said[3].partition(" because ")
    assert begin == "`jitted.<locals>.f`: compiles again"
    assert cause == "`b`: different static value: was the int 3, is the int 4"


def test_warn() -> None:
    f, _ = jitted(on_retrace="warn")
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        f(X)
        f(X, 1)
    [warning] = found
    assert warning.category is RetraceWarning and warning.filename == __file__
    assert "`b`" in str(warning.message)


def test_raise_leaves_the_cache_as_it_was() -> None:
    f, traces = jitted(on_retrace="raise")
    f(X)
    for args in ((X, 1), (jnp.ones(3),)):
        for _ in range(2):
            with pytest.raises(RetraceError, match="compiles again because"):
                f(*args)
    assert len(traces) == 1 and len(f.variants) == 1
    f(X)
    assert len(traces) == 1


def test_the_first_call_of_another_instance_is_no_retrace() -> None:
    class Model(eqx.Module):
        weight: Any
        size: int = eqx.field(static=True)

        def __call__(self, x: Any) -> Any:
            return self.weight * x

        def method(self, x: Any) -> Any:
            return x

    functions = [Model(X, 1), Model(X, 2), Model(X, 1).method, Model(X, 2).method]
    functions += [Plain().method, Plain().method, lambda x: x, lambda x: x]
    for fun in functions:
        f = filter_jit(fun, on_retrace="raise")
        f(X), f(X)


def test_a_function_that_counts_allows_some() -> None:
    allowed = [1, 2]

    def limit(explanation: Explanation) -> None:
        if not allowed:
            raise ZeroDivisionError(str(explanation))
        allowed.pop()
        float(X.sum())  # is no part of the trace

    f, traces = jitted(on_retrace=limit)
    f(X), f(X, 1), f(X, 2)
    with pytest.raises(ZeroDivisionError, match=r"compiles again because\n.*`b`"):
        f(X, 3)
    assert len(traces) == len(f.variants) == 3
    assert f(X, 1) is not None


def test_what_is_traced_ahead_of_time_is_no_retrace(caplog: pytest.LogCaptureFixture) -> None:
    shapes = [jax.ShapeDtypeStruct((n,), jnp.float32) for n in (2, 3, 4)]
    f, traces = jitted(on_retrace="raise")
    with caplog.at_level(logging.WARNING, "filterjit"), switched(explain=True):
        assert not f.warm_up_all([((s,), {}) for s in shapes])
        f.lower(X, 1).compile(), f.trace(X, 2), f.eval_shape(X, 3)
    assert len(traces) == 6 and caplog.records == []
    for n in (2, 3, 4):
        f(jnp.ones(n)), f(X, 1), f(X, 2)
    assert len(traces) == 6
    with pytest.raises(RetraceError, match=r"`a`: different shape"):
        f(jnp.ones(5))
    assert len(traces) == 6


def test_functions_that_are_traced_inside_ahead_of_time_are_not_retraced() -> None:
    inner, traces = jitted(on_retrace="raise")
    outer = filter_jit(lambda x: inner(x))
    outer.warm_up_all([((jnp.ones(n),), {}) for n in (2, 3)])
    assert len(traces) == 2
    with pytest.raises(RetraceError, match="compiles again"):
        outer(jnp.ones(4))
    assert len(traces) == 2


def test_a_first_trace_that_failed_is_no_trace() -> None:
    fails = [True]

    @filter_jit(on_retrace="raise")
    def f(x: Any) -> Any:
        if fails:
            raise ValueError("a mistake")
        return x * 2

    with pytest.raises(ValueError, match="a mistake"):
        f(X)
    fails.clear()
    assert f.explain(X).causes[0].kind == "first"
    f(X)
    f.clear_cache()
    assert f.explain(X).causes[0].kind == "cleared"
