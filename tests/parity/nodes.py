"""Pytree nodes of every kind, for arguments and results."""

import collections
import dataclasses
import enum
import types
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import flax.struct
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import optax

T = typing.TypeVar("T")


class Point(NamedTuple):
    x: Any
    y: Any = 0


class PointWithMethods(Point):
    """A subclass, with state of its own in its instances."""

    def norm(self) -> Any:
        return self.x**2 + self.y**2


class Checked(collections.namedtuple("Checked", ["a", "b"])):
    """A named tuple with a __new__ of its own."""

    def __new__(cls, a: Any, b: Any = None) -> "Checked":
        return super().__new__(cls, a, b)


class Module(eqx.Module):
    a: Any
    name: str = eqx.field(static=True, default="name")
    b: Any = None


class Child(Module):
    c: Any = dataclasses.field(default_factory=lambda: [1, jnp.array(2.0)])
    d: tuple[Any, ...] = eqx.field(static=True, default=(1, "x"))


class Generic(eqx.Module, typing.Generic[T]):
    a: T


class AllStatic(eqx.Module):
    a: int = eqx.field(static=True, default=1)
    b: str = eqx.field(static=True, default="b")


class NoFields(eqx.Module):
    pass


class Strict(eqx.Module, strict=True):
    a: Any


class Converted(eqx.Module):
    a: Any = eqx.field(converter=jnp.asarray)


class Checks(eqx.Module):
    a: Any

    def __check_init__(self) -> None:
        if isinstance(self.a, str):
            raise ValueError("no strings")

    @property
    def doubled(self) -> Any:
        return self.a * 2


class Slots(eqx.Module):
    a: Any
    _private: Any = 3

    def __getattr__(self, name: str) -> Any:
        if name == "virtual":
            return self.a
        raise AttributeError(name)


@jtu.register_dataclass
@dataclasses.dataclass
class Registered:
    a: Any
    b: Any = 2
    meta: Any = dataclasses.field(metadata={"static": True}, default="meta")


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: Any
    b: Any
    kind: str


jtu.register_dataclass(Frozen, data_fields=["b", "a"], meta_fields=["kind"])


@dataclasses.dataclass
class WithPostInit:
    a: Any
    derived: Any = dataclasses.field(init=False, default=None)

    def __post_init__(self) -> None:
        self.derived = "derived"


jtu.register_dataclass(WithPostInit, data_fields=["a"], meta_fields=[], drop_fields=["derived"])


@flax.struct.dataclass
class FlaxStruct:
    a: Any
    b: Any = 1
    meta: Any = flax.struct.field(pytree_node=False, default="flax")


class FlaxPyTreeNode(flax.struct.PyTreeNode):
    a: Any
    meta: Any = flax.struct.field(pytree_node=False, default=(1, 2))


@jtu.register_pytree_node_class
class Custom:
    """A node whose children and aux data are its own business."""

    def __init__(self, *children: Any, label: Any = "label") -> None:
        self.children, self.label = children, label

    def tree_flatten(self) -> tuple[Any, Any]:
        return self.children, (self.label, len(self.children))

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> "Custom":
        return cls(*children, label=aux[0])

    def __repr__(self) -> str:
        return f"Custom({self.children}, {self.label!r})"


@jtu.register_pytree_with_keys_class
class WithKeys:
    def __init__(self, left: Any, right: Any) -> None:
        self.left, self.right = left, right

    def tree_flatten_with_keys(self) -> tuple[Any, Any]:
        return ((jtu.GetAttrKey("left"), self.left), (jtu.GetAttrKey("right"), self.right)), None

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> "WithKeys":
        return cls(*children)

    def __repr__(self) -> str:
        return f"WithKeys({self.left}, {self.right})"


class Childless:
    """A node without children, whose aux data cannot be hashed."""

    def __init__(self, aux: list[int]) -> None:
        self.aux = aux

    def __repr__(self) -> str:
        return f"Childless({self.aux})"


jtu.register_pytree_node(Childless, lambda x: ((), x.aux), lambda aux, _: Childless(aux))


