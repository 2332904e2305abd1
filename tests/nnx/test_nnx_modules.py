"""Flax NNX: Variables, Modules and States, those of the library too, are the pytrees that they are under
``jax.jit``, exactly, and belong to the trace state that they are of under ``jax.jit``."""

import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import flax.errors
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import optax
import pytest
from flax import nnx

import filterjit
from filterjit import filter_jit
from filterjit._compat import _private
from filterjit._trees import _registry
from support.comparison import on
from support.exactness import X, changed, check_exact, look, same_as_jax
from support.modules import Holder

if _private.loaded("flax.typing", "HashableMapping") is None:
    pytest.skip("classes of this Flax are flattened by its functions", allow_module_level=True)
from flax.typing import HashableMapping

# ---- Variables ----


class Custom(nnx.Variable):
    """A kind of Variable that a program defines."""


class WithMethod(nnx.Param):
    def doubled(self) -> Any:
        return self[...] * 2


class MoreSlots(nnx.Variable):
    """Its own slot is not a part of the pytree."""

    __slots__ = ("extra",)


class FlattensItself(nnx.Variable):
    """It is registered with the functions of Flax all the same."""

    def tree_flatten(self) -> Any:
        raise AssertionError

    _pytree__flatten = tree_flatten


KINDS = [nnx.Variable, nnx.Param, nnx.BatchStat, nnx.Cache, nnx.Intermediate, Custom, WithMethod]
KINDS += [MoreSlots, FlattensItself]


@pytest.mark.parametrize("cls", KINDS, ids=lambda cls: cls.__name__)
def test_variables(cls: Any) -> None:
    check_exact(lambda: [cls(X), cls(X + 1), cls(X, tag=1), cls(X)], kind="object", traces=2)


def test_kinds_of_variables_are_told_apart() -> None:
    check_exact(lambda: [cls(X) for cls in KINDS * 2], traces=len(KINDS))


def test_the_value_becomes_another_tree() -> None:
    values = ((X, X), [X, X], {"a": X}, X, (X, X), None, X)
    changes = [lambda v, value=value: v.set_value(value) for value in values]
    check_exact(changed(lambda: nnx.Param(X), *changes, times=1), traces=5)


# ---- metadata ----

Change = Callable[[Any], object]


def test_metadata_of_a_result_is_its_own() -> None:
    """As under ``jax.jit``, each result has new dicts, which the program may change."""
    f = filter_jit(lambda v: (v, v))
    one, other = f(nnx.Param(X, tag=1))
    again, _ = f(nnx.Param(X, tag=1))
    one.set_metadata("tag", 5)
    one.set_metadata("more", 6)
    assert other.tag == again.tag == f(nnx.Param(X, tag=1))[0].tag == 1
    assert not again.has_metadata("more")


# ---- Modules ----


class Net(nnx.Module):
    def __init__(self, width: int = 3, **more: Any) -> None:
        self.kernel = nnx.Param(X)
        self.width = width
        self.activation = jnp.negative
        for name, value in more.items():
            setattr(self, name, value)

    def __call__(self, x: Any) -> Any:
        return self.activation(self.kernel[...] * x) * self.width


def test_a_module() -> None:
    check_exact(lambda: [Net(), Net(), Net(4), Net()], kind="described", traces=2)
    check_exact(lambda: [Net(), Net(4), Net(-1), Net(-2)], lambda m: m(X), traces=4)


def replace_dict(**attributes: Any) -> Change:
    def change(x: Any) -> None:
        new = {**vars(x), **attributes}
        object.__setattr__(x, "__dict__", {k: v for k, v in new.items() if v is not None})

    return change


def set_key(name: str, value: Any) -> Change:
    return lambda x: vars(x).__setitem__(name, value)


def declare(**data: bool) -> Change:
    """Says of attributes whether they are data."""
    return lambda x: object.__setattr__(x, "_pytree__nodes", x._pytree__nodes.update(data))


