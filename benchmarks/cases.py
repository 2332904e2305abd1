"""The cases that are timed, and that the tests run on Equinox and on filterjit.

A `Case` is a function with its arguments. `CASES` has a function for each case that makes it, so
that making one does not make the others. Static values (statics) are all values that are not
arrays.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import optax

Call = Callable[[], Any]
Decorator = Callable[[Any], Any]


@dataclasses.dataclass(frozen=True)
class Case:
    """A function and the arguments that it is called with.

    Attributes:
        name: the name in `CASES`.
        summary: one line for tables.
        function: the function that is jitted.
        args: its positional arguments.
        kwargs: its keyword arguments.
        carried: how many of the first results are the first arguments of the next call, as in a
            training loop.
        others: further positional arguments; the calls alternate between these and `args`.
        decorated: for cases that are not just ``jit(function)(*args, **kwargs)``: takes a
            decorator like ``filter_jit`` and returns the call.
        makes_function: the call makes a jitted function and returns it.
        lasts: the program takes so long, even on a CPU, that the call returns before it ends.
        nested: the call traces a function that calls the jitted one, and returns the trace.
    """

    name: str
    summary: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    carried: int = 0
    others: tuple[tuple[Any, ...], ...] = ()
    decorated: Callable[[Decorator], Call] | None = None
    makes_function: bool = False
    lasts: bool = False
    nested: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether the case is just ``jit(function)(*args)``, repeated."""
        unusual = (self.kwargs, self.carried, self.others, self.decorated, self.makes_function)
        return not any(unusual) and not self.nested

    def value(self, out: Any) -> Any:
        """Returns the result of the function, where a call returned `out`."""
        if self.makes_function:
            return out(*self.args, **self.kwargs)
        return out.lower().compile()(self.args[-1]) if self.nested else out

    @property
    def num_arrays(self) -> int:
        """The number of arrays among the arguments."""
        return len(arrays_in((self.args, self.kwargs)))

    @property
    def num_nodes(self) -> int:
        """The number of containers, leaves and static fields in the arguments."""
        return sum(_count(x) for x in (*self.args, *self.kwargs.values()))


def arrays_in(tree: Any) -> list[Any]:
    """Returns the arrays among the leaves of `tree`, in order."""
    return [x for x in jtu.tree_leaves(tree) if eqx.is_array(x)]


def _count(tree: Any) -> int:
    if jtu.all_leaves((tree,)):
        return 1
    static = 0
    if isinstance(tree, eqx.Module):
        static = sum(bool(f.metadata.get("static")) for f in dataclasses.fields(tree))
    children = jtu.tree_leaves(tree, is_leaf=lambda x: x is not tree)
    return 1 + static + sum(_count(child) for child in children)


def _add_one(tree: Any) -> Any:
    return jtu.tree_map(lambda x: x + 1 if eqx.is_array(x) else x, tree)


def infer(model: Any, x: jax.Array) -> Any:
    """Calls the model."""
    return model(x)


def update(model: Any, x: jax.Array) -> Any:
    """Returns an updated model."""
    del x
    return _add_one(model)


def identity() -> Case:
    """The smallest call."""
    return Case("identity", "identity of one array", lambda x: x, (jnp.array(1.0),))


def _mlp(width: int) -> Any:
    return eqx.nn.MLP(8, 8, width_size=width, depth=4, key=jr.key(0))


def mlp() -> Case:
    """Inference of a small MLP, as in a served model or an RL policy."""
    return Case("mlp", "MLP 8-32x4-8, inference", infer, (_mlp(2**5), jnp.ones(8)), lasts=True)


def mlp_update() -> Case:
    """The same MLP; an updated model is returned."""
    args = (_mlp(2**5), jnp.ones(8))
    return Case("mlp_update", "the same, returns an updated model", update, args, lasts=True)


