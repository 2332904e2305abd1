"""Results that hold tracers: as under Equinox, the call returns them, and JAX raises where they are used.

A leaf with a tracer in an attribute has a warning, by decision."""

import contextlib
import dataclasses
import functools
import gc
import re
import weakref
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import filterjit
from filterjit import filter_jit
from support.comparison import Jit

X = jnp.ones(2)


@dataclasses.dataclass(eq=False)
class Record:
    w: Any


@functools.partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=["s"])
@dataclasses.dataclass
class OfStatic:
    s: Any


def closure_converted(x: Any) -> Any:
    return x * 2, eqx.filter_closure_convert(lambda y: jnp.sin(y) * x, x)


# The function, how to find the tracer, and the path and class that the warning names.
HELD: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], str]] = {
    "a plain object": (lambda x: {"a": [Record(x)]}, lambda out: out["a"][0].w,
        "`result['a'][0]` is static (a `Record`), and holds a tracer"),
    "a class": (Record, lambda out: out.w, "Or jit the methods of the class, one by one."),
    "deeper in an object": (lambda x: Record([x]), lambda out: out.w[0], ""),
    "a static field": (OfStatic, lambda out: out.s, ""),
    "an object in a static field": (lambda x: OfStatic(Record(x)), lambda out: out.s.w, ""),
    "a Jaxpr in a static field": (lambda x: OfStatic(jax.make_jaxpr(lambda y: x * y)(x)),
        lambda out: out.s.consts[0], ""),
    "a closure": (lambda x: lambda: x, lambda out: out(), ""),
    "a partial": (lambda x: functools.partial(jnp.add, x, 1), lambda out: out(), ""),
    "map": (lambda x: map(jnp.sin, [x]).__next__, lambda out: out(), ""),
}  # fmt: skip


@pytest.mark.parametrize("name", HELD)
def test_a_result_that_holds_tracers_is_returned(name: str, jit: Jit, ours: bool) -> None:
    fun, tracer_in, warning = HELD[name]
    f = jit(fun)
    warns = pytest.warns(UserWarning, match=re.escape(warning))
    with warns if ours and warning else contextlib.nullcontext():
        out = f(X)
    f(X)  # without another warning
    with pytest.raises(jax.errors.UnexpectedTracerError):
        jnp.sin(tracer_in(out))


def test_a_function_that_equinox_converted_can_be_called(jit: Jit) -> None:
    f = jit(closure_converted)
    for _ in range(2):
        double, converted = f(X)
        assert (converted(X) == jnp.sin(X) * X).all() and (double == 2 * X).all()


def test_a_list_with_a_tracer_in_a_static_field() -> None:
    """By decision. Under Equinox, the second function raises "Cache keys should be comparable"."""
    for _ in range(2):
        assert filter_jit(lambda x: OfStatic([1, x]))(X).s[0] == 1


@pytest.mark.parametrize("make", [Record, OfStatic, closure_converted])
@pytest.mark.filterwarnings("ignore:.*holds a tracer:UserWarning")
def test_no_trace_outlives_its_program(make: Callable[[Any], Any]) -> None:
    """Under Equinox, traces live until jax.clear_caches()."""
    traced: list[Any] = []

    def fun(x: Any) -> Any:
        y = 2 * x
        traced.append(weakref.ref(y))
        return make(y)

    f = filter_jit(fun)
    f(X)
    gc.collect()
    assert traced[0]() is not None or make is closure_converted  # JAX 0.10 keeps none
    f.clear_cache()
    gc.collect()
    assert traced[0]() is None


@pytest.mark.compiled_in
def test_a_static_result_may_hold_tracers_of_an_outer_trace() -> None:
    def outer(x: Any) -> Any:
        record = Record([x])
        record.w.append(record)
        out, y = filter_jit(lambda r, x: (r, r.w[0] + x))(record, x)
        assert out is record
        inner = Record(x)
        assert filter_jit(lambda r: r)(inner) is inner
        return y

    assert jax.jit(outer)(X).tolist() == [2.0, 2.0]
    with jax.disable_jit():
        assert jax.grad(lambda x: filter_jit(lambda x: Record(x * x))(x).w)(3.0) == 6.0


class Counter:
    def __init__(self) -> None:
        self.total: Any = 0

    def add(self, x: Any) -> Any:
        before, self.total = self.total, self.total + x
        return before

    def add_for_a_time(self, x: Any) -> Any:
        self.add(x)
        self.total = 0


def test_an_attribute_that_is_assigned_a_tracer() -> None:
    leaks = pytest.warns(
        UserWarning, match=r"self\.total` holds a tracer, which can't be used after"
    )
    for jit in (filter_jit, functools.partial(filterjit.jit, static_argnums=0)):

        class Own(Counter):
            pass

        counter = Own()
        with leaks as caught:
            jit(Own.add)(counter, X)
        assert len(caught) == 1 and caught[0].filename == __file__
        with pytest.raises(jax.errors.UnexpectedTracerError):
            jnp.sin(counter.total)

    class Other(Counter):
        pass

    filter_jit(Other.add_for_a_time)(Other(), X)  # without a warning
    with pytest.warns(UserWarning, match=r"`the function\.total`"):
        filter_jit(Other().add)(X)
