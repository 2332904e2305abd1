"""Equinox Modules under every form: as Equinox has them, and read natively."""

import abc
import collections
import dataclasses
import functools
import typing
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
import pytest

import filterjit
from filterjit import _nodes
from parity.support import Jit, Traces, check, check_error, picture

T = typing.TypeVar("T")
ONE = jnp.array(1.0)
TWO = jnp.array(2.0)
KEY = jax.random.key(0)


def attributes(x: Any) -> list[str]:
    """The names that are set, less those that Equinox says are not."""
    found = getattr(x, "__dict__", {})
    return sorted(n for n, v in found.items() if type(v).__name__ != "_Missing")


def kind(x: Any) -> str:
    """What the C core takes `x` for."""
    return _nodes.registry.kind(x)


# ---- classes ----


class Base(eqx.Module):
    a: Any
    name: str = eqx.field(static=True, default="base")


class Child(Base):
    b: Any = 3
    flags: tuple[Any, ...] = eqx.field(static=True, default=())


class GrandChild(Child):
    """Adds nothing."""


class MakesStatic(Child):
    """A field of its base, now static."""

    b: Any = eqx.field(static=True, default=7)


class OneSide(Base):
    left: Any = 1.0


class OtherSide(Base):
    right: Any = 2.0


class Diamond(OneSide, OtherSide):
    a: Any = 5


class PlainMixin:
    """No Module, with an attribute and a method."""

    unit = "m"

    def describe(self) -> str:
        return f"{self.unit} {type(self).__name__}"


class Mixed(PlainMixin, Base):
    pass


class WithInit(eqx.Module):
    total: Any
    parts: list[Any]
    size: int = eqx.field(static=True)

    def __init__(self, *parts: Any) -> None:
        self.size = len(parts)
        self.parts = list(parts)
        self.total = sum(parts)


class InheritsInit(WithInit):
    more: Any = 4


class WithPostInit(eqx.Module):
    a: Any
    doubled: Any = eqx.field(init=False, static=True)

    def __post_init__(self) -> None:
        self.doubled = "twice"


class Converted(eqx.Module):
    a: Any = eqx.field(converter=jnp.asarray)
    b: tuple[Any, ...] = eqx.field(converter=tuple, static=True, default=())


class Checked(Base):
    def __check_init__(self) -> None:
        if isinstance(self.a, str):
            raise ValueError("no strings")


class CheckedTwice(Checked):
    b: Any = 1

    def __check_init__(self) -> None:
        if self.b is None:
            raise ValueError("no None")


class Abstract(eqx.Module):
    scale: eqx.AbstractVar[Any]
    label: eqx.AbstractClassVar[str]

    @abc.abstractmethod
    def apply(self, x: Any) -> Any:
        raise NotImplementedError

    def twice(self, x: Any) -> Any:
        return self.apply(self.apply(x))


class Concrete(Abstract):
    scale: Any
    label: ClassVar[str] = "concrete"

    def apply(self, x: Any) -> Any:
        return x * self.scale


class ByProperty(Abstract):
    """Its abstract variable is no field."""

    half: Any
    label: ClassVar[str] = "property"

    @property
    def scale(self) -> Any:
        return self.half * 2

    def apply(self, x: Any) -> Any:
        return x + self.scale


class Strict(eqx.Module, strict=True):
    a: Any


class ExtraSlots(eqx.Module):
    """A slot that is no field: nobody takes it along."""

    __slots__ = ("cache",)
    a: Any


class SlotField(eqx.Module):
    """A field that lies in a slot, where Equinox does not look: it gets lost on the way."""

    __slots__ = ("a",)
    a: Any
    b: Any


class Properties(eqx.Module):
    _width: Any
    height: Any = 2

    @property
    def width(self) -> Any:
        return self._width

    @functools.cached_property
    def area(self) -> Any:
        """It is kept in the ``__dict__``, past the freeze."""
        return self._width * self.height

    @property
    def size(self) -> Any:
        return self.width * self.height


class SameNames(eqx.Module):
    """Fields named like attributes of every class, of dicts, and of our own machinery."""

    items: Any
    values: Any
    keys: Any = 1
    self: Any = 2
    cls: Any = 3
    fun: Any = eqx.field(static=True, default="fun")
    __wrapped: Any = 4  # mangled