def mlp_256() -> Case:
    """A wider MLP: the same tree, and more work for the device."""
    return Case("mlp_256", "MLP 8-256x4-8, inference", infer, (_mlp(2**8), jnp.ones(8)), lasts=True)


def dict_of(number: int) -> Case:
    """A dict of `number` arrays, without a Module."""
    tree = {f"weight_{i:03}": jnp.full((), float(i)) for i in range(number)}
    summary = f"dict of {number:,} arrays"
    return Case(f"dict_{number}", summary, lambda tree: sum(tree.values()), (tree,))


def dict_10() -> Case:
    """A dict of 10 arrays."""
    return dict_of(10)


def dict_100() -> Case:
    """A dict of 100 arrays."""
    return dict_of(100)


def dict_100_numpy() -> Case:
    """The same; ten of the arrays are NumPy's."""
    tree = {f"weight_{i:03}": jnp.full((), float(i)) for i in range(90)}
    tree |= {f"zz_{i}": np.full((), float(i), np.float32) for i in range(10)}
    summary = "dict of 100 arrays, ten of them NumPy's"
    return Case("dict_100_numpy", summary, lambda tree: sum(tree.values()), (tree,))


def mlp_numpy() -> Case:
    """Inference of a small MLP for a batch of NumPy's, as in a server."""
    args = (_mlp(2**5), np.ones((32, 8), np.float32))
    summary = "MLP 8-32x4-8, inference of a NumPy batch"
    return Case("mlp_numpy", summary, lambda model, xs: jax.vmap(model)(xs), args, lasts=True)


def rl_step() -> Case:
    """A step of an agent: what the environment returns is NumPy's, the state is fed back."""

    def step(state: Any, observation: Any, reward: Any, done: Any) -> Any:
        model, total = state
        action = jnp.argmax(model(observation))
        return (model, jnp.where(done, 0.0, total + reward)), action

    state = _mlp(2**5), jnp.zeros(())
    given = np.ones(8, np.float32), np.float32(0.5), np.bool_(False)
    summary = "step of an agent: observation, reward and done are NumPy's"
    return Case("rl_step", summary, step, (state, *given), carried=1, lasts=True)


def dict_1000() -> Case:
    """A dict of 1,000 arrays."""
    return dict_of(1000)


class Link(eqx.Module):
    """A tiny module, which may contain another one."""

    scale: jax.Array
    inner: "Link | None" = None

    def __call__(self, x: jax.Array) -> jax.Array:
        x = self.scale * x
        return x if self.inner is None else self.inner(x)


def deep_chain() -> Case:
    """A deep and narrow tree."""
    chain = None
    for _ in range(100):
        chain = Link(jnp.array(1.01), chain)
    return Case(
        "deep_chain", "chain of 100 tiny modules, each in the last", infer, (chain, jnp.ones(()))
    )


def wide_tuple_of(number: int) -> Case:
    """A wide and flat tree: a tuple of `number` tiny modules."""

    def function(links: Any, x: jax.Array) -> jax.Array:
        for link in links:
            x = link(x)
        return x

    links = tuple(Link(jnp.array(1.01)) for _ in range(number))
    return Case("wide_tuple", f"tuple of {number:,} tiny modules", function, (links, jnp.ones(())))


def wide_tuple() -> Case:
    """A tuple of 100 modules."""
    return wide_tuple_of(100)


class Block(eqx.Module):
    """A pre-norm transformer block."""

    attention_norm: eqx.nn.LayerNorm
    attention: eqx.nn.MultiheadAttention
    mlp_norm: eqx.nn.LayerNorm
    mlp: eqx.nn.MLP

    def __init__(self, size: int, *, key: Any) -> None:
        attention_key, mlp_key = jr.split(key)
        self.attention_norm = eqx.nn.LayerNorm(size)
        self.attention = eqx.nn.MultiheadAttention(1, size, key=attention_key)
        self.mlp_norm = eqx.nn.LayerNorm(size)
        self.mlp = eqx.nn.MLP(size, size, width_size=size, depth=2, key=mlp_key)

    def __call__(self, x: jax.Array) -> jax.Array:
        y = jax.vmap(self.attention_norm)(x)
        x = x + self.attention(y, y, y)
        return x + jax.vmap(self.mlp)(jax.vmap(self.mlp_norm)(x))


