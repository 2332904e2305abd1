"""Programs with containers as configurations: those of the standard library, and subclasses."""

import array
import collections
import itertools
import types
from typing import Any

import jax.numpy as jnp
from zoo_support import program, told

from support.statics import FrozenSetOfOwn, SetOfOwn


@program(lambda: [1, [2]], lambda: [True, [2]], lambda: [1, [2.0]], change=lambda c: c[1].append(3))
def lists(cfg, x):
    return told(x * sum(cfg[1]), cfg)


@program(
    lambda: {"lr": 1, "net": {"widths": [8, 4]}},
    lambda: {"lr": True, "net": {"widths": [8, 4]}},
    lambda: {"lr": 1, "net": {"widths": [8, 4.0]}},
    change=lambda c: c["net"].update(depth=2),
)
def nested_dicts(cfg, x):
    return told(x * cfg["lr"], cfg["lr"], sorted(cfg["net"].items()))


_orders = itertools.cycle([("a", "b"), ("b", "a")])


@program(
    lambda: {key: ord(key) for key in next(_orders)},
    lambda: {"a": 97.0, "b": 98},
    change=lambda c: c.update(a=1),
    retraced="the function may iterate over it",
)
def dict_in_another_order(cfg, x):
    return told(x, sorted(cfg.items()))


@program(lambda: {1: 0.0}, lambda: {True: 0.0}, lambda: {1: -0.0}, lambda: {1.0: 0.0})
def dict_of_numbers(cfg, x):
    return told(x, cfg)


@program(lambda: {1, 2}, lambda: {True, 2}, lambda: {1.0, 2}, change=lambda c: c.add(3))
def a_set(cfg, x):
    return told(x, sorted(cfg))


@program(lambda: frozenset([1, "a"]), lambda: frozenset([True, "a"]), lambda: frozenset(["a"]))
def a_frozenset(cfg, x):
    return told(x, sorted(map(repr, cfg)))


@program(
    lambda: (1, (2, ())), lambda: (True, (2, ())), lambda: (1, (2.0, ())), lambda: [1, [2, []]]
)
def tuples(cfg, x):
    return told(x, cfg)


@program(
    lambda: collections.OrderedDict(a=1, b=2),
    lambda: collections.OrderedDict(a=1.0, b=2),
    lambda: collections.OrderedDict(b=2, a=1),
    lambda: {"a": 1, "b": 2},
    change=lambda c: c.move_to_end("a"),
)
def ordered_dict(cfg, x):
    return told(x, type(cfg).__name__, list(cfg.items()))


@program(
    lambda: collections.OrderedDict(a=-1),
    lambda: collections.OrderedDict(a=-1.0),
    change=lambda c: c.update(a=-2),
)
def ordered_dict_that_is_updated(cfg, x):
    return x * cfg["a"]


@program(
    lambda: collections.defaultdict(int, {"a": 1}),
    lambda: collections.defaultdict(float, {"a": 1}),
    lambda: collections.defaultdict(int, {"a": True}),
    change=lambda c: c.update(a=2),
)
def default_dict(cfg, x):
    return told(x, cfg.default_factory(), dict(cfg))


@program(
    lambda: collections.Counter(a=1),
    lambda: collections.Counter(a=1, b=0),
    lambda: collections.Counter(a=True),
    change=lambda c: c.update("a"),
)
def counter(cfg, x):
    return told(x, len(cfg), cfg)


@program(
    lambda: collections.deque([1, 2]),
    lambda: collections.deque([1, 2.0]),
    lambda: collections.deque([1, 2], maxlen=2),
    change=lambda c: c.rotate(),
)
def deque(cfg, x):
    return told(x, cfg, cfg.maxlen)


@program(
    lambda: collections.ChainMap({"a": 1}, {"b": 2}),
    lambda: collections.ChainMap({"a": True}, {"b": 2}),
    lambda: collections.ChainMap({"a": 1, "b": 2}),
    change=lambda c: c.maps[1].update(b=3),
)
def chain_map(cfg, x):
    return told(x, cfg.maps)


@program(
    lambda: collections.UserDict(a=1),
    lambda: collections.UserDict(a=1.0),
    change=lambda c: c.update(a=2),
)
def user_dict(cfg, x):
    return told(x, cfg)


@program(
    lambda: collections.UserList([1]),
    lambda: collections.UserList([True]),
    change=lambda c: c.append(2),
)
def user_list(cfg, x):
    return told(x, cfg)


@program(lambda: bytearray(b"ab"), lambda: b"ab", change=lambda c: c.append(3))
def byte_array(cfg, x):
    return told(x, cfg)


@program(
    lambda: types.SimpleNamespace(lr=1, net=types.SimpleNamespace(width=0.0)),
    lambda: types.SimpleNamespace(lr=True, net=types.SimpleNamespace(width=0.0)),
    lambda: types.SimpleNamespace(lr=1, net=types.SimpleNamespace(width=-0.0)),
    change=lambda c: setattr(c.net, "width", 3.0),
)
def simple_namespace(cfg, x):
    return told(x * cfg.lr, cfg)


@program(
    lambda: types.MappingProxyType({"lr": 1}),
    lambda: types.MappingProxyType({"lr": True}),
    lambda: types.MappingProxyType({"lr": -0.0}),
)
def mapping_proxy(cfg, x):
    return told(x * cfg["lr"], cfg)


