"""Static values are compared exactly: values that are equal but not the same are two variants.

Static values are all leaves and fields that are not arrays. Equinox compares them by ``==``.
"""

import collections
import dataclasses
import enum
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu
import pytest

import filterjit
from support.comparison import Jit, Traces, comparable
from support.flax_nodes import FlaxStruct
from support.modules import Holder
from support.nodes import Custom, FrozenRegistered, Point, Registered, Static
from support.statics import Constant, Double, Integer, Level, Pair, PartlyCompared, Slotted, Text
from support.trees import ONE

NUMBERS = [1, True, 1.0, 0.0, -0.0]


# Each puts a static value in some place of an argument.
PLACES: dict[str, Callable[[Any], Any]] = {
    "itself": lambda v: v,
    "tuple": lambda v: (v, "a"),
    "nested tuple": lambda v: ((("x", (v,)),), ()),
    "list": lambda v: [ONE, v],
    "dict": lambda v: {"k": v},
    "named tuple": lambda v: Point(ONE, v),
    "Module": lambda v: Holder(v),
    "static field": lambda v: Holder(None, v),
    "tuple in a static field": lambda v: Holder(None, (1, (v, "a"))),
    "list in a static field": lambda v: Holder(None, [1, [v]]),
    "dict in a static field": lambda v: Holder(None, {"k": {"l": v}}),
    "frozen dataclass": lambda v: Constant(v),
    "frozen dataclass with slots": lambda v: Slotted(1, v),
    "frozen dataclass in a frozen dataclass": lambda v: Constant(Constant(v)),
    "tuple in a frozen dataclass": lambda v: Constant((v, "a")),
    "frozen dataclass in a static field": lambda v: Holder(None, Constant(v)),
    "dict key": lambda v: {v: ONE},
    "key of an OrderedDict": lambda v: collections.OrderedDict([(v, ONE)]),
    "tuple as a dict key": lambda v: {(v, "a"): ONE},
    "meta field": lambda v: Registered(ONE, meta=v),
    "tuple in a meta field": lambda v: Registered(ONE, meta=(v,)),
    "flax.struct": lambda v: FlaxStruct(ONE, meta=v),
    "aux data": lambda v: Custom(ONE, label=v),
    "registered static": lambda v: Static(v),
    "registered static in a static field": lambda v: Holder(None, Static(v)),
    "registered dataclass in a static field": lambda v: Holder(None, FrozenRegistered(1, v, "k")),
    "treedef": lambda v: jtu.tree_structure({v: 1}),
    "range in a frozenset": lambda v: frozenset([(v, "a")]),
    "frozenset": lambda v: frozenset([v]),
}


def numbers_in(tree: Any) -> list[str]:
    """Returns all numbers in an argument, with their types and signs."""
    if isinstance(tree, (bool, int, float)) and not isinstance(tree, enum.Enum):
        return [f"{type(tree).__name__} {tree!r}"]
    parts: Any = ()
    if isinstance(tree, (tuple, list, frozenset)):
        parts = tree
    elif isinstance(tree, dict):
        parts = tree.items()
    elif isinstance(tree, jtu.PyTreeDef):
        parts = [tree.node_data()[1]]
    elif isinstance(tree, Custom):
        parts = [tree.label]
    elif dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        parts = [getattr(tree, f.name) for f in dataclasses.fields(tree)]
    return [number for part in parts for number in numbers_in(part)]


@pytest.mark.parametrize("place", PLACES)
def test_five_variants(place: str) -> None:
    """By decision 1, True, 1.0, 0.0 and -0.0 are five variants; Equinox shares equal values."""
    traces = Traces()

    @filterjit.filter_jit
    def f(x: Any, y: Any) -> Any:
        traces.tick()
        return numbers_in(x), y

    put = PLACES[place]
    for _ in range(2):
        for order in (NUMBERS, reversed(NUMBERS)):
            for v in order:
                assert f(put(v), ONE)[0] == numbers_in(put(v))
    assert traces.count == 5


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


EQUALS: dict[str, list[Any]] = {
    "subclasses of int": [1, Integer(1), Level.LOW, True],
    "subclasses of float": [1.5, Double(1.5)],
    "subclasses of str": ["a", Text("a")],
    "subclasses of tuple": [Constant((1,)), Constant(Pair((1,))), Constant(Point(1))],
    "complex": [1 + 0j, complex(1, -0.0), 1, 1.0],
    "signs in complex": [complex(0.0, 0.0), complex(-0.0, 0.0), complex(0.0, -0.0)],
    "sets": [frozenset([1]), frozenset([True]), frozenset([1.0])],
    "strings and bytes": ["a", b"a"],
    "empty": [
        Constant(()),
        Constant(frozenset()),
        Constant(""),
        Constant(b""),
        Constant(None),
        Constant(0),
    ],
    "dtypes": [jnp.dtype("float32"), jnp.float32, "float32", float],
    "dataclasses": [Constant(1), Slotted(1), PartlyCompared(1)],
}


@pytest.mark.parametrize("name", EQUALS)
def test_equal_values_of_other_types(name: str) -> None:
    traces = Traces()

    @filterjit.filter_jit
    def f(v: Any, x: Any) -> Any:
        traces.tick()
        return type(v), repr(v), x

    for _ in range(2):
        for v in EQUALS[name]:
            kind, text, _ = f(v, ONE)
            assert (kind, text) == (type(v), repr(v))
    assert traces.count == len(EQUALS[name])


def test_nan_equals_itself(jit: Jit, ours: bool) -> None:
    """By decision NaNs are compared by bits. With Equinox each NaN object is traced."""
    traces = Traces()

    @jit
    def f(v: Any, x: Any) -> Any:
        traces.tick()
        return v, x

    for _ in range(3):
        assert math.isnan(f(float("nan"), ONE)[0])
    assert traces.count == (1 if ours else 3)


def test_fields_left_out_of_comparison_do_not_count(jit: Jit) -> None:
    """``field(compare=False)``: the class decides what is compared."""
    traces = Traces()

    @jit
    def f(v: Any, x: Any) -> Any:
        traces.tick()
        return v.value, x

    for i in range(3):
        assert f(PartlyCompared(1, i), ONE) == (1, 1)
    assert traces.count == 1


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


def test_many_variants_at_random(jit: Jit) -> None:
    traces = Traces()

    @jit
    def f(n: Any, x: Any, *, k: Any) -> Any:
        traces.tick()
        return n, k, x

    keys = [(i * 7919) % 101 for i in range(25)]
    for _ in range(3):
        for n in keys:
            assert f(n, ONE, k=str(n)) == (n, str(n), 1)
    assert traces.count == len(set(keys))


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