MODULES: dict[str, list[Change]] = {
    "static changed": [lambda m: setattr(m, "width", 4), lambda m: setattr(m, "width", 3)],
    "static added": [lambda m: setattr(m, "extra", 1)],
    "data added": [lambda m: setattr(m, "extra", nnx.Param(X))],
    "array added": [lambda m: setattr(m, "extra", X)],
    "static deleted": [lambda m: delattr(m, "width")],
    "data deleted": [lambda m: delattr(m, "kernel")],
    "deleted and added": [
        lambda m: delattr(m, "width"),
        lambda m: setattr(m, "extra", 3),
        lambda m: delattr(m, "extra"),
        lambda m: setattr(m, "width", 3),
    ],
    "static to data": [
        lambda m: setattr(m, "width", nnx.data(3)),
        lambda m: setattr(m, "width", nnx.static(3)),
    ],
    "data to static": [
        lambda m: setattr(m, "extra", nnx.data("text")),
        lambda m: setattr(m, "extra", nnx.static("text")),
        lambda m: setattr(m, "extra", nnx.data("text")),
    ],
    "static to an array": [lambda m: setattr(m, "width", nnx.data(jnp.array(2.0)))],
    "declared": [declare(width=True), declare(width=False), declare(other=True)],
    "dict replaced": [replace_dict(width=4), replace_dict(width=3), replace_dict()],
    "dict replaced without nodes": [replace_dict(_pytree__nodes=None)],
    "set in the dict": [set_key("width", 4), set_key("extra", 1), set_key("width", -1)],
    "key of another type": [set_key(type("Text", (str,), {})("extra"), 1)],
    "deleted in the dict": [lambda m: vars(m).pop("width"), set_key("width", 3)],
    "other order": [lambda m: vars(m).__setitem__("width", vars(m).pop("width"))],
    "nodes that are a dict": [set_key("_pytree__nodes", {"kernel": True, "_pytree__state": True})],
    "eval and train": [lambda m: m.eval(), lambda m: m.train()],
    "a list that grows": [
        lambda m: setattr(m, "extra", [1]),
        lambda m: m.extra.append(2),
        lambda m: m.extra.pop(),
    ],
    "another Variable": [
        lambda m: setattr(m, "kernel", nnx.Param(X, tag=1)),
        lambda m: setattr(m, "kernel", nnx.BatchStat(X)),
        lambda m: setattr(m, "kernel", X),
        lambda m: setattr(m, "kernel", nnx.Param(X)),
    ],
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_that_change(name: str) -> None:
    check_exact(changed(Net, *MODULES[name]))
    # Inside a list, beside one that does not change.
    other = Net()
    inside = [lambda x, change=change: change(x[0]) for change in MODULES[name]]
    check_exact(changed(lambda: [Net(), other], *inside))


def test_a_mapping_whose_dict_others_hold_is_compared_by_contents() -> None:
    """The mapping that says which attributes are data counts as immutable; not so another one."""
    items = {"n": 1}
    held = Holder(X, HashableMapping(items, copy=False))
    f = filter_jit(lambda h: h.x * h.s["n"])
    assert [bool((f(held) == X).all()) for _ in range(2)] == [True, True]
    items["n"] = 5
    assert (f(held) == 5 * X).all()


# ---- containers ----


@pytest.mark.parametrize("length", [0, 1, 3, 30, 31, 35])
def test_lists(length: int) -> None:
    def make(extra: Any = ()) -> Any:
        return nnx.List([*(nnx.Param(X + i) for i in range(length)), *extra])

    number = check_exact(lambda: [make(), make(), make([X]), make(), make([1]), make([2])])
    assert number == 4
    check_exact(lambda: [make()] * 5, kind="described", traces=1)


def test_keys_that_look_like_numbers() -> None:
    """Flax takes `"01"` for the index 1, and rebuilds it as such: JAX's function is asked."""

    def trees() -> Iterator[Any]:
        for name in ("x", "01", " 2"):  # the first instance decides how the class is read
            xs = nnx.List([nnx.Param(X)])
            vars(xs)[name] = "static"
            yield xs

    same_as_jax(lambda xs: (xs, X), trees)


def sequential(seed: int = 0) -> Any:
    rngs = nnx.Rngs(seed)
    block = nnx.Sequential(nnx.BatchNorm(3, rngs=rngs), nnx.Dropout(0.5, rngs=rngs))
    return nnx.Sequential(nnx.Linear(3, 3, rngs=rngs), nnx.relu, block)


OF_LIBRARY: dict[str, Callable[[], Any]] = {
    "BatchNorm": lambda: nnx.BatchNorm(3, rngs=nnx.Rngs(0)),
    "Rngs": lambda: nnx.Rngs(0, params=1),
    "MultiHeadAttention": lambda: nnx.MultiHeadAttention(
        num_heads=1, in_features=3, qkv_features=4, decode=False, rngs=nnx.Rngs(0)
    ),
    "Sequential": sequential,
    "Optimizer": lambda: nnx.Optimizer(sequential(), optax.adam(0.1), wrt=nnx.Param),
}


@pytest.mark.parametrize("name", OF_LIBRARY)
def test_modules_of_the_library(name: str) -> None:
    module = OF_LIBRARY[name]()
    assert name != "MultiHeadAttention" or len(vars(module)) > 30  # CPython keeps 30 in a block
    assert check_exact(lambda: [module] * 5, kind="described") == 1
    # Modules hold functions that are made anew for each, as those of initializers.
    assert check_exact(lambda: [module, OF_LIBRARY[name](), module, nnx.clone(module)]) <= 2


# ---- shared Variables ----


def tied() -> Any:
    v = nnx.Param(X)
    return Net(a=v, b=v, c=nnx.List([v, nnx.Param(X)]))


def test_shared_variables_are_a_tree() -> None:
    """As under ``jax.jit``: a Variable that stands in two places becomes two."""
    check_exact(lambda: [tied()] * 4, kind="described", traces=1)
    for jit in (jax.jit, filter_jit):
        out = jit(lambda m: m)(tied())
        assert out.a is not out.b


# ---- classes with methods of their own, and States ----

T = TypeVar("T")


class OwnFlatten(Net):
    """Registered with a function of its own, since Flax takes it from the class."""

    def _pytree__flatten(self) -> Any:
        return (self.kernel,), (self.width,)

    def _pytree__flatten_with_paths(self) -> Any:
        return ((jtu.GetAttrKey("core"), self.kernel),), (self.width,)

    @classmethod
    def _pytree__unflatten(cls, aux: Any, children: Any) -> Any:
        new = cls(aux[0])
        object.__setattr__(new, "kernel", children[0])
        return new


class Rebuilds(Net):
    """Is flattened as Flax does it, and rebuilt by a function of its own."""

    @classmethod
    def _pytree__unflatten(cls, aux: Any, children: Any) -> Any:
        new = super()._pytree__unflatten(aux, children)
        object.__setattr__(new, "kernel", new.kernel)
        vars(new)["rebuilt"] = True
        return new


class GenericFirst(Generic[T], nnx.Module):
    def __init__(self) -> None:
        self.kernel = nnx.Param(X)


class Refuses(Net):
    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(self, "ready"):
            raise AttributeError("frozen")
        super().__setattr__(name, value)


@dataclasses.dataclass
class Fields(nnx.Module):
    kernel: Any
    width: Any = 1
    more: Any = nnx.data(default=None)  # noqa: RUF009
    made: Any = dataclasses.field(default_factory=lambda: 3)

    def __post_init__(self) -> None:
        self.posted = 1


class OwnNew(nnx.Variable):
    """Is rebuilt by its own function, which JAX calls."""

    @classmethod
    def _new(cls, value: Any, metadata: Any) -> Any:
        return super()._new(value, {**metadata, "rebuilt": True})


class OwnInit(nnx.State):
    def __init__(self, mapping: Any, /, **kwargs: Any) -> None:
        super().__init__({**dict(mapping), "made": X}, **kwargs)


class OwnState(nnx.State):
    """A kind of State that a program defines."""


# Trees, and the kind of their class.
EXACT: dict[str, tuple[Callable[[], Any], str | None]] = {
    "generic": (GenericFirst, "described"),
    "__setattr__": (Refuses, "described"),
    "dataclass": (lambda: Fields(nnx.Param(X)), "described"),
    "_pytree__flatten": (OwnFlatten, "custom"),
    "empty State": (lambda: nnx.State({}), None),
    "flat": (lambda: nnx.State({"b": X, "a": X + 1}), None),
    "nested": (
        lambda: nnx.State({"b": {"c": X, "a": {"d": X + 1}}, "a": nnx.State({"e": X})}),
        None,
    ),
    "Variables": (
        lambda: nnx.State({"a": nnx.Param(X), "b": {"c": nnx.BatchStat(X, tag=1)}}),
        None,
    ),
    "integers": (lambda: nnx.State({10: X, 2: X + 1, 1: {3: X, 0: X}}), None),
    "of a Module": (lambda: nnx.state(sequential()), None),
    "subclass": (lambda: OwnState({"a": X}), None),
    "flat state": (lambda: nnx.to_flat_state(nnx.state(sequential())), None),
}


@pytest.mark.parametrize("name", EXACT)
def test_classes(name: str) -> None:
    make, kind = EXACT[name]
    check_exact(lambda: [make(), make(), make()], kind=kind, traces=1)
    x = make()
    check_exact(lambda: [x] * 5, traces=1)


def test_the_class_of_an_instance_changes() -> None:
    change = lambda m: object.__setattr__(m, "__class__", Refuses)
    check_exact(changed(Net, change), traces=2)


@pytest.mark.parametrize(
    ("fun", "make"),
    [
        (look, lambda: [Rebuilds(), Rebuilds(), Rebuilds(4)]),
        (look, lambda: [OwnNew(X), OwnNew(X), OwnNew(X, tag=1)]),
        (lambda s: (s, X), lambda: [OwnInit({"a": X}), OwnInit({"a": X}), OwnInit({"b": X})]),
    ],
    ids=["Module", "Variable", "State"],
)
def test_a_class_that_is_rebuilt_by_its_own_function(fun: Any, make: Callable[[], Any]) -> None:
    assert same_as_jax(fun, make) == 2
    assert _registry.registry.kind(make()[0]) == "custom"


def test_a_state_that_changes() -> None:
    changes: list[Callable[[Any], object]] = [
        lambda s: s.__setitem__("d", X),
        lambda s: s.__delitem__("a"),
        lambda s: s["b"].__setitem__("c", X + 1),
        lambda s: s["b"].__setitem__("e", X + 1),
        lambda s: s.__setitem__("n", "other"),
        lambda s: s.__setitem__("n", nnx.Param(X)),
        lambda s: s.__setitem__("b", nnx.State({"c": X})),
        lambda s: object.__setattr__(s, "_mapping", {"a": X}),
        lambda s: object.__setattr__(s, "_mapping", nnx.State({"a": X, "b": 1})._mapping),
    ]
    trees = changed(lambda: nnx.State({"a": X, "b": {"c": X}, "n": "text"}), *changes)
    check_exact(trees, lambda s: (s, X, re.sub("0x.*?>", "", repr(jtu.tree_structure(s)))))


# ---- the trace state ----


on_jax_and_ours = on(jax.jit, filter_jit)


@on_jax_and_ours
def test_an_argument_changes_inside(jit: Any) -> Any:
    @jit
    def f(m: Any) -> Any:
        m.kernel.set_value(m.kernel[...] + 1)
        m.width = 4
        m.kernel.set_metadata("tag", 2)
        return m

    m = Net()
    out = f(m)
    assert m.width == 3 and not m.kernel.has_metadata("tag")
    assert (out.width, out.kernel.tag) == (4, 2)
    return jtu.tree_leaves((out, m))


@on_jax_and_ours
def test_a_result_of_a_nested_call_changes_inside(jit: Any) -> Any:
    @jit
    def inner(m: Any) -> Any:
        m.kernel.set_value(m.kernel[...] * 2)
        return m

    @jit
    def outer(m: Any) -> Any:
        new = inner(m)
        new.kernel.set_value(new.kernel[...] + 1)
        m.kernel.set_value(m.kernel[...] + new.kernel[...])
        return m, new

    return jtu.tree_leaves(outer(Net()))


@on_jax_and_ours
def test_an_escaped_argument_does_not_change(jit: Any) -> None:
    kept: list[Any] = []
    jit(lambda m: kept.append(m) or X)(Net())  # type: ignore[func-returns-value]
    with pytest.raises(flax.errors.TraceContextError):
        kept[0].kernel.set_value(X)


@pytest.mark.skipif(not hasattr(jax, "new_ref"), reason="this version of JAX has no references")
@on_jax_and_ours
def test_a_reference_changes_in_place(jit: Any) -> Any:
    v = nnx.Param(X, ref=True)

    @jit
    def f(v: Any) -> Any:
        v[...] = v[...] + 1
        return v[...] * 2

    return [f(v), f(v), v[...]]


@on_jax_and_ours
def test_a_hijax_variable(jit: Any) -> Any:
    v = nnx.Param(X, hijax=True)
    f = jit(lambda v: v[...] * 2)
    return [f(v), f(v)]


@pytest.mark.parametrize("make", [Net, lambda: nnx.Param(X), lambda: nnx.List([nnx.Param(X)])])
def test_the_trace_state_after_each_way_of_building(make: Callable[[], Any]) -> None:
    def change(tree: Any) -> None:
        for x in jtu.tree_leaves(tree, is_leaf=lambda x: isinstance(x, nnx.Variable)):
            x.set_value(X + 2)
            x.set_metadata("tag", 2)
        if isinstance(tree, Net):
            tree.width, tree.more = 4, nnx.Param(X)

    f = filter_jit(lambda m: m)
    change(f(make()))
    change(f(f(make())))
    change(filter_jit(lambda x: make())(X))
    change(filterjit.combine(*filterjit.partition(make(), filterjit.is_array)))
    jax.vmap(lambda _: change(f(make())))(X)
    with jax.disable_jit():
        change(f(make()))
