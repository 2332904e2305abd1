"""``functions="structure"``: what functions hold, in each place: values that change in place, that are
replaced by others, and of which little is known. The oracle is the function itself, without jit.
"""

import array
import collections
import contextlib
import dataclasses
import enum
import fractions
import functools
import operator
import types
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest

from support.comparison import comparable
from support.functions import (
    Config,
    Counted,
    Layer,
    Plain,
    X,
    fill_cell,
    holding,
    scaled,
    with_attributes,
)
from support.statics import DictOfOwn, Double, ListOfOwn, TupleOfOwn

Change = Callable[[Any], Any]


class MySlots(list[Any]):
    __slots__ = ("note",)


class MyScalar(np.float64):
    pass


class MyPartial(functools.partial[Any]):
    __slots__ = ("note",)


class Pair(NamedTuple):
    a: Any
    b: Any = 0


@dataclasses.dataclass
class Mutable:
    a: Any


@dataclasses.dataclass(slots=True)
class Slotted:
    a: Any


@dataclasses.dataclass(eq=False)
class ByIdentity:
    a: Any


class Inherits(Mutable):
    pass


@dataclasses.dataclass(frozen=True)
class NotCompared:
    a: Any = dataclasses.field(compare=False)


@jtu.register_pytree_node_class
class Node(list[Any]):
    def tree_flatten(self) -> Any:
        return tuple(self), None

    @classmethod
    def tree_unflatten(cls, _: Any, children: Any) -> "Node":
        return cls(children)


class Color(enum.Enum):
    RED = [1]


# ---- the oracle: a text of all of a value ----


def text(x: Any) -> str:
    """A text that depends on all of a value, and on the order in which it iterates."""
    if isinstance(x, (list, tuple, collections.deque, collections.UserList)):
        found = ",".join(map(text, x)) + str(getattr(x, "maxlen", ""))
    elif isinstance(x, (set, frozenset)):
        found = ",".join(sorted(map(text, x)))
    elif isinstance(x, (dict, types.MappingProxyType, collections.UserDict, collections.ChainMap)):
        found = ",".join(f"{text(k)}:{text(v)}" for k, v in x.items())
        found += str(getattr(x, "default_factory", ""))
    elif isinstance(x, (types.FunctionType, functools.partial)):
        found = repr(x(3))
    elif isinstance(x, types.MethodType):
        return text(x.__self__)
    elif hasattr(x, "__wrapped__"):
        return text(x.__wrapped__)
    else:
        found = repr(x) if type(x).__repr__ is not object.__repr__ else ""
    own = {} if isinstance(x, (type, types.ModuleType)) else getattr(x, "__dict__", {})
    slots = [getattr(x, name) for name in getattr(type(x), "__slots__", ()) if hasattr(x, name)]
    attributes = [k + text(v) for k, v in own.items() if not k.startswith("__")]
    return f"{type(x).__name__}({found};{','.join(attributes)};{text(slots) if slots else ''})"


# ---- the places: each returns a new function that holds a value ----


def _in_cell(value: Any, shown: Change) -> Any:
    return lambda x: (x, shown(value))


def _in_partial(value: Any, shown: Change) -> Any:
    return functools.partial(lambda x, v: (x, shown(v)), v=value)


def _in_inner(value: Any, shown: Change) -> Any:
    inner = _in_cell(value, shown)
    return lambda x: inner(x)


def _in_wrapper(value: Any, shown: Change) -> Any:
    inner = _in_cell(value, shown)
    return functools.wraps(inner)(lambda x: inner(x))


def _in_attribute(value: Any, shown: Change) -> Any:
    act: Any = lambda x: (x, shown(act.value))
    return with_attributes(act, value=value)


def _in_self(value: Any, shown: Change) -> Any:
    return types.MethodType(lambda self, x: (x, shown(self.scale)), Config(value))


