"""Changes of the graph, and Variables and Modules that occur twice, on Flax's ``nnx.jit`` and on
`filterjit.nnx.jit`."""

import os
import random
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest
from flax import nnx

import filterjit.nnx
from support.lifetimes import freed
from support.nnx import MODES, Node, compare, describe, in_each_mode, needs_this_flax, outcome
from support.threads import at_once

pytestmark = needs_this_flax

x = jnp.arange(8.0).reshape(2, 4) / 8
ALL = sorted(MODES)
GRAPH = [mode for mode in ALL if mode != "tree"]


def _plus_one(m: Any) -> None:
    m.v[...] += 1


def _split(m: Any) -> Any:
    n = nnx.merge(*nnx.split(m))
    n.v[...] += 1
    return nnx.state(n)


BODIES: dict[str, Callable[[Any], Any]] = {
    "shared": lambda m: (_plus_one(m), m.v * 2)[1],
    "new variable": lambda m: setattr(m, "new", nnx.BatchStat(m.v[...] * 2)),
    "new module": lambda m: setattr(m, "child", Node(3.0)),
    "new static": lambda m: setattr(m, "tag", m.tag + 1 if m.tag < 3 else m.tag),
    "static of another type": lambda m: (setattr(m, "tag", str(m.tag)), _plus_one(m))[0],
    "new array": lambda m: setattr(m, "array", nnx.data(jnp.ones(2) + m.v[...])),
    "deleted": lambda m: delattr(m, "extra") if hasattr(m, "extra") else None,
    "swapped": lambda m: any(setattr(m, k, x) for k, x in (("a", m.b), ("b", m.a))) or None,
    "replaced": lambda m: setattr(m, "v", nnx.Param(m.v[...] + 1)),
    "aliased": lambda m: setattr(m, "b", m.a),
    "cycle": lambda m: setattr(m, "me", m),
    "sown": lambda m: (m.sow(nnx.Intermediate, "y", m.v[...] * 2), None)[1],
    "popped": lambda m: (BODIES["sown"](m), nnx.pop(m, nnx.Intermediate))[1],
    "metadata": lambda m: (m.v.set_metadata("note", "new"), _plus_one(m))[0],
    "returned": lambda m: m,
    "returned variable": lambda m: (m.v, [m.v]),
    "returned new": lambda m: (Node(2.0), nnx.Param(m.v[...]), nnx.state(m)),
    "split": _split,
    "updated": lambda m: nnx.update(m, jax.tree.map(lambda y: y + 1, nnx.state(m))),
}


def made(model: str = "plain") -> Any:
    m: Any = Node()
    m.a, m.b, m.extra = Node(1.0), Node(2.0), nnx.Param(jnp.ones(()))
    MODELS[model](m)
    return m


def _with_array(m: Any) -> None:
    m.array = jnp.ones(2)
    m.items = nnx.List([Node(1.0), jnp.ones(1)])


