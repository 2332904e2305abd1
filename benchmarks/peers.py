"""The peers that are timed: functions that make a call without arguments from a `Case`.

The returned call is already traced and compiled. It does not wait for its results, except that
Equinox waits inside the call. `Case.value` of the result has the same arrays for each peer, except
that Flax orders them in another way and transposes matrices, and Inox orders them in another way.
"""

import dataclasses
import functools
import importlib.util
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.tree_util as jtu
import numpy as np

import filterjit as fj
from cases import Call, Case, Decorator, arrays_in, infer, update

Peer = Callable[[Case], Call]


def _is_traced(x: Any) -> bool:
    return eqx.is_array(x) or isinstance(x, (np.ndarray, np.generic))


def _for_each(case: Case, prepared: Callable[[Any, Any, Any], Call]) -> Call:
    """Returns calls by ``jax.jit``. `prepared` makes one: it gets the arguments, what is traced of
    these and the keyword arguments, and the rest."""
    if case.makes_function:
        return functools.partial(jax.jit, case.function)
    call = in_turn(
        [
            prepared(args, *eqx.partition((args, dict(case.kwargs)), _is_traced))
            for args in (case.args, *case.others)
        ]
    )
    # `Case.decorated` adds a Python frame to the calls of other peers.
    return call if case.decorated is None else lambda: call()


def flat(case: Case) -> Call:
    """jax.jit of the same function on a flat list of its arrays: the floor of all that use jax.jit."""

    def prepared(args: Any, traced: Any, static: Any) -> Call:
        arrays, treedef = jax.tree.flatten(traced)

        def function(*arrays: Any) -> list[Any]:
            args, kwargs = eqx.combine(jax.tree.unflatten(treedef, arrays), static)
            return arrays_in(case.function(*args, **kwargs))

        carried = len(arrays_in(args[: case.carried]))
        return _calling(jax.jit(function), tuple(arrays), {}, carried, case.nested)

    return _for_each(case, prepared)


def pytree(case: Case) -> Call:
    """jax.jit on the same pytrees; the statics are removed beforehand, which is not counted."""

    def prepared(args: Any, traced: Any, static: Any) -> Call:
        def function(*args: Any, **kwargs: Any) -> Any:
            args, kwargs = eqx.combine((args, kwargs), static)
            return eqx.filter(case.function(*args, **kwargs), eqx.is_array)

        return _calling(jax.jit(function), *traced, case.carried, case.nested)

    return _for_each(case, prepared)


def closed(case: Case) -> Call:
    """jax.jit of a function that closes over all but the last argument: the arrays are constants."""
    *model, last = case.args

    def function(last: Any) -> Any:
        return eqx.filter(case.function(*model, last), eqx.is_array)

    return in_turn([functools.partial(jax.jit(function), last)])


def equinox(case: Case) -> Call:
    """equinox.filter_jit."""
    return _filter_jitted(case, eqx.filter_jit)


