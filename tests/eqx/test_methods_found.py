"""Attribute access to jitted methods, which C looks up as Equinox's Python code would."""

import copy
import pickle
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import pytest

from filterjit import _core, filter_jit
from filterjit._compat import _equinox_compat

X = jnp.array(3.0)


class Tiny(eqx.Module):
    """Returns a Module class with a method of each kind."""

    scale: jax.Array
    name: str = eqx.field(static=True, default="tiny")

    @filter_jit
    def jitted(self, x: jax.Array) -> jax.Array:
        return self.scale * x

    @eqx.filter_jit
    def by_equinox(self, x: jax.Array) -> jax.Array:
        return self.scale * x

    def plain(self, x: jax.Array) -> jax.Array:
        return self.scale * x

    @property
    def double(self) -> jax.Array:
        return self.scale * 2

    @staticmethod
    def nothing() -> None: ...


def tiny() -> Tiny:
    return Tiny(jnp.array(2.0))


def in_python(x: Any, name: str) -> Any:
    """Returns the attribute as Equinox finds it."""
    return eqx.Module.__getattribute__(x, name)


needs_python = pytest.mark.skipif(
    _equinox_compat.module_getattribute() is None, reason="this Equinox looks attributes up in C"
)


@needs_python
def test_a_class_with_jitted_methods_has_it_and_others_do_not() -> None:
    class Without(eqx.Module):
        @eqx.filter_jit
        def method(self) -> None: ...

    assert type(vars(Tiny)["__getattribute__"]) is _core.Getattribute
    assert Without.__getattribute__ is eqx.Module.__getattribute__


@pytest.mark.parametrize("name", ["jitted", "by_equinox", "plain"])
def test_methods_are_those_that_equinox_finds(name: str) -> None:
    x = tiny()
    for _ in range(3):
        found, expected = getattr(x, name), in_python(x, name)
        assert type(found) is type(expected)
        assert eqx.tree_equal(found, expected) and x.scale in jtu.tree_leaves(found)
        assert found(X) == expected(X) == 6


def test_fields_properties_and_static_methods() -> None:
    x = tiny()
    _ = x.jitted
    assert x.scale is in_python(x, "scale")
    assert (x.name, x.double, x.nothing) == ("tiny", 4, Tiny.nothing)
    with pytest.raises(AttributeError, match="'Tiny' object has no attribute 'missing'"):
        _ = x.missing  # type: ignore[attr-defined]


def test_a_getattribute_of_the_users_is_asked() -> None:
    asked = []

    class Listening(eqx.Module):
        def __getattribute__(self, name: str) -> Any:
            asked.append(name)
            return super().__getattribute__(name)

        @filter_jit
        def own(self) -> int:
            return 1

    class Inherits(Listening):
        @filter_jit
        def inherited(self) -> int:
            return 2

    for _ in range(3):
        asked.clear()
        assert (Listening().own.__func__, Inherits().inherited.__func__) == (
            Listening.own,
            Inherits.inherited,
        )
        assert [name for name in asked if not name.startswith("__")] == ["own", "inherited"]


def test_copies_and_pickles() -> None:
    for x in (copy.copy(tiny()), copy.deepcopy(tiny()), pickle.loads(pickle.dumps(tiny()))):
        assert x.jitted(X) == 6


def test_classes_that_are_no_modules_are_left_alone() -> None:
    class Plain:
        @filter_jit
        def method(self) -> int:
            return 1

    assert "__getattribute__" not in vars(Plain) and Plain().method() == 1


def test_an_equinox_without_it_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_equinox_compat, "module_getattribute", lambda: None)

    class Without(eqx.Module):
        @filter_jit
        def method(self) -> int:
            return 1

    assert "__getattribute__" not in vars(Without) and Without().method() == 1
