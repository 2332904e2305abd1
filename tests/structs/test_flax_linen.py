"""Pytrees of Flax and Optax: the results are those of ``jax.jit`` and Equinox."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import pytest

import filterjit
from filterjit._trees import _registry
from support.comparison import Traces, comparable

pytest.importorskip("flax")
optax = pytest.importorskip("optax")
import flax.linen as nn  # noqa: E402
import flax.struct  # noqa: E402
from flax import nnx  # noqa: E402
from flax.core import FrozenDict, freeze, unfreeze  # noqa: E402
from flax.training.train_state import TrainState  # noqa: E402

KEY = jax.random.key(0)
X = jax.random.normal(jax.random.key(1), (4, 3))
ONE = jnp.array(1.0)


def same_everywhere(body: Callable[[Any], Any]) -> Any:
    """Runs `body` with ``jax.jit``, Equinox and filterjit. Asserts that all return the same, and
    returns it."""
    theirs = body(jax.jit)
    assert comparable(body(eqx.filter_jit)) == comparable(theirs)
    assert comparable(body(filterjit.filter_jit)) == comparable(theirs)
    return theirs


def same_leaves(body: Callable[[Any], Any]) -> Any:
    """The same for values that `comparable` does not know, by leaves and structure."""

    def described(jit: Any) -> Any:
        out = body(jit)
        return comparable(jtu.tree_leaves(out)), str(jtu.tree_structure(out)), type(out).__name__

    theirs = described(jax.jit)
    assert described(eqx.filter_jit) == theirs
    assert described(filterjit.filter_jit) == theirs


# ---- flax.struct ----


@flax.struct.dataclass
class Struct:
    a: Any
    b: Any = 2.0
    meta: Any = flax.struct.field(pytree_node=False, default="meta")

    def double(self) -> "Struct":
        return self.replace(a=self.a * 2)  # type: ignore[attr-defined]


@flax.struct.dataclass
class ChildStruct(Struct):
    c: Any = None
    other: Any = flax.struct.field(pytree_node=False, default=())


class Node(flax.struct.PyTreeNode):
    a: Any
    inner: Any = None
    fn: Callable[..., Any] = flax.struct.field(pytree_node=False, default=jnp.tanh)

    def __call__(self, x: Any) -> Any:
        return self.fn(self.a * x)


STRUCTS: dict[str, Callable[[], Any]] = {
    "dataclass": lambda: Struct(ONE, jnp.arange(2.0)),
    "child": lambda: ChildStruct(ONE, X, "m", [X, {"k": ONE}], ("other", 1)),
    "PyTreeNode": lambda: Node(ONE, Struct(X, ONE), jnp.sin),
    "nested": lambda: Node(X, Node(ONE, [Struct(ONE, ONE), Struct(Node(X), ONE)])),
}


@pytest.mark.parametrize("name", STRUCTS)
def test_structs(name: str) -> None:
    make = STRUCTS[name]

    def body(jit: Any) -> Any:
        traces = Traces()

        @jit
        def f(x: Any, y: Any) -> Any:
            traces.tick()
            return jtu.tree_map(lambda v: v + y, x), x

        x = make()
        out, back = f(x, ONE)
        again, _ = f(out, ONE)
        f(make(), ONE)
        assert jtu.tree_structure(out) == jtu.tree_structure(back) == jtu.tree_structure(x)
        return out, again, back, traces.count

    out = same_everywhere(body)
    assert out[-1] == 1


def test_structs_are_read_natively() -> None:
    """Flax registers its dataclasses as JAX's own."""
    assert _registry.registry.kind(Struct(ONE)) == "object"
    assert _registry.registry.kind(Node(ONE)) == "object"


def test_meta_fields_decide_on_the_trace() -> None:
    def body(jit: Any) -> Any:
        traces = Traces()

        @jit
        def f(x: Any) -> Any:
            traces.tick()
            return x.double(), x.a + (x.meta == "one")

        values = ["one", "two", ("one", 2), jnp.sin, None, "one"]
        return [f(Struct(ONE, ONE, v)) for v in values], traces.count

    assert same_everywhere(body)[-1] == 5


def test_struct_as_the_function() -> None:
    def body(jit: Any) -> Any:
        apply = jit(lambda node, x: node(x))
        return apply(Node(ONE), X), apply(Node(ONE, fn=jnp.sin), X)

    same_everywhere(body)
    assert comparable(filterjit.filter_jit(Node(ONE))(X)) == comparable(
        eqx.filter_jit(Node(ONE))(X)
    )


def test_statics_in_data_fields() -> None:
    """As in Equinox, all but arrays is static, which ``jax.jit`` would trace or refuse."""

    def body(jit: Any) -> Any:
        traces = Traces()

        @jit
        def f(x: Any) -> Any:
            traces.tick()
            return x, eqx.is_array(x.b)

        values = [Struct(ONE), Struct(ONE, "text"), Struct(ONE, ONE), Struct(3, None), Struct(X)]
        return [f(x) for x in values * 2], traces.count

    assert comparable(body(filterjit.filter_jit)) == comparable(body(eqx.filter_jit))


