"""`filterjit.nnx.jit` and Flax's ``nnx.jit`` on the same programs, in each mode."""

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import filterjit.nnx
from support.nnx import MODES, compare, in_each_mode, needs_this_flax, outcome

pytestmark = needs_this_flax

ALL = sorted(MODES)
x = jnp.arange(8.0).reshape(4, 2)


class Counter(nnx.Module):
    def __init__(self, value: Any = 0.0) -> None:
        self.count = nnx.Variable(jnp.asarray(value))
        self.other = nnx.Param(jnp.ones(2))
        self.name = "counter"


@in_each_mode
def test_a_training_step(jit: Any) -> Iterator[Any]:
    rngs = nnx.Rngs(0)
    layers = [nnx.Linear(2, 3, rngs=rngs), nnx.BatchNorm(3, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)]
    net = nnx.Sequential(*layers, nnx.Linear(3, 3, rngs=rngs))
    optimizer = nnx.Optimizer(net, optax.sgd(1e-2, momentum=0.9), wrt=nnx.Param)
    metrics = nnx.MultiMetric(loss=nnx.metrics.Average("loss"))

    @jit
    def step(net: Any, optimizer: Any, metrics: Any, y: Any) -> Any:
        loss, grads = nnx.value_and_grad(lambda net: ((net(y) - 1) ** 2).mean())(net)
        optimizer.update(net, grads)
        metrics.update(loss=loss)
        return loss

    for i in range(4):
        yield step(net, optimizer, metrics, x + i)
        yield net, optimizer, metrics.compute()
    metrics.reset()
    yield step(net, optimizer, metrics, x)
    yield net, optimizer, metrics.compute()


@pytest.mark.parametrize("mode", ALL)
def test_only_what_changes_is_written(mode: str) -> None:
    def program(jit: Any) -> Any:
        m = Counter()

        @jit
        def f(m: Any, by: Any) -> Any:
            m.count[...] += by

        for by in (1, 2, 1.5, np.float32(2), np.ones(()), True):
            yield f(m, by)
            yield m

    compare(program, mode)
    m = Counter()
    other = m.other.get_raw_value()
    f = filterjit.nnx.jit(lambda m: m.count.set_value(m.count + 1), **MODES[mode])
    f(m)
    assert m.other.get_raw_value() is other
    assert m.count[...] == 1


@in_each_mode
def test_transforms_inside(jit: Any, mode: str) -> Iterator[Any]:
    m = nnx.Linear(2, 2, rngs=nnx.Rngs(0))

    @jit
    def f(m: Any, y: Any) -> Any:
        options = MODES[mode]
        grad = nnx.grad(lambda m, y: m(y).sum(), **options)(m, y)
        mapped = nnx.vmap(lambda m, y: m(y), in_axes=(None, 0), **options)(m, y)
        if mode == "graph":
            mapped += nnx.remat(lambda m, y: m(y))(m, y)
            carry = nnx.scan(
                lambda m, c, y: (m(c), None), in_axes=(None, nnx.Carry, 0), out_axes=(nnx.Carry, 0)
            )(m, y, jnp.zeros((3, 1)))[0]
            mapped += carry
        return mapped, jax.tree.leaves(grad)

    yield f(m, x)
    yield f(m, x)
    yield m


@in_each_mode
def test_donation(jit: Any, mode: str) -> Iterator[Any]:
    def f(m: Any, y: Any) -> Any:
        m.count[...] += 1
        return m.other * y

    for options in (
        {"donate_argnums": 0},
        {"donate_argnames": ("m",)},
        {"donate_argnums": (0,), "donate_argnames": ("m",)},
    ):
        m, y, g = Counter(), jnp.ones(2), jit(f, **options)
        old = m.count.get_raw_value()
        yield g(m, y)
        yield old.is_deleted(), y.is_deleted()
        if options != {"donate_argnames": ("m",)} or mode == "graph":
            yield m  # upstream leaves deleted arrays in tree mode
        if options == {"donate_argnums": (0,), "donate_argnames": ("m",)}:
            yield g(m, y)
            yield g(y=y, m=m)
            yield m


@in_each_mode
def test_variables_outside_of_modules(jit: Any) -> Iterator[Any]:
    a, b = nnx.Param(jnp.ones(2)), nnx.BatchStat(jnp.zeros(3))

    @jit
    def f(tree: Any, *rest: Any, **more: Any) -> Any:
        tree["b"][0][...] += 1
        more["z"]["v"][...] *= 2
        return {"sum": tree["a"] + 1, "rest": rest, "n": 1}

    for _ in range(2):
        c = nnx.Variable(jnp.ones(()))
        yield f({"b": [b], "a": a}, 1, (x,), z={"v": c}, a=3)
        yield f({"a": a, "b": [b]}, 1, (x,), a=3, z={"v": c})
        yield a, b, c

    state = nnx.state(Counter())

    @jit
    def g(state: Any) -> Any:
        state["count"][...] += 1

    yield g(state)
    yield state