def linen(case: Case) -> Call:
    """jax.jit of a Flax linen module with the same weights, on its parameters."""
    import flax.linen as nn

    layers = case.args[0].layers

    class MLP(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            for layer in layers[:-1]:
                x = nn.relu(nn.Dense(layer.out_features)(x))
            return nn.Dense(layers[-1].out_features)(x)

    def updated(params: Any, x: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf + 1, params)

    params = {
        f"Dense_{i}": {"kernel": layer.weight.T, "bias": layer.bias}
        for i, layer in enumerate(layers)
    }
    jitted = jax.jit(MLP().apply if case.function is infer else updated)
    return in_turn([functools.partial(jitted, {"params": params}, case.args[1])])


def nnx_jit(case: Case) -> Call:
    """nnx.jit of a Flax nnx module with the same weights."""
    return in_turn([functools.partial(*_nnx(case), case.args[1])])


def nnx_cached(case: Case) -> Call:
    """The same with nnx.cached_partial, which flattens the module once, beforehand."""
    from flax import nnx

    return in_turn([functools.partial(nnx.cached_partial(*_nnx(case)), case.args[1])])


def inox(case: Case) -> Call:
    """jax.jit on the dict of arrays of inox.tree.partition, made beforehand, which is not counted."""
    import inox.tree

    treedef, arrays, others = inox.tree.partition(case.args, eqx.is_array)

    def function(arrays: Any) -> Any:
        out = case.function(*inox.tree.combine(treedef, arrays, others))
        return inox.tree.partition(out, eqx.is_array)[1]

    return in_turn([functools.partial(jax.jit(function), arrays)])


def optree(case: Case) -> Call:
    """jax.jit on the flat list that optree makes of the pytree without its statics."""
    import optree

    traced, static = eqx.partition(case.args, eqx.is_array)
    treedef = jax.tree.structure(traced)
    _register_modules(traced)
    result = None  # optree's treedef of the result, set by the trace

    def function(*arrays: Any) -> list[Any]:
        nonlocal result
        out = case.function(*eqx.combine(jax.tree.unflatten(treedef, arrays), static))
        out, result = optree.tree_flatten(eqx.filter(out, eqx.is_array), namespace="benchmarks")
        return out

    jitted = jax.jit(function)

    def call() -> Any:
        out = jitted(*optree.tree_leaves(traced, namespace="benchmarks"))
        return optree.tree_unflatten(result, out)

    return in_turn([call])


def filterjit(case: Case) -> Call:
    """filterjit.filter_jit."""
    return _filter_jitted(case, fj.filter_jit)


def _filter_jitted(case: Case, decorator: Decorator) -> Call:
    if case.decorated is not None:
        return in_turn([case.decorated(decorator, *case.args, **case.kwargs)])
    jitted = decorator(case.function)
    return in_turn(
        [
            _calling(jitted, args, case.kwargs, case.carried, case.nested)
            for args in (case.args, *case.others)
        ]
    )


def _calling(jitted: Any, args: tuple[Any, ...], kwargs: Any, carried: int, nested: bool) -> Call:
    if nested:
        # A new function each time: JAX would find the trace of an old one in its cache.
        return lambda: jax.jit(lambda last: jitted(*args[:-1], last)).trace(args[-1])
    if not carried:
        return functools.partial(jitted, *args, **kwargs)  # calls without a Python frame
    first, rest = args[:carried], args[carried:]

    def call() -> Any:
        nonlocal first
        out = jitted(*first, *rest, **kwargs)
        first = out[:carried]
        return out

    return call


def in_turn(calls: Sequence[Call]) -> Call:
    """Returns a call that makes the given calls in turn, over and over, after some calls of each."""
    for _ in range(3):
        for call in calls:
            jax.block_until_ready(arrays_in(call()))
    if len(calls) == 1:
        return calls[0]
    following = itertools.cycle(calls).__next__
    return lambda: following()()


def _nnx(case: Case) -> tuple[Any, Any]:
    """Returns the jitted function and its module."""
    from flax import nnx

    class MLP(nnx.Module):
        def __init__(self) -> None:
            self.layers = nnx.List([])
            for layer in case.args[0].layers:
                linear = nnx.Linear(layer.in_features, layer.out_features, rngs=nnx.Rngs(0))
                linear.kernel.set_value(layer.weight.T)
                linear.bias.set_value(layer.bias)
                self.layers.append(linear)

        def __call__(self, x: Any) -> Any:
            *hidden, last = self.layers
            for layer in hidden:
                x = nnx.relu(layer(x))
            return last(x)

    def updated(model: Any, x: Any) -> Any:
        graph, state = nnx.split(model)
        return nnx.merge(graph, jax.tree.map(lambda leaf: leaf + 1, state))

    return nnx.jit(infer if case.function is infer else updated), MLP()


@functools.cache
def _register_with_optree(module: type[eqx.Module]) -> None:
    import optree

    fields = dataclasses.fields(module)
    children = [f.name for f in fields if not f.metadata.get("static")]
    static = [f.name for f in fields if f.metadata.get("static")]

    def flatten(node: Any) -> tuple[Any, Any]:
        held = vars(node)
        return [held[name] for name in children], [held[name] for name in static]

    def unflatten(values: Any, leaves: Any) -> Any:
        node = object.__new__(module)
        vars(node).update(zip(children, leaves, strict=True))
        vars(node).update(zip(static, values, strict=True))
        return node

    optree.register_pytree_node(module, flatten, unflatten, namespace="benchmarks")


def _register_modules(tree: Any) -> None:
    """Registers the Modules in `tree` with optree."""
    for node in jtu.tree_leaves(tree, is_leaf=lambda x: isinstance(x, eqx.Module)):
        if isinstance(node, eqx.Module):
            _register_with_optree(type(node))
            for child in vars(node).values():
                _register_modules(child)


def _is_mlp(case: Case) -> bool:
    """Whether the Flax peers can do what the case does."""
    is_mlp = case.function in (infer, update) and isinstance(case.args[0], eqx.nn.MLP)
    return case.is_plain and is_mlp


def _has_model(case: Case) -> bool:
    return case.is_plain and len(case.args) > 1


_ALL = (flat, pytree, closed, equinox, linen, nnx_jit, nnx_cached, inox, optree, filterjit)
# For peers that do not always apply: the package that they need, and the cases that they can do.
_LIMITS: dict[str, tuple[str, Callable[[Case], bool]]] = {
    "closed": ("jax", _has_model),
    "linen": ("flax", _is_mlp),
    "nnx_jit": ("flax", _is_mlp),
    "nnx_cached": ("flax", _is_mlp),
    "inox": ("inox", lambda case: case.is_plain),
    "optree": ("optree", lambda case: case.is_plain),
}


def applies(peer: str, case: Case) -> bool:
    """Whether the peer can do what the case does."""
    return peer not in _LIMITS or _LIMITS[peer][1](case)


MISSING = [
    peer for peer, (package, _) in _LIMITS.items() if importlib.util.find_spec(package) is None
]
PEERS: dict[str, Peer] = {peer.__name__: peer for peer in _ALL if peer.__name__ not in MISSING}
