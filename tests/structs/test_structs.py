"""Dataclasses of register_dataclass, flax.struct and chex, FrozenDict and Partial: exactly the pytrees
that they are under ``jax.jit``."""

import collections
import contextlib
import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.tree_util as jtu
import pytest

import filterjit
from filterjit import filter_jit
from filterjit._trees import _registry
from support.comparison import comparable, outcome
from support.exactness import X, changed, check_exact, look, same_as_jax

struct = pytest.importorskip("flax.struct")
from flax.core import FrozenDict  # noqa: E402

# Counts the calls of each __post_init__, __init__ and factory of this file.
ran: collections.Counter[str] = collections.Counter()


def counting(name: str, call: Callable[..., Any] = lambda *_: None) -> Any:
    """Returns a function that counts its calls."""

    def counted(*args: Any, **kwargs: Any) -> Any:
        ran[name] += 1
        return call(*args, **kwargs)

    return counted


def static(**kwargs: Any) -> Any:
    return dataclasses.field(metadata={"static": True}, **kwargs)


A, S = ("a", Any), ("s", Any, static(default=1))
FLAX_STATIC = struct.field(pytree_node=False, default=1)


def of_jax(name: str, *fields: Any, base: Any = object, members: Any = None, **options: Any) -> Any:
    """Returns a new dataclass with an array, a static field, and more."""
    options |= {"bases": (base,), "namespace": members or {}}
    return jtu.register_dataclass(dataclasses.make_dataclass(name, fields or (A, S), **options))


Plain = of_jax("Plain", A, S, ("b", Any, None))
Slots = of_jax("Slots", A, ("b", Any), S, slots=True)
FrozenSlots = of_jax("FrozenSlots", slots=True, frozen=True, weakref_slot=True)
Nothing = jtu.register_dataclass(dataclasses.make_dataclass("Nothing", [], slots=True, frozen=True))
Factory = of_jax(
    "Factory", A, ("s", Any, static(default_factory=counting("factory", lambda: "made")))
)


@struct.dataclass
class Flax:
    a: Any
    b: Any = None
    s: Any = FLAX_STATIC


@struct.dataclass
class FlaxPostInit:
    a: Any
    s: Any = FLAX_STATIC
    __post_init__ = counting("FlaxPostInit")


class Node(struct.PyTreeNode):
    a: Any
    s: Any = FLAX_STATIC


# What runs when an instance is made.
RUNS = {
    "PostInit": of_jax("PostInit", members={"__post_init__": counting("PostInit")}),
    "OwnSetattr": of_jax(
        "OwnSetattr", members={"__setattr__": counting("OwnSetattr", object.__setattr__)}
    ),
    "FlaxPostInit": FlaxPostInit,
}
OF_CHEX: dict[str, Any] = {}
with contextlib.suppress(ImportError):
    import chex

    for frozen, mappable in itertools.product([False, True], [False, True]):
        name = f"chex, {frozen=}, {mappable=}"

        @chex.dataclass(frozen=frozen, mappable_dataclass=mappable)
        class OfChex:
            a: Any
            s: Any = 1  # no static field
            posted: Any = None
            __post_init__ = counting(name)

        OF_CHEX[name] = OfChex
CLASSES = {cls.__name__: cls for cls in (
    *(Plain, Slots, FrozenSlots, Factory),
    of_jax("ChildSlots", ("c", Any, None), ("more", Any, static(default="m")), base=Slots, slots=True),
    of_jax("DictOverSlots", ("d", Any, None), base=Slots),
    *(Flax, Node),
)} | RUNS | OF_CHEX  # fmt: skip


def make(cls: Any, s: Any = 1, a: Any = X) -> Any:
    fields = {f.name: None for f in dataclasses.fields(cls)}
    return cls(**{**fields, "a": a, "s": s})


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSES)
def test_classes(name: str) -> None:
    cls = CLASSES[name]
    kind = "custom" if name in OF_CHEX else "object"
    assert check_exact(lambda: [make(cls), make(cls), make(cls)], kind=kind) == 1
    x = make(cls)
    assert check_exact(lambda: [x] * 6) == 1
    values = [1, True, 1.0, -1, -2, 0.0, -0.0, "1", None, (1, 2), (1, 2.0), 1]
    assert check_exact(lambda: [make(cls, s) for s in values]) == len(values) - 1
    trees = lambda: [make(cls, a=a) for a in (X, (X, X), {"a": X}, make(Slots), None, X)]
    assert check_exact(trees) == 5


@pytest.mark.parametrize("name", OF_CHEX)
def test_a_dataclass_of_chex_that_changes(name: str) -> None:
    one, values = lambda: make(OF_CHEX[name], [X, {"c": X}]), (("a", (X, X)), ("extra", 1))
    changes = [lambda x, given=given: object.__setattr__(x, *given) for given in values]
    same_as_jax(look, changed(one, *changes))  # rebuilt without `extra`
    if "mappable=True" in name:
        assert dict(filter_jit(lambda x: x)(one())).keys() == {"a", "s", "posted"}


def test_a_class_without_fields() -> None:
    assert check_exact(lambda: [(Nothing(), X), (Nothing(), X)], lambda x: [x, Nothing()]) == 1


@pytest.mark.parametrize("name", RUNS | OF_CHEX)
def test_what_runs_when_an_instance_is_rebuilt(name: str) -> None:
    """As in JAX, a result is made by a call of the class."""

    def number(jit: Any) -> int:
        f = jit(lambda x: x)
        x = make(CLASSES[name])
        f(x)
        before = ran[name]
        f(x)
        f(x)
        return ran[name] - before

    assert number(filter_jit) == number(jax.jit) > 0


def test_factories_do_not_run() -> None:
    x, before = make(Factory), ran["factory"]
    filter_jit(lambda x: x)(x)
    assert ran["factory"] == before


def test_an_undecorated_subclass() -> None:
    """It is not registered: a leaf, and static for Equinox and for us."""
    x = make(type("Undecorated", (Plain,), {}))
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
            ran["scale"] += 1
            self.made = scale

    jtu.register_dataclass(Local, data_fields=["a"], meta_fields=[], drop_fields=["made"])
    same_as_jax(lambda x: (x.a, X * x.made), lambda: [Local(X), Local(X, 3), Local(X)])
    before = ran["scale"]
    assert filter_jit(lambda x: x)(Local(X, 3)).made == 2
    assert ran["scale"] > before


def test_the_order_of_fields() -> None:
    local: Any = dataclasses.make_dataclass("Local", "abc")
    jtu.register_dataclass(local, data_fields=["c", "a"], meta_fields=["b"])
    x = local(X, "b", X + 1)
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
    assert out == x and hash(out) == hash(x)
    new = filter_jit(lambda x: x.copy({"more": X}))(x)
    assert type(new) is FrozenDict and set(new) == {"n", "m", "more"}


def test_attributes_of_a_partial_are_dropped() -> None:
    x = jtu.Partial(abs, X)
    x.note = 1
    assert vars(filter_jit(lambda p: p)(x)) == vars(jax.jit(lambda p: p)(x)) == {}
