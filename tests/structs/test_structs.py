"""Dataclasses of register_dataclass and flax.struct, FrozenDict and Partial: exactly the pytrees that
they are under ``jax.jit``."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.tree_util as jtu
import pytest

import filterjit
from filterjit import filter_jit
from filterjit._trees import _registry
from support.comparison import comparable, outcome
from support.exactness import X, changed, check_exact, same_as_jax

struct = pytest.importorskip("flax.struct")
from flax.core import FrozenDict  # noqa: E402

# Counts the calls of each __post_init__, __init__ and factory of this file.
ran: dict[str, int] = {}


def count(name: str) -> None:
    ran[name] = ran.get(name, 0) + 1


def made() -> Any:
    count("factory")
    return "made"


def static(**kwargs: Any) -> Any:
    return dataclasses.field(metadata={"static": True}, **kwargs)


A, S = ("a", Any), ("s", Any, static(default=1))


def plain(name: str, *fields: Any, base: Any = object, members: Any = None, **options: Any) -> Any:
    """Returns a new dataclass with an array, a static field, and more."""
    fields = fields or (A, S)
    members = members or {}
    return dataclasses.make_dataclass(name, fields, bases=(base,), namespace=members, **options)


def of_jax(name: str, *fields: Any, **more: Any) -> Any:
    return jtu.register_dataclass(plain(name, *fields, **more))


def counting(name: str, call: Callable[..., Any]) -> Any:
    """Returns a method that counts its calls."""

    def method(*args: Any, **kwargs: Any) -> Any:
        count(name)
        return call(*args, **kwargs)

    return method


def _fallback(self: Any, name: str) -> Any:
    """Where an attribute is not set, another is returned."""
    if name == "s":
        return "fallback"
    raise AttributeError(name)


Plain = of_jax("Plain", A, S, ("b", Any, None))
Slots = of_jax("Slots", A, ("b", Any), S, slots=True)
FrozenSlots = of_jax("FrozenSlots", slots=True, frozen=True, weakref_slot=True)
Nothing = jtu.register_dataclass(dataclasses.make_dataclass("Nothing", [], slots=True, frozen=True))
Factory = of_jax("Factory", A, ("s", Any, static(default_factory=made)))
Getattr = of_jax("Getattr", members={"__getattr__": _fallback})
# What runs when an instance is made.
RUNS = {
    "PostInit": of_jax("PostInit", members={"__post_init__": counting("PostInit", lambda _: None)}),
    "OwnSetattr": of_jax(
        "OwnSetattr", members={"__setattr__": counting("OwnSetattr", object.__setattr__)}
    ),
}


@struct.dataclass
class Flax:
    a: Any
    b: Any = None
    s: Any = struct.field(pytree_node=False, default=1)


@struct.dataclass
class FlaxChild(Flax):
    c: Any = None
    more: Any = struct.field(pytree_node=False, default=())


@struct.dataclass
class FlaxPostInit:
    a: Any
    s: Any = struct.field(pytree_node=False, default=1)

    def __post_init__(self) -> None:
        count("FlaxPostInit")


class Node(struct.PyTreeNode):
    a: Any
    s: Any = struct.field(pytree_node=False, default=1)


RUNS["FlaxPostInit"] = FlaxPostInit
CLASSES = [
    *(Plain, Slots, FrozenSlots, Factory, Getattr, *RUNS.values()),
    of_jax("Frozen", frozen=True),
    of_jax("ChildSlots", ("c", Any, None), ("more", Any, static(default="m")), base=Slots, slots=True),
    of_jax("DictOverSlots", ("d", Any, None), base=Slots),
    of_jax("KeywordOnly", kw_only=True),
    of_jax("Getattribute", members={"__getattribute__": lambda x, n: object.__getattribute__(x, n)}),
    of_jax("Equal", members={"__eq__": lambda x, y: True, "__hash__": lambda x: 0}, eq=False),
    *(Flax, FlaxChild, Node),
]  # fmt: skip


def make(cls: Any, s: Any = 1, a: Any = X) -> Any:
    fields = {f.name: None for f in dataclasses.fields(cls)}
    return cls(**{**fields, "a": a, "s": s})


@pytest.mark.slow
@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_classes(cls: Any) -> None:
    assert check_exact(lambda: [make(cls), make(cls), make(cls)], kind="object") == 1
    x = make(cls)
    assert check_exact(lambda: [x] * 6) == 1
    values = [1, True, 1.0, -1, -2, 0.0, -0.0, "1", None, (1, 2), (1, 2.0), 1]
    assert check_exact(lambda: [make(cls, s) for s in values]) == len(values) - 1
    trees = lambda: [make(cls, a=a) for a in (X, (X, X), {"a": X}, make(Slots), None, X)]
    assert check_exact(trees) == 5


def test_a_class_without_fields() -> None:
    assert check_exact(lambda: [(Nothing(), X), (Nothing(), X)], lambda x: [x, Nothing()]) == 1


def test_getattr_is_asked_where_a_field_is_not_set() -> None:
    trees = changed(
        lambda: make(Getattr), lambda x: delattr(x, "s"), lambda x: setattr(x, "s", "set")
    )
    check_exact(trees, lambda x: (x.a, X * len(str(x.s))))


@pytest.mark.parametrize("name", RUNS)
def test_what_runs_when_an_instance_is_rebuilt(name: str) -> None:
    """As in JAX, a result is made by a call of the class."""

    def number(jit: Any) -> int:
        f = jit(lambda x: x)
        x = make(RUNS[name])
        f(x)
        before = ran[name]
        f(x)
        f(x)
        return ran[name] - before

    assert number(filter_jit) == number(jax.jit) > 0


def test_factories_do_not_run() -> None:
    x = make(Factory)
    before = ran.get("factory")
    filter_jit(lambda x: x)(x)
    assert ran.get("factory") == before


def test_an_undecorated_subclass() -> None:
    """It is not registered: a leaf, and static for Equinox and for us."""

    class Undecorated(Plain):
        pass

    x = make(Undecorated)
    assert _registry.registry.kind(x) == "static"
    f = filter_jit(lambda x: x.a * 2)
    with pytest.raises(TypeError):
        jax.jit(lambda x: x.a)(x)
    assert issubclass(outcome(f, x), TypeError)  # a dataclass with an __eq__ and without a hash

    class OfNode(Node):
        more: Any = None

    assert _registry.registry.kind(make(OfNode)) == "object"


@pytest.mark.skipif(
    jax.__version_info__ < (0, 10), reason="JAX's register_dataclass takes an InitVar for a field"
)
def test_initvars_and_excluded_fields() -> None:
    @dataclasses.dataclass
    class Local:
        a: Any
        scale: dataclasses.InitVar[Any] = 2
        made: Any = dataclasses.field(init=False, default=5)

        def __post_init__(self, scale: Any) -> None:
            count("scale")
            self.made = scale

    jtu.register_dataclass(Local, data_fields=["a"], meta_fields=[], drop_fields=["made"])
    same_as_jax(lambda x: (x.a, X * x.made), lambda: [Local(X), Local(X, 3), Local(X)])
    before = ran["scale"]
    out = filter_jit(lambda x: x)(Local(X, 3))
    assert out.made == 2
    assert ran["scale"] > before


def test_the_order_of_fields() -> None:
    @dataclasses.dataclass
    class Local:
        a: Any
        b: Any
        c: Any

    jtu.register_dataclass(Local, data_fields=["c", "a"], meta_fields=["b"])
    x = Local(X, "b", X + 1)
    check_exact(lambda: [x, x])
    assert comparable(filterjit.flatten(x, True)[0]) == comparable(jtu.tree_leaves(x))
    assert list(filterjit.flatten(x)[1].paths) == ["c", "a"]


@pytest.mark.parametrize(
    "x", [FrozenDict({"a": {"b": X}}), jtu.Partial(abs, X)], ids=["dict", "partial"]
)
def test_both_are_read_natively(x: Any) -> None:
    assert check_exact(lambda: [x] * 3, kind="object") == 1


def test_the_hash_of_a_result() -> None:
    x = FrozenDict({"n": 1, "m": "text"})
    hash(x)
    out = filter_jit(lambda x: x)(x)
    assert out == x
    assert hash(out) == hash(x)
    new = filter_jit(lambda x: x.copy({"more": X}))(x)
    assert type(new) is FrozenDict
    assert set(new) == {"n", "m", "more"}


def test_attributes_of_a_partial_are_dropped() -> None:
    x = jtu.Partial(abs, X)
    x.note = 1
    assert vars(filter_jit(lambda p: p)(x)) == vars(jax.jit(lambda p: p)(x)) == {}
