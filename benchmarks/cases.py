"""The cases that are timed, and that the tests run on Equinox and on filterjit.

A `Case` is a function with its arguments. `CASES` has a function that makes each case, so that making
one does not make the others. Static values (statics) are all values that are not
arrays.
"""

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import optax

if "JAX_PLATFORMS" not in os.environ:
    jax.config.update("jax_platforms", "cpu")

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
            decorator like ``filter_jit`` and the arguments, and returns the call.
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
    decorated: Callable[..., Call] | None = None
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


def _mlp(width: int) -> Any:
    return eqx.nn.MLP(8, 8, width_size=width, depth=4, key=jr.key(0))


def _sum(tree: dict[str, Any]) -> Any:
    return sum(tree.values())


def dict_of(number: int, numpy: int = 0) -> tuple[Any]:
    """Returns a dict of arrays, the last ones of NumPy."""
    tree: dict[str, Any] = {f"weight_{i:03}": jnp.full((), float(i)) for i in range(number - numpy)}
    return (tree | {f"zz_{i}": np.full((), float(i), np.float32) for i in range(numpy)},)


class Link(eqx.Module):
    """A tiny module, which may contain another one."""

    scale: jax.Array
    inner: "Link | None" = None

    def __call__(self, x: jax.Array) -> jax.Array:
        x = self.scale * x
        return x if self.inner is None else self.inner(x)


def _chain(number: int) -> Any:
    """Returns a deep and narrow tree."""
    chain = None
    for _ in range(number):
        chain = Link(jnp.array(1.01), chain)
    return chain


def _infer_in_turn(links: Any, x: jax.Array) -> jax.Array:
    for link in links:
        x = link(x)
    return x


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


def _transformer(depth: int, library: Any = jnp) -> tuple[Any, ...]:
    """Returns a model with the tree of a real one, and tiny arrays."""
    return Transformer(2, depth, key=jr.key(0)), library.ones((1, 2), np.float32)


def training_step(optimizer: Any, loss_of: Callable[..., jax.Array]) -> Callable[..., Any]:
    """Returns a step of a training loop, which takes the results of the last one."""

    def step(model: Any, state: Any, *data: jax.Array) -> Any:
        loss, gradients = eqx.filter_value_and_grad(loss_of)(model, *data)
        updates, state = optimizer.update(gradients, state)
        return eqx.apply_updates(model, updates), state, loss

    return step


def squares(model: Any, xs: jax.Array, ys: jax.Array) -> jax.Array:
    return jnp.mean((jax.vmap(model)(xs)[:, 0] - ys) ** 2)


def adam_step() -> Case:
    """A training loop: each step takes the results of the last one."""
    model = eqx.nn.MLP(2, 1, width_size=8, depth=2, key=jr.key(0))
    optimizer = optax.adam(1e-3)
    xs = jr.normal(jr.key(1), (16, 2))
    args = (model, optimizer.init(eqx.filter(model, eqx.is_array)), xs, jnp.sum(xs, axis=1))
    summary, step = "Adam step of a small MLP, end to end", training_step(optimizer, squares)
    return Case("adam_step", summary, step, args, carried=2, lasts=True)


def _names() -> list[str]:
    return [f"name {i}" for i in range(100_000)]


def _add_number(tree: Any, x: jax.Array) -> jax.Array:
    return x + len(tree)


class Named(eqx.Module):
    """A Module of many static values and one array."""

    names: tuple[str, ...]
    scale: jax.Array

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.scale * x + len(self.names)


def _scaled(self: Any, x: jax.Array) -> jax.Array:
    return self.scale * x


def _tiny(decorator: Decorator) -> Any:
    class Tiny(eqx.Module):
        scale: jax.Array
        method = decorator(_scaled)

    return Tiny(jnp.array(2.0))


def _bound(decorator: Decorator, _: Any, x: jax.Array) -> Call:
    """``@filter_jit`` on a method."""
    tiny = _tiny(decorator)
    return lambda: tiny.method(x)


def _shifted(x: Any, *, shift: Any, scale: Any = 2.0, mode: str = "add") -> Any:
    return x * scale + shift if mode == "add" else x * scale - shift


def _by_keyword(decorator: Decorator, *, x: Any, shift: Any, mode: str) -> Call:
    """Keyword arguments, dynamic and static, in another order than the parameters."""
    jitted = decorator(_shifted)
    return lambda: jitted(mode=mode, shift=shift, x=x)


def kwargs() -> Case:
    given = {"mode": "subtract", "shift": jnp.array(1.0), "x": jnp.array(3.0)}
    summary = "keyword arguments, one of them static"
    return Case("kwargs", summary, _shifted, (), given, decorated=_by_keyword)


