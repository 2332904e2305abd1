"""Statics: who decides what is equal, where the zoo's tables (tests/zoo) do not tell it.

Static values are all leaves and fields that are not arrays. They are compared exactly: values that
are ``==`` but not the same are two variants, where Equinox has one.
"""

import collections
import copy
import dataclasses
import datetime
import functools
import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest

import filterjit
from support.comparison import Jit, Traces, comparable
from support.flax_nodes import FlaxStruct
from support.modules import Holder, Module
from support.nodes import Custom, FrozenRegistered, Point, Registered, Static
from support.statics import Constant, Money, PartlyCompared, Slotted
from support.trees import ARRAY, MLP, ONE
from support.zoo import FIELDS, LEAVES, seen

NOON = datetime.datetime(
    2020, 1, 1, 12, tzinfo=datetime.timezone(datetime.timedelta(hours=1), "CET")
)
NUMBERS = [1, True, 1.0, 0.0, -0.0]

# Besides the places of the zoo.
PLACES: dict[str, Callable[[Any], Any]] = {
    "named tuple": lambda v: Point(1, v),
    "frozen dataclass with slots": lambda v: Slotted(1, v),
    "tuple in a frozen dataclass in one": lambda v: Constant(Constant((v, "a"))),
    "dict key": lambda v: {v: 1},
    "key of an OrderedDict": lambda v: collections.OrderedDict([(v, 1)]),
    "meta field": lambda v: Registered(1, meta=v),
    "tuple in a meta field": lambda v: Registered(1, meta=(v,)),
    "flax.struct": lambda v: FlaxStruct(1, meta=v),
    "registered static": lambda v: Static(v),
    "registered static in a static field": lambda v: Holder(None, Static(v)),
    "registered dataclass in a static field": lambda v: Holder(None, FrozenRegistered(1, v, "k")),
    "treedef": lambda v: jtu.tree_structure({v: 1}),
    "frozenset": lambda v: frozenset([(v, "a")]),
}


@pytest.mark.parametrize("place", PLACES)
def test_five_variants(place: str) -> None:
    """By decision 1, True, 1.0, 0.0 and -0.0 are five variants."""
    f, put = filterjit.filter_jit(lambda x: seen(x)), PLACES[place]
    for v in [*NUMBERS, *NUMBERS[::-1], *NUMBERS]:
        assert f(put(v)) == seen(jtu.tree_map(lambda leaf: leaf, put(v)))
    assert len(f.variants) == 5


def test_equinox_shares_equal_values() -> None:
    """The simplest example of the difference."""
    describe = lambda v: f"{type(v).__name__} {v!r}"
    theirs, ours = eqx.filter_jit(describe), filterjit.filter_jit(describe)
    assert [theirs(v) for v in NUMBERS] == ["int 1"] * 3 + ["float 0.0"] * 2
    assert [ours(v) for v in NUMBERS] == [
        "int 1",
        "bool True",
        "float 1.0",
        "float 0.0",
        "float -0.0",
    ]


def test_own_equality_is_respected(jit: Jit) -> None:
    class CaseInsensitive:
        def __init__(self, text: str) -> None:
            self.text = text

        def __eq__(self, other: Any) -> bool:
            return isinstance(other, CaseInsensitive) and self.text.lower() == other.text.lower()

        def __hash__(self) -> int:
            return hash(self.text.lower())

    traces = Traces()

    @jit
    def f(v: Any, x: Any) -> Any:
        traces.tick()
        return v.text, x

    for text in ("abc", "ABC", "Abc"):
        assert f(CaseInsensitive(text), ONE)[0] == "abc"
    assert f(Static(CaseInsensitive("abC")).value, ONE)[0] == "abc"
    assert traces.count == 1


def test_hash_collisions(jit: Jit) -> None:
    class Same:
        def __init__(self, n: int) -> None:
            self.n = n

        def __hash__(self) -> int:
            return 0

        def __eq__(self, other: Any) -> bool:
            return isinstance(other, Same) and self.n == other.n

    traces = Traces()

    @jit
    def f(v: Any, x: Any) -> Any:
        traces.tick()
        return v.n, x

    for _ in range(2):
        for n in range(15):
            assert f(Same(n), ONE) == (n, 1)
    assert f(Same(-1), ONE)[0] == f(Same(-2), ONE)[0] + 1
    assert traces.count == 17


