"""One Equinox Module of every form, and what the tests of them share."""

import abc
import functools
import typing
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from filterjit._trees import _registry
from parity.support import Jit, Traces, check

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
    return _registry.registry.kind(x)


def check_calls(fun: Callable[[Any], Any], make: Callable[[], Iterable[Any]]) -> int:
    """Calls `fun`, jitted, with each of the arguments that `make` makes: on both, the same results
    and the same number of traces, which it returns."""

    def body(jit: Jit) -> Any:
        traces = Traces()
        f = jit(traces.counting(fun))
        return [f(x) for x in make()], traces.count

    return check(body)[1]  # type: ignore[no-any-return]


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
    "custom": lambda: GenericModule(ONE),
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