class ListSubclass(list[Any]):
    """Registered, though a builtin's subclass."""


jtu.register_pytree_node(ListSubclass, lambda x: (list(x), None), lambda _, xs: ListSubclass(xs))


class DictSubclass(dict[Any, Any]):
    """Not registered: a leaf."""

    __hash__ = object.__hash__


@jtu.register_static
@dataclasses.dataclass(frozen=True)
class Static:
    value: Any


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass(frozen=True)
class Plain:
    """A dataclass that is not registered: a leaf."""

    a: int
    b: str = "b"


def identity(x: Any) -> Any:
    return x


ARRAY = jnp.arange(3.0)
ONE = jnp.array(1.0)
KEY = jax.random.key(0)
LAYER = eqx.nn.Linear(2, 3, key=KEY)
MLP = eqx.nn.MLP(2, 2, 4, 2, key=KEY)
CONV = eqx.nn.Conv1d(1, 2, 3, key=KEY)
GRU_CELL = eqx.nn.GRUCell(2, 3, key=KEY)
PARAMS = {"w": jnp.ones((2, 2)), "b": jnp.zeros(2)}


def rebuilt(tree: Any) -> Any:
    """The same arrays in nodes made anew: random numbers take long to compile."""
    return jtu.tree_map(lambda leaf: leaf, tree)


def bare() -> Module:
    """A Module whose fields are not all set."""
    module = object.__new__(Module)
    object.__setattr__(module, "a", ARRAY)
    return module


def wrapper() -> Module:
    """A Module that carries a function's attributes."""
    return eqx.module_update_wrapper(_Wrapper(ARRAY))


class _Wrapper(eqx.Module):
    a: Any

    @property
    def __wrapped__(self) -> Any:
        return identity


