"""What is known of Flax's private names: without each of them, and where Flax has other functions,
its classes are flattened by their registered functions, and results stay the same."""

from collections.abc import Callable
from typing import Any

import jax
import jax.tree_util as jtu
import pytest

from filterjit._compat import _flax_compat, _private, _registered_compat
from filterjit._trees import _registry
from support.exactness import X, check_exact, same_as_jax
from support.features import names_used
from support.processes import run_code

pytest.importorskip("flax.nnx")
from flax import nnx

if _private.loaded("flax.typing", "HashableMapping") is None:
    pytest.skip("classes of this Flax are flattened by its functions", allow_module_level=True)
from flax.nnx import pytreelib, variablelib

Name = tuple[str, ...]


NAMES: list[Name] = names_used("_private.loaded", _flax_compat)


def fresh() -> dict[str, Callable[[], Any]]:
    """Returns functions that make instances of new classes, which no registry has met."""

    class Kind(nnx.Variable):
        pass

    class Net(nnx.Module):
        def __init__(self, tag: Any = 1) -> None:
            self.kernel, self.width = Kind(X, tag=tag), tag

    class Own(nnx.State):
        pass

    return {
        "Variable": lambda tag=1: Kind(X, tag=tag),
        "Module": Net,
        "State": lambda tag=1: Own({"a": Kind(X, tag=tag), "b": {"c": X}}),
    }


NATIVE = {"Variable": "object", "Module": "described", "State": "object"}


def kinds() -> dict[str, str]:
    """Uses new classes, and returns the kinds that the C core gives them."""
    classes = fresh()
    for make in classes.values():
        assert check_exact(lambda make=make: [make(), make(-1), make(-2), make(), make()]) == 3
        x = make()
        assert check_exact(lambda x=x: [x] * 5) == 1
        out = jax.tree.leaves(x, is_leaf=lambda x: isinstance(x, nnx.Variable))[0]
        out.set_value(X)
    return {name: _registry.registry.kind(make()) for name, make in classes.items()}


# Which classes are flattened natively still, where a name is missing.
LOST: dict[str, set[str]] = {
    "FrozenDict": set(),
    "State": {"State"},
    "TraceState": {"Variable"},
    "Variable": {"Variable"},
    "_variable_flatten": {"Variable"},
    "PytreeState": set(),
    "Pytree": {"Module"},
    "HashableMapping": {"Module"},
}


@pytest.mark.parametrize("name", [(), *NAMES], ids=".".join)
def test_without_a_name(name: Name, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = _private.loaded
    lost = set()
    if name:
        if loaded(*name) is None:
            pytest.skip("it is the name of another version")
        # A name that has moved is looked up in both places.
        gone = lambda *n: None if n[-1] == name[-1] else loaded(*n)
        monkeypatch.setattr(_private, "loaded", gone)
        lost = LOST[name[-1]]
    assert kinds() == {key: "custom" if key in lost else kind for key, kind in NATIVE.items()}


def test_without_the_registry_of_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where JAX does not tell with which functions a class is registered."""
    for name in ("registered_flatten", "registered_unflatten"):
        monkeypatch.setattr(_registered_compat, name, lambda cls: None)
    assert kinds() == {"Variable": "custom", "Module": "custom", "State": "object"}


# ---- other functions ----


def test_variables_with_another_flatten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version of Flax in which some metadata is a child."""

    def flatten(v: Any) -> Any:
        metadata = dict(v._var_metadata)
        return (v._raw_value, metadata.pop("tag", None)), tuple(sorted(metadata.items()))

    def flatten_with_keys(v: Any) -> Any:
        children, aux = flatten(v)
        return tuple((jtu.GetAttrKey(k), c) for k, c in zip("ab", children, strict=True)), aux

    def unflatten(cls: Any, aux: Any, children: Any) -> Any:
        return cls._new(children[0], {**dict(aux), "tag": children[1]})

    monkeypatch.setattr(variablelib, "_variable_flatten", flatten)
    monkeypatch.setattr(variablelib, "_variable_flatten_with_keys", flatten_with_keys)
    monkeypatch.setattr(variablelib, "_variable_unflatten", unflatten)

    class Kind(nnx.Variable):
        pass

    trees = lambda: [Kind(X, tag=X), Kind(X, tag=X + 1), Kind((X, X), tag=X)]
    assert check_exact(trees, kind="custom") == 2


def _another_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version of Flax that gives a rebuilt Variable another attribute in its metadata."""
    original = nnx.Variable.__dict__["_new"].__func__

    def new(cls: Any, value: Any, metadata: Any) -> Any:
        return original(cls, value, {**metadata, "new": True})

    monkeypatch.setattr(nnx.Variable, "_new", classmethod(new))


def _another_unflatten(monkeypatch: pytest.MonkeyPatch) -> None:
    original = pytreelib.Pytree.__dict__["_pytree__unflatten"].__func__

    def unflatten(cls: Any, aux: Any, children: Any) -> Any:
        x = original(cls, aux, children)
        vars(x)["rebuilt"] = True
        return x

    monkeypatch.setattr(pytreelib.Pytree, "_pytree__unflatten", classmethod(unflatten))


@pytest.mark.parametrize(
    ("name", "patch"), [("Variable", _another_new), ("Module", _another_unflatten)]
)
def test_instances_that_are_rebuilt_in_another_way(
    name: str, patch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch(monkeypatch)
    make = fresh()[name]
    same_as_jax(lambda x: (x, X), lambda: [make(), make(2), make()])
    if name == "Variable":
        assert _registry.registry.kind(make()) == "custom"


# ---- imports ----


def test_nothing_of_flax_is_imported() -> None:
    """Nor of the other libraries whose classes are read natively."""
    run_code(
        """
        import dataclasses, io, sys
        import jax, jax.numpy as jnp
        import filterjit

        @jax.tree_util.register_dataclass
        @dataclasses.dataclass
        class Registered:
            a: object

        @jax.tree_util.register_pytree_node_class
        class Custom:
            def tree_flatten(self):
                return (), None
            @classmethod
            def tree_unflatten(cls, aux, children):
                return cls()

        f = filterjit.filter_jit(lambda *args: args)
        x = jnp.ones(3)
        trees = (Registered(x), Custom(), jax.tree_util.Partial(max, x), {"a": [x]}, object())
        f(*trees)
        f.explain(*trees)
        f.report()
        filterjit.partition_dict(trees)
        f.lower(Registered(x)).compile()
        found = {"flax", "chex", "haiku", "penzai", "optax", "equinox"} & set(sys.modules)
        assert not found, found
        """
    )
