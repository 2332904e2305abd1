"""``functions="structure"``: values that a function refers to and that change in place, or are
replaced by others. The oracle is the function itself, without jit.
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
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest

import filterjit
from support.comparison import Traces, comparable
from support.functions import Config, Counted, Layer, Plain, X, scaled
from support.statics import DictOfOwn, Double, ListOfOwn, TupleOfOwn

Change = Callable[[Any], Any]


def weight(value: Any) -> float:
    """A number that depends on all of a value, and on the order in which it iterates."""
    return float(zlib.crc32(_text(value).encode()) % 10007)


def _text(x: Any) -> str:
    kind = type(x).__name__
    if isinstance(x, (list, tuple, collections.deque, collections.UserList)):
        text = ",".join(map(_text, x)) + str(getattr(x, "maxlen", ""))
    elif isinstance(x, (set, frozenset)):
        text = ",".join(sorted(map(_text, x)))
    elif isinstance(x, (dict, types.MappingProxyType, collections.UserDict, collections.ChainMap)):
        text = ",".join(f"{_text(k)}:{_text(v)}" for k, v in x.items())
        text += str(getattr(x, "default_factory", ""))
    elif isinstance(x, type):
        return kind
    elif callable(x) and not isinstance(x, eqx.Module):
        return f"{kind}:{x(3)!r}"
    else:
        text = repr(x) if type(x).__repr__ is not object.__repr__ else ""
    own = getattr(x, "__dict__", {})
    slots = [getattr(x, name) for name in getattr(type(x), "__slots__", ()) if hasattr(x, name)]
    return f"{kind}({text};{','.join(k + _text(v) for k, v in own.items())};{slots})"


def computed_now(act: Callable[[Any], Any]) -> Any:
    """What `act` computes now."""
    return comparable(act(X))


class MySlots(list[Any]):
    __slots__ = ("note",)


class MyOrdered(collections.OrderedDict[Any, Any]):
    pass


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


@jtu.register_dataclass
@dataclasses.dataclass(frozen=True)
class Registered:
    a: Any


@jtu.register_pytree_node_class
class Node(list[Any]):
    def tree_flatten(self) -> Any:
        return tuple(self), None

    @classmethod
    def tree_unflatten(cls, _: Any, children: Any) -> "Node":
        return cls(children)


class Color(enum.Enum):
    RED = [1]


def _set_attribute(name: str, value: Any) -> Change:
    return lambda x: object.__setattr__(x, name, value)


def _set_item(k: Any, value: Any) -> Change:
    return lambda x: x.__setitem__(k, value)


def _namespace(**attributes: Any) -> Any:
    return types.SimpleNamespace(**attributes)


def _with(x: Any, **attributes: Any) -> Any:
    x.__dict__.update(attributes)
    return x


def _noted(x: Any) -> Any:
    x.note = 1
    return x


def _fill(value: Any) -> Change:
    def change(f: Any) -> None:
        f.__closure__[0].cell_contents = value

    return change


# A value, and changes in place that are made one after the other.
VALUES: dict[str, tuple[Callable[[], Any], list[Change]]] = {
    "list": (lambda: [1], [_set_item(0, v) for v in (True, 1.0, -1, -2, 0.0, -0.0, (1,), None)]),
    "subclass of list": (lambda: ListOfOwn([1]), [_set_item(0, -1), _set_item(0, -2)]),
    "attribute of a list": (
        lambda: _with(ListOfOwn([1]), note=1),
        [_set_attribute("note", True), _set_attribute("more", -1), _set_attribute("more", -2)],
    ),
    "slot of a list": (lambda: MySlots([1]), [_set_attribute("note", v) for v in (1, True)]),
    "dict": (
        lambda: {"a": 1, "b": 2},
        [_set_item("a", True), lambda x: x.update(a=x.pop("a")), _set_item(1, 1), dict.clear],
    ),
    "subclass of dict": (lambda: DictOfOwn(a=1), [_set_item("a", 1.0), _set_attribute("n", 1)]),
    "OrderedDict": (
        lambda: collections.OrderedDict(a=1, b=2),
        [lambda x: x.move_to_end("a"), _set_item("a", True), _set_item("c", -0.0)],
    ),
    "subclass of OrderedDict": (
        lambda: MyOrdered(a=1, b=2),
        [lambda x: x.move_to_end("a"), _set_attribute("n", 1)],
    ),
    "defaultdict": (
        lambda: collections.defaultdict(int, a=1),
        [lambda x: x["b"], _set_item("b", False), _set_attribute("default_factory", float)],
    ),
    "Counter": (lambda: collections.Counter("aab"), [lambda x: x.update("b")]),
    "ChainMap": (lambda: collections.ChainMap({"a": 1}), [_set_item("a", True)]),
    "UserDict": (lambda: collections.UserDict(a=1), [_set_item("a", True)]),
    "UserList": (lambda: collections.UserList([1]), [_set_item(0, True)]),
    "mappingproxy": (lambda: {"a": 1}, [_set_item("a", True)]),
    "set": (lambda: {1}, [lambda x: x.add(2), lambda x: (x.remove(1), x.add(True))]),
    "deque": (lambda: collections.deque([1]), [_set_item(0, True), lambda x: x.append(2)]),
    "NumPy array": (
        lambda: np.zeros(1, np.float32),
        [lambda x: x.fill(-0.0), lambda x: x.fill(1)],
    ),
    "bytearray": (lambda: bytearray(b"a"), [lambda x: x.append(1)]),
    "array": (lambda: array.array("d", [0.0]), [_set_item(0, -0.0), lambda x: x.append(1)]),
    "SimpleNamespace": (lambda: _namespace(a=1), [_set_attribute("a", v) for v in (True, -1, -2)]),
    "subclass of float": (lambda: Double(1), [_set_attribute("n", v) for v in (1, True, 2)]),
    "attribute of a scalar": (
        lambda: MyScalar(1), [_set_attribute("n", v) for v in (1, True, 2)]),
    "slot of a partial": (
        lambda: _noted(MyPartial(operator.mul, 2)),
        [_set_attribute("note", v) for v in (1.0, True)],
    ),
    "list in a tuple": (lambda: ([1],), [lambda x: x[0].append(2)]),
    "attribute of a tuple": (lambda: TupleOfOwn([1]), [_set_attribute("n", v) for v in (1, 1.0)]),
    "list in a namedtuple": (lambda: Pair([1]), [lambda x: x.a.append(2), lambda x: x.a.clear()]),
    "dataclass": (lambda: Mutable(1), [_set_attribute("a", v) for v in (True, 1.0, -1, -2)]),
    "extra attribute": (lambda: Mutable(1), [_set_attribute("b", v) for v in (1, True)]),
    "dataclass with slots": (lambda: Slotted(1), [_set_attribute("a", v) for v in (True, -1, -2)]),
    "dataclass by identity": (lambda: ByIdentity(1), [_set_attribute("a", v) for v in (-1, -2)]),
    "inherited dataclass": (lambda: Inherits(1), [_set_attribute("a", v) for v in (True, -1, -2)]),
    "frozen dataclass": (lambda: Config([1]), [lambda x: x.scale.append(2)]),
    "field that is not compared": (lambda: NotCompared([1]), [lambda x: x.a.append(2)]),
    "changed frozen dataclass": (lambda: Config(-1), [_set_attribute("scale", -2)]),
    "registered dataclass": (lambda: Registered([1]), [lambda x: x.a.append(2)]),
    "registered node": (lambda: Node([1]), [_set_item(0, True), lambda x: x.append(2)]),
    "list in a Module": (lambda: Layer([1], None), [lambda x: x.weight.append(2)]),
    "static list in a Module": (lambda: Layer(1, None, [1]), [lambda x: x.tag.append(2)]),
    "changed Module": (lambda: Layer(-1, None), [_set_attribute("weight", -2)]),
    "enum": (lambda: Color.RED, [lambda x: x.value.append(len(x.value))]),
    "deep": (
        lambda: ({"k": [Pair(Layer(_namespace(a=collections.deque([Mutable(1)])), None))]},),
        [lambda x: setattr(x[0]["k"][0].a.weight.a[0], "a", True)],
    ),
    "function": (lambda: scaled(1), [_fill(v) for v in (2, 2.0, -1, -2)]),
    "function in a list": (lambda: [scaled(1)], [lambda x: _fill(2)(x[0])]),
    "function in a frozenset": (lambda: frozenset([scaled(1)]), [lambda x: _fill(2)(*x)]),
    "function in a namedtuple": (lambda: Pair(scaled(1)), [lambda x: _fill(2)(x.a)]),
    "function in a dataclass": (lambda: Config(scaled(1)), [lambda x: _fill(2)(x.scale)]),
    "function in a Module": (lambda: Layer(0, scaled(1)), [lambda x: _fill(2)(x.act)]),
    "partial": (lambda: functools.partial(operator.mul, 2), [lambda x: x.__setstate__(
        (operator.mul, (3,), {}, {}))]),
    "Partial": (lambda: jtu.Partial(scaled(1)), [lambda x: _fill(2)(x.func)]),
    "list in a partial": (
        lambda: functools.partial(lambda s, x: x * len(s), [1]),
        [lambda p: p.args[0].append(2)],
    ),
    "method of a list": (lambda: [1, 2].__getitem__, [lambda f: f.__self__.reverse()]),
    "bound method": (lambda: Mutable(1).__repr__, [lambda f: setattr(f.__self__, "a", True)]),
    "lru_cache": (lambda: functools.lru_cache(scaled(1)), [lambda f: _fill(2)(f.__wrapped__)]),
    "custom_jvp": (lambda: jax.custom_jvp(scaled(1)), [lambda f: _fill(2)(f.__wrapped__)]),
}  # fmt: skip
_TEXT: dict[str, Change] = {
    "method of a list": lambda f: [f(0), f(1)],
    "bound method": lambda f: f(),
    "lru_cache": lambda f: f.__wrapped__,
    "custom_jvp": lambda f: f.__wrapped__,
    "slot of a partial": lambda f: f.note,
    "mappingproxy": types.MappingProxyType,
}

GLOBAL: Any = None
CFG = types.ModuleType("cfg")


class Cls:
    value: Any = None


class Holder:
    value: Any


HOLDER = Holder()


def _in_global(value: Any, seen: Change) -> Any:
    global GLOBAL
    GLOBAL = value
    return lambda x: (x, weight(seen(GLOBAL)))


def _in_module(value: Any, seen: Change) -> Any:
    CFG.value = value  # type: ignore[attr-defined]
    return lambda x: (x, weight(seen(CFG.value)))  # type: ignore[attr-defined]


def _in_class(value: Any, seen: Change) -> Any:
    Cls.value = value
    return lambda x: (x, weight(seen(Cls.value)))


def _in_object(value: Any, seen: Change) -> Any:
    HOLDER.value = value
    return lambda x: (x, weight(seen(HOLDER.value)))


def _in_cell(value: Any, seen: Change) -> Any:
    return lambda x: (x, weight(seen(value)))


def _in_local_object(value: Any, seen: Change) -> Any:
    holder = Holder()
    holder.value = value
    return lambda x: (lambda: (x, weight(seen(holder.value))))()


def _in_default(value: Any, seen: Change) -> Any:
    return lambda x, v=value: (x, weight(seen(v)))


def _in_keyword_default(value: Any, seen: Change) -> Any:
    return lambda x, *, v=value: (x, weight(seen(v)))


def _in_default_object(value: Any, seen: Change) -> Any:
    holder = Holder()
    holder.value = value
    return lambda x, v=holder: (x, weight(seen(v.value)))


def _in_attribute(value: Any, seen: Change) -> Any:
    def act(x: Any) -> Any:
        return x, weight(seen(act.value))  # type: ignore[attr-defined]

    act.value = value  # type: ignore[attr-defined]
    return act


def _in_partial(value: Any, seen: Change) -> Any:
    return functools.partial(lambda x, v: (x, weight(seen(v))), v=value)


def _in_wrapper(value: Any, seen: Change) -> Any:
    inner = _in_cell(value, seen)

    @functools.wraps(inner)
    def wrapper(x: Any) -> Any:
        return inner(x)

    return wrapper


def _in_self(value: Any, seen: Change) -> Any:
    class Object:
        def act(self, x: Any) -> Any:
            return x, weight(seen(self.value))  # type: ignore[attr-defined]

    return _with(Object(), value=value).act


def _in_namedtuple(value: Any, seen: Change) -> Any:
    return _in_cell(Pair(0, value), lambda pair: seen(pair.b))


PLACES = [_in_global, _in_module, _in_class, _in_object, _in_cell, _in_local_object, _in_default,
          _in_keyword_default, _in_default_object, _in_attribute, _in_partial, _in_wrapper,
          _in_self, _in_namedtuple]  # fmt: skip


@contextlib.contextmanager
def _restored() -> Iterator[None]:
    yield
    Color.RED.value[:] = [1]


def _same(value: Any) -> Any:
    return value


BY_NAME = [_in_global, _in_module, _in_class, _in_object, _in_local_object, _in_default_object,
           _in_self]  # fmt: skip
IN_DOUBT = [_in_object, _in_local_object, _in_default_object, _in_self]
FUNCTIONS = ["function", "lru_cache", "custom_jvp"]
OFTEN = ["list", "subclass of dict", "list in a namedtuple", "registered node", "dataclass"]


@pytest.mark.parametrize(
    ("name", "place"),
    [(name, place) for name in VALUES for place in PLACES
     if name in OFTEN or place in (_in_global, _in_cell, _in_default)
     or (name in FUNCTIONS and place in BY_NAME)],
)  # fmt: skip
def test_changes_in_place(apply: Counted, name: str, place: Callable[[Any, Change], Any]) -> None:
    """The same function, and new functions with the same value, compute what they compute now."""
    make, changes = VALUES[name]
    seen = _TEXT.get(name, _same)
    with _restored():
        value = make()
        act = place(value, seen)
        results = set()
        for change in [lambda _: None, *changes]:
            change(value)
            for f in (act, place(value, seen), act, act):
                expected = computed_now(f)
                assert comparable(apply(f)) == expected
            results.add(expected)
        assert len(results) == len(changes) + 1
    if place not in IN_DOUBT:
        assert apply.count == len(results)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "values",
    [
        [1, True, 1.0, -1, -2, 0.0, -0.0, np.float32(1), np.float64(1), Double(1)],
        [[1], [True], [1.0], (1,), ListOfOwn([1]), {1}, {True}, frozenset([1]), Pair(1), Node([1])],
        [Mutable(1), Mutable(True), Inherits(1), Slotted(1), ByIdentity(1), NotCompared(1)],
        [fractions.Fraction(1, 2), fractions.Fraction(2, 4), uuid.UUID(int=1), Color.RED],
        [np.datetime64(1, "s"), np.datetime64(1, "ms"), np.timedelta64(1, "s")],
        [{"a": 1, "b": 2}, {"b": 2, "a": 1}, collections.OrderedDict(a=1, b=2)],
    ],
)
def test_replaced(apply: Counted, values: list[Any], place: Callable[[Any, Change], Any]) -> None:
    for _ in range(2):
        for value in values:
            f = place(value, _same)
            assert comparable(apply(f)) == computed_now(f)


# ---- objects that are not known by their contents ----


class Item:
    """As a user's own container: nothing is known of what it holds."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __getitem__(self, _: Any) -> Any:
        return self.value


