"""What is known of Flax's private names: without each of them, and where Flax has other functions,
its classes are flattened by their registered functions, and results stay the same."""

from collections.abc import Callable
from typing import Any

import jax
import pytest

from filterjit._compat import _flax_compat, _private, _registered_compat
from filterjit._trees import _registry
from support.exactness import X, check_exact
from support.features import names_used

pytest.importorskip("flax.nnx")
from flax import nnx

if _private.loaded("flax.typing", "HashableMapping") is None:
    pytest.skip("classes of this Flax are flattened by its functions", allow_module_level=True)

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