def test_dict_order_and_insertion_do_not_matter(jit: Jit) -> None:
    traces = Traces()

    @jit
    def f(d: Any) -> Any:
        traces.tick()
        return d

    one = {"a": 1, "b": ONE}
    two = {"b": ONE, "a": 1}
    three = {"x": 0, "b": ONE, "a": 1}
    del three["x"]
    for d in (one, two, three):
        assert comparable(f(d)) == comparable(one)
    assert traces.count == 1


def test_order_of_a_static_dict(jit: Jit, ours: bool) -> None:
    """By decision the order counts in a static field, where the function can see it: Equinox
    answers with the order of the first call."""
    f = jit(lambda h: list(h.s))
    one, two = {"a": 1, "b": 2}, {"b": 2, "a": 1}
    assert f(Holder(ONE, one)) == ["a", "b"]
    assert f(Holder(ONE, two)) == (["b", "a"] if ours else ["a", "b"])
    assert f(Holder(ONE, dict(one))) == ["a", "b"]
    assert f(Holder(ONE, (dict(two),))) == [{"b": 2, "a": 1}]
    # As a leaf a dict is a pytree: its keys are sorted, whoever traces it.
    assert f(Holder(ONE, one)) == ["a", "b"] and list(jit(lambda d: list(d))(two)) == ["a", "b"]


def test_own_equality_is_asked_besides_the_contents() -> None:
    """Of a class with the contents of a list, which says that two lists of equal items differ."""

    class Distinct(list[int]):
        def __eq__(self, other: object) -> bool:
            return self is other

    f = filterjit.filter_jit(lambda tree: tree.x)
    one, two = Distinct([1]), Distinct([1])
    for static in (one, two, one, two):
        f(Holder(ONE, static))
    assert len(f.variants) == 2


# ---- what does not count ----


class Summed(tuple[int, ...]):
    @functools.cached_property
    def total(self) -> int:
        return sum(self)


def test_fields_that_are_not_compared(jit: Jit, ours: bool) -> None:
    """``field(compare=False)``: the class decides what is compared."""
    f = jit(lambda tree: (tree.s.value, tree.s.ignored))
    value = PartlyCompared(1, 1)
    for i in range(2, 5):
        assert f(Holder(ONE, value)) == f(Holder(ONE, PartlyCompared(1, i))) == (1, 1)
        object.__setattr__(value, "ignored", i)
    object.__setattr__(value, "value", 2)
    if ours:  # Equinox compares the value with itself
        assert f(Holder(ONE, value)) == (2, 4)


@dataclasses.dataclass(frozen=True)
class Cached:
    a: Any

    @functools.cached_property
    def twice(self) -> Any:
        return self.a * 2


@pytest.mark.parametrize("calls", [1, 4, 200])  # 200: there is a record
@pytest.mark.parametrize("place", ["static field", "argument"])
def test_cached_properties(calls: int, place: str) -> None:
    f = filterjit.filter_jit(lambda tree: (tree.s if place == "static field" else tree).a)
    value = Cached(3)
    tree = (FIELDS | LEAVES)[place](value)
    for _ in range(calls):
        f(tree)
    assert value.twice == 6
    for _ in range(calls):
        f(tree)
    assert len(f.variants) == 1
    object.__setattr__(value, "a", 4)
    assert f(tree) == 4


def test_a_filled_cached_property_of_a_tuple() -> None:
    """It is not compared: prediction, look-up and `explain` take the value for the same, whether
    the property was filled before a call or in it."""
    f = filterjit.filter_jit(lambda x, static: x * static.total)
    filled = Summed((1, 2))
    assert filled.total == 3
    for static in (Summed((1, 2)), filled, Summed((1, 2))):
        assert f(1.0, static) == f(1.0, filled) == 3.0
        assert f.explain(1.0, static).hit and f.explain(1.0, filled).hit
    assert len(f.variants) == 1
    assert f(1.0, Summed((1, 3))) == 4.0
    changed = Summed((1, 2))
    changed.label = 1  # type: ignore[attr-defined]
    assert not f.explain(1.0, changed).hit


# ---- values that only equal themselves, and copies ----


class EqualPartials(functools.partial[Any]):
    """Has memory that is not in its attributes."""

    def __new__(cls, *args: Any) -> Any:
        return super().__new__(cls, *args)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EqualPartials) and self.args == other.args