class Transformer(eqx.Module):
    """Blocks one after the other, and a norm."""

    blocks: list[Block]
    norm: eqx.nn.LayerNorm

    def __init__(self, size: int, depth: int, *, key: Any) -> None:
        self.blocks = [Block(size, key=k) for k in jr.split(key, depth)]
        self.norm = eqx.nn.LayerNorm(size)

    def __call__(self, x: jax.Array) -> jax.Array:
        for block in self.blocks:
            x = block(x)
        return jax.vmap(self.norm)(x)


def _transformer(name: str, depth: int, function: Callable[..., Any], summary: str) -> Case:
    args = (Transformer(2, depth, key=jr.key(0)), jnp.ones((1, 2)))
    return Case(name, summary, function, args, lasts=True)


def transformer_4() -> Case:
    """A small transformer."""
    return _transformer("transformer_4", 4, infer, "transformer, 4 layers, inference")


def transformer_4_update() -> Case:
    """The same transformer; an updated model is returned."""
    return _transformer("transformer_4_update", 4, update, "the same, returns an updated model")


def transformer() -> Case:
    """A transformer with the tree of a real one, and tiny arrays."""
    return _transformer("transformer", 24, infer, "transformer, 24 layers, inference")


def transformer_numpy() -> Case:
    """The same with a batch of NumPy's."""
    case = transformer()
    model, x = case.args
    summary = "the same, of a NumPy batch"
    return dataclasses.replace(
        case, name="transformer_numpy", summary=summary, args=(model, np.asarray(x))
    )


def transformer_update() -> Case:
    """The same transformer; an updated model is returned."""
    return _transformer("transformer_update", 24, update, "the same, returns an updated model")


def adam_step() -> Case:
    """A training loop: each step takes the results of the last one."""
    model = eqx.nn.MLP(2, 1, width_size=8, depth=2, key=jr.key(0))
    optimizer = optax.adam(1e-3)
    state = optimizer.init(eqx.filter(model, eqx.is_array))
    xs = jr.normal(jr.key(1), (16, 2))

    def step(model: Any, state: Any, xs: jax.Array, ys: jax.Array) -> Any:
        def loss_of(model: Any) -> jax.Array:
            return jnp.mean((jax.vmap(model)(xs)[:, 0] - ys) ** 2)

        loss, gradients = eqx.filter_value_and_grad(loss_of)(model)
        updates, state = optimizer.update(gradients, state)
        return eqx.apply_updates(model, updates), state, loss

    args = (model, state, xs, jnp.sum(xs, axis=1))
    return Case(
        "adam_step", "Adam step of a small MLP, end to end", step, args, carried=2, lasts=True
    )


def _names() -> list[str]:
    return [f"name {i}" for i in range(100_000)]


def _add_number(tree: Any, x: jax.Array) -> jax.Array:
    return x + len(tree)


def static_100k() -> Case:
    """Many static values: 100,000 strings in a list."""
    summary = "1 array and a list of 100,000 strings"
    return Case("static_100k", summary, _add_number, (_names(), jnp.array(0.0)))


def static_100k_tuple() -> Case:
    """The same in a tuple, which is immutable."""
    summary = "1 array and a tuple of 100,000 strings"
    return Case("static_100k_tuple", summary, _add_number, (tuple(_names()), jnp.array(0.0)))


class Named(eqx.Module):
    """A Module of many static values and one array."""

    names: tuple[str, ...]
    scale: jax.Array

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.scale * x + len(self.names)


