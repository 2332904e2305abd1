"""Structs of penzai: exactly the pytrees that they are under ``jax.jit``, read natively where their
class flattens as `penzai.pz.Struct` does, and flattened by their own functions elsewhere."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import filterjit
from filterjit._compat import _other_compat, _private, _registered_compat
from support.exactness import X, check_exact, described

pytest.importorskip("penzai")
from penzai import pz

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

STATIC = {"pytree_node": False}


def new_class() -> Any:
    """Returns a new class, which no registry has met."""

    @pz.pytree_dataclass
    class Local(pz.Struct):
        a: Any
        s: Any = dataclasses.field(metadata=STATIC, default=1)
        b: Any = None

    return Local


def test_static_fields() -> None:
    cls = new_class()
    statics = [1, True, 1.0, -1, -2, "1", (1,), [1], {"k": 1}, 1]
    assert check_exact(lambda: [cls(X, s) for s in statics], kind="object") == 9
    assert check_exact(lambda: [cls(X, [1]), cls(X, [2]), cls(X, [1])], kind="object") == 2
    assert check_exact(lambda: [cls(a) for a in (X, (X, X), None, X)], kind="object") == 3


def test_classes_of_the_library() -> None:
    layer = pz.nn.Linear.from_config("l", jax.random.key(0), {"i": 2}, {"o": 3})
    unbound, params = pz.unbind_params(layer)
    values = tuple(p.freeze() for p in params)
    named = pz.nx.wrap(jnp.ones((2, 3))).tag("a", "b")
    for x in (layer, pz.nn.Sequential([layer]), unbound, values[0], named, named.untag("a")):
        assert check_exact(lambda x=x: [x] * 3, kind="object") == 1

    def run(unbound: Any, values: Any, x: Any) -> Any:
        return pz.bind_variables(unbound, values)(x)

    x = pz.nx.wrap(jnp.ones(2)).tag("i")
    ours, theirs = (jit(run)(unbound, values, x) for jit in (filterjit.filter_jit, jax.jit))
    assert described(ours) == described(theirs)


def subclass(name: str) -> Any:
    """Returns a subclass of Structs, with a function of its own by this name, which does the same."""
    base = new_class()
    original = pz.Struct.__dict__.get(name)
    is_method_of_class = isinstance(original, classmethod)
    call = original.__func__ if is_method_of_class else original

    def own(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    members = {name: classmethod(own) if is_method_of_class else own} if name else {}
    cls = type(base)("Own", (base,), members)
    return pz.pytree_dataclass(cls, has_implicitly_inherited_fields=True)


@pytest.mark.parametrize("name", ["", *_other_compat._STRUCT_FUNCTIONS])
def test_a_class_with_a_function_of_its_own(name: str) -> None:
    cls = subclass(name)
    trees = lambda: [cls(X, (X,), s) for s in (1, 2, True, 1)]
    assert check_exact(trees, kind="custom" if name else "object") == 3


@pytest.mark.parametrize(
    ("module", "name"),
    [
        *((_private, name) for name in ("Struct", "is_pytree_node_field")),
        *((_registered_compat, f"registered_{name}") for name in ("flatten", "unflatten")),
    ],
)
def test_without_a_private_name(module: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = _private.loaded
    if module is _private:
        assert loaded("penzai.core.struct", name) is not None
        gone = lambda *names: None if names[-1] == name else loaded(*names)
        monkeypatch.setattr(_private, "loaded", gone)
    else:
        monkeypatch.setattr(module, name, lambda cls: None)
    cls = new_class()
    assert check_exact(lambda: [cls(X, s) for s in (1, -1, True, 1)], kind="custom") == 3