PLACES: dict[str, Callable[[Any, Change], Any]] = {
    "cell": _in_cell,
    "default": lambda value, shown: lambda x, v=value: (x, shown(v)),
    "keyword default": lambda value, shown: lambda x, *, v=value: (x, shown(v)),
    "attribute": _in_attribute,
    "partial": _in_partial,
    "inner function": _in_inner,
    "wrapped function": _in_wrapper,
    "self": _in_self,
    "tuple": lambda value, shown: _in_cell((0, value), lambda pair: shown(pair[1])),
}
everywhere = pytest.mark.parametrize("place", PLACES)


# ---- values that change in place ----


def _sets(name: str, *values: Any) -> list[Change]:
    return [lambda x, v=v: object.__setattr__(x, name, v) for v in values]


def _puts(k: Any, *values: Any) -> list[Change]:
    return [lambda x, v=v: x.__setitem__(k, v) for v in values]


def _with(x: Any, **attributes: Any) -> Any:
    return with_attributes(x, **attributes)


COPIES, ITSELF = "copies", "itself"  # share a program: equal copies, or the object alone

# A value, what shares a program, and changes in place that are made one after the other.
VALUES: dict[str, tuple[Callable[[], Any], str, list[Change]]] = {
    "list": (lambda: [1], ITSELF, _puts(0, True, 1.0, -1, -2, 0.0, -0.0, (1,), None, 0, 2**61 - 1)),
    "long list": (lambda: [0.0] * 5000, ITSELF, _puts(4000, -0.0)),
    "subclass of list": (lambda: ListOfOwn([1]), ITSELF, _puts(0, -1, -2)),
    "attribute of a list": (lambda: _with(ListOfOwn([1]), n=1), ITSELF, _sets("n", True, -1, -2)),
    "slot of a list": (lambda: MySlots([1]), ITSELF, _sets("note", 1, True)),
    "dict": (
        lambda: {"a": 1, "b": 2},
        ITSELF,
        [*_puts("a", True), lambda x: x.update(a=x.pop("a")), *_puts(1, 1), dict.clear],
    ),
    "subclass of dict": (lambda: DictOfOwn(a=1), ITSELF, [*_puts("a", 1.0), *_sets("n", 1)]),
    "OrderedDict": (
        lambda: collections.OrderedDict(a=1, b=2),
        ITSELF,
        [lambda x: x.move_to_end("a"), *_puts("a", True), *_sets("n", 1)],
    ),
    "defaultdict": (
        lambda: collections.defaultdict(int, a=1),
        ITSELF,
        [lambda x: x["b"], *_puts("b", False), *_sets("default_factory", float)],
    ),
    "Counter": (lambda: collections.Counter("aab"), ITSELF, [lambda x: x.update("b")]),
    "ChainMap": (lambda: collections.ChainMap({"a": 1}), ITSELF, _puts("a", True)),
    "UserDict": (lambda: collections.UserDict(a=1), ITSELF, _puts("a", True)),
    "UserList": (lambda: collections.UserList([1]), ITSELF, _puts(0, True)),
    "set": (lambda: {1}, ITSELF, [lambda x: x.add(2), lambda x: (x.remove(1), x.add(True))]),
    "deque": (lambda: collections.deque([1]), ITSELF, [*_puts(0, True), lambda x: x.append(2)]),
    "NumPy array": (
        lambda: np.zeros(1, np.float32),
        ITSELF,
        [lambda x: x.fill(-0.0), lambda x: x.fill(1)],
    ),
    "bytearray": (lambda: bytearray(b"a"), ITSELF, [lambda x: x.append(1)]),
    "array": (lambda: array.array("d", [0.0]), ITSELF, _puts(0, -0.0)),
    "SimpleNamespace": (lambda: types.SimpleNamespace(a=1), ITSELF, _sets("a", True, -1, -2)),
    "subclass of float": (lambda: Double(1), ITSELF, _sets("n", 1, True, 2)),
    "attribute of a scalar": (lambda: MyScalar(1), ITSELF, _sets("n", 1, True, 2)),
    "list in a tuple": (lambda: ([1],), ITSELF, [lambda x: x[0].append(2)]),
    "nested": (lambda: ([{"k": [1]}],), ITSELF, [lambda x: x[0][0]["k"].append(1)]),
    "attribute of a tuple": (lambda: TupleOfOwn([1]), ITSELF, _sets("n", 1, 1.0)),
    "list in a namedtuple": (lambda: Pair([1]), ITSELF, [lambda x: x.a.append(2)]),
    "dataclass": (lambda: Mutable(1), ITSELF, _sets("a", True, 1.0, -1, -2)),
    "extra attribute": (lambda: Mutable(1), ITSELF, _sets("b", 1, True)),
    "dataclass with slots": (lambda: Slotted(1), ITSELF, _sets("a", True, -1, -2)),
    "dataclass by identity": (lambda: ByIdentity(1), ITSELF, _sets("a", -1, -2)),
    "inherited dataclass": (lambda: Inherits(1), ITSELF, _sets("a", True, -1, -2)),
    "frozen dataclass": (lambda: Config([1]), ITSELF, [lambda x: x.scale.append(2)]),
    "field that is not compared": (lambda: NotCompared([1]), ITSELF, [lambda x: x.a.append(2)]),
    "changed frozen dataclass": (lambda: Config(-1), COPIES, _sets("scale", -2)),
    "registered node": (lambda: Node([1]), ITSELF, [*_puts(0, True), lambda x: x.append(2)]),
    "static list in a Module": (lambda: Layer(1, 0, [1]), ITSELF, [lambda x: x.tag.append(2)]),
    "changed Module": (lambda: Layer(-1, None), COPIES, _sets("weight", -2)),
    "enum": (lambda: Color.RED, ITSELF, [lambda x: x.value.append(len(x.value))]),
    "deep": (
        lambda: ({"k": [Pair(Layer(types.SimpleNamespace(a=collections.deque([Mutable(1)])), 0))]},),
        ITSELF,
        [lambda x: setattr(x[0]["k"][0].a.weight.a[0], "a", True)],
    ),
    "function": (lambda: scaled(1), COPIES, [lambda x, v=v: fill_cell(x, v) for v in (2, 2.0)]),
    "function in a list": (lambda: [scaled(1)], ITSELF, [lambda x: fill_cell(x[0], 2)]),
    "function in a set": (lambda: frozenset([scaled(1)]), COPIES, [lambda x: fill_cell(*x, 2)]),
    "function in a dataclass": (lambda: Config(scaled(1)), COPIES, [lambda x: fill_cell(x.scale, 2)]),
    "function in a Module": (lambda: Layer(0, scaled(1)), COPIES, [lambda x: fill_cell(x.act, 2)]),
    "partial": (
        lambda: functools.partial(operator.mul, 2),
        COPIES,
        [lambda x: x.__setstate__((operator.mul, (3,), {}, {}))],
    ),
    "slot of a partial": (
        lambda: _with(MyPartial(operator.mul, 2), note=1), COPIES, _sets("note", 1.0, True)),
    "list in a partial": (
        lambda: functools.partial(lambda s, x: x * len(s), [1]),
        ITSELF,
        [lambda p: p.args[0].append(2)],
    ),
    "Partial": (lambda: jtu.Partial(scaled(1)), COPIES, [lambda x: fill_cell(x.func, 2)]),
    "bound method": (lambda: Mutable(1).__repr__, ITSELF, [lambda f: setattr(f.__self__, "a", 2)]),
    "lru_cache": (
        lambda: functools.lru_cache(scaled(1)), ITSELF, [lambda f: fill_cell(f.__wrapped__, 2)]),
    "custom_jvp": (
        lambda: jax.custom_jvp(scaled(1)), ITSELF, [lambda f: fill_cell(f.__wrapped__, 2)]),
    "jax.jit": (lambda: jax.jit(scaled(1)), ITSELF, [lambda f: fill_cell(f.__wrapped__, 2)]),
}  # fmt: skip


