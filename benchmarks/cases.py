"""What is timed, and what the tests run on Equinox and on ours: real models, called for real.

A `Case` is a function with its arguments. `CASES` makes each on demand, so that asking for one
does not build the others.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import optax

Call = Callable[[], Any]
Decorator = Callable[[Any], Any]


@dataclasses.dataclass(frozen=True)
class Case:
    """A function and the arguments it is called with.

    Attributes:
        name: as in `CASES`.
        summary: one line for people.
        function: the function that is jitted.
        args: its positional arguments.
        kwargs: its keyword arguments.
        carried: so many of the first results are the first arguments of the next call, as a
            training loop has it.
        decorated: for cases that are not just ``jit(function)(*args, **kwargs)``: from a
            ``filter_jit`` to the call.
        makes_function: the call makes a jitted function, and returns that.
    """

    name: str
    summary: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    carried: int = 0
    decorated: Callable[[Decorator], Call] | None = None
    makes_function: bool = False

    @property
    def num_arrays(self) -> int:
        """How many arrays are passed."""
        return len(arrays_in((self.args, self.kwargs)))

    @property
    def num_nodes(self) -> int:
        """How many things there are to look at: containers, leaves and static fields."""
        return sum(_count(x) for x in (*self.args, *self.kwargs.values()))


def arrays_in(tree: Any) -> list[Any]:
    """The arrays among the leaves of `tree`, in order."""
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


def _call(model: Any, x: jax.Array) -> Any:
    return model(x)


def _update(model: Any, x: jax.Array) -> Any:
    del x
    return _add_one(model)


def _small_mlp() -> Any:
    return eqx.nn.MLP(8, 8, width_size=32, depth=4, key=jr.key(0))


def mlp() -> Case:
    """A small MLP answers: what a served model or an RL policy does."""
    return Case("mlp", "MLP 8-32x4-8, inference", _call, (_small_mlp(), jnp.ones(8)))


def mlp_update() -> Case:
    """The same MLP comes back changed."""
    return Case(
        "mlp_update", "the same, returns an updated model", _update, (_small_mlp(), jnp.ones(8))
    )


def dict_100() -> Case:
    """No Module at all: a dict of 100 arrays."""
    tree = {f"weight_{i:03}": jnp.full((), float(i)) for i in range(100)}
    return Case("dict_100", "dict of 100 arrays", lambda tree: sum(tree.values()), (tree,))


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
    """Blocks on end, and a norm."""

    blocks: list[Block]
    norm: eqx.nn.LayerNorm

    def __init__(self, size: int, depth: int, *, key: Any) -> None:
        self.blocks = [Block(size, key=k) for k in jr.split(key, depth)]
        self.norm = eqx.nn.LayerNorm(size)

    def __call__(self, x: jax.Array) -> jax.Array:
        for block in self.blocks:
            x = block(x)
        return jax.vmap(self.norm)(x)


def _transformer() -> Any:
    return Transformer(2, 24, key=jr.key(0))


def transformer() -> Case:
    """Depth and breadth of a real transformer, so small that only the tree is large."""
    return Case(
        "transformer",
        "transformer, 24 layers, inference",
        _call,
        (_transformer(), jnp.ones((1, 2))),
    )


def transformer_update() -> Case:
    """The same transformer comes back changed."""
    return Case(
        "transformer_update",
        "the same, returns an updated model",
        _update,
        (_transformer(), jnp.ones((1, 2))),
    )


def adam_step() -> Case:
    """A training loop: each step takes what the last one returned."""
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
    return Case("adam_step", "Adam step of a small MLP, end to end", step, args, carried=2)


def static_100k() -> Case:
    """What filter_jit exists for, much of it: anything that is no array is static."""
    tree = [f"name {i}" for i in range(100_000)]

    def function(tree: list[Any], x: jax.Array) -> jax.Array:
        return x + len(tree)

    return Case(
        "static_100k", "1 array and a list of 100,000 strings", function, (tree, jnp.array(0.0))
    )


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
    """Keyword arguments, traced and static, out of order, with defaults left out."""

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


def make_filter_jit() -> Case:
    """``filter_jit(f)`` itself: what it costs to have one made in a loop."""

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
    """The same and called at once, where the first call does what making has put off."""

    def function(x: jax.Array) -> jax.Array:
        return x + 1

    x = jnp.array(1.0)
    return Case(
        "make_and_call",
        "`filter_jit(f)(x)`, made afresh for each call",
        function,
        (x,),
        decorated=lambda decorator: lambda: decorator(function)(x),
    )


CASES: dict[str, Callable[[], Case]] = {
    make.__name__: make
    for make in (
        mlp,
        mlp_update,
        dict_100,
        transformer,
        transformer_update,
        adam_step,
        static_100k,
        bound_method,
        kwargs,
        make_filter_jit,
        make_and_call,
    )
}