class Shadowed(eqx.Module):
    """A field whose default is an attribute of the class, another that is a method's name."""

    a: Any = 10
    b: Any = eqx.field(static=True, default=20)
    call: Callable[..., Any] = jnp.tanh


class DescriptorField(eqx.Module):
    """A field that is a property of a base: reading it does not read the ``__dict__``."""

    a: Any


class GenericModule(eqx.Module, typing.Generic[T]):
    a: T
    b: Any = eqx.field(static=True, default="b")


class OfInt(GenericModule[int]):
    c: Any = 1


class OwnEquality(eqx.Module):
    """Equality that lies: a node's is not asked."""

    a: Any
    name: str = eqx.field(static=True, default="x")

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1


class Unhashable(eqx.Module):
    a: Any
    __hash__ = None  # type: ignore[assignment]


class Virtual(eqx.Module):
    a: Any

    def __getattr__(self, name: str) -> Any:
        if name.startswith("virtual_"):
            return self.a
        raise AttributeError(name)


class Intercepting(eqx.Module):
    """Reads of its attributes are not what lies in its ``__dict__``."""

    a: Any

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return found * 100 if name == "a" else found


class Callback(eqx.Module):
    fn: Any
    arg: Any

    def __call__(self, *args: Any) -> Any:
        return self.fn(self.arg, *args)


class Wrapper(eqx.Module):
    fn: Any
    a: Any = 1

    def __call__(self, *args: Any) -> Any:
        return self.fn(*args)

    @property
    def __wrapped__(self) -> Any:
        return self.fn


class Weekday(eqx.Enumeration):
    monday = "the first day"
    tuesday = "the second day"


class HasClassVar(eqx.Module):
    a: Any
    shared: ClassVar[Any] = [1, 2]
    counter: ClassVar[int] = 0


class Empty(eqx.Module):
    pass


class OfMissing(eqx.Module):
    a: Any


class Nested(eqx.Module):
    inner: Any
    others: Any = None
    depth: int = eqx.field(static=True, default=0)


def nested(depth: int) -> Any:
    found: Any = Base(ONE)
    for i in range(depth):
        found = Nested(found, {"k": [Child(i), (TWO, Weekday.monday)]}, i)
    return found


def unset(cls: Any, **fields: Any) -> Any:
    """An instance of which only some fields are set."""
    found = object.__new__(cls)
    for name, value in fields.items():
        object.__setattr__(found, name, value)
    return found


def scale(x: Any, factor: Any = 2) -> Any:
    """Scales."""
    return x * factor


def share() -> Any:
    layer = eqx.nn.Linear(2, 2, key=KEY)
    shared = eqx.nn.Shared(
        (layer, eqx.nn.Linear(2, 2, key=jax.random.key(1))),
        where=lambda pair: pair[1].weight,
        get=lambda pair: pair[0].weight,
    )
    return shared