class OwnEquality(Item):
    def __eq__(self, other: object) -> bool:
        return isinstance(other, OwnEquality)

    def __hash__(self) -> int:
        return 1


class OddLayout(Item, Exception):
    pass


def _of_array() -> Any:
    return np.zeros(1 << 15, np.float32), lambda x, v: x.fill(v)


def _of_view() -> Any:
    data = bytearray(1)
    return memoryview(data), lambda _, v: data.__setitem__(0, int(v))


UNKNOWN: dict[str, Callable[[], tuple[Any, Callable[[Any, float], Any]]]] = {
    "object": lambda: (Item(0.0), lambda x, v: setattr(x, "value", v)),
    "own equality": lambda: (OwnEquality(0.0), lambda x, v: setattr(x, "value", v)),
    "exception": lambda: (OddLayout(0.0), lambda x, v: setattr(x, "value", v)),
    "object in a tuple": lambda: ((Item(0.0),), lambda x, v: setattr(x[0], "value", v)),
    "object in a Module": lambda: (Layer(Item(0.0), 0), lambda x, v: setattr(x.weight, "value", v)),
    "large NumPy array": _of_array,
    "memoryview": _of_view,
}


def _read(x: Any) -> float:
    x = x.weight if isinstance(x, Layer) else x
    while not isinstance(x, (int, float, np.number)):
        x = x[0]
    return float(x)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("name", UNKNOWN)
