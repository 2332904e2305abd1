"""Static arguments: shapes, dtypes, treedefs, functions, and which of them share a program."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np

from support.comparison import Jit, Traces, comparable
from support.modules import Module
from support.nodes import Custom, Point
from support.trees import ARRAY, MLP, ONE


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