NATIVE: dict[str, Callable[[], Any]] = {
    "plain": lambda: Base(ONE),
    "inherited": lambda: Child(ONE, "n", TWO, (1, "x")),
    "inherited twice": lambda: GrandChild(ONE, flags=(None,)),
    "made static": lambda: MakesStatic(ONE, b="static"),
    "diamond": lambda: Diamond(),
    "mixin": lambda: Mixed(ONE),
    "own __init__": lambda: WithInit(ONE, TWO),
    "inherited __init__": lambda: InheritsInit(ONE, 2),
    "__post_init__": lambda: WithPostInit(ONE),
    "converted": lambda: Converted(1.5, [1, 2]),
    "checked": lambda: CheckedTwice(ONE),
    "abstract": lambda: Concrete(TWO),
    "abstract by property": lambda: ByProperty(ONE),
    "strict": lambda: Strict(ONE),
    "extra slots": lambda: ExtraSlots(ONE),
    "slot field": lambda: SlotField(ONE, TWO),
    "properties": lambda: Properties(ONE),
    "same names": lambda: SameNames(ONE, 2),
    "shadowed": lambda: Shadowed(),
    "shadowed by arrays": lambda: Shadowed(ONE, "static", jnp.sin),
    "generic": lambda: GenericModule(ONE),
    "generic with __orig_class__": lambda: GenericModule[jax.Array](ONE),
    "child of a generic": lambda: OfInt(1),
    "own equality": lambda: OwnEquality(ONE),
    "unhashable": lambda: Unhashable(ONE),
    "__getattr__": lambda: Virtual(ONE),
    "__getattribute__": lambda: Intercepting(ONE),
    "of functions": lambda: Callback(scale, ONE),
    "wrapper": lambda: eqx.module_update_wrapper(Wrapper(scale, ONE)),
    "wrapper of a Module": lambda: eqx.module_update_wrapper(Wrapper(Callback(scale, ONE))),
    "wrapper not updated": lambda: Wrapper(scale),
    "wrapper in a wrapper": lambda: eqx.module_update_wrapper(
        Wrapper(eqx.module_update_wrapper(Wrapper(scale, TWO)))
    ),
    "class variables": lambda: HasClassVar(ONE),
    "empty": lambda: Empty(),
    "nothing set": lambda: unset(Child),
    "only a static set": lambda: unset(Child, name="n"),
    "only arrays set": lambda: unset(Child, a=ONE, b=TWO),
    "None in place of a Module": lambda: Nested(None),
    "nested": lambda: nested(4),
    "nested deep": lambda: nested(60),
    "the same twice": lambda: (lambda m: Nested(m, [m, m]))(Base(ONE)),
    "enumeration item": lambda: Weekday.monday,
    "enumeration in a field": lambda: Base(Weekday.tuesday),
    "bound method": lambda: Concrete(TWO).apply,
    "bound method of a nested one": lambda: Nested(Concrete(ONE)).inner.twice,
    "eqx.Partial": lambda: eqx.Partial(scale, ONE, factor=TWO),
    "shared": share,
    "state": lambda: eqx.nn.make_with_state(eqx.nn.BatchNorm)(2, "batch", mode="batch")[1],
    "Linear": lambda: eqx.nn.Linear(2, 3, key=KEY),
    "Linear without bias": lambda: eqx.nn.Linear(2, 3, use_bias=False, key=KEY),
    "MLP": lambda: eqx.nn.MLP(2, "scalar", 4, 2, key=KEY),
    "MaxPool": lambda: eqx.nn.MaxPool1d(2),
    "Attention": lambda: eqx.nn.MultiheadAttention(2, 4, key=KEY),
    "Sequential": lambda: eqx.nn.Sequential(
        [eqx.nn.Linear(2, 2, key=KEY), eqx.nn.Lambda(jnp.tanh), eqx.nn.Dropout(0.5)]
    ),
    "Identity": lambda: eqx.nn.Identity(),
    "PReLU": lambda: eqx.nn.PReLU(),
    "SpectralNorm": lambda: eqx.nn.SpectralNorm(eqx.nn.Linear(2, 2, key=KEY), "weight", key=KEY),
    "BatchNorm": lambda: eqx.nn.BatchNorm(2, "batch", mode="batch"),
    "filter_vmap": lambda: eqx.filter_vmap(scale, in_axes=(0, None)),
    "filter_grad": lambda: eqx.filter_grad(Callback(scale, ONE)),
    "filter_checkpoint": lambda: eqx.filter_checkpoint(Callback(scale, ONE)),
    "filter_closure_convert": lambda: eqx.filter_closure_convert(lambda x: x + TWO, ONE),
}
# What is not read natively: a State is no Module, and who reads its own attributes in its own way
# may show Equinox others than it keeps.
GENERIC = {"state"}


@pytest.mark.parametrize("name", NATIVE)
def test_kind(name: str) -> None:
    x = NATIVE[name]()
    assert isinstance(x, eqx.Module) is (name != "state")
    assert kind(x) == ("generic" if name in GENERIC else "module")


