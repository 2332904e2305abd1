"""Equinox Modules of every form, and their attributes: the results are Equinox's, and C reads their
fields."""

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import pytest

from support.comparison import Jit, Traces, check_calls, check_error, comparable, on_both
from support.features import kind
from support.modules import (
    Abstract,
    CheckedTwice,
    Child,
    Concrete,
    Converted,
    GenericModule,
    Intercepting,
    Module,
    OwnEquality,
    Properties,
    Shadowed,
    Weekday,
    WithInit,
    Wrapper,
)
from support.trees import KEY, MODULES, ONE, TWO, scale, unset


@pytest.mark.parametrize("name", MODULES)
def test_kind(name: str) -> None:
    """C reads all but ``eqx.nn.State``, which is no Module."""
    x = MODULES[name]()
    assert isinstance(x, eqx.Module) is (name != "state")
    assert kind(x) == ("custom" if name == "state" else "module")


@pytest.mark.parametrize("name", ["wrapper", "only arrays set", "Linear", "shared"])
@on_both
def test_under_other_transformations(jit: Jit, name: str) -> Any:
    """Modules with tracers of all kinds in their fields."""

    @jit
    def total(x: Any, y: Any) -> Any:
        leaves = [v for v in jtu.tree_leaves(x) if eqx.is_inexact_array(v)]
        return sum((jnp.sum(v**2) for v in leaves), y)

    x = MODULES[name]()
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
            Concrete(x).twice(x),
            eqx.nn.Linear(2, 2, key=KEY),
            unset(Child, b=x),
        ]

    return f(ONE), f(TWO)


@on_both
def test_check_init_is_run_inside_and_nowhere_else(jit: Jit, traces: Traces) -> Any:
    class Counting(eqx.Module):
        a: Any

        def __check_init__(self) -> None:
            traces.tick()

    f = jit(lambda x: (x, Counting(x.a + 1)))
    f(f(Counting(ONE))[1])
    assert traces.count == 2


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


# ---- attributes ----


def test_a_wrapper_with_and_without_attributes_are_two_variants() -> None:
    def make() -> Any:
        plain = Wrapper(scale, ONE)
        return plain, eqx.module_update_wrapper(plain), plain

    assert check_calls(lambda x: (getattr(x, "__name__", None), x.a), make) == 2


@on_both
def test_orig_class_is_no_field(jit: Jit, traces: Traces) -> Any:
    """``M[int]()`` has one attribute more than fields, and does not share the trace in either."""
    f = jit(traces.counting(lambda x: x))
    one, two = f(GenericModule[int](ONE)), f(GenericModule[str](ONE))
    return hasattr(one, "__orig_class__"), hasattr(two, "__orig_class__")


@on_both
def test_class_attributes_with_the_names_of_fields(jit: Jit) -> Any:
    f = jit(lambda x: (x, x.a, str(x.b), x.call(x.a)))
    results = [f(Shadowed()), f(Shadowed(ONE, "b", jnp.cos))]
    out = jit(lambda x: (x, x.a))(unset(Shadowed, b="set"))  # the class's own attributes are used
    return results, out


@on_both
def test_property_over_a_field(jit: Jit, traces: Traces) -> Any:
    """A property that the class is given later takes precedence over the field of that name."""

    class Late(eqx.Module):
        a: Any
        b: Any = 1

    f = jit(traces.counting(lambda x: (x.b, list(jtu.tree_leaves(x)))))
    x = Late(ONE)
    before = f(x)
    other = Late(TWO)
    Late.b = property(lambda self: self.a * 2, lambda self, value: None)
    return before, f(x), f(other)


@on_both
def test_the_sentinel_for_missing_fields_as_an_argument(jit: Jit) -> Any:
    """Equinox's mark of a missing field is a node without children."""
    sentinel = next(iter(jtu.tree_structure(unset(Module)).node_data()[1][0]))
    f = jit(lambda x, y=2: (x, y))
    return f(sentinel), f(x=sentinel), f([sentinel]), f(1, sentinel), f(1)