def static_100k_module() -> Case:
    """The same in a Module, which is immutable."""
    model = Named(tuple(_names()), jnp.array(2.0))
    summary = "a Module of an array and 100,000 strings"
    return Case("static_100k_module", summary, infer, (model, jnp.array(0.0)))


def bound_method() -> Case:
    """``@filter_jit`` on a method."""

    def scaled(self: Any, x: jax.Array) -> jax.Array:
        return self.scale * x

    def make(decorator: Decorator) -> Any:
        class Tiny(eqx.Module):
            scale: jax.Array
            method = decorator(scaled)

        return Tiny(jnp.array(2.0))

    x = jnp.array(3.0)

    def decorated(decorator: Decorator) -> Call:
        tiny = make(decorator)
        return lambda: tiny.method(x)

    return Case(
        "bound_method",
        "bound method of a tiny Module",
        scaled,
        (make(lambda f: f), x),
        decorated=decorated,
    )


def kwargs() -> Case:
    """Keyword arguments, dynamic and static, in another order than the parameters."""

    def function(x: Any, *, shift: Any, scale: Any = 2.0, mode: str = "add") -> Any:
        return x * scale + shift if mode == "add" else x * scale - shift

    x, shift = jnp.array(3.0), jnp.array(1.0)

    def decorated(decorator: Decorator) -> Call:
        jitted = decorator(function)
        return lambda: jitted(mode="subtract", shift=shift, x=x)

    return Case(
        "kwargs",
        "keyword arguments, one of them static",
        function,
        (),
        {"mode": "subtract", "shift": shift, "x": x},
        decorated=decorated,
    )


def statics_in_turn(number: int) -> Case:
    """One function, called with `number` static values in turn: it has a variant for each."""
    x = jnp.array(1.0)
    first, *others = ((x, i) for i in range(number))
    return Case(
        f"statics_{number}",
        f"{number:,} static values in turn",
        lambda x, value: x,  # as little to compile as possible
        first,
        others=tuple(others),
    )


def statics_10() -> Case:
    """Ten static values in turn."""
    return statics_in_turn(10)


def statics_1000() -> Case:
    """A thousand static values in turn, which are looked up in a large table."""
    return statics_in_turn(1000)


def nested() -> Case:
    """A jitted function that is called while another one is traced: how long the trace takes."""
    args = (_mlp(2**5), jnp.ones(8))
    return Case("nested", "MLP in a nested jit, trace of the outer", infer, args, nested=True)


def make_filter_jit() -> Case:
    """``filter_jit(f)`` itself: what making a jitted function in a loop costs."""

    def function(x: jax.Array) -> jax.Array:
        return x + 1

    return Case(
        "make_filter_jit",
        "`filter_jit(f)` itself, not called",
        function,
        (jnp.array(1.0),),
        decorated=lambda decorator: lambda: decorator(function),
        makes_function=True,
    )


def make_and_call() -> Case:
    """The same, then called once: the first call does the work that ``filter_jit(f)`` defers."""

    def function(x: jax.Array) -> jax.Array:
        return x + 1

    x = jnp.array(1.0)
    return Case(
        "make_and_call",
        "`filter_jit(f)(x)`, recreated for each call",
        function,
        (x,),
        decorated=lambda decorator: lambda: decorator(function)(x),
    )


CASES: dict[str, Callable[[], Case]] = {
    make.__name__: make
    for make in (
        identity,
        mlp,
        mlp_update,
        mlp_256,
        mlp_numpy,
        rl_step,
        adam_step,
        dict_10,
        dict_100,
        dict_100_numpy,
        dict_1000,
        deep_chain,
        wide_tuple,
        transformer_4,
        transformer_4_update,
        transformer,
        transformer_numpy,
        transformer_update,
        static_100k,
        static_100k_tuple,
        static_100k_module,
        bound_method,
        kwargs,
        statics_10,
        statics_1000,
        nested,
        make_filter_jit,
        make_and_call,
    )
}