@pytest.mark.parametrize("name", NATIVE)
def test_as_argument_and_result(name: str) -> None:
    make = NATIVE[name]

    def body(jit: Jit) -> Any:
        traces = Traces()
        seen: list[Any] = []

        @jit
        def f(x: Any, y: Any) -> Any:
            traces.tick()
            leaves, treedef = jtu.tree_flatten(x)
            seen.append((type(x).__name__, len(leaves), attributes(x)))
            changed = jtu.tree_map(lambda leaf: leaf + y if eqx.is_array(leaf) else leaf, x)
            assert jtu.tree_structure(changed) == treedef
            return x, [changed]

        x = make()
        out, (changed,) = f(x, ONE)
        counts = [traces.count]
        again = f(out, ONE)
        counts.append(traces.count)
        twice = f(changed, ONE)
        counts.append(traces.count)
        f(make(), ONE)
        counts.append(traces.count)
        same = [jtu.tree_structure(t) == jtu.tree_structure(x) for t in (out, changed, again[0])]
        return out, changed, again, twice, seen, counts, same, type(out) is type(x)

    check(body)


@pytest.mark.parametrize("name", ["plain", "wrapper", "generic", "only arrays set", "Linear"])
def test_under_other_transformations(name: str) -> None:
    """Tracers of all kinds are in its fields."""
    make = NATIVE[name]

    def body(jit: Jit) -> Any:
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

    check(body)


@pytest.mark.parametrize("name", ["generic with __orig_class__", "cached property", "extra"])
def test_as_a_carry(name: str) -> None:
    """What went through has the structure of what went in: JAX asks for that in loops, and
    ``tree_map`` of both."""

    def make() -> Any:
        if name in NATIVE:
            return NATIVE[name]()
        x = Properties(ONE, TWO)
        if name == "extra":
            object.__setattr__(x, "extra", 1)
        else:
            assert x.area == 2
        return x

    def body(jit: Jit) -> Any:
        traces = Traces()

        @jit
        def f(x: Any) -> Any:
            traces.tick()
            return jtu.tree_map(lambda v: v + 1, x)

        x = make()
        without = f(GenericModule(ONE) if name in NATIVE else Properties(ONE, TWO))
        out = f(x)
        looped, _ = jax.lax.scan(lambda c, _: (f(c), None), x, None, length=3)
        return without, jtu.tree_map(jnp.add, x, out), looped, f(x), f(out), traces.count

    check(body)


CALLABLE = [
    "of functions", "wrapper", "wrapper of a Module", "wrapper in a wrapper", "bound method",
    "bound method of a nested one", "eqx.Partial", "filter_grad",
    "filter_checkpoint", "filter_closure_convert",
]  # fmt: skip


@pytest.mark.parametrize("name", CALLABLE)
def test_as_the_function(name: str) -> None:
    make = NATIVE[name]

    def body(jit: Jit) -> Any:
        x = make()
        args = () if name == "eqx.Partial" else (TWO,)
        f = jit(x)
        through = jit(lambda g, *a: g(*a))
        return f(*args), f(*args), through(x, *args), through(f, *args), f.__wrapped__

    check(body)


# ---- static fields ----


def test_static_fields_decide_on_the_trace() -> None:
    values = ["a", "b", 1, None, (1, "x"), scale, jnp.tanh, Base, Weekday, frozenset({1})]

    def body(jit: Jit) -> Any:
        traces = Traces()

        @jit
        def f(x: Any) -> Any:
            traces.tick()
            return x.a + 1, str(type(x.name))

        results = []
        for _ in range(2):
            for value in values:
                results.append((f(Base(ONE, value)), traces.count))  # type: ignore[arg-type]
        return results

    check(body)


def test_static_field_is_static_though_it_is_a_tree() -> None:
    """What is inside a static field is not taken apart, be it a Module or an array."""

    def body(jit: Jit) -> Any:
        traces = Traces()

        @jit
        def f(x: Any) -> Any:
            traces.tick()
            return x.a * x.name[0].scale

        inner = Concrete(3)
        x = Base(ONE, (inner, 1))  # type: ignore[arg-type]
        return f(x), f(x), f(Base(TWO, (inner, 1))), traces.count  # type: ignore[arg-type]

    check(body)


def test_numpy_array_in_a_static_field() -> None:
    """The same object is the same static. (Equinox says that it is a mistake.)"""
    array = np.arange(3.0)

    class HasArray(eqx.Module):
        a: Any
        table: Any = eqx.field(static=True)

    with pytest.warns(UserWarning, match="set as static"):
        x = HasArray(ONE, array)
    assert kind(x) == "module"

    def body(jit: Jit) -> Any:
        traces = Traces()

        @jit
        def f(x: Any) -> Any:
            traces.tick()
            return x.a + x.table.sum(), x

        out, back = f(x)
        return out, f(x)[0], traces.count, back.table is array

    check(body)