def test_struct_is_frozen_inside() -> None:
    def change(x: Any) -> Any:
        x.a = 3

    for jit in (eqx.filter_jit, filterjit.filter_jit):
        with pytest.raises(AttributeError, match="cannot assign to field"):
            jit(change)(Struct(ONE))


# ---- linen ----


class Network(nn.Module):
    features: int = 4

    @nn.compact
    def __call__(self, x: Any, train: bool = False) -> Any:
        x = nn.Dense(self.features)(x)
        x = nn.BatchNorm(use_running_average=not train)(x)
        return nn.Dense(1)(nn.relu(x))


@pytest.mark.parametrize("frozen", [False, True], ids=["dict", "FrozenDict"])
def test_linen_training(frozen: bool) -> None:
    model = Network()
    variables = model.init(KEY, X)
    variables = freeze(variables) if frozen else unfreeze(variables)
    assert type(variables) is (FrozenDict if frozen else dict)

    def body(jit: Any) -> Any:
        traces = Traces()

        @jit
        def step(variables: Any, x: Any) -> Any:
            traces.tick()

            def loss(params: Any) -> Any:
                out, updates = model.apply(
                    {"params": params, "batch_stats": variables["batch_stats"]},
                    x,
                    train=True,
                    mutable=["batch_stats"],
                )
                return jnp.mean(out**2), updates

            grads, updates = jax.grad(loss, has_aux=True)(variables["params"])
            params = jtu.tree_map(lambda p, g: p - 0.1 * g, variables["params"], grads)
            new = {"params": params, **updates}
            return freeze(new) if frozen else new

        state: Any = variables
        for _ in range(3):
            state = step(state, X)
        return state, traces.count

    assert same_everywhere(body)[-1] == 1


def test_linen_module_as_an_argument() -> None:
    """A linen Module is not a pytree and can be hashed: it is static."""
    params = Network().init(KEY, X)

    def body(jit: Any) -> Any:
        traces = Traces()

        @jit
        def apply(model: Any, params: Any, x: Any) -> Any:
            traces.tick()
            return model.apply(params, x)

        return [apply(Network(4), params, X) for _ in range(3)], traces.count

    assert comparable(body(filterjit.filter_jit)) == comparable(body(eqx.filter_jit))
    assert body(filterjit.filter_jit)[1] == 1


def test_linen_init_and_apply_as_the_function() -> None:
    model = Network()

    def body(jit: Any) -> Any:
        variables = jit(model.init)(KEY, X)
        return variables, jit(model.apply)(variables, X)

    assert comparable(body(filterjit.filter_jit)) == comparable(body(eqx.filter_jit))


OPTIMISERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: optax.sgd(0.1, momentum=0.9, nesterov=True),
    "adam": lambda: optax.adam(optax.cosine_decay_schedule(0.1, 10)),
    "masked": lambda: optax.masked(optax.adam(0.1), lambda p: jtu.tree_map(jnp.ndim, p) and True),
    "multi steps": lambda: optax.MultiSteps(optax.adam(0.1), every_k_schedule=2),
    "injected": lambda: optax.inject_hyperparams(optax.adam)(learning_rate=0.1),
    "multi transform": lambda: optax.multi_transform(
        {"a": optax.adam(0.1), "b": optax.sgd(0.1)}, {"w": "a", "b": "b"}
    ),
}


@pytest.mark.parametrize("name", OPTIMISERS)
def test_optax_states(name: str) -> None:
    params = {"w": jnp.ones((3, 1)), "b": jnp.zeros(1)}

    def body(jit: Any) -> Any:
        optimiser = OPTIMISERS[name]()
        traces = Traces()

        @jit
        def step(params: Any, state: Any) -> Any:
            traces.tick()
            grads = jax.grad(lambda p: jnp.sum((X @ p["w"] + p["b"]) ** 2))(params)
            updates, state = optimiser.update(grads, state, params)
            return optax.apply_updates(params, updates), state

        state, now = optimiser.init(params), params
        structure = jtu.tree_structure(state)
        for _ in range(3):
            now, state = step(now, state)
        assert jtu.tree_structure(state) == structure
        return now, state, traces.count

    same_everywhere(body)


def test_train_state() -> None:
    model = nn.Dense(2)
    params = model.init(KEY, X)["params"]

    def body(jit: Any) -> Any:
        traces = Traces()

        @jit
        def step(state: Any, x: Any) -> Any:
            traces.tick()
            loss = lambda p: jnp.mean(state.apply_fn({"params": p}, x) ** 2)
            value, grads = jax.value_and_grad(loss)(state.params)
            return state.apply_gradients(grads=grads), value

        # `step` is an int at first, and an array later.
        state = TrainState.create(apply_fn=model.apply, params=params, tx=OPTIMISERS["adam"]())
        state = state.replace(step=jnp.asarray(0))
        values = []
        for _ in range(4):
            state, value = step(state, X)
            values.append(value)
        return values, state.params, state.opt_state, state.step, traces.count

    same_everywhere(body)