def view(value: Any) -> Any:
    """Returns a view of a dict. `_owners` has the dict."""
    owner = {"lr": value}
    found = types.MappingProxyType(owner)
    _owners.append((found, owner))
    return found


_owners: list[tuple[Any, dict[str, Any]]] = []  # of the views


def change_owner(found: Any) -> None:
    next(owner for one, owner in _owners if one is found)["lr"] = 3


@program(lambda: view(1), lambda: view(True), change=change_owner)
def mapping_proxy_of_a_dict_that_changes(cfg, x):
    return told(x * cfg["lr"], cfg["lr"])


@program(
    lambda: array.array("i", [1, 2]),
    lambda: array.array("l", [1, 2]),
    lambda: array.array("d", [1, 2]),
    change=lambda c: c.append(3),
)
def array_of_the_standard_library(cfg, x):
    return told(x, cfg)


@program(
    lambda: memoryview(b"ab"),
    lambda: memoryview(b"ab").cast("b"),
    lambda: memoryview(b"ab").cast("c"),
    lambda: memoryview(b"ac"),
)
def memory_view(cfg, x):
    return told(x, cfg.format, cfg.tolist())


@program(
    lambda: memoryview(bytearray(b"ab")),
    lambda: memoryview(b"ab"),
    change=lambda c: c.__setitem__(0, 3),
)
def memory_view_that_is_written_to(cfg, x):
    return told(x, cfg.readonly, cfg.tolist())


# ---- subclasses ----


class Stack(list[Any]):
    """A subclass of list, with an attribute."""

    limit: Any = 5


def set_limit(limit: Any) -> Any:
    return lambda stack: setattr(stack, "limit", limit)


@program(lambda: Stack([1]), lambda: Stack([True]), lambda: [1], change=lambda c: c.append(2))
def list_subclass(cfg, x):
    return told(x, type(cfg).__name__, list(cfg))


def stack(limit: Any) -> Stack:
    found = Stack([1])
    found.limit = limit
    return found


@program(lambda: stack(1), lambda: stack(True), lambda: stack(2), change=set_limit(3))
def list_subclass_with_an_attribute(cfg, x):
    return told(x, list(cfg), cfg.limit)


class Attributes(dict[str, Any]):
    """A dict whose keys are attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    __setattr__ = dict.__setitem__


@program(
    lambda: Attributes(lr=-1, net=Attributes(depth=1)),
    lambda: Attributes(lr=-1.0, net=Attributes(depth=1)),
    lambda: Attributes(lr=-1, net=Attributes(depth=True)),
    change=lambda c: setattr(c, "lr", -2),
)
def dict_of_attributes(cfg, x):
    return told(x * cfg.lr, cfg.net.depth)


@program(
    lambda: Attributes(net=Attributes(depth=1)),
    lambda: Attributes(net={"depth": 1}),
    change=lambda c: setattr(c.net, "depth", 2),
)
def dict_of_attributes_changed_inside(cfg, x):
    return told(x, type(cfg["net"]).__name__, cfg["net"]["depth"])


@program(lambda: SetOfOwn([1]), lambda: SetOfOwn([True]), lambda: {1}, change=lambda c: c.add(2))
def set_subclass(cfg, x):
    return told(x, type(cfg).__name__, sorted(cfg))


@program(lambda: FrozenSetOfOwn([1]), lambda: FrozenSetOfOwn([True]), lambda: frozenset([1]))
def frozenset_subclass(cfg, x):
    return told(x, type(cfg).__name__, sorted(cfg))


class Shape(tuple[Any, ...]):
    """A subclass of tuple, with an attribute."""

    layout: Any


def shape(layout: Any, *sizes: Any) -> Shape:
    found = Shape(sizes)
    found.layout = layout
    return found


@program(lambda: shape(0, 1, 2), lambda: shape(0, True, 2), lambda: shape(0, 2, 1))
def tuple_subclass(cfg, x):
    return told(x, tuple(cfg))


@program(
    lambda: shape("rows", 1),
    lambda: shape("columns", 1),
    change=lambda c: setattr(c, "layout", "none"),
)
def tuple_subclass_with_an_attribute(cfg, x):
    return told(x, tuple(cfg), cfg.layout)


class Grouped(collections.defaultdict[Any, Any]):
    pass


@program(
    lambda: Grouped(list, {"a": [1]}),
    lambda: Grouped(list, {"a": [True]}),
    lambda: Grouped(tuple, {"a": [1]}),
    change=lambda c: c["a"].append(2),
)
def default_dict_subclass(cfg, x):
    return told(x, cfg.default_factory, dict(cfg))


class Recent(collections.deque[Any]):
    pass


@program(lambda: Recent([1]), lambda: Recent([1.0]), change=lambda c: c.append(2))
def deque_subclass(cfg, x):
    return told(x, list(cfg))


@program(
    lambda: [collections.deque([{"a": bytearray(b"x")}])],
    lambda: [collections.deque([{"a": b"x"}])],
    change=lambda c: c[0][0]["a"].append(1),
)
def containers_in_containers(cfg, x):
    return told(x, cfg), jnp.asarray(len(cfg[0]))