def statics_in_turn(number: int) -> Case:
    """One function, called with `number` static values in turn: it has a variant for each, which is
    looked up in a table."""
    first, *others = ((jnp.array(1.0), i) for i in range(number))
    name, summary = f"statics_{number}", f"{number:,} static values in turn"
    return Case(name, summary, lambda x, value: x, first, others=tuple(others))


def _plus_one(x: jax.Array) -> jax.Array:
    return x + 1


CASES: dict[str, Callable[[], Case]] = {}


def _add(
    name: str, summary: str, function: Any, args: Callable[[], tuple[Any, ...]], **more: Any
) -> None:
    CASES[name] = lambda: Case(name, summary, function, args(), **more)


def _small(xs: Any = None) -> tuple[Any, ...]:
    """Returns a small MLP, as of a served model or an RL policy, and its input."""
    return _mlp(2**5), jnp.ones(8) if xs is None else xs


def _batched(model: Any, xs: Any) -> Any:
    return jax.vmap(model)(xs)


UPDATED = "the same, returns an updated model"
_add("identity", "identity of one array", lambda x: x, lambda: (jnp.array(1.0),))
_add("mlp", "MLP 8-32x4-8, inference", infer, _small, lasts=True)
_add("mlp_update", UPDATED, update, _small, lasts=True)
# The same tree, and more work for the device.
_add("mlp_256", "MLP 8-256x4-8, inference", infer, lambda: (_mlp(2**8), jnp.ones(8)), lasts=True)
_add("mlp_numpy", "MLP 8-32x4-8, inference of a NumPy batch", _batched,
     lambda: _small(np.ones((32, 8), np.float32)), lasts=True)  # fmt: skip
CASES["adam_step"] = adam_step
_add("dict_10", "dict of 10 arrays", _sum, lambda: dict_of(10))
_add("dict_100", "dict of 100 arrays", _sum, lambda: dict_of(100))
_add("dict_100_numpy", "dict of 100 arrays, ten of them NumPy's", _sum, lambda: dict_of(100, 10))
_add("dict_1000", "dict of 1,000 arrays", _sum, lambda: dict_of(1000))
_add("deep_chain", "chain of 100 tiny modules, each in the last", infer,
     lambda: (_chain(100), jnp.ones(())))  # fmt: skip
_add("wide_tuple", "tuple of 100 tiny modules", _infer_in_turn,
     lambda: (tuple(Link(jnp.array(1.01)) for _ in range(100)), jnp.ones(())))  # fmt: skip
_add(
    "transformer_4", "transformer, 4 layers, inference", infer, lambda: _transformer(4), lasts=True
)
_add("transformer_4_update", UPDATED, update, lambda: _transformer(4), lasts=True)
_add(
    "transformer", "transformer, 24 layers, inference", infer, lambda: _transformer(24), lasts=True
)
_add("transformer_numpy", "the same, of a NumPy batch", infer, lambda: _transformer(24, np),
     lasts=True)  # fmt: skip
_add("transformer_update", UPDATED, update, lambda: _transformer(24), lasts=True)
_add("static_100k", "1 array and a list of 100,000 strings", _add_number,
     lambda: (_names(), jnp.array(0.0)))  # fmt: skip
_add("static_100k_tuple", "1 array and a tuple of 100,000 strings", _add_number,
     lambda: (tuple(_names()), jnp.array(0.0)))  # fmt: skip
_add("static_100k_module", "a Module of an array and 100,000 strings", infer,
     lambda: (Named(tuple(_names()), jnp.array(2.0)), jnp.array(0.0)))  # fmt: skip
_add("bound_method", "bound method of a tiny Module", _scaled,
     lambda: (_tiny(lambda f: f), jnp.array(3.0)), decorated=_bound)  # fmt: skip
CASES |= {"kwargs": kwargs}
CASES |= {f"statics_{n}": functools.partial(statics_in_turn, n) for n in (10, 1000)}
# How long the trace of a function takes that calls a jitted one.
_add("nested", "MLP in a nested jit, trace of the outer", infer, _small, nested=True)
# What making a jitted function in a loop costs; its first call does the work that it defers.
_add("make_filter_jit", "`filter_jit(f)` itself, not called", _plus_one, lambda: (jnp.array(1.0),),
     decorated=lambda decorator, x: lambda: decorator(_plus_one), makes_function=True)  # fmt: skip
_add("make_and_call", "`filter_jit(f)(x)`, recreated for each call", _plus_one,
     lambda: (jnp.array(1.0),),
     decorated=lambda decorator, x: lambda: decorator(_plus_one)(x))  # fmt: skip