def test_field_that_changes_from_static_to_array() -> None:
    def body(jit: Jit) -> Any:
        traces = Traces()

        @jit
        def f(x: Any) -> Any:
            traces.tick()
            return x

        x = Child(ONE)
        results = [f(x)]
        for b in (TWO, 4, None, [TWO], [], Base(1), Base(TWO), scale, 3):
            results.append(f(eqx.tree_at(lambda t: t.b, x, b, is_leaf=lambda v: v is None)))
        return results, traces.count

    check(body)


# ---- construction inside, checks, errors ----


def test_made_inside() -> None:
    def body(jit: Jit) -> Any:
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

    check(body)


def test_check_init_is_run_inside_and_nowhere_else() -> None:
    def body(jit: Jit) -> Any:
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
        return [r if r == "ArrayImpl" else "tracer" for r in runs]

    assert check(body) == ["ArrayImpl", "tracer"]


def test_check_init_raises() -> None:
    check_error(lambda jit: jit(lambda x: CheckedTwice("text"))(ONE), ValueError, "no strings")
    check_error(lambda jit: jit(lambda x: CheckedTwice(x, b=None))(ONE), ValueError, "no None")


def test_abstract_ones_cannot_be_made_inside() -> None:
    check_error(lambda jit: jit(lambda x: Abstract())(ONE), TypeError, "abstract")


def test_frozen_inside() -> None:
    def change(x: Any) -> Any:
        x.a = 3

    check_error(lambda jit: jit(change)(Base(ONE)), dataclasses.FrozenInstanceError)


def test_reading_a_field_that_is_missing() -> None:
    check_error(lambda jit: jit(lambda x: x.a)(unset(Child, b=ONE)), AttributeError, "'a'")


def test_missing_fields_are_missing_in_the_result() -> None:
    def body(jit: Jit) -> Any:
        f = jit(lambda x: x)
        found = []
        for fields in ({}, {"a": ONE}, {"b": TWO}, {"name": "n"}, {"a": ONE, "flags": (2,)}):
            out = f(unset(Child, **fields))
            found.append([hasattr(out, name) for name in ("a", "name", "b", "flags")])
        return found

    check(body)


# ---- names and attributes ----


def test_wrapper_attributes_come_back() -> None:
    def body(jit: Jit) -> Any:
        traces = Traces()

        @jit
        def f(x: Any) -> Any:
            traces.tick()
            return x, x.__name__, x.__doc__

        names = []
        for fn in (scale, jnp.tanh, scale, lambda x: x):
            x = eqx.module_update_wrapper(Wrapper(fn, ONE))
            out, name, doc = f(x)
            names.append((name, doc, out.__name__, out.__qualname__, out.__module__, out.__doc__))
        return names, traces.count

    check(body)


def test_wrapper_and_the_same_without_are_two() -> None:
    def body(jit: Jit) -> Any:
        traces = Traces()

        @jit
        def f(x: Any) -> Any:
            traces.tick()
            return getattr(x, "__name__", None), x.a

        plain = Wrapper(scale, ONE)
        return [f(x) for x in (plain, eqx.module_update_wrapper(plain), plain)], traces.count

    check(body)


def test_orig_class_is_no_field() -> None:
    """``M[int]()`` has an attribute more than fields; it shares the trace in neither."""

    def body(jit: Jit) -> Any:
        traces = Traces()

        @jit
        def f(x: Any) -> Any:
            traces.tick()
            return x

        one, two = f(GenericModule[int](ONE)), f(GenericModule[str](ONE))
        return hasattr(one, "__orig_class__"), hasattr(two, "__orig_class__"), traces.count

    check(body)


def test_class_attributes_with_the_names_of_fields() -> None:
    def body(jit: Jit) -> Any:
        f = jit(lambda x: (x, x.a, str(x.b), x.call(x.a)))
        results = [f(Shadowed()), f(Shadowed(ONE, "b", jnp.cos))]
        out = jit(lambda x: (x, x.a))(unset(Shadowed, b="set"))  # the class's own are seen
        return results, out

    check(body)


