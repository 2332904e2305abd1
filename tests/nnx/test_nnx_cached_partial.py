"""``nnx.cached_partial`` on Flax's and on filterjit's functions."""

import functools
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest
from flax import nnx

import filterjit.nnx
from filterjit._compat import _nnx_compat as compat
from filterjit._nnx._cached_partial import CachedJit
from support.comparison import Traces, counting, without
from support.lifetimes import collect
from support.nnx import Node, describe, outcome

if not compat.supported:
    pytest.skip("calls are upstream's: Flax's internals are not known", allow_module_level=True)

x = jnp.arange(8.0).reshape(2, 4) / 8
KINDS = {
    "flax": (nnx.jit, nnx.cached_partial),
    "ours": (filterjit.nnx.jit, filterjit.nnx.cached_partial),
    "flax of ours": (filterjit.nnx.jit, nnx.cached_partial),
    "ours of flax": (nnx.jit, filterjit.nnx.cached_partial),
}


@pytest.fixture(autouse=True)
def no_cache_is_left() -> Any:
    yield
    compat.graphlib.GRAPH_CONTEXT.tmp_static_cache = None  # where Flax raises that it is


def compare(program: Any) -> None:
    """Runs a generator of observations with each function and each partial."""
    expected, traces = None, None
    for kind, (jit, cached_partial) in KINDS.items():
        made = Traces()
        found = list(map(describe, program(counting(jit, made), cached_partial)))
        expected = found if expected is None else expected
        traces = made.count if traces is None else traces
        assert found == expected, kind
        assert kind != "ours" or made.count <= traces


def in_each_kind(program: Any) -> Any:
    """Makes a test of a program: see `compare`."""
    make = without("jit", "cached_partial")
    return make(program, lambda given: compare(functools.partial(program, **given)))


@in_each_kind
def test_a_training_step(jit: Any, cached_partial: Any) -> Iterator[Any]:
    rngs = nnx.Rngs(0)
    model = nnx.Sequential(*[nnx.Linear(4, 4, rngs=rngs) for _ in range(2)])
    optimizer = nnx.Optimizer(model, optax.sgd(1e-5, momentum=0.9), wrt=nnx.Param)

    @jit
    def step(model: Any, optimizer: Any, y: Any, scale: Any = 1.0) -> Any:
        loss, grads = nnx.value_and_grad(lambda m: ((m(y) * scale - 1) ** 2).mean())(model)
        optimizer.update(model, grads)
        return loss

    cached = cached_partial(step, model, optimizer)
    for i in range(12):
        yield cached(x + i)
        yield cached(x, 2.0), cached(x, scale=3.0)
        yield model, optimizer
    yield step(model, optimizer, x)
    yield model, optimizer
    yield cached(x[:1])


BODIES: dict[str, Callable[[Any], None]] = {
    "sets a static": lambda m: setattr(m, "tag", 2),
    "adds a Variable": lambda m: setattr(m, "new", nnx.Param(m.v * 1)),
    "replaces a Variable": lambda m: setattr(m, "v", nnx.Param(m.v * 1)),
    "changes metadata": lambda m: m.v.set_metadata("note", "new"),
    "changes a child": lambda m: setattr(m.child, "tag", 5),
    "ties": lambda m: setattr(m.child, "v", m.v),
}


@pytest.mark.parametrize("body", BODIES)
@in_each_kind
def test_a_call_that_changes_the_graph(jit: Any, cached_partial: Any, body: str) -> Iterator[Any]:
    m = Node(1.0, child=Node(2.0))

    @jit
    def f(m: Any, n: Any) -> Any:
        m.v[...] += 1
        BODIES[body](m)

    cached = cached_partial(f, m)
    for _ in range(2):
        yield outcome(cached, Node())
        yield m
    f(m, Node())
    yield m


@in_each_kind
def test_what_may_change(jit: Any, cached_partial: Any) -> Iterator[Any]:
    """Other arguments, for a while within the call, and the Modules that were given."""

    m, n = Node(1.0, child=Node(2.0)), Node(3.0)

    @jit
    def f(m: Any, n: Any) -> Any:
        m.v[...] += n.v
        n.extra = nnx.Param(m.child.v * 2)
        m.scratch = nnx.Intermediate(m.v * 1)
        popped = nnx.pop(m, nnx.Intermediate)
        return popped["scratch"][...] * m.tag

    cached = cached_partial(f, m)
    for _ in range(3):
        yield cached(n)
        yield m, n
    m.tag, m.v, m.child = 9, nnx.Param(jnp.zeros(2)), Node(8.0)
    for _ in range(2):
        yield cached(n)
        yield m, n
    yield f(m, n)
    yield m, n