class Elsewhere:
    """Has attributes that are not in its `__dict__`."""

    __slots__ = ("_n",)
    __dict__ = property(lambda self: {})  # type: ignore[assignment]

    def __init__(self, n: Any) -> None:
        self._n = n

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Elsewhere) and bool(self._n == other._n)


class RaisingHash:
    def __init__(self, n: int) -> None:
        self.n = n

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RaisingHash) and self.n == other.n

    def __hash__(self) -> int:
        raise TypeError("not hashable today")


def test_a_field_whose_hash_raises_is_compared_by_identity() -> None:
    traces = Traces()

    @filterjit.filter_jit
    def f(x: Any) -> Any:
        traces.tick()
        return x.x + 1

    value = RaisingHash(1)
    for _ in range(3):
        f(Holder(ONE, value))
    assert traces.count == 1
    f(Holder(ONE, RaisingHash(1)))
    assert traces.count == 2
    with pytest.raises(TypeError, match="not hashable today"):
        f(value)


@pytest.mark.parametrize("make", [lambda n: EqualPartials(abs, n), Elsewhere])
def test_a_field_with_other_memory_is_compared_by_identity(make: Callable[[Any], Any]) -> None:
    f = filterjit.filter_jit(lambda x: x.x + 1)
    trees = [Holder(ONE, make(n)) for n in (1, True, 1.0)]
    for tree in trees * 2:
        f(tree)
    assert f.cache_info().misses == 3


@pytest.mark.filterwarnings("ignore:A JAX array is being set as static")
def test_arrays_that_cannot_be_read_equal_themselves() -> None:
    deleted = jnp.ones(3)
    deleted.delete()
    tree = Holder(ONE, Module(deleted))
    f = filterjit.filter_jit(lambda x: x.x + 1)
    f(tree), f(tree)
    assert f.cache_info().misses == 1
    other = jnp.ones(3)
    other.delete()
    f(Holder(ONE, Module(other)))
    assert f.cache_info().misses == 2


def test_copies_are_equal() -> None:
    """Copies and pickles of hashable statics share the program of the original."""
    traces = Traces()

    @filterjit.filter_jit
    def f(x: Any) -> Any:
        traces.tick()
        return jnp.asarray(0)

    for value in (Constant(1), Money("1.0"), NOON, np.dtype("f4")):
        f(value)
        count = traces.count
        f(copy.deepcopy(value)), f(pickle.loads(pickle.dumps(value)))
        assert traces.count == count


# ---- classes that change ----


@pytest.mark.parametrize("cls", [Constant, Slotted])
def test_a_class_that_changes(cls: Any) -> None:
    class Own(cls):
        pass

    Own = dataclasses.dataclass(frozen=True, init=False)(Own)  # its own ``__eq__``
    f = filterjit.filter_jit(lambda model: (model.s.value, model.x))
    values = Own(1), Own(1)
    for _ in range(4):
        assert [f(Holder(ONE, value))[0] for value in values] == [1, 1]
    Own.value = property(lambda self: 5)
    assert [f(Holder(ONE, value))[0] for value in values] == [5, 5]


def test_another_class_of_the_same_name() -> None:
    def make() -> Any:
        @dataclasses.dataclass(frozen=True)
        class Own:
            a: int

        return Own(1)

    f = filterjit.filter_jit(lambda model: (id(type(model.s)), model.x))
    for value in (make(), make()):
        for _ in range(4):
            assert f(Holder(ONE, value))[0] == id(type(value))


def test_an_instance_that_gets_another_class() -> None:
    @dataclasses.dataclass(frozen=True)
    class A:
        a: Any

    @dataclasses.dataclass(frozen=True)
    class B:
        a: Any

    f = filterjit.filter_jit(lambda model: (type(model.s).__name__, model.x))
    value = A(1)
    model = Holder(ONE, value)
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

    f = filterjit.filter_jit(lambda model: (model.s.value(), model.x))
    x, y = Own(1), Own(2)
    for _ in range(4):
        assert f(Holder(ONE, Constant(x.method)))[0] == 1
        assert f(Holder(ONE, Constant(y.method)))[0] == 2
    assert len(f.variants) == 2


