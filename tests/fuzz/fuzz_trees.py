"""Random trees of every kind of node, and changes of them in place.

The same seed draws an equal tree of other objects. The static values are those of the zoo's tables:
values of one table are easily taken for each other, and the first of each can change in place.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import random
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from flax import nnx
from flax.core import FrozenDict
from flax.nnx.pytreelib import PytreeState
from flax.typing import HashableMapping

from support.modules import Deeper, Layer, Shell
from support.nodes import Bag, Box, ListSubclass, Point, PointWithNew, Registered
from support.trees import bare
from zoo import classes, containers, objects, values
from zoo.random_values import random_value
from zoo.zoo_support import LEAVES, Static, seen

# ---- static values ----

# Each is easily taken for the next one.
NUMBERS = [1, True, 1.0, 1 + 0j, 0, False, 0.0, -0.0, -1, -2, 2, float("nan"), 2**64]
OF_NUMBERS = Static(lambda: NUMBERS)
# Of the tables, those whose values are compared by value.
FIELDS = [OF_NUMBERS] * 100 + [
    static
    for table in (values, containers, classes, objects)
    for name, static in table.STATICS.items()
    if static.shared and static.noticed and name != "long list"
]


def _is_hashable(static: Static) -> bool:
    try:
        return all(hash(leaf) or True for x in static.make() for leaf in jtu.tree_leaves(x))
    except (TypeError, ValueError):
        return False


ARGUMENTS = [x for x in FIELDS if set(LEAVES) <= {*x.places} and _is_hashable(x)]

# ---- what a function sees of a tree ----


def is_array(x: Any) -> bool:
    return isinstance(x, (jax.Array, np.ndarray, np.generic))


# The texts of static values while nothing changes in place; it takes long to look at one.
shown: dict[int, tuple[Any, str]] = {}


def _show(x: Any) -> str:
    if type(x) in (int, bool, str, type(None)):
        return repr(x)
    if id(x) not in shown:
        shown[id(x)] = x, seen(x)
    return shown[id(x)][1]


def _show_nodes(treedef: Any) -> str:
    cls, aux = treedef.node_data() or (None, treedef.num_leaves)
    return f"{cls}{_show(aux)}({','.join(map(_show_nodes, treedef.children()))})"


def text(tree: Any) -> str:
    """Tells trees apart that must not share a program, but for the types of arrays."""
    leaves, treedef = jtu.tree_flatten(tree)
    return _show_nodes(treedef) + ",".join("array" if is_array(x) else _show(x) for x in leaves)


def avals(tree: Any) -> list[Any]:
    """The properties of the arrays that JAX traces for."""
    dtype = functools.lru_cache(jax.dtypes.canonicalize_dtype)
    return [
        (x.shape, str(dtype(x.dtype)), isinstance(x, jax.Array) and x.weak_type)
        for x in jtu.tree_leaves(tree)
        if is_array(x)
    ]


def contents(tree: Any) -> Any:
    """All that can be seen of a tree outside of a trace."""
    arrays = [x for x in jtu.tree_leaves(tree) if is_array(x)]
    kinds = avals(tree)
    return text(tree), kinds, [
        np.asarray(x).astype(kind[1]).tobytes() for x, kind in zip(arrays, kinds, strict=True)
    ]  # fmt: skip


# ---- nodes ----

# The attributes of a function that a Module can carry.
WRAPPER = ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__")


@jtu.register_dataclass
@dataclasses.dataclass(slots=True)
class Slotted:
    a: Any
    meta: Any = dataclasses.field(metadata={"static": True}, default="meta")


class Parameter(nnx.Variable):
    """A Variable whose metadata may be anything."""


class Net(nnx.Module):
    """A Module with any attributes. `flip` is data in one instance and static in another."""


def _layer(d: Draw) -> Any:
    return bare(Layer, weight=d.inner(), bias=d.inner(), size=d.static(), activation=d.static())


def _deeper(d: Draw) -> Any:
    fields = {"weight": d.inner(), "bias": d.inner(), "size": d.static(), "extra": d.inner()}
    fields["activation"] = d.static()
    if d.rng.randrange(4) == 0:  # a Module that lacks a field
        fields.pop(d.rng.choice(list(fields)))
    return bare(Deeper, **fields)


def _shell(d: Draw) -> Any:
    carried = WRAPPER if d.rng.randrange(2) else ()
    return bare(Shell, inner=d.inner(), **{name: d.rng.choice(["a", None]) for name in carried})


def _variable(d: Draw) -> Any:
    names = [name for name in ("meta", "size") if d.rng.randrange(2)]
    return Parameter._new(d.inner(), {name: d.static() for name in names})


def _net(d: Draw) -> Any:
    nodes = {"_pytree__state": True, "a": True, "flip": bool(d.rng.randrange(2)), "meta": False}
    attributes = {"_pytree__state": PytreeState(), "a": d.inner(), "meta": d.static()}
    return bare(Net, _pytree__nodes=HashableMapping(nodes), flip=d.leaf(), **attributes)


def _partial(d: Draw) -> Any:
    return d.rng.choice([eqx.Partial, jtu.Partial])(max, d.inner(), y=d.inner())


# What is known of a large argument, so that it is not walked again, may consist of these.
KNOWN: list[Callable[[Draw], Any]] = [
    lambda d: tuple(d.children()), lambda d: d.children(),
    lambda d: dict(zip("abc", d.children(), strict=False)), lambda d: None,
    lambda d: Point(d.inner(), d.inner()), _layer, lambda d: Slotted(d.inner(), d.static()),
]  # fmt: skip
NODES: list[Callable[[Draw], Any]] = [
    *2 * KNOWN,
    lambda d: d.items(),
    lambda d: collections.OrderedDict(d.items()),
    lambda d: collections.defaultdict(d.rng.choice([None, int, list]), d.items()),
    lambda d: PointWithNew(d.inner(), d.inner()),
    *(_deeper, _shell, _variable, _net, _partial),
    lambda d: Registered(d.inner(), d.inner(), d.static()),
    lambda d: d.rng.choice([Box, Bag])(d.children(), d.static()),
    lambda d: ListSubclass(d.children()),
    lambda d: FrozenDict(d.items(), __unsafe_skip_copy__=True),
    lambda d: nnx.State(d.items()),
    lambda d: _layer(d).method,
]
_KEYS = [["a", "b", "c"], [0, 1, 2], [True, -1, 2.0], [1.0, 0], [-0.0, 1], [(1, 2), (0, True)]]
_ARRAYS: list[Callable[[], Any]] = [
    *(lambda x=x: jnp.float32(x) for x in (0.5, 1.5)),  # type: ignore[misc]
    lambda: jnp.asarray(1.5),  # weak
    lambda: jnp.asarray(2, jnp.int32),
    lambda: jnp.arange(2.0),
    lambda: np.float32(2),
    lambda: np.full((), 2, np.float64),
    lambda: np.arange(6.0).reshape(3, 2).T[::-1],
    lambda: np.zeros((2, 0), bool),
]


class Draw:
    """Draws trees of these nodes and leaves. The `twist`-th leaf or static value is another one than
    the same seed draws without it: mostly one that is easily taken for it."""

    def __init__(
        self,
        rng: random.Random,
        nodes: list[Callable[[Draw], Any]] = NODES,
        leaf: Callable[[random.Random], Any] | None = None,
        twist: int = -1,
        fields: list[Static] = FIELDS,
    ) -> None:
        self.rng, self.nodes, self.other, self.fields = rng, nodes, leaf, fields
        self.twist, self.count, self.depth = twist, 0, 3
        self.made: list[Any] = []  # nodes and NumPy arrays
        self.changes: list[Callable[[], object]] = []  # of static values, in place; each once

    def tree(self, depth: int = 3) -> Any:
        if depth == 0 or self.rng.randrange(4) == 0:
            return self.leaf()
        before, self.depth = self.depth, depth - 1
        made = self.rng.choice(self.nodes)(self)
        self.depth = before
        self.made.append(made)
        return made

    def inner(self) -> Any:
        return self.tree(self.depth)

    def children(self) -> list[Any]:
        return [self.inner() for _ in range(self.rng.randrange(4))]

    def items(self) -> dict[Any, Any]:
        keys = list(self.rng.choice(_KEYS))
        self.rng.shuffle(keys)
        return {key: self.inner() for key in keys[: self.rng.randrange(len(keys) + 1)]}

    def leaf(self) -> Any:
        if self.other is not None:
            return self.other(self.rng)
        if self.rng.randrange(5) > 1:
            return self.static(ARGUMENTS)
        made = _ARRAYS[self._choose(len(_ARRAYS))]()
        self.made.append(made)
        return made

    def static(self, tables: list[Static] | None = None) -> Any:
        if tables is None and self.fields is FIELDS and self.rng.randrange(4) == 0:
            return self._composed(random_value(self.rng, 3))
        static = self.rng.choice(self.fields if tables is None or len(self.fields) == 1 else tables)
        drawn = static.make()
        at = self._choose(len(drawn))
        if static.change is not None and at == 0:
            self.changes.append(functools.partial(static.change, drawn[0]))
        return drawn[at]

    def _composed(self, value: Any) -> Any:
        """Returns a value of many parts, of which lists and dicts can change in place."""
        for part in (value, *(value if isinstance(value, (list, tuple)) else ())):
            if type(part) is list:
                self.changes.append(functools.partial(part.append, self.rng.choice(NUMBERS)))
            elif type(part) is dict:
                self.changes.append(functools.partial(part.update, new=self.rng.choice(NUMBERS)))
        return value

    def _choose(self, count: int) -> int:
        at, is_other = self.rng.randrange(count), self.count == self.twist
        self.count += 1
        return (at + is_other) % count


# ---- changes in place ----


def _change_items(d: Draw, x: Any) -> None:
    rng, at = d.rng, d.rng.randrange(len(x)) if x else 0
    key = rng.choice(list(x) or ["a"]) if isinstance(x, dict) else at
    match rng.randrange(4):
        case 0 if x:
            x.pop(key)
        case 1 if isinstance(x, dict) and x:  # the same items in another order, or 1 for True
            x[int(key) if type(key) is bool else key] = x.pop(key)
        case 2 if isinstance(x, list):
            x.append(d.tree(1))
        case _ if x or isinstance(x, dict):
            x[key] = None  # what is made may get the address of the old one
            x[key] = d.tree(1)


def _change_attribute(d: Draw, x: Any) -> None:
    names = [n for n in ("weight", "bias", "a", "inner", "size", "meta") if hasattr(x, n)]
    name = d.rng.choice(names or ["weight"])  # a Layer may have lost them all
    object.__setattr__(x, name, None)
    if type(x) is Layer and not d.rng.randrange(5):
        object.__delattr__(x, name)
    else:
        object.__setattr__(x, name, d.static() if name in ("size", "meta") else d.tree(1))


def change(d: Draw) -> bool:
    """Changes something in what was drawn in place. Returns False if there is nothing."""
    shown.clear()
    if d.changes and d.rng.randrange(2):
        d.changes.pop(d.rng.randrange(len(d.changes)))()
        return True
    x = d.rng.choice(d.made) if d.made else None
    match x:
        case collections.defaultdict() if not d.rng.randrange(3):
            x.default_factory = d.rng.choice([None, int, list])
        case dict() | list():
            _change_items(d, x)
        case Box() if d.rng.randrange(2):
            _change_items(d, x.children)
        case Box():
            x.aux = d.static()
        case FrozenDict() | nnx.State():
            name = "_dict" if isinstance(x, FrozenDict) else "_mapping"
            held = dict(object.__getattribute__(x, name))
            _change_items(d, held)
            object.__setattr__(x, name, held)
        case Parameter() if d.rng.randrange(2):
            object.__getattribute__(x, "_var_metadata")["meta"] = d.static()
        case Parameter():
            object.__setattr__(x, "_raw_value", d.tree(1))
        case Net() if d.rng.randrange(2):
            flipped = {**x._pytree__nodes, "flip": not x._pytree__nodes["flip"]}
            object.__setattr__(x, "_pytree__nodes", HashableMapping(flipped))
        case Layer() | Shell() | Registered() | Slotted() | Net():
            _change_attribute(d, x)
        case np.ndarray() if x.size:
            x[...] = d.rng.randrange(9)
        case _:
            return False
    return True