# ---- nnx ----


class Block(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.linear = nnx.Linear(3, 4, rngs=rngs)
        self.norm = nnx.BatchNorm(4, rngs=rngs)
        self.count = nnx.Variable(jnp.array(0))
        self.name = "block"

    def __call__(self, x: Any) -> Any:
        self.count[...] = self.count[...] + 1
        return nnx.relu(self.norm(self.linear(x)))


def test_nnx_split_and_merge() -> None:
    def body(jit: Any) -> Any:
        traces = Traces()
        model = Block(nnx.Rngs(0))
        graphdef, params, rest = nnx.split(model, nnx.Param, ...)

        @jit
        def step(params: Any, rest: Any, x: Any) -> Any:
            traces.tick()

            def loss(params: Any) -> Any:
                model = nnx.merge(graphdef, params, rest, copy=True)
                value = jnp.mean(model(x) ** 2)
                return value, nnx.split(model, nnx.Param, ...)[2]

            (value, new), grads = jax.value_and_grad(loss, has_aux=True)(params)
            return jtu.tree_map(lambda p, g: p - 0.1 * g, params, grads), new, value

        values = []
        for _ in range(3):
            params, rest, value = step(params, rest, X)
            values.append(value)
        return values, params, rest, [traces.count, type(params).__name__, type(rest).__name__]

    same_leaves(body)


def test_nnx_graphdef_as_an_argument() -> None:
    """A GraphDef is a static node without children."""

    def body(jit: Any) -> Any:
        traces = Traces()

        @jit
        def apply(graphdef: Any, state: Any, x: Any) -> Any:
            traces.tick()
            model = nnx.merge(graphdef, state)
            out = model(x)
            return out, nnx.split(model)

        results = []
        for seed in range(2):
            graphdef, state = nnx.split(Block(nnx.Rngs(seed)))
            for _ in range(2):
                out, (graphdef, state) = apply(graphdef, state, X)
                results.append((out, state))
        return results, traces.count

    same_leaves(body)


def test_nnx_state_as_a_tree() -> None:
    def body(jit: Any) -> Any:
        state = nnx.state(Block(nnx.Rngs(0)))
        doubled = jit(lambda s: jtu.tree_map(lambda v: v * 2, s))(state)
        assert jtu.tree_structure(doubled) == jtu.tree_structure(state)
        pure = jit(lambda s: s)(nnx.to_pure_dict(state))
        return doubled, jit(lambda s: s)(doubled), pure

    same_leaves(body)


def test_nnx_module_as_a_tree() -> None:
    """In Flax 0.12 Modules are pytrees, with arrays in their Variables."""
    if jtu.all_leaves((Block(nnx.Rngs(0)),)):
        assert not hasattr(nnx, "Pytree")
        return

    def body(jit: Any) -> Any:
        traces = Traces()

        @jit
        def apply(model: Any, x: Any) -> Any:
            traces.tick()
            out = model.linear(x)
            return out, jtu.tree_map(lambda v: v * 2, model)

        model = Block(nnx.Rngs(0))
        out, model = apply(model, X)
        again, model = apply(model, X)
        assert type(model) is Block and model.name == "block"
        return out, again, model, traces.count

    same_leaves(body)


def test_nnx_optimizer_state() -> None:
    def body(jit: Any) -> Any:
        model = nnx.Linear(3, 1, rngs=nnx.Rngs(0))
        optimizer = nnx.Optimizer(model, optax.adam(0.1), wrt=nnx.Param)
        graphdef, state = nnx.split((model, optimizer))

        @jit
        def step(state: Any, x: Any) -> Any:
            model, optimizer = nnx.merge(graphdef, state)
            grads = nnx.grad(lambda m: jnp.mean(m(x) ** 2))(model)
            optimizer.update(model, grads)
            return nnx.state((model, optimizer))

        for _ in range(3):
            state = step(state, X)
        return state

    same_leaves(body)


def test_nnx_jit_inside_and_outside() -> None:
    """A function jitted by NNX can be called and jitted as any other."""

    def body(jit: Any) -> Any:
        @jit
        def outer(state: Any, x: Any) -> Any:
            model = nnx.merge(graphdef, state)
            return nnx.jit(lambda m, x: m(x))(model, x)

        model = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
        graphdef, state = nnx.split(model)
        inner = jit(lambda s, x: nnx.merge(graphdef, s)(x))
        return outer(state, X), nnx.jit(lambda m, x: inner(nnx.state(m), x))(model, X)

    same_leaves(body)