@pytest.mark.parametrize("calls", [1, 4, 200])
def test_types_registered_as_static(calls: int) -> None:
    """They are nodes without children; the result has the very object."""
    f = filterjit.filter_jit(lambda tree: (tree, seen(tree["s"])))
    value = Static((1, Constant(2)))
    tree = {"s": value, "x": jnp.ones(2)}
    for _ in range(calls):
        out, found = f(tree)
        assert out["s"] is value and found == seen(value)
    assert f({**tree, "s": Static((1, Constant(2)))})[1] == seen(value)
    assert len(f.variants) == 1
    assert f({**tree, "s": Static((True, Constant(2)))})[1] != seen(value)
    object.__setattr__(value.value[1], "value", 3)
    assert f(tree)[1] == seen(value)
    assert len(f.variants) == 3
    leaves, structure = jtu.tree_flatten(tree)
    assert len(leaves) == 1 and jtu.tree_unflatten(structure, leaves)["s"] is value


def test_a_static_that_was_dropped_is_freed() -> None:
    class Thing:
        pass

    thing = Thing()
    f = filterjit.filter_jit(lambda model: model.x)
    value = Constant([thing, Slotted([thing])])
    for _ in range(5):
        f(Holder(ONE, value))
    ref = weakref.ref(thing)
    del thing, value, f
    gc.collect()
    assert ref() is None


# ---- dataclasses with a hash of their own ----


@dataclasses.dataclass(frozen=True)
class HashWithoutSome:
    name: str
    extras: Any = dataclasses.field(default_factory=dict, hash=False)


@dataclasses.dataclass(frozen=True)
class OwnHash:
    name: str
    extras: Any = dataclasses.field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.name)


@dataclasses.dataclass
class HashById:
    name: str
    extras: Any = dataclasses.field(default_factory=dict)

    def __hash__(self) -> int:
        return id(self)


@pytest.mark.parametrize("cls", [HashWithoutSome, OwnHash])
def test_dataclasses_with_a_hash_of_some_fields(jit: Jit, cls: Any) -> None:
    """A class with its own hash can be static, whatever its fields are; all fields are compared."""
    traces = Traces()

    @jit
    def f(c: Any, x: Any) -> Any:
        traces.tick()
        return c.name, sorted(c.extras), x

    for _ in range(2):
        assert f(cls("a"), ONE) == ("a", [], 1)
        assert f(cls("a", {"k": [1]}), ONE) == ("a", ["k"], 1)
        assert f([cls("b", {"k": [1]})][0], ONE) == ("b", ["k"], 1)
    assert traces.count == 3


def test_dataclasses_hashed_by_identity(jit: Jit) -> None:
    traces = Traces()

    @jit
    def f(c: Any, x: Any) -> Any:
        traces.tick()
        return c.name, x

    one, two = HashById("one"), HashById("two", {"k": 1})
    for _ in range(2):
        assert (f(one, ONE), f(two, ONE)) == (("one", 1), ("two", 1))
    assert traces.count == 2


# ---- trees beside their statics, dtypes, functions ----


def test_shape_dtype_structs_are_static(jit: Jit) -> None:
    f = jit(lambda s: (jnp.zeros(s.shape, s.dtype), s))
    for shape in ((2,), (3,), (2,)):
        struct = jax.ShapeDtypeStruct(shape, jnp.int32)
        array, back = f(struct)
        assert (array.shape, str(array.dtype), back) == (shape, "int32", struct)


def test_treedefs_are_static(jit: Jit) -> None:
    """A tree of arrays and its static part, as two arguments."""
    traces = Traces()

    @jit
    def f(leaves: Any, treedef: Any) -> Any:
        traces.tick()
        return jtu.tree_map(lambda x: x * 2, jtu.tree_unflatten(treedef, leaves))

    for tree in ({"b": ONE, "a": [ONE]}, [ONE, ONE], Module(ONE), Custom(ONE, ARRAY), Point(ONE)):
        leaves, treedef = jtu.tree_flatten(eqx.filter(tree, eqx.is_array))
        for _ in range(2):
            result = f(leaves, treedef)
            assert jtu.tree_structure(result) == treedef
    assert traces.count == 5


def test_dtypes_are_not_scalar_types(jit: Jit, ours: bool) -> None:
    """``np.dtype("float32") == jnp.float32``."""
    f = jit(lambda d: d)
    dtype = jnp.dtype("float32")
    assert f(dtype) is dtype
    # By decision the types of static values are compared too. Equinox returns the dtype with older
    # versions of JAX; JAX 0.12 compares hashes too, which differ.
    found = f(jnp.float32)
    assert found is jnp.float32 or (found is dtype and not ours)