@in_each_mode
def test_methods_and_decorator_forms(jit: Any) -> Iterator[Any]:
    class Model(nnx.Module):
        def __init__(self) -> None:
            self.count = nnx.Variable(jnp.zeros(()))

        @jit
        def step(self, y: Any) -> Any:
            self.count[...] += 1
            return y + self.count

        @jit(donate_argnums=1)
        def other(self, y: Any) -> Any:
            self.count[...] -= 2
            return y

        def plain(self) -> Any:
            return self.count

    m = Model()
    yield m.step(1.0)
    yield Model.step(m, 2.0)
    yield m.other(jnp.ones(2))
    yield m
    yield outcome(jit, m.plain)


@in_each_mode
def test_a_failed_call_changes_nothing(jit: Any) -> Iterator[Any]:
    m = Counter()

    @jit
    def f(m: Any, fails: Any) -> Any:
        m.count[...] += 1
        if fails is not None:
            raise ValueError("on purpose")

    yield outcome(f, m, 1)
    yield m
    yield outcome(f, m, None)
    yield outcome(f, m, 1)
    yield m


@in_each_mode(handed_over=True)
def test_arguments_that_do_not_fit_are_handed_over(jit: Any) -> Iterator[Any]:
    m = Counter()
    f = jit.__wrapped__(lambda m, fails: None)  # counted, it would take any arguments
    yield outcome(f)
    yield outcome(f, m, None, 3)
    yield outcome(f, m, nothing=1)
    yield outcome(f, m, None)
    if isinstance(f, filterjit.nnx.NNXJit):
        assert f.handed_over == {"the arguments do not fit the parameters": 3}


@in_each_mode
def test_captured_variables(jit: Any) -> Iterator[Any]:
    m, captured = Counter(), Counter(3.0)

    for body in (
        lambda m: m.count.set_value(m.count + captured.count),
        lambda m: captured.count.set_value(captured.count + 1),
        lambda m: setattr(captured, "new", 1),
        lambda m: captured,
    ):
        f = jit(body)
        yield outcome(f, m)
        yield outcome(f, m)
        yield m, captured


@in_each_mode(handed_over=True, again=1)
def test_leaves_that_are_no_arrays(jit: Any) -> Iterator[Any]:
    f = jit(lambda m, y: y)
    m = Counter()
    for y in (1, "text", object(), int, None, [None, 2.0], 1j):
        yield outcome(f, m, y)[:2]
    yield outcome(jit(lambda m: "text"), m)[:2]


@pytest.mark.parametrize("mode", ALL)
def test_static_arguments(mode: str) -> None:
    def program(jit: Any) -> Any:
        def f(m: Any, flag: Any, y: Any = 1.0, *rest: Any, **more: Any) -> Any:
            m.count[...] += 1
            assert isinstance(y, jax.core.Tracer) and not isinstance(flag, jax.core.Tracer)
            return y if flag else -y

        m = Counter()
        for options in (
            {"static_argnums": 1},
            {"static_argnames": "flag"},
            {"static_argnums": (1, 4), "static_argnames": ("flag", "k")},
            {"static_argnums": 1, "donate_argnums": 0},
        ):
            g = jit(f, **options)
            for flag in (True, False, True, "text", (1, ("a", 2))):
                yield g(m, flag, 2.0)
            yield g(m, flag=True, y=x)
            if "static_argnames" in options and "static_argnums" in options:
                yield g(m, True, 3.0, x, "static", x, k="static", other={"a": x})
            yield m
        yield outcome(jit(f, static_argnums=1), m, [1])
        yield outcome(jit(f, static_argnames="flag"), m, flag={"a": 1})

    compare(program, mode, handed_over=None)
    g = filterjit.nnx.jit(lambda m, n: m.other * n, static_argnames="n", **MODES[mode])
    for n in (1, 2, 2):
        g(Counter(), n)
    assert g.cache_info()[:2] == (1, 2) and not g.handed_over