MODELS: dict[str, Callable[[Any], None]] = {
    "plain": lambda m: None,
    "shared variable": lambda m: setattr(m.b, "v", m.a.v),
    "shared module": lambda m: setattr(m, "b", m.a),
    "cycle": lambda m: setattr(m.a, "parent", m),
    "array": _with_array,
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Using 'Module.sow:DeprecationWarning")
@pytest.mark.parametrize("mode", ALL)
@pytest.mark.parametrize("model", MODELS)
def test_changes_of_the_graph(mode: str, model: str) -> None:
    if mode == "tree" and model == "cycle":
        pytest.skip("JAX recurses until the stack is full")
    for name, body in BODIES.items():

        def program(jit: Any, body: Any = body) -> Any:
            m = made(model)

            f = jit(lambda m: body(m))
            for _ in range(3):
                yield outcome(f, m)
                yield m
            yield outcome(f, m=m)
            yield m

        try:
            compare(program, mode, handed_over=None)
        except Exception as e:
            raise AssertionError(name) from e


@pytest.mark.filterwarnings("ignore:Using 'Module.sow:DeprecationWarning")
@pytest.mark.parametrize("body", BODIES)
def test_what_is_handed_over(body: str) -> None:
    f = filterjit.nnx.jit(BODIES[body])
    f(made())
    f(made())
    assert not f.handed_over
    assert f.cache_info().hits == 1
    f(made("shared variable")), f(made("shared module"))
    assert not f.handed_over and f.cache_info().misses == 3
    f(made("cycle"))
    assert f.handed_over == {"a Module contains itself": 1}


@in_each_mode(modes=GRAPH)
def test_between_calls(jit: Any) -> Iterator[Any]:
    """Variables that are changed, replaced or deleted between calls."""
    m = made()

    @jit
    def f(m: Any) -> Any:
        for _, v in nnx.iter_graph(m):
            if isinstance(v, nnx.Param):
                v[...] += 1

    for change in (
        lambda: None,
        lambda: m.v.set_value(jnp.zeros(3)),
        lambda: setattr(m, "v", nnx.Param(jnp.ones(2))),
        lambda: setattr(m, "a", Node(7.0)),
        lambda: delattr(m, "extra"),
        lambda: setattr(m, "more", Node()),
        lambda: m.v.set_metadata("note", 1),
        lambda: m.v.set_metadata("note", "text"),
        lambda: setattr(m, "tag", 1.5),
        lambda: setattr(m, "b", m.a),
        lambda: setattr(m, "b", Node()),
    ):
        change()
        yield f(m)
        yield m


def test_threads() -> None:
    models = [made() for _ in range(4)]

    @filterjit.nnx.jit
    def f(m: Any) -> Any:
        m.v[...] += 1
        m.a.v[...] += m.v

    at_once(4, lambda i: [f(models[i]) for _ in range(50)])
    for m in models:
        assert m.v[...].tolist() == [50.0, 50.0]
        assert m.a.v[...].tolist() == [1.0 + 1275.0] * 2


@freed
def test_nothing_stays_alive() -> list[weakref.ref[Any]]:
    """Flax itself keeps the classes of Pytrees in a registry."""

    class Local(Node):
        pass

    @filterjit.nnx.jit
    def f(m: Any) -> Any:
        f  # noqa: B018 (a cycle)
        m.v[...] += 1

    m = Local()
    for _ in range(3):
        f(m)
    return [weakref.ref(x) for x in (m, f)]


def test_methods_of_the_result() -> None:
    f = filterjit.nnx.jit(lambda m, y: m.v * y)
    m = Node(1.0)
    assert f.lower(m, 2.0).compile()(m, 2.0).tolist() == [2.0, 2.0]
    assert f.eval_shape(m, 2.0).shape == (2,)
    assert f(m, 3.0).tolist() == [3.0, 3.0]
    assert f.cache_info().variants == 1 and f.cache_info().misses == 1
    assert "hit" in str(f.explain(m, 3.0))
    assert "1" in str(f.report())
    f.clear_cache()
    assert f.cache_info().variants == 0
    with pytest.raises(filterjit.RetraceError):
        g = filterjit.nnx.jit(lambda m: m.v * 1, on_retrace="raise")
        g(m)
        m.tag = 5
        g(m)


def test_the_order_of_attributes_after_a_call() -> None:
    """As before the call, where Flax leaves them sorted: csrc/README.md says so."""

    for jit, order in ((filterjit.nnx.jit, ["v", "tag", "a"]), (nnx.jit, ["a", "tag", "v"])):
        m = Node(a=nnx.Param(jnp.ones(2)))
        jit(_plus_one, graph=True)(m)
        assert [name for name in vars(m) if not name.startswith("_")] == order


def test_the_modes_that_flax_has_set() -> None:
    seen = []
    for graph, updates in ((True, True), (True, False), (False, False)):
        with nnx.set_graph_mode(graph), nnx.set_graph_updates(updates):
            for jit in (nnx.jit, filterjit.nnx.jit):
                m = Node()
                seen.append((outcome(jit(BODIES["new variable"]), m), describe(m)))
    assert seen[::2] == seen[1::2] and seen[0] != seen[2]


def contains_itself(**options: Any) -> list[list[float]]:
    class Loop(Node):  # a new class: the first instance is looked at
        pass

    def add(loop: Loop, x: jax.Array) -> jax.Array:
        loop.v[...] += x
        return loop.v[...]

    loop, f, x = Loop(1.0), filterjit.nnx.jit(add, **options), jnp.arange(2.0)
    loop.me = loop
    found = [f(loop, x).tolist() for _ in range(2)]
    with open(os.devnull, "rb"):  # what needs C recursion goes on
        return found


@pytest.mark.parametrize("options", [{}, {"graph": True, "graph_updates": True}])
def test_a_module_that_contains_itself(options: dict[str, Any]) -> None:
    assert at_once(1, lambda _: contains_itself(**options)) == [[[1, 2], [1, 3]]]


# ---- what occurs twice ----


@pytest.mark.parametrize("layers", [1, 6])  # six are large enough for a record
@in_each_mode(modes=["graph"])
def test_a_model_and_its_optimizer(jit: Any, layers: int) -> Iterator[Any]:
    rngs = nnx.Rngs(0)
    model = nnx.Sequential(*[nnx.Linear(4, 4, rngs=rngs) for _ in range(layers)])
    optimizer = nnx.ModelAndOptimizer(model, optax.sgd(1e-2, momentum=0.9))

    @jit
    def step(model: Any, optimizer: Any, y: Any) -> Any:
        assert optimizer.model is model
        loss, grads = nnx.value_and_grad(lambda m: ((m(y) - 1) ** 2).mean())(model)
        optimizer.update(grads)
        return loss

    for i in range(6):
        yield step(model, optimizer, x + i)
        yield step(optimizer=optimizer, model=model, y=x)
        yield model, optimizer


def _pairs(m: Any, n: Any) -> list[tuple[Any, ...]]:
    """Arguments of the same shapes in which different objects are one."""
    return [
        (m, n, {"a": m.v, "b": n.v}),
        (m, m, {"a": m.v, "b": m.v}),
        (m, n, {"a": n.v, "b": m.v}),
        (n, m, {"a": n.v, "b": m.v}),
        (m, n, {"a": m.v, "b": m.v}),
        (m, n, {"a": nnx.Param(jnp.ones(2)), "b": nnx.Param(jnp.ones(2))}),
        (m, n, {"a": m.v, "b": nnx.Param(jnp.ones(2))}),
        (m, m, {"a": n.v, "b": n.v}),
    ]


@in_each_mode(modes=GRAPH)
def test_what_is_shared_decides_which_program_runs(jit: Any) -> Iterator[Any]:
    m, n = Node(1.0), Node(2.0)
    m.child = n.child = Node(3.0)

    @jit
    def f(m: Any, n: Any, tree: Any) -> Any:
        m.v[...] += 1
        n.v[...] *= 3
        tree["a"][...] -= 5
        tree["b"][...] *= 2
        m.child.v[...] += n.v
        all_of = [m.v, n.v, tree["a"], tree["b"], m.child.v, n.child.v]
        return [i for i, v in enumerate(all_of) for w in all_of if v is w], m is n

    for _ in range(3):
        for args in _pairs(m, n):
            yield outcome(f, *args)
            yield args
    choose = random.Random(0)
    for _ in range(8):
        args = choose.choice(_pairs(m, n))
        yield outcome(f, *args)
        yield args
    n.child = Node(4.0)
    for args in _pairs(m, n):
        yield outcome(f, *args)
        yield args


def test_identity_after_the_call() -> None:
    for jit in (nnx.jit, filterjit.nnx.jit):
        m = Node(1.0, child=Node(2.0))
        m.again = m.child
        shared, tree = m.child, {"m": m, "v": m.child.v}

        @jit
        def f(tree: Any, child: Any) -> Any:
            assert tree["m"].again is child and tree["v"] is child.v
            child.v[...] += 1
            child.new = nnx.Param(child.v * 2)
            return child, tree["m"], child.new

        for _ in range(2):
            found = f(tree, shared)
            assert found[0] is shared is m.child is m.again and found[1] is m
            assert found[2] is shared.new and tree["v"] is shared.v
        assert shared.v[...].tolist() == [4.0, 4.0]


@in_each_mode(modes=GRAPH)
def test_donation_of_what_is_shared(jit: Any) -> Iterator[Any]:
    for options in ({"donate_argnums": 0}, {"donate_argnums": 1}, {"donate_argnums": (0, 1)}):
        m = Node(1.0)
        n = Node(2.0, child=m)

        @jit(**options)
        def f(m: Any, n: Any) -> Any:
            m.v[...] += 1
            n.v[...] += m.v
            return n.child is m

        for _ in range(3):
            old = m.v.get_raw_value(), n.v.get_raw_value()
            yield f(m, n)
            yield [array.is_deleted() for array in old]
            yield m, n


@in_each_mode(handed_over=True, modes=["tree"])
def test_tree_mode_raises(jit: Any) -> Iterator[Any]:
    m = Node(1.0, child=Node(2.0))
    f = jit(lambda m, n: m.v + n.v)
    for args in ((m, m), (m, m.child), ([m.v, m.v], m)):
        yield outcome(f, *args)
    yield f(m.child, Node(1.0))


def test_explanations() -> None:
    f = filterjit.nnx.jit(lambda m, n: m.v + n.v)
    m, n = Node(1.0), Node(2.0)
    f(m, n)
    assert "the same object as `m`" in str(f.explain(m, m))
    n.v = m.v
    text = str(f.explain(m, n))
    assert "the same object as `m.v`" in text and "sharing is part of the structure" in text
    f(m, m)
    assert "hit" in str(f.explain(n, n))
    assert f.cache_info().variants == 2