def test_doubt_is_a_miss(apply: Counted, name: str, inside: bool) -> None:
    """New functions do not get the program of an old one, not even around the same function."""
    value, change = UNKNOWN[name]()
    inner = lambda x: (x, _read(value))
    make = lambda: (lambda x: inner(x)) if inside else (lambda x: (x, _read(value)))
    for v in (1.0, 2.0, 1.0):
        change(value, v)
        assert apply(make())[1] == v
    assert apply.count == 3
    act = make()
    apply(act), apply(act)
    assert apply.count == 4


def test_bound_methods_in_doubt_are_compared_as_by_default(apply: Counted) -> None:
    """By the object and the function: each access makes a new method."""
    plain = Plain(2.0)
    for scale in (2.0, 2.0, 3.0, 3.0):  # `act` reads `scale` by name
        plain.scale = scale
        assert comparable(apply(plain.act)) == comparable(X * scale)
    assert apply.count == 2
    apply(Plain(3.0).act)
    assert apply.count == 3


def test_a_method_that_counts_its_calls(apply: Counted) -> None:
    class Counts:
        calls = 0

        def act(self, x: Any) -> Any:
            self.calls += 1
            return x

    counts = Counts()
    for _ in range(6):
        apply(counts.act)
    assert counts.calls == apply.count <= 2


