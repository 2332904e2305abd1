"""Statics that are not inert, and are compared by what they hold: attacks on each shortcut.

A call with the variant's own value looks at addresses, and one with an equal value compares fields,
both in C. Whatever changes in place is noticed, and values that only ``==`` takes for equal differ.
"""

import dataclasses
import enum
import functools
import gc
import types
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest

from filterjit import filter_jit as make_jit


@dataclasses.dataclass(frozen=True)
class Config:
    a: Any
    b: Any = None


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    a: Any
    b: Any = None


@dataclasses.dataclass(frozen=True)
class Partly:
    a: Any
    note: Any = dataclasses.field(default=None, compare=False)


@dataclasses.dataclass(frozen=True)
class Cached:
    a: Any

    @functools.cached_property
    def twice(self) -> Any:
        return self.a * 2


class Sub(Config):
    """Inherits ``__eq__``, so that all its attributes count."""


class Pair(NamedTuple):
    a: Any
    b: Any = None


class Level(enum.Enum):
    LOW = [1]
    HIGH = [2]


@jtu.register_static
@dataclasses.dataclass(frozen=True)
class Registered:
    a: Any
    b: Any = None


class Model(eqx.Module):
    weight: jax.Array
    static: Any = eqx.field(static=True)


def text(x: Any) -> str:
    """Tells apart all that a traced function can tell apart."""
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        names = [f.name for f in dataclasses.fields(x)]
        inside = [getattr(x, name, "absent") for name in names] + (
            [vars(x)] if hasattr(x, "__dict__") else []
        )
        return f"{type(x).__name__}({', '.join(map(text, inside))})"
    if isinstance(x, dict):
        return f"{{{', '.join(f'{text(k)}: {text(v)}' for k, v in x.items())}}}"
    if isinstance(x, (list, tuple)):
        return f"{type(x).__name__}[{', '.join(map(text, x))}]"
    return f"{type(x).__name__} {x!r}"


def jitted() -> Any:
    return make_jit(lambda model: (text(model.static), model.weight))


def read(f: Any, static: Any) -> str:
    return str(f(Model(jnp.ones(2), static))[0])


def traces(f: Any) -> int:
    return len(f.variants)


def put(x: Any, name: str, value: Any) -> None:
    object.__setattr__(x, name, value)


def swap(x: Any, at: Any, value: Any) -> None:
    x[at] = value


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "field": (lambda: Config(1), lambda x: put(x, "a", 2)),
    "field, True for 1": (lambda: Config(1), lambda x: put(x, "a", True)),
    "field, by vars": (lambda: Config(1), lambda x: vars(x).update(a=2)),
    "slot": (lambda: Slotted(1), lambda x: put(x, "b", 2)),
    "field of a field": (lambda: Config(Slotted(Config(1))), lambda x: put(x.a.a, "a", 2)),
    "in a tuple": (lambda: (1, (Config(1), Slotted(2))), lambda x: put(x[1][1], "a", 3)),
    "in a named tuple": (lambda: Pair(Config(0.0)), lambda x: put(x.a, "a", -0.0)),
    "list in a field": (lambda: Config([1]), lambda x: x.a.append(2)),
    "item of a list": (lambda: Slotted([1]), lambda x: swap(x.a, 0, 1.0)),
    "dict in a field": (lambda: Config({"k": 1}), lambda x: swap(x.a, "k", 2)),
    "new key": (lambda: Config({"k": 1}), lambda x: swap(x.a, "l", 2)),
    "dict with other keys": (lambda: Config({1: 1, (2,): 2}), lambda x: swap(x.a, (2,), 1)),
    "set in a field": (lambda: Config({1}), lambda x: x.a.add(2)),
    "array in a field": (lambda: Config(np.zeros(2)), lambda x: swap(x.a, 0, 1.0)),
    "attribute of a subclass": (lambda: Sub(1), lambda x: put(x, "more", 2)),
    "field of a subclass": (lambda: Sub(1), lambda x: put(x, "a", 2)),
    "registered as static": (lambda: Registered([1]), lambda x: x.a.append(2)),
    "names of a dtype": (
        lambda: Config(np.dtype([("a", "f4")])),
        lambda x: setattr(x.a, "names", ("b",)),
    ),
    "function of a method": (
        lambda: Config(types.MethodType(Callable_([1]), 1)),
        lambda x: x.a.__func__.a.append(2),
    ),
    "aux data of a treedef": (
        lambda: Config(jtu.tree_structure(Node([1]))),
        lambda x: x.a.node_data()[1].append(2),
    ),
    "keyword of a partial's argument": (
        lambda: [Config([functools.partial(len)]), [1]],
        lambda x: x[1].append(2),
    ),
}


