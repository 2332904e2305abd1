"""Flax NNX: Variables and Modules are the pytrees that they are under ``jax.jit``, exactly."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from filterjit import filter_jit
from filterjit._trees import _registry
from support.exactness import X, changed, check_exact, look, same_as_jax
from support.modules import Holder

pytest.importorskip("flax.nnx")
from flax import nnx
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


class OwnNew(nnx.Variable):
    """Is rebuilt by its own function, which JAX calls."""

    @classmethod
    def _new(cls, value: Any, metadata: Any) -> Any:
        return super()._new(value, {**metadata, "rebuilt": True})


KINDS = [nnx.Variable, nnx.Param, nnx.BatchStat, nnx.Cache, nnx.Intermediate, Custom, WithMethod]
KINDS += [MoreSlots, FlattensItself]


@pytest.mark.parametrize("cls", KINDS, ids=lambda cls: cls.__name__)
def test_variables(cls: Any) -> None:
    check_exact(lambda: [cls(X), cls(X + 1), cls(X, tag=1), cls(X)], kind="object", traces=2)


def test_kinds_of_variables_are_told_apart() -> None:
    check_exact(lambda: [cls(X) for cls in KINDS * 2], traces=len(KINDS))


def test_a_variable_that_is_rebuilt_by_its_own_function() -> None:
    assert same_as_jax(look, lambda: [OwnNew(X), OwnNew(X), OwnNew(X, tag=1)]) == 2
    assert _registry.registry.kind(OwnNew(X)) == "custom"
    assert filter_jit(lambda v: v)(OwnNew(X)).rebuilt


VALUES: dict[str, Callable[[], Any]] = {
    "scalar": lambda: jnp.array(1.0),
    "weak": lambda: jnp.asarray(1.0),
    "key": lambda: jax.random.key(0),
    "tuple": lambda: (X, (X, X)),
    "list": lambda: [X, X],
    "dict": lambda: {"b": X, "a": X},
    "None": lambda: None,
    "State": lambda: nnx.State({"a": X, "b": {"c": X}}),
    "Variable": lambda: nnx.Param(X, inner=1),
    "Module": lambda: nnx.Linear(2, 2, rngs=nnx.Rngs(0)),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_of_variables(name: str) -> None:
    make = VALUES[name]
    check_exact(lambda: [nnx.Param(make()), nnx.Param(make()), nnx.BatchStat(make())], traces=2)


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
    "static -1 to -2": [lambda m: setattr(m, "width", -1), lambda m: setattr(m, "width", -2)],
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
    "dict replaced by more": [replace_dict(extra=4), replace_dict(extra=None)],
    "dict replaced by fewer": [replace_dict(width=None), replace_dict(width=3)],
    "dict replaced without nodes": [replace_dict(_pytree__nodes=None)],
    "set in the dict": [set_key("width", 4), set_key("extra", 1), set_key("width", -1)],
    "key of another type": [set_key(type("Text", (str,), {})("extra"), 1)],
    "deleted in the dict": [lambda m: vars(m).pop("width"), set_key("width", 3)],
    "other order": [lambda m: vars(m).__setitem__("width", vars(m).pop("width"))],
    "nodes that are a dict": [set_key("_pytree__nodes", {"kernel": True, "_pytree__state": True})],
    "eval and train": [lambda m: m.eval(), lambda m: m.train()],
    "set_attributes": [lambda m: m.set_attributes(width=7, raise_if_not_found=False)],
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