MAKERS: dict[str, Callable[[], Any]] = {
    # leaves
    "None": lambda: None,
    "int": lambda: 3,
    "bool": lambda: True,
    "float": lambda: 2.5,
    "negative zero": lambda: -0.0,
    "infinity": lambda: float("inf"),
    "complex": lambda: 1 + 2j,
    "big int": lambda: 10**30,
    "str": lambda: "text",
    "bytes": lambda: b"bytes",
    "ellipsis": lambda: ...,
    "NotImplemented": lambda: NotImplemented,
    "range": lambda: range(3),
    "slice in a tuple": lambda: (Ellipsis, ARRAY),
    "frozenset": lambda: frozenset({1, "a"}),
    "function": lambda: identity,
    "builtin": lambda: len,
    "jnp function": lambda: jnp.tanh,
    "jit function": lambda: jax.nn.relu,
    "type": lambda: dict,
    "module": lambda: types,
    "enum": lambda: Colour.BLUE,
    "int enum": lambda: Level.HIGH,
    "dtype": lambda: jnp.dtype("float32"),
    "scalar type": lambda: jnp.float32,
    "ShapeDtypeStruct": lambda: jax.ShapeDtypeStruct((2,), jnp.float32),
    "frozen dataclass": lambda: Plain(1),
    "device": lambda: jax.devices()[0],
    "PartitionSpec": lambda: jax.sharding.PartitionSpec("a", None),
    "treedef": lambda: jtu.tree_structure({"a": [1, 2]}),
    # arrays
    "array": lambda: ARRAY,
    "scalar": lambda: jnp.array(1),
    "weak scalar": lambda: jnp.asarray(1.0),
    "empty array": lambda: jnp.zeros((0, 3)),
    "bool array": lambda: jnp.array([True, False]),
    "bfloat16": lambda: jnp.arange(3, dtype=jnp.bfloat16),
    "float8": lambda: jnp.array([0.5, -1, 2], dtype=jnp.float8_e4m3fn),
    "int4": lambda: jnp.arange(3, dtype=jnp.int4),
    "complex array": lambda: jnp.array([1 + 2j, 3]),
    "uint8": lambda: jnp.arange(3, dtype=jnp.uint8),
    "key": lambda: KEY,
    "keys": lambda: jax.random.split(KEY, 3),
    "old key": lambda: jax.random.PRNGKey(0),
    "numpy": lambda: np.arange(3.0, dtype=np.float32),
    "numpy 64 bits": lambda: np.arange(3),
    "numpy scalar": lambda: np.float32(1.5),
    "numpy float64": lambda: np.float64(1.5),
    "numpy bool": lambda: np.bool_(True),
    "numpy zero-dimensional": lambda: np.array(3),
    "numpy not contiguous": lambda: np.arange(12.0, dtype=np.float32).reshape(3, 4)[:, ::2],
    "numpy fortran": lambda: np.asfortranarray(np.arange(6.0, dtype=np.float32).reshape(2, 3)),
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
    "named tuple": lambda: Point(ARRAY, 2),
    "named tuple subclass": lambda: PointWithMethods(ARRAY, 2.0),
    "named tuple with __new__": lambda: Checked(ARRAY),
    "deep": lambda: [{"a": ({"b": [Point(({"c": ARRAY},), 1)]},)}],
    "wide": lambda: [jnp.array(float(i)) for i in range(50)] + list(range(50)),
    # Modules
    "Module": lambda: Module(ARRAY),
    "Module with None": lambda: Module(None, "other", ARRAY),
    "Module subclass": lambda: Child(ARRAY),
    "generic Module": lambda: Generic[int](ARRAY),
    "Module of statics": lambda: AllStatic(2),
    "Module without fields": lambda: NoFields(),
    "strict Module": lambda: Strict(ARRAY),
    "Module with converter": lambda: Converted(1.5),
    "Module with __check_init__": lambda: Checks(ARRAY),
    "Module with __getattr__": lambda: Slots(ARRAY),
    "Module in Module": lambda: Module(Child(Module(ARRAY)), b=[Module(1)]),
    "Module with missing fields": bare,
    "wrapper Module": wrapper,
    "Linear": lambda: LAYER,
    "MLP": lambda: MLP,
    "Conv": lambda: rebuilt(CONV),
    "GRUCell": lambda: rebuilt(GRU_CELL),
    "Sequential": lambda: eqx.nn.Sequential([LAYER, eqx.nn.Lambda(jax.nn.relu)]),
    "LayerNorm": lambda: eqx.nn.LayerNorm(3),
    "Dropout": lambda: eqx.nn.Dropout(0.5),
    "MultiheadAttention": lambda: eqx.nn.MultiheadAttention(2, 4, key=KEY),
    "eqx.Partial": lambda: eqx.Partial(identity, ARRAY, k=2),
    "bound method": lambda: MLP.__call__,
    "class": lambda: Module,
    # registered types
    "dataclass": lambda: Registered(ARRAY),
    "frozen registered dataclass": lambda: Frozen(ARRAY, 2, "kind"),
    "dataclass with __post_init__": lambda: WithPostInit(ARRAY),
    "flax.struct": lambda: FlaxStruct(ARRAY),
    "flax PyTreeNode": lambda: FlaxPyTreeNode(ARRAY),
    "flax FrozenDict": lambda: flax.core.FrozenDict({"a": {"b": ARRAY}}),
    "custom": lambda: Custom(ARRAY, 2, label="x"),
    "custom without children": lambda: Custom(),
    "with keys": lambda: WithKeys(ARRAY, [1]),
    "childless": lambda: Childless([1, 2]),
    "registered list": lambda: ListSubclass([1, ARRAY]),
    "dict subclass": lambda: (DictSubclass, ARRAY),
    "static": lambda: Static(("a", 1)),
    "tree_util.Partial": lambda: jtu.Partial(identity, ARRAY, k=1),
    "adam": lambda: optax.adam(1e-3).init(PARAMS),
    "chain": lambda: optax.chain(optax.clip(1.0), optax.sgd(0.1, momentum=0.9)).init(PARAMS),
    "masked": lambda: optax.masked(optax.adam(0.1), {"w": True, "b": False}).init(PARAMS),
    "multi steps": lambda: optax.MultiSteps(optax.sgd(0.1), 2).init(PARAMS),
    "transformation": lambda: optax.sgd(0.1),
}
