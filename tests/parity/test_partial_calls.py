"""`f.partial` with JAX arrays: results, shared programs, donation, and use as a pytree."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest

import filterjit
from support.comparison import Traces, comparable

X = jnp.arange(4.0)


def _mlp() -> Any:
    return eqx.nn.MLP(4, 2, 8, 1, key=jax.random.key(0))


def test_serving_loop() -> None:
    traces = Traces()
    f = filterjit.filter_jit(traces.counting(lambda model, x, scale=1.0: model(x) * scale))
    model = _mlp()
    p = f.partial(model)
    for scale in (1.0, 2.0, 1.0):
        for x in (X, X + 1):
            assert comparable(p(x, scale=scale)) == comparable(f(model, x, scale=scale))
    assert traces.count == 2
    p(jnp.ones(4, int))  # another dtype: JAX retraces
    assert traces.count == 3


def test_nothing_is_compiled_again() -> None:
    compiled: list[str] | None = None
    f = filterjit.filter_jit(lambda model, x: model(x))
    model = _mlp()
    f(model, X)

    def listen(event: str, duration: float, **_: Any) -> None:
        if compiled is not None:
            compiled.append(event)

    # The listener stays: JAX can only remove all listeners, the report's too.
    jax.monitoring.register_event_duration_secs_listener(listen)
    partial = f.partial(model)
    compiled = []
    partial(X)
    found, compiled = compiled, None
    assert not any("compile" in event for event in found)


@pytest.mark.parametrize("donate", ["all", "warn"])
def test_donated_arguments_cannot_be_given(donate: Any) -> None:
    f = filterjit.filter_jit(lambda a, b: a + b, donate=donate)
    with pytest.raises(ValueError, match=f"argument 0 of `partial`.*donate='{donate}'"):
        f.partial(X)
    with pytest.raises(ValueError, match="`b` of `partial` would be donated"):
        f.partial(b=X)
    f.partial()


@pytest.mark.parametrize("donate", ["all-except-first", "warn-except-first"])
def test_the_first_argument_is_not_donated(donate: Any) -> None:
    f = filterjit.filter_jit(lambda a, b: a + b, donate=donate)
    for p in (f.partial(X), f.partial(a=X)):
        kept = p.args or p.keywords
        for _ in range(3):
            given = jnp.ones(4)
            out = p(given) if p.args else p(b=given)
            assert given.is_deleted() and jnp.array_equal(out, X + 1), kept
    with pytest.raises(ValueError, match="argument 1 of `partial`"):
        f.partial(X, X)
    with pytest.raises(ValueError, match="`b` of `partial`"):
        f.partial(a=X, b=X)


def test_it_is_a_pytree() -> None:
    f = filterjit.filter_jit(lambda model, x, *, shift: jnp.sum(model(x)) + shift)
    model = _mlp()
    p = f.partial(model, shift=2.0 * X[1])
    expected = f(model, X, shift=2.0 * X[1])
    assert (
        len(jtu.tree_leaves(eqx.filter(p, eqx.is_array)))
        == len(jtu.tree_leaves(eqx.filter(model, eqx.is_array))) + 1
    )
    doubled = jtu.tree_map(lambda x: 2 * x if eqx.is_array(x) else x, p)
    both = jtu.tree_map(lambda x: 2 * x if eqx.is_array(x) else x, model)
    assert comparable(doubled(X)) == comparable(f(both, X, shift=4.0 * X[1]))
    outer = filterjit.filter_jit(lambda g, x: g(x))
    assert comparable(outer(p, X)) == comparable(expected)
    grads = eqx.filter_grad(lambda g: g(X))(p)
    wanted = eqx.filter_grad(lambda m: f(m, X, shift=2.0))(model)
    assert comparable(jtu.tree_leaves(grads.args)) == comparable(jtu.tree_leaves(wanted))


def test_inside_a_trace() -> None:
    f = filterjit.filter_jit(lambda model, x: jnp.sum(model(x)))
    model = _mlp()

    @jax.jit
    def outer(xs: Any) -> Any:
        inner = jtu.tree_map(lambda w: w * xs[0, 1] if eqx.is_array(w) else w, model)
        p = f.partial(inner)
        return jax.lax.map(lambda x: p(x), xs)

    @jax.jit
    def plain(xs: Any) -> Any:
        inner = jtu.tree_map(lambda w: w * xs[0, 1] if eqx.is_array(w) else w, model)
        return jax.lax.map(lambda x: f(inner, x), xs)

    xs = jnp.stack([X, X + 1])
    assert comparable(outer(xs)) == comparable(plain(xs))
    out = eqx.filter_vmap(lambda w: f.partial(w)(X))(
        eqx.filter_vmap(lambda key: eqx.nn.MLP(4, 2, 8, 1, key=key))(
            jax.random.split(jax.random.key(1), 3)
        )
    )
    assert out.shape == (3,)


def test_a_method() -> None:
    class Model(eqx.Module):
        w: Any

        @filterjit.filter_jit
        def __call__(self, x: Any, power: int = 1) -> Any:
            return self.w * x**power

    model = Model(X)
    p = Model.__call__.partial(model)
    assert comparable(p(X, 2)) == comparable(model(X, 2))
    assert comparable(p(X)) == comparable(model(X))
    bound = model.__call__.partial(X)
    assert comparable(bound(2)) == comparable(model(X, 2))


def test_only_what_can_be_given_by_position_is_a_first_argument() -> None:
    """If all parameters are keyword-only, all are donated."""
    f = filterjit.filter_jit(lambda *, a, b: a + b, donate="all-except-first")
    with pytest.raises(ValueError, match="`a` of `partial` would be donated"):
        f.partial(a=X)
    g = filterjit.filter_jit(lambda **kwargs: kwargs["a"], donate="all-except-first")
    with pytest.raises(ValueError, match="`a` of `partial` would be donated"):
        g.partial(a=X)


def test_what_is_read_of_a_partial_is_a_copy() -> None:
    """Later traces, and ahead of time, see the arguments as they were given."""

    @filterjit.filter_jit
    def f(options: Any, x: Any, *, more: Any) -> Any:
        return options["scale"] * x + more["shift"][0]

    given, more = {"scale": 2.0}, {"shift": [0.0]}
    p = f.partial(given, more=more)
    assert p(X).tolist() == [0, 2, 4, 6]
    p.args[0]["scale"] = given["scale"] = 3.0
    p.keywords["more"]["shift"][0] = more["shift"][0] = 1.0
    for x in (X, jnp.arange(4), jnp.arange(2.0), X):  # a hit, traced again twice, a hit
        assert p(x).tolist() == (2.0 * x).tolist()
    jax.clear_caches()
    f.clear_cache()
    assert p(X).tolist() == [0, 2, 4, 6]
    with jax.disable_jit():
        assert p(X).tolist() == [0, 2, 4, 6]
    assert f.explain(*p.args, X, **p.keywords).hit
    assert f.lower(*p.args, X, **p.keywords).compile()(*p.args, X, **p.keywords).tolist() == [
        0,
        2,
        4,
        6,
    ]


def test_the_leaves_of_a_partial_are_copies() -> None:
    """JAX hands out the containers where `is_leaf` stops at them."""
    f = filterjit.filter_jit(lambda options, x: options["scale"] * x)
    p = f.partial({"scale": 2.0})
    assert p(X).tolist() == [0, 2, 4, 6]
    for found in jtu.tree_leaves(p, is_leaf=lambda x: isinstance(x, dict) and "scale" in x):
        if isinstance(found, dict):
            found["scale"] = 3.0
    twin = jtu.tree_map(lambda x: x, p)
    twin.args[0]["scale"] = 4.0
    for x in (X, jnp.arange(4)):
        assert p(x).tolist() == twin(x).tolist() == [0, 2, 4, 6]


def test_arrays_and_statics_that_change_are_noticed_by_each_call() -> None:
    class M(eqx.Module):
        w: Any
        scales: list[float] = eqx.field(static=True)

        def __call__(self, x: Any) -> Any:
            return self.w * self.scales[0] + x

    f = filterjit.filter_jit(lambda m, x: m(x))
    m = M(np.ones(4), [2.0])
    p = f.partial(m)
    for x in (X, jnp.arange(4)):
        assert p(x).tolist() == [2, 3, 4, 5]
    m.scales[0] = 3.0
    for x in (X, jnp.arange(4), X):
        assert p(x).tolist() == [3, 4, 5, 6]
    m.w[:] = 2.0
    for x in (X, jnp.arange(4), X):
        assert p(x).tolist() == [6, 7, 8, 9]


def test_a_partial_is_not_walked_on_each_call() -> None:
    """Custom nodes are, since Python code flattens them."""

    class Node:
        def __init__(self, x: Any) -> None:
            self.x = x

    def flatten(node: Node) -> Any:
        counted.append(1)
        return (node.x,), None

    jtu.register_pytree_node(Node, flatten, lambda _, children: Node(*children))
    counted: list[int] = []
    f = filterjit.filter_jit(lambda model, x: x)
    p = f.partial(Node(X))
    p(X)
    counted.clear()
    p(X)
    assert len(counted) == 1
