"""Equinox Modules of every form: the results are Equinox's, and C reads their fields."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import pytest

from support.comparison import Jit, Traces, check_calls, check_error, on_both
from support.features import kind
from support.modules import (
    Abstract,
    ByProperty,
    CheckedTwice,
    Child,
    Converted,
    GenericModule,
    Module,
    Properties,
    WithInit,
)
from support.trees import KEY, MODULES, NOT_NATIVE, ONE, TWO, scale, unset


@pytest.mark.parametrize("name", MODULES)
def test_kind(name: str) -> None:
    x = MODULES[name]()
    assert isinstance(x, eqx.Module) is (name != "state")
    assert kind(x) == ("custom" if name in NOT_NATIVE else "module")


@pytest.mark.parametrize(
    "name", ["simple", "wrapper", "custom", "only arrays set", "Linear", "shared"]
)
@on_both
def test_under_other_transformations(jit: Jit, name: str) -> Any:
    """Modules with tracers of all kinds in their fields."""

    make = MODULES[name]

    @jit
    def total(x: Any, y: Any) -> Any:
        leaves = [v for v in jtu.tree_leaves(x) if eqx.is_inexact_array(v)]
        return sum((jnp.sum(v**2) for v in leaves), y)

    x = make()
    return (
        eqx.filter_grad(total)(x, ONE),
        eqx.filter_vmap(total, in_axes=(None, 0))(x, jnp.arange(3.0)),
        eqx.filter_eval_shape(total, x, ONE),
        jit(eqx.filter_value_and_grad(total))(x, ONE),
    )


@pytest.mark.parametrize("name", ["generic with __orig_class__", "cached property", "extra"])
@on_both
def test_as_a_carry(jit: Jit, traces: Traces, name: str) -> Any:
    """A returned tree has the structure of the argument, as JAX's loops and ``tree_map`` require."""

    def make() -> Any:
        if name in MODULES:
            return MODULES[name]()
        x = Properties(ONE, TWO)
        if name == "extra":
            object.__setattr__(x, "extra", 1)
        else:
            assert x.area == 2
        return x

    f = jit(traces.counting(lambda x: jtu.tree_map(lambda v: v + 1, x)))
    x = make()
    without = f(GenericModule(ONE) if name in MODULES else Properties(ONE, TWO))
    out = f(x)
    looped, _ = jax.lax.scan(lambda c, _: (f(c), None), x, None, length=3)
    return without, jtu.tree_map(jnp.add, x, out), looped, f(x), f(out)


# ---- static fields ----


def test_field_that_changes_from_static_to_array() -> None:
    others = (TWO, 4, None, [TWO], [], Module(1), Module(TWO), scale, 3)

    def make() -> Any:
        x = Child(ONE)
        tree_at = lambda b: eqx.tree_at(lambda t: t.b, x, b, is_leaf=lambda v: v is None)
        return x, *map(tree_at, others)

    assert check_calls(lambda x: x, make) == len(others), "the last is as the first"


# ---- construction inside, checks, errors ----


@on_both
def test_made_inside(jit: Jit) -> Any:
    @jit
    def f(x: Any) -> Any:
        return [
            Child(x, "inside", x + 1, (1,)),
            WithInit(x, x, x),
            Converted(2.0),
            CheckedTwice(x),
            GenericModule[int](3),
            ByProperty(x).twice(x),
            eqx.nn.Linear(2, 2, key=KEY),
            unset(Child, b=x),
        ]

    return f(ONE), f(TWO)


@on_both
def test_check_init_is_run_inside_and_nowhere_else(jit: Jit) -> Any:
    runs: list[Any] = []

    class Counting(eqx.Module):
        a: Any

        def __check_init__(self) -> None:
            runs.append(type(self.a).__name__)

    @jit
    def f(x: Any) -> Any:
        return x, Counting(x.a + 1)

    x = Counting(ONE)
    f(x)
    f(f(x)[1])
    found = [r if r == "ArrayImpl" else "tracer" for r in runs]
    assert found == ["ArrayImpl", "tracer"]
    return found


def change(x: Any) -> Any:
    x.a = 3


ERRORS: list[tuple[Callable[[Any], Any], Any, type[Exception], str | None]] = [
    (lambda x: CheckedTwice("text"), ONE, ValueError, "no strings"),
    (lambda x: CheckedTwice(x, b=None), ONE, ValueError, "no None"),
    (lambda x: Abstract(), ONE, TypeError, "abstract"),
    (change, Module(ONE), dataclasses.FrozenInstanceError, None),
    (lambda x: x.a, unset(Child, b=ONE), AttributeError, "'a'"),
]


@pytest.mark.parametrize(("fun", "argument", "kind", "match"), ERRORS)
def test_errors_inside(fun: Any, argument: Any, kind: type[Exception], match: str | None) -> None:
    check_error(lambda jit: jit(fun)(argument), kind, match)


@on_both
def test_missing_fields_are_missing_in_the_result(jit: Jit) -> Any:
    f = jit(lambda x: x)
    found = []
    for fields in ({}, {"a": ONE}, {"b": TWO}, {"name": "n"}, {"a": ONE, "flags": (2,)}):
        out = f(unset(Child, **fields))
        found.append([hasattr(out, name) for name in ("a", "name", "b", "flags")])
    return found
