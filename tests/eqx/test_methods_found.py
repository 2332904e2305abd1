"""Attribute access to jitted methods, which C looks up as Equinox's Python code would.
`tests/core/call/test_getattribute.py` has other attributes and classes, and pickles."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import pytest

from filterjit import _core, filter_jit
from filterjit._compat import _equinox_compat

X = jnp.array(3.0)


class Tiny(eqx.Module):
    """Has a method of each kind."""

    scale: jax.Array

    @filter_jit
    def jitted(self, x: jax.Array) -> jax.Array:
        return self.scale * x

    @eqx.filter_jit
    def by_equinox(self, x: jax.Array) -> jax.Array:
        return self.scale * x

    def plain(self, x: jax.Array) -> jax.Array:
        return self.scale * x


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
    x = Tiny(jnp.array(2.0))
    for _ in range(3):
        found, expected = getattr(x, name), eqx.Module.__getattribute__(x, name)
        assert type(found) is type(expected)
        assert eqx.tree_equal(found, expected) and x.scale in jtu.tree_leaves(found)
        assert found(X) == expected(X) == 6
