"""Dataclasses of register_dataclass and flax.struct, FrozenDict and Partial: exactly the pytrees that
they are under ``jax.jit``."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.tree_util as jtu
import pytest

import filterjit
from filterjit import filter_jit
from filterjit._trees import _registry
from support.comparison import comparable, outcome
from support.exactness import X, changed, check_exact, described, look, same_as_jax

struct = pytest.importorskip("flax.struct")
from flax.core import FrozenDict, freeze  # noqa: E402

# ---- forms of dataclasses ----

# Counts the calls of each __post_init__, __init__ and factory of this file.
ran: dict[str, int] = {}


def count(name: str) -> None:
    ran[name] = ran.get(name, 0) + 1


def made() -> Any:
    count("factory")
    return "made"


def static(**kwargs: Any) -> Any:
    return dataclasses.field(metadata={"static": True}, **kwargs)


def registered(cls: Any = None, **kwargs: Any) -> Any:
    if cls is None:
        return functools.partial(registered, **kwargs)
    return jtu.register_dataclass(dataclasses.dataclass(**kwargs)(cls))


@registered
class Plain:
    a: Any
    s: Any = static(default=1)
    b: Any = None


@registered(frozen=True)
class Frozen:
    a: Any
    s: Any = static(default=1)


@registered(slots=True)
class Slots:
    a: Any
    b: Any
    s: Any = static(default=1)


@registered(slots=True, frozen=True, weakref_slot=True)
class FrozenSlots:
    a: Any
    s: Any = static(default=1)


@registered(slots=True, frozen=True)
class Nothing:
    pass


@registered(slots=True)
class ChildSlots(Slots):
    c: Any = None
    more: Any = static(default="more")


@registered
class DictOverSlots(Slots):
    d: Any = None


@registered(kw_only=True)
class KeywordOnly:
    a: Any
    s: Any = static(default=1)


@registered
class Factory:
    a: Any
    s: Any = static(default_factory=made)


@registered
class PostInit:
    a: Any
    s: Any = static(default=1)

    def __post_init__(self) -> None:
        count("PostInit")


@registered
class OwnInit:
    a: Any
    s: Any = static(default=1)

    def __init__(self, a: Any, s: Any = 1) -> None:
        count("OwnInit")
        self.a, self.s = a, s


@registered
class OwnNew:
    a: Any
    s: Any = static(default=1)

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        count("OwnNew")
        return object.__new__(cls)


@registered
class OwnSetattr:
    a: Any
    s: Any = static(default=1)

    def __setattr__(self, name: str, value: Any) -> None:
        count("OwnSetattr")
        object.__setattr__(self, name, value)


class Meta(type):
    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        count("Meta")
        return super().__call__(*args, **kwargs)


@registered
class OwnMeta(metaclass=Meta):
    a: Any
    s: Any = static(default=1)


@registered
class Getattribute:
    a: Any
    s: Any = static(default=1)

    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name)


@registered
class Getattr:
    """Where an attribute is not set, another is returned."""

    a: Any
    s: Any = static(default=1)

    def __getattr__(self, name: str) -> Any:
        if name == "s":
            return "fallback"
        raise AttributeError(name)


@registered
class Equal:
    a: Any
    s: Any = static(default=1)

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


@struct.dataclass
class Flax:
    a: Any
    b: Any = None
    s: Any = struct.field(pytree_node=False, default=1)


@struct.dataclass
class FlaxChild(Flax):
    c: Any = None
    more: Any = struct.field(pytree_node=False, default=())


@functools.partial(struct.dataclass, kw_only=True)
class FlaxKeywords:
    a: Any
    s: Any = struct.field(pytree_node=False, default=1)


@struct.dataclass
class FlaxPostInit:
    a: Any
    s: Any = struct.field(pytree_node=False, default=1)

    def __post_init__(self) -> None:
        count("FlaxPostInit")


class Node(struct.PyTreeNode):
    a: Any
    s: Any = struct.field(pytree_node=False, default=1)


class NodeChild(Node):
    b: Any = None


CLASSES = [Plain, Frozen, Slots, FrozenSlots, ChildSlots, DictOverSlots, KeywordOnly, Factory]
CLASSES += [PostInit, OwnInit, OwnNew, OwnSetattr, OwnMeta, Getattribute, Getattr, Equal]
CLASSES += [Flax, FlaxChild, FlaxKeywords, FlaxPostInit, Node, NodeChild]


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


@pytest.mark.parametrize("slots", [False, True])
def test_fields_that_are_changed(slots: bool) -> None:
    cls = Slots if slots else Plain
    changes: list[Callable[[Any], object]] = [
        lambda x: setattr(x, "s", 2),
        lambda x: setattr(x, "s", [1]),
        lambda x: x.s.append(2),
        lambda x: setattr(x, "a", (X, X)),
        lambda x: setattr(x, "b", X),
        lambda x: setattr(x, "s", -1),
        lambda x: setattr(x, "s", -2),
    ]
    if not slots:
        changes += [
            lambda x: setattr(x, "extra", 1),  # JAX drops it
            lambda x: setattr(x, "__dict__", {"a": X, "b": None, "s": 7}),
            lambda x: vars(x).update(s=8),
            lambda x: vars(x).pop("s"),  # the default of the class is found
        ]

    check_exact(changed(lambda: make(cls), *changes))


@pytest.mark.parametrize("cls", [Plain, Slots, Flax, FrozenSlots])
def test_a_field_that_is_deleted(cls: Any) -> None:
    f, theirs = filter_jit(lambda x: x), jax.jit(lambda x: x)
    x = make(cls)
    for g in (f, f, f, theirs):
        g(x)
    (object.__delattr__)(x, "a")
    assert outcome(f, x) is outcome(theirs, x) is AttributeError
    object.__setattr__(x, "a", X)
    assert described(f(x)) == described(x)


def test_getattr_is_asked_where_a_field_is_not_set() -> None:
    trees = changed(
        lambda: make(Getattr), lambda x: delattr(x, "s"), lambda x: setattr(x, "s", "set")
    )
    check_exact(trees, lambda x: (x.a, X * len(str(x.s))))


RUNS = {"PostInit": PostInit, "OwnInit": OwnInit, "OwnNew": OwnNew, "OwnSetattr": OwnSetattr}
RUNS |= {"Meta": OwnMeta, "FlaxPostInit": FlaxPostInit}


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


@pytest.mark.parametrize("what", ["__init__", "__post_init__", "__setattr__", "__new__"])
def test_methods_that_the_class_gets_later(what: str) -> None:
    def later(*args: Any, **kwargs: Any) -> Any:
        count(what)
        match what:
            case "__init__":
                args[0].__dict__.update(a=kwargs["a"], s="later")
            case "__setattr__":
                args[0].__dict__[args[1]] = "later" if args[1] == "s" else args[2]
            case "__new__":
                return object.__new__(args[0])
        return None

    def body(jit: Any) -> Any:
        @registered
        class Local:
            a: Any
            s: Any = static(default=1)

        f = jit(lambda x: x)
        x = Local(X)
        f(x)
        f(x)
        before = ran.get(what, 0)
        setattr(Local, what, later)
        out = f(x)
        number = ran.get(what, 0) - before
        return out.s, number

    assert body(filter_jit) == body(jax.jit)


def test_a_property_in_the_place_of_a_field() -> None:
    @registered
    class Local:
        a: Any
        s: Any = static(default=1)

    values = [property(lambda _, n=n: n, lambda *_: None) for n in (2, 3)]
    changes = [lambda _, value=value: setattr(Local, "s", value) for value in (*values, 1)]
    check_exact(changed(lambda: Local(X), *changes), lambda x: X * x.s)


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


def test_reading_natively() -> None:
    natively = [Plain, Frozen, Slots, FrozenSlots, ChildSlots, Flax, FlaxChild, Node]
    assert {_registry.classify(cls, make(cls))[6] for cls in natively} == {"init"}
    others = [PostInit, OwnInit, OwnNew, OwnSetattr, OwnMeta]
    assert {_registry.classify(cls, make(cls))[6] for cls in others} == {"call"}


# ---- FrozenDict ----


def nested(n: Any = 1) -> Any:
    return freeze({"b": {"c": X, "a": {"n": n, "x": X}}, "a": X + 1})


def test_frozen_dicts() -> None:
    assert check_exact(lambda: [nested(), nested(), nested(2), nested(True)], kind="object") == 3
    x = nested()
    hash(freeze({"n": 1}))
    assert check_exact(lambda: [x] * 6) == 1
    inner = lambda: FrozenDict({"a": FrozenDict({"b": X}), "c": [FrozenDict({})]})
    assert check_exact(lambda: [inner(), inner()]) == 1
    keys = [{"a": X}, {"b": X}, {"a": X, "b": X}, {}, {1: X}, {True: X}, {(1, 2): X}]
    assert check_exact(lambda: [FrozenDict(k) for k in keys * 2]) == len(keys)
    check_exact(lambda: [x.unfreeze(), x, x.unfreeze(), x])


def test_the_hash_of_a_result() -> None:
    x = FrozenDict({"n": 1, "m": "text"})
    hash(x)
    out = filter_jit(lambda x: x)(x)
    assert out == x
    assert hash(out) == hash(x)
    new = filter_jit(lambda x: x.copy({"more": X}))(x)
    assert type(new) is FrozenDict
    assert set(new) == {"n", "m", "more"}


def test_a_frozen_dict_that_is_changed_inside() -> None:
    changes: list[Callable[[Any], object]] = [
        lambda x: x._dict.pop("a"),
        lambda x: x._dict.update(n=1),
        lambda x: x._dict.update(n=True),
        lambda x: object.__setattr__(x, "_dict", {"z": X}),
        lambda x: object.__setattr__(x, "_dict", FrozenDict({"z": X, "y": X})),
    ]
    check_exact(changed(lambda: FrozenDict({"a": X, "b": X}), *changes))


# ---- Partial ----


def scale(x: Any, factor: Any = 1, **more: Any) -> Any:
    return x * factor


def test_partials() -> None:
    P = jtu.Partial
    trees = lambda: [P(scale, X), P(scale, X, factor=2), P(scale, X, factor=True), P(scale, X)]
    assert check_exact(trees, kind="object") == 3
    inner = lambda: P(P(scale, X), factor=X)
    check_exact(lambda: [inner(), inner()])  # JAX wraps the inner one anew each time
    assert check_exact(lambda: [P(functools.partial(scale, 2), X), P(scale, 2, X)]) == 2
    x = P(scale, {"a": X}, b=[X], a=X)
    assert check_exact(lambda: [x] * 6) == 1
    same_as_jax(lambda p: (p, p() if callable(p) else X), lambda: [P(scale, X), P(scale, X + 1)])


def test_attributes_of_a_partial_are_dropped() -> None:
    x = jtu.Partial(scale, X)
    x.note = 1
    assert vars(filter_jit(lambda p: p)(x)) == vars(jax.jit(lambda p: p)(x)) == {}


def test_tree_functions() -> None:
    for tree in (make(FlaxChild), nested(), jtu.Partial(scale, X, b=X), make(ChildSlots)):
        leaves, structure = filterjit.flatten(tree)
        assert described(structure.unflatten(leaves)) == described(tree)
        dynamic, rest = filterjit.partition(tree, filterjit.is_array)
        assert described(filterjit.combine(dynamic, rest)) == described(tree)
        doubled = structure.unflatten([x * 2 for x in leaves])
        assert jtu.tree_structure(doubled) == jtu.tree_structure(jtu.tree_map(lambda x: x, tree))
    assert list(filterjit.flatten(nested())[1].paths) == ["a", "b.a.x", "b.c"]
    assert list(filterjit.flatten(jtu.Partial(scale, X, b=X))[1].paths) == ["0.0", "1.b"]
    look(nested())
