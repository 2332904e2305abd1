"""Arguments and results of jitted functions: trees of every kind, and Modules of every form."""

import copy
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest

from support.comparison import Jit, Traces, comparable, on_both
from support.features import attributes, kind
from support.modules import Module, OwnEquality
from support.statics import Unhashable
from support.trees import ARRAY, MODULES, ONE, TREES, identity

EVERY = TREES | {f"Modules: {name}": make for name, make in MODULES.items()}


@pytest.mark.parametrize("name", EVERY)
@on_both
def test_any_tree_can_be_passed(jit: Jit, traces: Traces, name: str) -> Any:
    """Passes a tree by position, by keyword, recreated, copied, as it was returned, and with other
    arrays. Compares what the function sees and returns, and how often it is traced."""
    make = EVERY[name]
    duplicate = (lambda x: x) if name in ("module", "device") else copy.copy

    def show(leaf: Any) -> Any:
        if isinstance(leaf, jax.Array):
            return "array", leaf.shape, str(leaf.dtype), leaf.weak_type
        return comparable(leaf)

    seen: list[Any] = []

    @jit
    def f(x: Any, *rest: Any, k: Any = None) -> Any:
        traces.tick()
        seen.append([show(leaf) for leaf in jtu.tree_leaves((x, rest, k))])
        seen.append((str(jtu.tree_structure(x)), attributes(x)))
        seen.append([jtu.tree_structure(t) == jtu.tree_structure(x) for t in (*rest, k)])
        changed = jtu.tree_map(lambda v: v * 2 if eqx.is_inexact_array(v) else v, x)
        assert jtu.tree_structure(changed) == jtu.tree_structure(x)
        return x, rest, k, type(x).__name__, changed

    value = make()
    if isinstance(value, eqx.Module):  # C reads them
        assert kind(value) == "module"
    results = [f(value), f(value), f(x=value), f(make()), f(duplicate(make()))]
    counts = [traces.count]
    for returned in (results[0][0], results[0][-1]):
        results.append(f(returned))
        counts.append(traces.count)
    results.append(f([value], {"k": value}, k=value))
    counts.append(traces.count)
    structure = jtu.tree_structure(value)
    same = [jtu.tree_structure(t) == structure for r in results[:7] for t in (r[0], r[-1])]
    return results, counts, seen, same, type(results[0][0]) is type(value)


ODD_NUMPY: dict[str, Callable[[], Any]] = {
    "masked": lambda: np.ma.masked_array(np.ones(3, np.float32), [0, 1, 0]),
    "matrix": lambda: np.ones((2, 2), np.float32).view(np.matrix),
    "subclass": lambda: np.ones(3, np.float32).view(type("Mine", (np.ndarray,), {})),
    "longdouble": lambda: np.longdouble(1),
    "longdouble array": lambda: np.ones(3, np.longdouble),
    "uint64": lambda: np.uint64(2**40),
    "float0": lambda: np.zeros(3, jax.dtypes.float0),
}


@pytest.mark.parametrize("name", ODD_NUMPY)
@on_both
def test_odd_numpy(jit: Jit, name: str) -> Any:
    try:
        return jit(lambda x: (x, x.shape, str(x.dtype)))(ODD_NUMPY[name]())
    except (TypeError, ValueError, OverflowError) as e:
        return type(e).__name__, str(e).split("<")[0][:50]


def test_another_structure_for_another_shape(jit: Jit, traces: Traces) -> None:
    """One variant with several traces, each with its own tree."""
    results: list[Callable[[Any], Any]] = [
        *(lambda x: None, lambda x: x, lambda x: {"n": 2, "two": x}),
        *(lambda x: Module(x, "three", [3]), lambda x: [x] * 4),  # type: ignore[arg-type]
    ]
    f = jit(traces.counting(lambda x: results[x.shape[0]](x)))
    for _ in range(3):
        for x in (jnp.ones(n, dtype) for n in range(5) for dtype in (float, int)):
            assert comparable(f(x)) == comparable(results[len(x)](x))
    assert traces.count == 10


@on_both
def test_shared_containers_are_separated(jit: Jit) -> Any:
    """A pytree is a tree: a list that occurs twice becomes two lists."""

    @jit
    def f(x: Any) -> Any:
        shared, model = [x], Module(x)
        return shared, shared, (model, model)

    a, b, (m, n) = f(ARRAY)
    assert a is not b and m is not n
    return f(ARRAY)


@on_both
def test_static_results_are_the_very_objects(jit: Jit) -> Any:
    """They need no hash."""
    value = Unhashable()
    f = jit(lambda x: (x, value, identity, {1, 2}, bytearray(b"a")))
    first, second = f(ONE), f(ONE)
    assert first[1] is second[1] is value and first[2] is second[2] is identity
    return first, second


@on_both
def test_check_init_is_run_inside_and_nowhere_else(jit: Jit, traces: Traces) -> Any:
    class Counting(eqx.Module):
        a: Any

        def __check_init__(self) -> None:
            traces.tick()

    f = jit(lambda x: (x, Counting(x.a + 1)))
    f(f(Counting(ONE))[1])
    assert traces.count == 2


@on_both
def test_equality_of_modules(jit: Jit, traces: Traces) -> Any:
    """It is called for those in static fields only."""
    f = jit(traces.counting(lambda x: (x.name, x.a)))
    results = [f(OwnEquality(ONE, name)) for name in "xyx"]
    assert traces.count == 2
    for name in "xyx":
        f(Module(ONE, OwnEquality(1, name)))  # type: ignore[arg-type]
    assert traces.count == 3
    return results