@in_each_kind
def test_results(jit: Any, cached_partial: Any) -> Iterator[Any]:
    m = Node(1.0, child=Node(2.0))
    cached = cached_partial(jit(lambda m: (m, m.child, m.v)), m)
    first, second = cached(), cached()
    yield first[0] is m, first[0] is second[0], first[2] is m.v, first[0].child is first[1]
    yield first

    def puts(m: Any, n: Any) -> Any:
        n.child = m
        return n

    cached, n = cached_partial(jit(puts), m), Node()
    yield cached(n) is n, n.child is m, n.child.v is m.v


@in_each_kind
def test_other_first_arguments(jit: Any, cached_partial: Any) -> Iterator[Any]:
    v = nnx.Param(jnp.ones(2))

    @jit
    def f(tree: Any, y: Any, *rest: Any) -> Any:
        tree["a"][0][...] += y
        return tree["n"] + sum(rest)

    cached = cached_partial(f, {"a": [v], "n": 2.0}, 3.0)
    for rest in ((), (1.0,), (jnp.ones(2), 2)):
        yield cached(*rest)
        yield v
    holding_an_array = Node()
    holding_an_array.array = nnx.data(jnp.ones(2))
    yield outcome(lambda: cached_partial(jit(lambda m: m.v * 1), holding_an_array)())[:2]


@in_each_kind
def test_errors(jit: Any, cached_partial: Any) -> Iterator[Any]:
    m = Node()
    yield outcome(cached_partial, jit(lambda m: None), m, graph=False)
    yield outcome(cached_partial, jit(lambda m: None), m, graph_updates=False)
    yield outcome(cached_partial(jit(lambda m: None, graph=False), m))
    compat.graphlib.GRAPH_CONTEXT.tmp_static_cache = None
    yield outcome(cached_partial(lambda m: None, m))
    compat.graphlib.GRAPH_CONTEXT.tmp_static_cache = None
    cached = cached_partial(jit(lambda m, y: 1 / 0), m)
    yield outcome(cached, 1.0), outcome(cached, 1.0)
    plain = getattr(jit, "__wrapped__", jit)  # counted, it would take any arguments
    cached = cached_partial(plain(lambda m, y: 1 / 0), m)
    yield outcome(cached), outcome(cached, 1, 2), outcome(cached, z=1)


@in_each_kind
def test_calls_that_are_handed_over(jit: Any, cached_partial: Any) -> Iterator[Any]:
    m = Node(1.0)

    def body(m: Any, n: Any, y: Any = 1.0) -> Any:
        m.v[...] += 1
        return m.v * n * y

    for options in ({"static_argnums": 1}, {}):
        cached = cached_partial(jit(body, **options), m)
        for n in (2, 3):
            yield cached(n), cached(n, y=2.0)
            yield m
    with jax.disable_jit():
        yield cached(2)
    yield m
    yield cached(2)
    yield m

    cached = cached_partial(jit(lambda m, y: m.v * y), m)
    yield outcome(jax.grad(lambda y: cached(y).sum()), 1.0)[:2]
    yield outcome(jit(lambda m, n: m.v * 2), m, "text")[:2]


def test_programs_are_shared_with_the_function() -> None:
    f = filterjit.nnx.jit(lambda m, y: m.v.set_value(m.v + y))
    m = Node()
    f(m, 1.0)
    cached = filterjit.nnx.cached_partial(f, m)
    cached(1.0), cached(y=2.0)
    assert f.cache_info().misses == 1 and f.cache_info().hits == 2 and not f.handed_over
    assert isinstance(cached.func, CachedJit) and cached.__wrapped__ is f
    assert cached.__name__ == f.__name__


def test_what_is_kept_alive() -> None:
    m = Node()
    g = filterjit.nnx.jit(lambda m: m.v.set_value(m.v + 1))
    cached = filterjit.nnx.cached_partial(g, m)
    refs = [weakref.ref(y) for y in (m, g, cached.func, cached.args[0])]
    variable = m.v
    del m, g
    gc.collect()
    assert refs[0]() is None
    cached(), cached()
    assert variable[...].tolist() == [2.0, 2.0]
    del cached, variable
    collect()
    assert [r() for r in refs] == [None] * 4