@pytest.mark.parametrize("value", [{"k": [1]}, [1], {1, 2}], ids=["dict", "list", "set"])
def test_treedefs_with_unhashable_parts(jit: Jit, value: Any) -> None:
    """Treedefs have a hash, whatever they hold."""
    traces = Traces()

    @jit
    def f(leaves: Any, treedef: Any) -> Any:
        traces.tick()
        return jtu.tree_unflatten(treedef, leaves).name

    for _ in range(3):
        leaves, treedef = jtu.tree_flatten(Module(ONE, copy.deepcopy(value)))
        assert f(leaves, treedef) == value
    assert traces.count == 1


def test_a_model_in_two_parts(jit: Jit) -> None:
    """``eqx.partition`` outside, ``eqx.combine`` inside."""
    traces = Traces()

    @jit
    def f(params: Any, static: Any, x: Any) -> Any:
        traces.tick()
        return eqx.combine(params, static)(x)

    x = jnp.ones(2)
    for _ in range(3):
        params, static = eqx.partition(MLP, eqx.is_inexact_array)
        assert comparable(f(params, static, x)) == comparable(f(MLP, static, x))
    assert traces.count == 2


def test_functions_as_statics(jit: Jit) -> None:
    traces = Traces()

    @jit
    def f(g: Any, x: Any) -> Any:
        traces.tick()
        return g(x)

    assert f(jnp.sin, ONE) == jnp.sin(ONE)
    assert f(jnp.sin, ONE) == jnp.sin(ONE)
    assert f(lambda x: x + 1, ONE) == 2
    assert f(lambda x: x + 2, ONE) == 3
    holder = PlainHolder()
    for _ in range(2):
        assert f(holder.method, ONE) == 6  # a new bound method each time, equal to the former
    assert f(PlainHolder().method, ONE) == 6
    assert f(MLP, jnp.ones(2)).shape == (2,)
    assert f(MLP.__call__, jnp.ones(2)).shape == (2,)
    assert f(jit(jnp.cos), ONE) == jnp.cos(ONE)
    assert f(jit(jnp.cos), ONE) == jnp.cos(ONE)
    assert traces.count == 8


class PlainHolder:
    def method(self, x: Any) -> Any:
        return x + 5


def test_exact_types_of_dict_keys_and_containers(jit: Jit) -> None:
    traces = Traces()

    @jit
    def f(x: Any) -> Any:
        traces.tick()
        return type(x).__name__, len(x)

    cases = [
        (ONE, 2), [ONE, 2], {"a": ONE, "b": 2}, collections.OrderedDict(a=ONE, b=2),
        collections.defaultdict(None, a=ONE, b=2), Point(ONE, 2), (ONE, 2, 3), [ONE],
        {"a": ONE}, {"a": ONE, "c": 2}, (ONE, (2,)), (ONE, [2]),
    ]  # fmt: skip
    for _ in range(2):
        for case in cases:
            assert f(case) == (type(case).__name__, len(case))
    assert traces.count == len(cases)


def test_arrays_and_statics_at_the_same_place(jit: Jit) -> None:
    traces = Traces()

    @jit
    def f(x: Any) -> Any:
        traces.tick()
        return isinstance(x[0], jax.core.Tracer)

    for _ in range(2):
        for value, traced in ((1.0, False), (ONE, True), (None, False), ("a", False),
                              (np.float32(1), True), (jnp.sin, False)):  # fmt: skip
            assert f([value]) is traced
    assert traces.count == 6  # ONE and np.float32(1) differ in weak type


@pytest.mark.parametrize("own_eq", [False, True])
def test_a_static_that_becomes_an_array(jit: Jit, own_eq: bool) -> None:
    """A class with a ``__class__`` of its own may say later that an instance is an array."""

    class Later:
        ready = False
        __class__ = property(lambda self: jax.Array if self.ready else object)  # type: ignore[assignment]

        if own_eq:

            def __eq__(self, other: object) -> bool:
                return type(other) is Later

            def __hash__(self) -> int:
                return 1

    @jit
    def f(x: Any, y: Any) -> Any:
        return eqx.is_array(x[0])

    first = Later()
    for _ in range(2):
        assert f((first, 1), ONE) is False
    first.ready = True
    for _ in range(2):
        with pytest.raises((TypeError, ValueError)):  # JAX takes it for an array, and refuses it
            f((first, 1), ONE)
    # The function sees this one, and not the first, which equals it.
    assert f((Later(), 1), jnp.ones(2)) is False
    first.ready = False
    assert f((first, 1), jnp.ones(2)) is False