@in_each_mode(handed_over=True)
def test_under_a_trace(jit: Any, mode: str) -> Iterator[Any]:
    m = Counter()
    f = jit(lambda m, y: m.other * y)

    @jit
    def outer(m: Any) -> Any:
        m.count[...] += 1
        return f(m, 2.0)

    yield outer(m)
    yield outer(m)
    yield m
    yield jax.jit(lambda y: f(m, y))(3.0) if mode != "graph" else None
    yield outcome(jax.grad(lambda y: f(m, y).sum()), 3.0)[:2]

    def leak() -> Any:
        leaked = []
        jax.jit(lambda: leaked.append(Counter(jnp.zeros(()))))()
        return leaked[0]

    yield outcome(jit(lambda m: m.count.set_value(jnp.ones(()))), leak())[:2]


@in_each_mode(handed_over=True)
def test_jit_is_disabled(jit: Any) -> Iterator[Any]:
    m = Counter()
    f = jit(lambda m: m.count.set_value(m.count + 1))
    with jax.disable_jit():
        yield f(m)
        yield m
    yield f(m)
    yield m


@in_each_mode(handed_over=None)
def test_values_that_are_no_arrays_of_jax(jit: Any) -> Iterator[Any]:
    m = Counter()
    f = jit(lambda m: m.other * 2)
    for value in (np.ones(2), 1.0, np.float32(2), {"a": jnp.ones(2)}):
        m.count.set_raw_value(value)
        yield f(m)
        yield m

    n = Counter()
    n.scale = nnx.data(np.ones(2))
    n.plain = nnx.data([1, jnp.ones(2)])
    yield f(n)
    yield n


@in_each_mode(handed_over=None)
def test_new_values_of_another_kind(jit: Any) -> Iterator[Any]:
    for value in (1, 2.5, np.ones(3), jnp.ones((2, 2)), {"a": jnp.ones(1)}, None):
        m, f = Counter(), jit(lambda m, value=value: m.count.set_raw_value(value))
        for _ in range(2):
            yield outcome(f, m)
            yield m


@in_each_mode(handed_over=None, again=3)
def test_new_values_that_cannot_be_traced(jit: Any, mode: str) -> Iterator[Any]:
    """Upstream raises, and nothing has changed."""

    for body, raises in (
        (lambda m: m.count.set_raw_value("text"), True),
        (lambda m: setattr(m, "added", nnx.data("text")), mode == "graph"),
        (lambda m: setattr(m, "added", nnx.Variable("text")), mode == "graph"),
    ):
        m = Counter()
        m.other.set_raw_value(np.ones(2))
        kind = outcome(jit(body), m)[:2]
        if raises:
            yield kind
        yield m


@in_each_mode(modes=["graph"])
def test_arrays_of_donated_modules(jit: Any) -> Iterator[Any]:
    """In the other modes, upstream leaves deleted arrays."""

    class Plain(nnx.Module):
        def __init__(self) -> None:
            self.x = nnx.data(jnp.ones(2))

    m, n = Plain(), Counter()
    yield jit(lambda m: m.x + 1, donate_argnums=0)(m)
    yield m
    yield jit(lambda n, m: m.x + n.count[...], donate_argnums=1)(n, m)
    yield m, n


# ---- pickles ----


@filterjit.nnx.jit
def found_by_name(x: Any) -> Any:
    return x * 2


def test_copies_and_pickles() -> None:
    """As Flax's: with its options, and with what it closes over."""
    cloudpickle = pytest.importorskip("cloudpickle")
    scale = 3.0

    class Holding(nnx.Module):
        def __init__(self, f: Any) -> None:
            self.w, self.f = nnx.Param(jnp.ones(1)), f

    def add(count: Any, n: Any) -> Any:
        count[...] += n * scale
        return count[...]

    def again(f: Any) -> Any:
        return cloudpickle.loads(cloudpickle.dumps(f))

    for library in (nnx, filterjit.nnx):
        for graph in (False, True):
            f = library.jit(add, donate_argnums=1, graph=graph)
            twin, count, n = again(f), nnx.Variable(jnp.zeros(())), jnp.ones(())
            assert type(twin) is type(f) and twin is not f
            assert twin(count, n) == count[...] == 3 and n.is_deleted()
        count = nnx.Variable(jnp.zeros(()))
        partial = library.cached_partial(library.jit(add), count)
        partial(2.0)
        twin = again(partial)
        assert [twin(1.0), twin(1.0), partial(5.0)] == [9, 12, 21]
        copied = copy.deepcopy(Holding(library.jit(lambda x: x * 2, graph=False)))
        assert copied.f(jnp.ones(1)) == 2.0 and copied.w[...] == 1.0
    assert copy.copy(found_by_name) is copy.deepcopy(found_by_name) is found_by_name
    assert pickle.loads(pickle.dumps(found_by_name)) is found_by_name