@dataclasses.dataclass(frozen=True)
class Callable_:
    a: Any

    def __call__(self, x: Any) -> Any:
        return x


@jtu.register_pytree_node_class
class Node:
    def __init__(self, aux: Any) -> None:
        self.aux = aux

    def tree_flatten(self) -> Any:
        return (), self.aux

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> Any:
        return cls(aux)


@pytest.mark.parametrize("calls", [0, 1, 2, 200])  # 200: there is a record
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_in_place_is_noticed(name: str, calls: int) -> None:
    make, change = CHANGES[name]
    f, value = jitted(), make()
    before = text(value)
    for _ in range(1 + calls):
        assert read(f, value) == before
    assert traces(f) == 1
    change(value)
    assert read(f, value) == text(value)
    assert read(f, value) == text(value)
    assert traces(f) == 2
    fresh = make()
    assert read(f, fresh) == text(fresh)


@pytest.mark.parametrize("wrap", [lambda x: x, Config, Slotted, Pair, lambda x: Config((x, [x]))])
def test_equal_values_that_differ(wrap: Any) -> None:
    """Each one is called after the others have been the variant's own for some calls."""

    class Text(str):
        pass

    values = [1, True, 1.0, 0.0, -0.0, 0, False, "1", Text("1"), Pair(1), (1, None), [1], {1: 1}]
    statics = [wrap(Config(x)) for x in values]
    f = jitted()
    for _ in range(3):
        for static in statics:
            for _ in range(3):
                assert read(f, static) == text(static)
    assert traces(f) == len(values)
    for x in values:
        again = wrap(Config(x))
        assert read(f, again) == text(again)
    assert traces(f) == len(values)


def test_nan_equals_itself_alone() -> None:
    f = jitted()
    quiet, other = (np.array([bits], np.uint64).view(np.float64)[0].item() for bits in (
        0x7FF8000000000000, 0x7FF8000000000001,
    ))  # fmt: skip
    for _ in range(4):
        read(f, Config(quiet))
        read(f, Config(float(quiet)))
    assert traces(f) == 1
    read(f, Config(other))
    assert traces(f) == 2


def test_fields_that_are_not_compared() -> None:
    f = jitted()
    value = Partly(1, "a")
    for _ in range(4):
        read(f, value)
    put(value, "note", "b")
    read(f, value)
    read(f, Partly(1, "c"))
    assert traces(f) == 1
    put(value, "a", 2)
    assert "2" in read(f, value)
    assert traces(f) == 2


@pytest.mark.parametrize("calls", [1, 4, 200])
def test_cached_properties_do_not_count(calls: int) -> None:
    f = make_jit(lambda model: (model.static.a, model.weight))
    value = Cached(3)
    model = Model(jnp.ones(2), value)
    for _ in range(calls):
        f(model)
    assert value.twice == 6
    for _ in range(calls):
        f(model)
    assert traces(f) == 1
    put(value, "a", 4)
    assert f(model)[0] == 4


def test_members_of_enums_are_compared_by_identity() -> None:
    f = jitted()
    for _ in range(4):
        read(f, Config(Level.LOW))
        read(f, Config(Level.HIGH))
    Level.LOW.value.append(3)
    read(f, Config(Level.LOW))
    Level.LOW.value.pop()
    assert traces(f) == 2


