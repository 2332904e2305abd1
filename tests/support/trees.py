"""One tree of every kind, and one Equinox Module of every form, by name."""

import collections
import types
from collections.abc import Callable
from typing import Any

import equinox as eqx
import flax.core
import flax.struct
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import optax
from flax import nnx

from . import modules, nodes


@flax.struct.dataclass
class FlaxStruct:
    a: Any
    b: Any = 1
    meta: Any = flax.struct.field(pytree_node=False, default="flax")


LIST = getattr(nnx, "List", list)  # Flax 0.12 and newer have it
IS_TREE = not jtu.all_leaves([nnx.Param(1.0)])  # a Variable, from Flax 0.11 on


class FlaxModule(nnx.Module):
    """An NNX Module with Variables, a list, and static attributes."""

    def __init__(self, a: Any) -> None:
        self.kernel = nnx.Param(a, tag=("x", 1))
        self.layers = LIST([nnx.BatchStat(a), a, "static"])
        self.width = 3


def flax_state(a: Any) -> Any:
    return nnx.State({"b": nnx.Param(a) if IS_TREE else a, "a": {"c": a, "n": 1}})


def identity(x: Any) -> Any:
    return x


def scale(x: Any, factor: Any = 2) -> Any:
    """Scales."""
    return x * factor


ARRAY = jnp.arange(3.0)
ONE = jnp.array(1.0)
TWO = jnp.array(2.0)
KEY = jax.random.key(0)
LAYER = eqx.nn.Linear(2, 3, key=KEY)
MLP = eqx.nn.MLP(2, 2, 4, 2, key=KEY)
PARAMS = {"w": jnp.ones((2, 2)), "b": jnp.zeros(2)}


def bare(cls: Any, **fields: Any) -> Any:
    """Returns an instance of which only these fields are set."""
    found = object.__new__(cls)
    for name, value in fields.items():
        object.__setattr__(found, name, value)
    return found


def nested(depth: int) -> Any:
    found: Any = modules.Module(ONE)
    for i in range(depth):
        found = modules.Module(found, i, {"k": [modules.Child(i), (TWO, modules.Weekday.monday)]})
    return found


def shared_layer() -> Any:
    layer = eqx.nn.Linear(2, 2, key=KEY)
    return eqx.nn.Shared(
        (layer, eqx.nn.Linear(2, 2, key=jax.random.key(1))),
        where=lambda pair: pair[1].weight,
        get=lambda pair: pair[0].weight,
    )