@contextlib.contextmanager
def _restored() -> Iterator[None]:
    yield
    Color.RED.value[:] = [1]


@everywhere
@pytest.mark.parametrize("name", VALUES)
def test_changes_in_place(apply: Counted, name: str, place: str) -> None:
    """The same function and new ones, with the same value, a copy and after changes, compute what
    they compute now."""
    make, shares, changes = VALUES[name]
    put = functools.partial(PLACES[place], shown=text)
    with _restored():
        value = make()
        act, count = put(value), 0
        for change in [lambda _: None, *changes]:
            change(value)
            count += 1
            for f in (act, put(value), act, act):
                assert comparable(apply(f)) == comparable(f(X))
            assert apply.count == count
        other = make()
        for change in changes:
            change(other)
        assert comparable(apply(put(other))) == comparable(put(other)(X))
        assert apply.count == count + (shares == ITSELF)


# ---- values that are replaced ----

ALIKE: dict[str, list[Any]] = {
    "numbers": [1, True, 1.0, 1 + 0j, np.float32(1), np.float64(1), np.int32(1), Double(1)],
    "zeros": [0.0, -0.0, 0, False, np.float64(0.0), np.float64(-0.0)],
    "complex": [complex(0.0, 0.0), complex(-0.0, 0.0), complex(0.0, -0.0)],
    "equal hashes": [-1, -2, 0, 2**61 - 1, 2**61 - 2, 2**70],
    "constants": ["a", b"a", ("a",), None, (), frozenset(), ((),), (None,), ..., NotImplemented],
    "ranges": [range(0), range(0, 0, 2), range(1, 1), slice(0), slice(0.0)],
    "like keys": [("function", 0), ("cell", 0, 1), ("seen", 0), (1,), scaled, "function"],
    "containers": [[1], [True], [1.0], (1,), ListOfOwn([1]), {1}, {True}, Pair(1), Node([1])],
    "dataclasses": [Config(1), Config(1.0), Config(True), Config((1,)), Config(Config(1)),
                    Mutable(1), Mutable(1), Inherits(1), Slotted(1), ByIdentity(1)],
    "of the library": [fractions.Fraction(1, 2), fractions.Fraction(1, 3), uuid.UUID(int=1),
                       np.datetime64(1, "s"), np.datetime64(1, "ms"), np.timedelta64(1, "s")],
    "dicts": [{"a": 1, "b": 2}, {"b": 2, "a": 1}, collections.OrderedDict(a=1, b=2)],
    "built in": [len, repr, [].append, [].append, int, float, jnp, np, Config, Color.RED],
    "Modules": [Layer(1, 2), Layer(1, True), Layer(1.0, 2), Plain],
    "arrays": [jnp.ones(3), jnp.ones(3), jnp.ones(4), np.ones(3), np.ones(3), np.float32(1)],
    "functions": [scaled(1), scaled(1.0), scaled(X), scaled(X + 0), lambda x: x, lambda x: x + 0.0],
    "partials": [functools.partial(f, *a, **k) for f in (lambda *a, **k: a, lambda *a, **k: k)
                 for a, k in [((), {}), ((1,), {}), ((1.0,), {}), ((), {"s": 1}), ((), {"s": 1.0}),
                              ((), {"s": 1, "t": 2}), ((), {"t": 2, "s": 1})]],
}  # fmt: skip