@on_both
def test_reading_through_getattribute(jit: Jit) -> Any:
    """The values in the ``__dict__`` are traced."""
    f = jit(lambda x: (x, x.a))
    out, a = f(Intercepting(TWO))
    assert comparable(a) == comparable(jnp.array(200.0))
    return out.__dict__["a"], a, f(out)[1]


def test_equality_of_modules() -> None:
    """It is called for those in static fields only."""
    values = [OwnEquality(ONE, name) for name in "xyx"]
    assert check_calls(lambda x: (x.name, x.a), lambda: values) == 2
    make = lambda: [Module(ONE, OwnEquality(1, name)) for name in "xyx"]  # type: ignore[arg-type]
    assert check_calls(lambda x: x.a, make) == 1


@on_both
def test_enumeration(jit: Jit, traces: Traces) -> Any:
    @jit
    def f(day: Any, x: Any) -> Any:
        traces.tick()
        is_monday = day == Weekday.monday
        return Weekday.where(is_monday, Weekday.tuesday, day), is_monday, x

    results = [f(day, ONE) for day in (Weekday.monday, Weekday.tuesday, Weekday.monday)]
    texts = [Weekday[out[0]] for out in results]
    return results, texts, traces.count, [bool(out[0] == Weekday.tuesday) for out in results]


# ---- layouts ----


def test_the_layout_of_attributes_does_not_count() -> None:
    """Instances of one class with dicts of their own, with shared keys, and in any order. For Equinox
    an instance with more attributes than fields differs; it is traced once."""

    def alike() -> list[Any]:
        plain, own, reverse = (Child(ONE) for _ in range(3))
        own.__dict__.update(dict(vars(own)))
        fields = dict(reversed(vars(reverse).items()))
        reverse.__dict__.clear()
        reverse.__dict__.update(fields)
        return [plain, own, reverse, plain]

    def with_more() -> list[Any]:
        many, one = Child(ONE), Child(ONE)
        for i in range(40):
            object.__setattr__(many, f"extra_{i}", i)
        object.__setattr__(one, "extra", 1)
        return [many, one, many]

    add = lambda x: x.a + x.b
    assert check_calls(add, lambda: [*alike(), *reversed(alike())]) == 1
    assert check_calls(add, lambda: [*alike(), *with_more(), *alike(), *with_more()]) == 2


@on_both
def test_many_fields(jit: Jit) -> Any:
    names = [f"field_{i}" for i in range(60)]
    annotations = dict.fromkeys(names, Any)
    static = {n: eqx.field(static=True) for n in names[::3]}
    wide = type(eqx.Module)("Wide", (eqx.Module,), {"__annotations__": annotations, **static})
    x = wide(*(jnp.array(float(i)) if i % 3 else i for i in range(60)))
    assert kind(x) == "module"
    f = jit(lambda x: (x, sum(getattr(x, n) for n in names)))
    return f(x), f(f(x)[0])


def test_mixed_with_an_exception() -> None:
    """Equinox cannot rebuild such a Module."""

    class Failure(eqx.Module, Exception):  # type: ignore[misc]
        a: Any

        def __init__(self, a: Any) -> None:
            self.a = a

    check_error(lambda jit: jit(lambda x: x.a)(Failure(ONE)), TypeError, "is not safe")


@on_both
def test_classes_made_in_a_loop(jit: Jit, traces: Traces) -> Any:
    """Classes with equal names are different classes, and dead classes free their entries."""
    f = jit(traces.counting(lambda x: x))
    results = []
    for i in range(6):

        class Local(eqx.Module):
            a: Any
            b: Any = eqx.field(static=bool(i % 2), default=i)

        results.append(f(Local(ONE)))
        assert type(results[-1]) is Local
    return results


@on_both
def test_a_record_of_modules(jit: Jit, traces: Traces) -> Any:
    """Named tuples, dataclasses and dicts that hold Modules of all kinds, and are held by them."""

    record = collections.namedtuple("record", ["one", "two"])

    @jit
    def f(x: Any) -> Any:
        traces.tick()
        return jtu.tree_map(lambda v: v * 2 if eqx.is_inexact_array(v) else v, x)

    x: Any = record(
        {name: make() for name, make in MODULES.items() if name != "state"}, [Child(ONE)]
    )
    for _ in range(3):
        x = f(x)
    return x