IS_LEAF: list[Callable[[Any], bool] | None] = [
    *(None, lambda x: x is None, lambda x: True, lambda x: False),
    *(lambda x: isinstance(x, (list, dict)), lambda x: isinstance(x, eqx.Module)),
]
# Trees of every kind.
TREES: dict[str, Callable[[], Any]] = {
    # leaves
    "None": lambda: None,
    "int": lambda: 3,
    "str": lambda: "text",
    "function": lambda: identity,
    "jit function": lambda: jax.nn.relu,
    "module": lambda: types,
    "ShapeDtypeStruct": lambda: jax.ShapeDtypeStruct((2,), jnp.float32),
    "device": lambda: jax.devices()[0],
    # arrays
    "array": lambda: ARRAY,
    "weak scalar": lambda: jnp.asarray(1.0),
    "key": lambda: KEY,
    "numpy": lambda: np.arange(3.0, dtype=np.float32),
    "numpy scalar": lambda: np.float32(1.5),
    "numpy float64": lambda: np.float64(1.5),
    "numpy read-only": lambda: np.broadcast_to(np.float32(1.0), (3,)),
    # containers
    "tuple": lambda: (1, ARRAY, "a"),
    "nested tuple": lambda: ((), ((ARRAY,), (1, (2, (3,))))),
    "empty tuple": lambda: (),
    "list": lambda: [1, ARRAY, None],
    "empty list": list,
    "dict": lambda: {"b": ARRAY, "a": 1},
    "empty dict": dict,
    "dict of ints": lambda: {3: ARRAY, 1: 2, 2: None},
    "dict of tuples": lambda: {(2, "a"): ARRAY, (1, "b"): 1},
    "dict of mixed numbers": lambda: {2: ARRAY, 1.5: 1},
    "OrderedDict": lambda: collections.OrderedDict([("b", ARRAY), ("a", 1)]),
    "empty OrderedDict": lambda: collections.OrderedDict(),
    "defaultdict": lambda: collections.defaultdict(list, {"b": ARRAY, "a": [1]}),
    "defaultdict without": lambda: collections.defaultdict(None, {"a": ARRAY}),
    "named tuple": lambda: nodes.Point(ARRAY, 2),
    "named tuple subclass": lambda: nodes.PointWithMethods(ARRAY, 2.0),
    "named tuple with __new__": lambda: nodes.PointWithNew(ARRAY),
    "deep": lambda: [{"a": ({"b": [nodes.Point(({"c": ARRAY},), 1)]},)}],
    "wide": lambda: [jnp.array(float(i)) for i in range(50)] + list(range(50)),
    # Modules
    "Module": lambda: modules.Module(ARRAY),
    "Module without fields": lambda: modules.Empty(),
    "Module in Module": lambda: modules.Module(
        modules.Child(modules.Module(ARRAY)), b=[modules.Module(1)]
    ),
    "Module with missing fields": lambda: bare(modules.Module, a=ARRAY),
    "wrapper Module": lambda: eqx.module_update_wrapper(modules.Wrapper(identity, ARRAY)),
    "MLP": lambda: MLP,
    "Sequential": lambda: eqx.nn.Sequential([LAYER, eqx.nn.Lambda(jax.nn.relu)]),
    "eqx.Partial": lambda: eqx.Partial(identity, ARRAY, k=2),
    "bound method": lambda: MLP.__call__,
    "class": lambda: modules.Module,
    # registered types
    "dataclass": lambda: nodes.Registered(ARRAY),
    "flax.struct": lambda: FlaxStruct(ARRAY),
    "flax NNX Module": lambda: FlaxModule(ARRAY),
    "flax NNX State": lambda: flax_state(ARRAY),
    "flax FrozenDict": lambda: flax.core.FrozenDict({"a": {"b": ARRAY}}),
    "custom": lambda: nodes.Custom(ARRAY, 2, label="x"),
    "custom without children": lambda: nodes.Custom(),
    "with keys": lambda: nodes.Box([ARRAY, [1]], "aux"),
    "registered list": lambda: nodes.ListSubclass([1, ARRAY]),
    "static": lambda: nodes.Static(("a", 1)),
    "tree_util.Partial": lambda: jtu.Partial(identity, ARRAY, k=1),
    "adam": lambda: optax.adam(1e-3).init(PARAMS),
    "masked": lambda: optax.masked(optax.adam(0.1), {"w": True, "b": False}).init(PARAMS),
    "transformation": lambda: optax.sgd(0.1),
}

# Equinox Modules of every form.
MODULES: dict[str, Callable[[], Any]] = {
    "simple": lambda: modules.Module(ONE),
    "inherited": lambda: modules.Child(ONE, "n", TWO, (1, "x")),
    "own __init__": lambda: modules.Made(ONE, TWO),
    "cached property": lambda: bare(modules.Made, a=ONE, total=2, b=1, twice=TWO),
    "more attributes": lambda: bare(modules.Module, a=ONE, name="n", b=None, extra=1, other=TWO),
    "same names": lambda: modules.SameNames(ONE, 2),
    "own equality": lambda: modules.OwnEquality(ONE),
    "of functions": lambda: modules.Callback(scale, ONE),
    "wrapper": lambda: eqx.module_update_wrapper(modules.Wrapper(scale, ONE)),
    "wrapper not updated": lambda: modules.Wrapper(scale),
    "wrapper in a wrapper": lambda: eqx.module_update_wrapper(
        modules.Wrapper(eqx.module_update_wrapper(modules.Wrapper(scale, TWO)))
    ),
    "nothing set": lambda: bare(modules.Child),
    "only arrays set": lambda: bare(modules.Child, a=ONE, b=TWO),
    "nested deep": lambda: nested(60),
    "the same twice": lambda: (lambda m: modules.Module(m, b=[m, m]))(modules.Module(ONE)),
    "enumeration in a field": lambda: modules.Module(modules.Weekday.tuesday),
    "bound method": lambda: modules.Made(TWO).apply,
    "bound method of a nested one": lambda: modules.Module(modules.Made(ONE)).a.apply,
    "shared": shared_layer,
    "state": lambda: eqx.nn.make_with_state(eqx.nn.BatchNorm)(2, "batch", mode="batch")[1],
    "BatchNorm": lambda: eqx.nn.BatchNorm(2, "batch", mode="batch"),
    "filter_vmap": lambda: eqx.filter_vmap(scale, in_axes=(0, None)),
    "filter_grad": lambda: eqx.filter_grad(modules.Callback(scale, ONE)),
    "filter_checkpoint": lambda: eqx.filter_checkpoint(modules.Callback(scale, ONE)),
    "filter_closure_convert": lambda: eqx.filter_closure_convert(lambda x: x + TWO, ONE),
}