def test_property_over_a_field() -> None:
    """The class is given a property with the name of a field: it is what is read then."""

    def body(jit: Jit) -> Any:
        class Late(eqx.Module):
            a: Any
            b: Any = 1

        traces = Traces()

        @jit
        def f(x: Any) -> Any:
            traces.tick()
            return x.a, list(jtu.tree_leaves(x))

        x = Late(ONE)
        before = f(x)
        Late.shadow = property(lambda self: self.a * 2)  # type: ignore[attr-defined]
        return before, f(x), f(Late(TWO)), traces.count

    check(body)


def test_attributes_set_past_the_freeze() -> None:
    """An attribute that is no field does not count, and does not come along."""

    def body(jit: Jit) -> Any:
        traces = Traces()

        @jit
        def f(x: Any) -> Any:
            traces.tick()
            return x, hasattr(x, "extra")

        x = Base(ONE)
        object.__setattr__(x, "extra", TWO)
        first = f(x)
        object.__setattr__(x, "extra", 5)
        second = f(x)
        return first[1], second[1], hasattr(first[0], "extra"), traces.count

    check(body)


def test_the_sentinel_for_missing_fields_as_an_argument() -> None:
    """It is an ordinary, if odd, value: a node without children."""
    sentinel = next(iter(jtu.tree_structure(unset(OfMissing)).node_data()[1][0]))

    def body(jit: Jit) -> Any:
        f = jit(lambda x, y=2: (x, y))
        return f(sentinel), f(x=sentinel), f([sentinel]), f(1, sentinel), f(1)

    check(body)


def test_reading_through_getattribute() -> None:
    """What is traced is what lies in the ``__dict__``."""

    def body(jit: Jit) -> Any:
        f = jit(lambda x: (x, x.a))
        out, a = f(Intercepting(TWO))
        return out.__dict__["a"], a, f(out)[1]

    assert picture(check(body)[1]) == picture(jnp.array(200.0))


def test_equality_of_modules_is_not_asked() -> None:
    def body(jit: Jit) -> Any:
        traces = Traces()

        @jit
        def f(x: Any) -> Any:
            traces.tick()
            return x.name, x.a

        return [f(OwnEquality(ONE, n)) for n in ("x", "y", "x")], traces.count

    check(body)


def test_equality_of_modules_in_static_fields() -> None:
    """There it is asked: a static is what compares as one."""

    def body(jit: Jit) -> Any:
        traces = Traces()

        @jit
        def f(x: Any) -> Any:
            traces.tick()
            return x.a

        for name in ("x", "y", "x"):
            f(Base(ONE, OwnEquality(1, name)))  # type: ignore[arg-type]
        return traces.count

    assert check(body) == 1


def test_bound_methods_share_the_trace_of_equal_instances() -> None:
    def body(jit: Jit) -> Any:
        traces = Traces()

        @jit
        def f(g: Any, x: Any) -> Any:
            traces.tick()
            return g(x), type(g).__name__

        results = [f(Concrete(s).apply, ONE) for s in (ONE, TWO, 3, ONE)]
        results.append(f(Concrete(ONE).twice, ONE))
        return results, traces.count

    check(body)


def test_enumeration() -> None:
    def body(jit: Jit) -> Any:
        traces = Traces()

        @jit
        def f(day: Any, x: Any) -> Any:
            traces.tick()
            is_monday = day == Weekday.monday
            return Weekday.where(is_monday, Weekday.tuesday, day), is_monday, x

        results = [f(day, ONE) for day in (Weekday.monday, Weekday.tuesday, Weekday.monday)]
        texts = [Weekday[out[0]] for out in results]
        return results, texts, traces.count, [bool(out[0] == Weekday.tuesday) for out in results]

    check(body)


# ---- state ----


class Counter(eqx.Module):
    index: eqx.nn.StateIndex

    def __init__(self) -> None:
        self.index = eqx.nn.StateIndex(jnp.array(0))

    def __call__(self, x: Any, state: eqx.nn.State) -> Any:
        value = state.get(self.index)
        return x + value, state.set(self.index, value + 1)