def shown(value: Any) -> tuple[str, str]:
    return type(value).__name__, repr(value)


@everywhere
@pytest.mark.parametrize("name", ALIKE)
def test_values_are_exact(apply: Counted, name: str, place: str) -> None:
    for order in (1, -1, 1):
        for value in ALIKE[name][::order]:
            f = PLACES[place](value, shown)
            assert comparable(apply(f)) == comparable(f(X))
    assert apply.count == len(ALIKE[name])


# ---- objects that are not known by their contents ----


class OwnEquality(Plain):
    def __eq__(self, other: object) -> bool:
        return isinstance(other, OwnEquality)

    def __hash__(self) -> int:
        return 1


class Failing(Plain):
    def __eq__(self, other: object) -> bool:
        raise ZeroDivisionError

    def __hash__(self) -> int:
        raise ZeroDivisionError


class OddLayout(Plain, Exception):
    pass


def _view() -> Any:
    data = bytearray(1)
    return memoryview(data), lambda v: data.__setitem__(0, int(v))


def _object(cls: Any) -> Any:
    x = cls(0.0)
    return x, lambda v: setattr(x, "scale", v)


def _array() -> Any:
    x = np.zeros(1 << 15, np.float32)
    return x, x.fill


UNKNOWN: dict[str, Callable[[], tuple[Any, Callable[[float], Any]]]] = {
    "object": lambda: _object(Plain),
    "own equality": lambda: _object(OwnEquality),
    "failing equality": lambda: _object(Failing),
    "exception": lambda: _object(OddLayout),
    "large NumPy array": _array,
    "memoryview": _view,
}