def test_a_global_list_that_a_trace_changes(apply: Counted) -> None:
    global GLOBAL
    GLOBAL = []
    act = lambda x: (x, GLOBAL.append(1))[0]
    for _ in range(6):
        apply(act)
    assert len(GLOBAL) == apply.count <= 2


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


# ---- attributes that code reads by name ----


def test_attributes_read_by_name(apply: Counted) -> None:
    package = types.ModuleType("package")
    package.cfg = types.ModuleType("package.cfg")  # type: ignore[attr-defined]
    package.cfg.Options = type("Options", (), {})  # type: ignore[attr-defined]
    make = lambda: lambda x: (x, package.cfg.Options.size, type(package.cfg.unit))  # type: ignore[attr-defined]
    for size, unit in [(1, 1), (True, 1), (1.0, 1), (1.0, "m"), (1, 1)]:
        package.cfg.Options.size, package.cfg.unit = size, unit  # type: ignore[attr-defined]
        for _ in range(2):
            assert apply(make())[1:] == (size, type(unit))
    assert apply.count == 4


def test_a_change_of_an_attribute_that_is_not_read(apply: Counted) -> None:
    """An object's other attributes, such as a counter of steps, do not count."""
    plain = Plain(2.0)
    act = lambda x: x * plain.scale
    for step in range(3):
        plain.step = step  # type: ignore[attr-defined]
        apply(act), apply(plain.act)
    assert apply.count == 2