class Model(eqx.Module):
    norm: eqx.nn.BatchNorm
    spectral: eqx.nn.SpectralNorm[Any]
    linear: eqx.nn.Linear
    counters: list[Counter]

    def __init__(self, key: Any) -> None:
        keys = jax.random.split(key, 3)
        self.norm = eqx.nn.BatchNorm(4, "batch", mode="ema")
        self.spectral = eqx.nn.SpectralNorm(eqx.nn.Linear(2, 4, key=keys[0]), "weight", key=keys[1])
        self.linear = eqx.nn.Linear(4, 1, key=keys[2])
        self.counters = [Counter(), Counter()]

    def __call__(self, x: Any, state: eqx.nn.State) -> Any:
        x, state = self.spectral(x, state)
        x, state = self.norm(jax.nn.relu(x), state)
        for counter in self.counters:
            x, state = counter(x, state)
        return self.linear(x), state


def test_stateful_training() -> None:
    def body(jit: Jit) -> Any:
        traces = Traces()

        def loss(model: Any, state: Any, x: Any) -> Any:
            out, state = jax.vmap(model, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(
                x, state
            )
            return jnp.mean(out**2), state

        @jit
        def step(model: Any, state: Any, x: Any) -> Any:
            traces.tick()
            grads, state = eqx.filter_grad(loss, has_aux=True)(model, state, x)
            return eqx.apply_updates(model, jtu.tree_map(lambda g: -0.1 * g, grads)), state

        model, state = eqx.nn.make_with_state(Model)(KEY)
        x = jax.random.normal(jax.random.key(1), (3, 2))
        for _ in range(4):
            model, state = step(model, state, x)
        inference = eqx.nn.inference_mode(model)
        out, _ = jit(inference)(x[0], state)
        counts = [state.get(c.index) for c in model.counters]
        sub = state.substate(model.norm)
        assert type(state) is eqx.nn.State
        return out, counts, traces.count, jtu.tree_leaves(model), len(jtu.tree_leaves(sub))

    check(body)


def test_old_state_is_invalid() -> None:
    """A state that was updated inside is used up there, and not outside."""

    def body(jit: Jit) -> Any:
        counter, state = eqx.nn.make_with_state(Counter)()

        def reuse(state: Any) -> Any:
            counter(ONE, state)
            return counter(ONE, state)

        with pytest.raises(ValueError, match="Attempted to use old state"):
            jit(reuse)(state)
        return jit(counter)(ONE, state), jit(counter)(ONE, state)

    check(body)


def test_state_made_inside() -> None:
    def body(jit: Jit) -> Any:
        @jit
        def make(x: Any) -> Any:
            counter, state = eqx.nn.make_with_state(Counter)()
            return counter(x, state)[0]

        return make(ONE), make(TWO)

    check(body)


def test_stateful_sequential() -> None:
    def body(jit: Jit) -> Any:
        def make() -> Any:
            layers = [eqx.nn.Linear(2, 3, key=KEY), eqx.nn.BatchNorm(3, "b", mode="batch")]
            return eqx.nn.Sequential([*layers, eqx.nn.Lambda(jnp.tanh)])

        model, state = eqx.nn.make_with_state(make)()

        @jit
        def f(model: Any, x: Any, state: Any) -> Any:
            return jax.vmap(model, axis_name="b", in_axes=(0, None), out_axes=(0, None))(x, state)

        out = []
        for _ in range(3):
            y, state = f(model, jnp.ones((4, 2)), state)
            out.append((y, jtu.tree_leaves(state)))
        return out

    check(body)


def test_shared_layers() -> None:
    def body(jit: Jit) -> Any:
        traces = Traces()

        @jit
        def step(shared: Any, x: Any) -> Any:
            traces.tick()

            def loss(shared: Any) -> Any:
                one, two = shared()
                return jnp.sum(two(one(x)) ** 2)

            grads = eqx.filter_grad(loss)(shared)
            return eqx.apply_updates(shared, jtu.tree_map(lambda g: -0.1 * g, grads))

        shared = share()
        for _ in range(3):
            shared = step(shared, jnp.ones(2))
        one, two = shared()
        return one, two, traces.count

    check(body)


# ---- layouts ----


def test_where_attributes_lie_does_not_count() -> None:
    """Instances of one class with dicts of their own, with shared keys, in any order."""

    def instances() -> list[Any]:
        plain, own, reverse, many = Child(ONE), Child(ONE), Child(ONE), Child(ONE)
        own.__dict__.update(dict(vars(own)))
        fields = dict(reversed(vars(reverse).items()))
        reverse.__dict__.clear()
        reverse.__dict__.update(fields)
        for i in range(40):
            object.__setattr__(many, f"extra_{i}", i)
        return [plain, own, reverse, many, plain]

    def body(jit: Jit) -> Any:
        traces = Traces()

        @jit
        def f(x: Any) -> Any:
            traces.tick()
            return x.a + x.b

        return [f(x) for x in instances()], [f(x) for x in reversed(instances())]

    check(body)


def test_many_fields() -> None:
    def body(jit: Jit) -> Any:
        names = [f"field_{i}" for i in range(60)]
        annotations = dict.fromkeys(names, Any)
        static = {n: eqx.field(static=True) for n in names[::3]}
        wide = type(eqx.Module)("Wide", (eqx.Module,), {"__annotations__": annotations, **static})
        x = wide(*(jnp.array(float(i)) if i % 3 else i for i in range(60)))
        assert kind(x) == "module"
        f = jit(lambda x: (x, sum(getattr(x, n) for n in names)))
        return f(x), f(f(x)[0])

    check(body)


def test_mixed_with_an_exception() -> None:
    """Equinox cannot put such a Module together again."""

    class Failure(eqx.Module, Exception):  # type: ignore[misc]
        a: Any

        def __init__(self, a: Any) -> None:
            self.a = a

    check_error(lambda jit: jit(lambda x: x.a)(Failure(ONE)), TypeError, "is not safe")
    assert filterjit.filter_jit(lambda x: x)(ONE) == 1


def test_classes_made_in_a_loop() -> None:
    """Classes of one name are not one class; those that died make room."""

    def body(jit: Jit) -> Any:
        traces = Traces()

        @jit
        def f(x: Any) -> Any:
            traces.tick()
            return x

        results = []
        for i in range(6):

            class Local(eqx.Module):
                a: Any
                b: Any = eqx.field(static=bool(i % 2), default=i)

            results.append(f(Local(ONE)))
            assert type(results[-1]) is Local
        return results, traces.count

    check(body)


def test_serialisation_of_what_came_back(tmp_path: Any) -> None:
    def body(jit: Jit) -> Any:
        model = jit(lambda m: m)(eqx.nn.MLP(2, 2, 3, 1, key=KEY))
        path = tmp_path / f"{id(jit)}.eqx"
        eqx.tree_serialise_leaves(path, model)
        return eqx.tree_deserialise_leaves(path, eqx.nn.MLP(2, 2, 3, 1, key=jax.random.key(5)))

    check(body)


def test_tree_functions_of_equinox_inside() -> None:
    def body(jit: Jit) -> Any:
        @jit
        def f(model: Any, x: Any) -> Any:
            params, static = eqx.partition(model, eqx.is_inexact_array)
            model = eqx.combine(params, static)
            model = eqx.tree_at(lambda m: m.layers[0].bias, model, replace_fn=lambda b: b + x)
            return model, eqx.tree_equal(model, model), eqx.filter(model, eqx.is_array)

        model = eqx.nn.MLP(2, 2, 3, 1, key=KEY)
        return f(model, ONE), eqx.tree_pformat(f(model, ONE)[0])

    check(body)


def test_a_record_of_modules() -> None:
    """Named tuples, dataclasses and dicts of Modules of all kinds, back and forth."""
    record = collections.namedtuple("record", ["one", "two"])

    def body(jit: Jit) -> Any:
        traces = Traces()

        @jit
        def f(x: Any) -> Any:
            traces.tick()
            return jtu.tree_map(lambda v: v * 2 if eqx.is_inexact_array(v) else v, x)

        x: Any = record(
            {name: make() for name, make in NATIVE.items() if name != "state"}, [Child(ONE)]
        )
        for _ in range(3):
            x = f(x)
        return x, traces.count

    check(body)


def test_native_is_ours() -> None:
    """All that was asserted here was asserted of the implementation in C."""
    assert type(filterjit.filter_jit(scale)).__name__ == "FilterJit"
