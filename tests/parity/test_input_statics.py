"""Static arguments: dataclasses with a hash of their own, dtypes, treedefs, functions, and which of
them share a program."""

import collections
import copy
import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest

from support.comparison import Jit, Traces, comparable
from support.modules import Module
from support.nodes import Custom, Point
from support.trees import ARRAY, MLP, ONE

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