def _read(x: Any) -> float:
    return float(x.scale if isinstance(x, Plain) else x[0])


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: (x,), lambda x: Layer(x, 0)])
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("name", UNKNOWN)
def test_doubt_is_a_miss(apply: Counted, name: str, inside: bool, wrap: Change) -> None:
    """New functions do not get the program of an old one, not even around the same function."""
    value, change = UNKNOWN[name]()
    held = wrap(value)
    inner = lambda x: (x, _read(value), held)[:2]
    make = lambda: (lambda x: inner(x)) if inside else (lambda x: (x, _read(value), held)[:2])
    for v in (1.0, 2.0, 1.0):
        change(v)
        assert apply(make())[1] == v
        assert apply(functools.partial(lambda h, x: (x, _read(value)), held))[1] == v
    assert apply.count == 6
    act = make()
    for _ in range(3):
        apply(act)
    assert apply.count == 7
    change(5.0)  # is not seen, as by default
    assert apply(act)[1] == 1.0


def test_values_that_contain_themselves(apply: Counted) -> None:
    value: list[Any] = [1]
    value.append(value)
    act = lambda x: (x, value[0])
    for v in (1, True, 1.0):
        value[0] = v
        assert comparable(apply(act)[1]) == comparable(v)
        apply(lambda x: (x, value[0]))
    shared: Any = ()
    for _ in range(60):
        shared = [shared, shared]
    act = lambda x: (x, len(shared))[0]
    apply(act), apply(act)


# ---- what puts nothing in doubt ----

KNOWN: dict[str, Callable[[], Any]] = {
    "functions of libraries": lambda: (jnp.sum, np.sum, jax.jit, len, jax.nn.relu, jnp.sin, np.add),
    "classes and modules": lambda: (jnp, Layer, jnp.float32, Color, Pair),
    "functions made by JAX": lambda: (jax.vmap(scaled(2.0)), jax.grad(lambda x: x * 2.0)),
    "values of JAX": lambda: (X, jax.sharding.PartitionSpec("a"), jnp.dtype("float32"),
                              jax.devices()[0], jax.tree.structure([1]), jtu.DictKey("a")),
    "partials": lambda: functools.partial(jax.nn.gelu, approximate=False),
    "Modules": lambda: (eqx.nn.Lambda(jax.nn.relu), Layer(X, scaled(1.0)), eqx.nn.Identity()),
    "values": lambda: (Color.RED, Config((1, scaled(2.0))), fractions.Fraction(1, 2), Pair(1, "a")),
    "operators": lambda: (operator.itemgetter(1), operator.attrgetter("a"), str.upper),
    "sets of classes": lambda: frozenset([(1, scaled), int]),
}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_known_does_not_prevent_sharing(apply: Counted, name: str) -> None:
    for _ in range(3):
        apply(holding(KNOWN[name]()))
    assert apply.count == 1


ORDINARY = ["Abstract", "Act", "Box", "Config", "DTYPE", "KEY", "LOCK", "LOG", "Layer", "Linen",
            "MODEL", "OPTIMIZER", "ROOT", "Record", "SCHEDULE", "Shaped", "T", "Variables",
            "batched", "checkpointed", "helper", "loss", "mapped", "step"]  # fmt: skip


@pytest.mark.parametrize("name", ORDINARY)
def test_what_modules_commonly_have(apply: Counted, name: str) -> None:
    pytest.importorskip("flax")
    pytest.importorskip("optax")
    from support import ordinary

    for _ in range(2):
        apply(holding(getattr(ordinary, name)))
    assert apply.count == 1