@pytest.mark.parametrize("cls", [Config, Slotted])
def test_a_class_that_changes(cls: Any) -> None:
    class Own(cls):
        pass

    Own = dataclasses.dataclass(frozen=True, init=False)(Own)  # its own ``__eq__``
    f = make_jit(lambda model: (model.static.a, model.weight))
    values = Own(1), Own(1)
    for _ in range(4):
        assert [f(Model(jnp.ones(2), value))[0] for value in values] == [1, 1]
    Own.a = property(lambda self: 5)
    assert [f(Model(jnp.ones(2), value))[0] for value in values] == [5, 5]


def test_another_class_of_the_same_name() -> None:
    def make() -> Any:
        @dataclasses.dataclass(frozen=True)
        class Own:
            a: int

        return Own(1)

    f = make_jit(lambda model: (id(type(model.static)), model.weight))
    for value in (make(), make()):
        for _ in range(4):
            assert f(Model(jnp.ones(2), value))[0] == id(type(value))


def test_an_instance_that_gets_another_class() -> None:
    @dataclasses.dataclass(frozen=True)
    class A:
        a: Any

    @dataclasses.dataclass(frozen=True)
    class B:
        a: Any

    f = make_jit(lambda model: (type(model.static).__name__, model.weight))
    value = A(1)
    model = Model(jnp.ones(2), value)
    for _ in range(4):
        assert f(model)[0] == "A"
    object.__setattr__(value, "__class__", B)
    assert f(model)[0] == "B"


def test_bound_methods() -> None:
    class Own:
        def __init__(self, value: Any) -> None:
            self.value = value

        def method(self) -> Any:
            return self.value

        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = object.__hash__

    f = make_jit(lambda model: (model.static.a(), model.weight))
    x, y = Own(1), Own(2)
    for _ in range(4):
        assert f(Model(jnp.ones(2), Config(x.method)))[0] == 1
        assert f(Model(jnp.ones(2), Config(y.method)))[0] == 2
    assert traces(f) == 2


def test_leaves_must_be_hashable() -> None:
    f = make_jit(lambda x, y: y)
    for _ in range(4):
        f(Config((1, Slotted(2))), 1)
    with pytest.raises(TypeError, match="cannot be hashed"):
        f(Config([1]), 1)


@pytest.mark.parametrize("calls", [1, 4, 200])
def test_types_registered_as_static(calls: int) -> None:
    """They are nodes without children; the result has the very object."""
    f = make_jit(lambda tree: (tree, text(tree["s"])))
    value = Registered((1, Slotted(2)))
    tree = {"s": value, "x": jnp.ones(2)}
    for _ in range(calls):
        out, seen = f(tree)
        assert out["s"] is value and seen == text(value)
    assert f({**tree, "s": Registered((1, Slotted(2)))})[1] == text(value)
    assert traces(f) == 1
    assert f({**tree, "s": Registered((True, Slotted(2)))})[1] != text(value)
    put(value.a[1], "a", 3)
    assert f(tree)[1] == text(value)
    assert traces(f) == 3
    leaves, structure = jtu.tree_flatten(tree)
    assert len(leaves) == 1 and jtu.tree_unflatten(structure, leaves)["s"] is value


def test_a_static_that_was_dropped_is_freed() -> None:
    class Thing:
        pass

    thing = Thing()
    f = jitted()
    value = Config([thing, Slotted([thing])])
    for _ in range(5):
        f(Model(jnp.ones(2), value))
    ref = weakref.ref(thing)
    del thing, value, f
    gc.collect()
    assert ref() is None


class Summed(tuple[int, ...]):
    @functools.cached_property
    def total(self) -> int:
        return sum(self)


def test_a_filled_cached_property_of_a_tuple() -> None:
    """It is not compared: prediction, look-up and `explain` take the value for the same, whether
    the property was filled before a call or in it."""
    f = make_jit(lambda x, static: x * static.total)
    filled = Summed((1, 2))
    assert filled.total == 3
    for static in (Summed((1, 2)), filled, Summed((1, 2))):
        assert f(1.0, static) == f(1.0, filled) == 3.0
        assert f.explain(1.0, static).hit and f.explain(1.0, filled).hit
    assert traces(f) == 1
    assert f(1.0, Summed((1, 3))) == 4.0
    changed = Summed((1, 2))
    changed.label = 1  # type: ignore[attr-defined]
    assert not f.explain(1.0, changed).hit
