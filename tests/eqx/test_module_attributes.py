"""Attributes of Modules: those of wrapped functions, of classes, and their layouts in memory."""

import collections
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu

import filterjit
from support.comparison import Jit, Traces, check_calls, check_error, comparable, on_both
from support.features import kind
from support.modules import (
    Child,
    Concrete,
    GenericModule,
    Intercepting,
    Module,
    OfMissing,
    OwnEquality,
    Shadowed,
    Weekday,
    Wrapper,
)
from support.trees import MODULES, ONE, TWO, scale, unset


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

    f = jit(traces.counting(lambda x: (x.a, list(jtu.tree_leaves(x)))))
    x = Late(ONE)
    before = f(x)
    Late.shadow = property(lambda self: self.a * 2)  # type: ignore[attr-defined]
    return before, f(x), f(Late(TWO))


@on_both
def test_attributes_set_past_the_freeze(jit: Jit, traces: Traces) -> Any:
    """An attribute that is not a field is not compared, and is not copied."""
    f = jit(traces.counting(lambda x: (x, hasattr(x, "extra"))))
    x = Module(ONE)
    object.__setattr__(x, "extra", TWO)
    first = f(x)
    object.__setattr__(x, "extra", 5)
    second = f(x)
    return first[1], second[1], hasattr(first[0], "extra")


@on_both
def test_the_sentinel_for_missing_fields_as_an_argument(jit: Jit) -> Any:
    """Equinox's mark of a missing field is a node without children."""

    sentinel = next(iter(jtu.tree_structure(unset(OfMissing)).node_data()[1][0]))

    f = jit(lambda x, y=2: (x, y))
    return f(sentinel), f(x=sentinel), f([sentinel]), f(1, sentinel), f(1)


@on_both
def test_reading_through_getattribute(jit: Jit) -> Any:
    """The values in the ``__dict__`` are traced."""
    f = jit(lambda x: (x, x.a))
    out, a = f(Intercepting(TWO))
    assert comparable(a) == comparable(jnp.array(200.0))
    return out.__dict__["a"], a, f(out)[1]


def test_equality_of_modules_is_not_called() -> None:
    make = lambda: [OwnEquality(ONE, name) for name in "xyx"]
    assert check_calls(lambda x: (x.name, x.a), make) == 2


def test_equality_of_modules_in_static_fields() -> None:
    """In static fields ``__eq__`` is called: equal Modules share the trace."""

    make = lambda: [Module(ONE, OwnEquality(1, name)) for name in "xyx"]  # type: ignore[arg-type]
    assert check_calls(lambda x: x.a, make) == 1


@on_both
def test_bound_methods_share_the_trace_of_equal_instances(jit: Jit, traces: Traces) -> Any:
    f = jit(traces.counting(lambda g, x: (g(x), type(g).__name__)))
    results = [f(Concrete(s).apply, ONE) for s in (ONE, TWO, 3, ONE)]
    results.append(f(Concrete(ONE).twice, ONE))
    return results


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
    assert filterjit.filter_jit(lambda x: x)(ONE) == 1


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
