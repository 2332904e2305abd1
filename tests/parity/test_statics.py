"""Statics: who decides what is equal, where the zoo's tables (tests/zoo) do not tell it.

Static values are all leaves and fields that are not arrays. They are compared exactly: values that
are ``==`` but not the same are two variants, where Equinox has one.
"""

import dataclasses
import functools
import sysconfig
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import filterjit
from support.comparison import Jit
from support.modules import Holder, Module
from support.trees import ONE, bare
from zoo.zoo_support import FIELDS, LEAVES


def test_an_int_that_repr_refuses(jit: Jit) -> None:
    f = jit(lambda x, n: x + n % 7)
    for n in (10**5000, 10**5000 + 1):
        assert f(ONE, n) == ONE + n % 7
        assert f(ONE, n) == ONE + n % 7


class _Broken:
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return 3  # the default
        raise KeyError("not set")

    def __set__(self, instance: Any, value: Any) -> None: ...


def test_a_dataclass_whose_field_cannot_be_read_equals_itself(jit: Jit) -> None:
    @dataclasses.dataclass
    class Config:
        n: int = 2
        m: int = _Broken()  # type: ignore[assignment]

    f, h = jit(lambda h: h.s.n), Holder(ONE, Config())
    assert [f(h), f(h)] == [2, 2]


class _RaisesInHash:
    def __hash__(self) -> int:
        raise RuntimeError("no hash")


class _AndHasEquality(_RaisesInHash):
    def __eq__(self, other: object) -> bool:
        return isinstance(other, _AndHasEquality)

    __hash__ = _RaisesInHash.__hash__


@jax.tree_util.register_pytree_node_class
class _RaisesInFlatten:
    def tree_flatten(self) -> Any:
        raise RuntimeError("not built yet")

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> Any: ...


@pytest.mark.parametrize("cls", [_RaisesInHash, _AndHasEquality, _RaisesInFlatten])
def test_a_static_field_whose_own_code_raises(cls: type, jit: Jit) -> None:
    f, static = jit(lambda h: h.x * 2), cls()
    for _ in range(2):
        assert f(bare(Holder, x=ONE, s=static)) == 2 * ONE


asked: list[Any] = []


@dataclasses.dataclass(frozen=True)
class Order:
    """As e3nn's Irrep: its hash is generated, and its ``__eq__`` is not."""

    l: int  # noqa: E741

    def __eq__(self, other: object) -> bool:
        asked.append(self)
        return isinstance(other, Order) and self.l == other.l


class Orders(tuple[Order, ...]):
    """As e3nn's Irreps."""

    def __eq__(self, other: object) -> bool:
        asked.append(self)
        return super().__eq__(other)

    def __hash__(self) -> int:
        asked.append(self)
        return super().__hash__()


@pytest.mark.skipif(sysconfig.get_config_var("Py_GIL_DISABLED") == 1, reason="it is asked")
@pytest.mark.parametrize("change", ["an item", "its __dict__"])
@pytest.mark.parametrize("put", [lambda x: x, lambda x: [0, {"k": (x,)}]])
def test_the_value_that_was_equal_last_is_known(put: Any, change: str) -> None:
    """It is not asked again until it has changed."""
    f = filterjit.filter_jit(lambda tree: tree.x)
    own, twin = Orders([Order(1)]), Orders([Order(1)])
    for static in (own, twin):
        for _ in range(3):
            f(Holder(ONE, put(static)))
        asked.clear()
        f(Holder(ONE, put(static)))
        assert asked == [] and len(f.variants) == 1
    if change == "an item":
        object.__setattr__(twin[0], "l", 2)
    else:
        twin.note = 2  # type: ignore[attr-defined]
    for static, variants in ((twin, 2), (own, 2), (twin, 2)):
        f(Holder(ONE, put(static)))
        assert len(f.variants) == variants


@dataclasses.dataclass(frozen=True)
class PartlyCompared:
    value: Any
    ignored: Any = dataclasses.field(default=0, compare=False)


def test_fields_that_are_not_compared(jit: Jit, ours: bool) -> None:
    """``field(compare=False)``: the class decides what is compared."""
    f = jit(lambda tree: (tree.s.value, tree.s.ignored))
    value = PartlyCompared(1, 1)
    for i in range(2, 5):
        assert f(Holder(ONE, value)) == f(Holder(ONE, PartlyCompared(1, i))) == (1, 1)
        object.__setattr__(value, "ignored", i)
    object.__setattr__(value, "value", 2)
    if ours:  # Equinox compares the value with itself
        assert f(Holder(ONE, value)) == (2, 4)


@dataclasses.dataclass(frozen=True)
class Cached:
    a: Any

    @functools.cached_property
    def twice(self) -> Any:
        return self.a * 2


@pytest.mark.parametrize("calls", [1, 4, 200])  # 200: there is a record
@pytest.mark.parametrize("place", ["static field", "argument"])
def test_cached_properties(calls: int, place: str) -> None:
    f = filterjit.filter_jit(lambda tree: (tree.s if place == "static field" else tree).a)
    value = Cached(3)
    tree = (FIELDS | LEAVES)[place](value)
    for _ in range(calls):
        f(tree)
    assert value.twice == 6
    for _ in range(calls):
        f(tree)
    assert len(f.variants) == 1
    object.__setattr__(value, "a", 4)
    assert f(tree) == 4


@pytest.mark.filterwarnings("ignore:A JAX array is being set as static")
def test_arrays_that_cannot_be_read_equal_themselves() -> None:
    deleted = jnp.ones(3)
    deleted.delete()
    tree = Holder(ONE, Module(deleted))
    f = filterjit.filter_jit(lambda x: x.x + 1)
    f(tree), f(tree)
    assert f.cache_info().misses == 1
    other = jnp.ones(3)
    other.delete()
    f(Holder(ONE, Module(other)))
    assert f.cache_info().misses == 2