@pytest.mark.parametrize(
    "make",
    [
        lambda: jax.nn.relu,
        lambda: jax.vmap(scaled(2.0)),
        lambda: jax.grad(lambda x: x * 2.0),
        lambda: jax.jit,
        lambda: jnp.float32,
        lambda: jnp.dtype("float32"),
        lambda: jax.sharding.PartitionSpec("a"),
        lambda: functools.partial(jax.nn.gelu, approximate=False),
        lambda: eqx.nn.Lambda(jax.nn.relu),
        lambda: jnp.sum,
        lambda: Color.RED,
        lambda: Layer(X, scaled(1.0)),
        lambda: Config((1, scaled(2.0))),
        lambda: Pair(1, "a"),
        lambda: operator.itemgetter(1),
        lambda: fractions.Fraction(1, 2),
        lambda: np.sum,
    ],
)
def test_what_is_known_does_not_prevent_sharing(make: Callable[[], Any]) -> None:
    traces = Traces()
    f = filterjit.filter_jit(traces.counting(lambda act, x: x), functions="structure")

    def holding(value: Any) -> Any:
        def act(x: jax.Array, *, y: Callable[[Any], Any] | None = None) -> jax.Array:
            return jnp.tanh(x * np.pi) + np.sum((1, 2)) + len(str(value))

        return act

    for _ in range(3):
        f(holding(make()), X)
    assert traces.count == 1
