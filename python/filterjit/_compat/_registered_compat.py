"""The private names of JAX for registered pytree classes, each with a fallback."""

from collections.abc import Callable
from types import FunctionType
from typing import Any

import jax

from . import _private


def registered_dataclass_fields(cls: type) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Returns the names of the data and meta fields of a class registered by
    ``jax.tree_util.register_dataclass``, otherwise None. Fallback: None, and its registered
    functions handle the class."""
    flatten: Any = registered_flatten(cls)
    # JAX's own function, closed over names only, reads attributes by these names, in two groups,
    # and runs no user code.
    jax_globals = _private.private("jax._src.tree_util", "__dict__")
    if not isinstance(flatten, FunctionType) or flatten.__globals__ is not jax_globals:
        return None
    try:
        closure = [cell.cell_contents for cell in flatten.__closure__ or ()]
        if not closure or not all(map(_are_names, closure)):
            return None
        data, meta = flatten(_NamesOfAttributes())
    except Exception:
        return None
    return (tuple(data), tuple(meta)) if _are_names(data) and _are_names(meta) else None


class _NamesOfAttributes:
    """Each attribute returns its own name."""

    def __getattribute__(self, name: str) -> str:
        return name


def _are_names(x: Any) -> bool:
    return isinstance(x, (tuple, list)) and all(isinstance(name, str) for name in x)


def registered_flatten(cls: type) -> Callable[[Any], Any] | None:
    """Returns the function ``node -> (children, aux data)`` of a registered class. Fallback: None,
    and `flatten_one_level` flattens nodes."""
    return _registered(cls, "to_iter")


def registered_unflatten(cls: type) -> Callable[[Any, Any], Any] | None:
    """Returns the function ``(aux data, children) -> node`` of a registered class. Fallback: None,
    and a treedef rebuilds nodes."""
    return _registered(cls, "from_iter")


def _registered(cls: type, name: str) -> Callable[..., Any] | None:
    registry = _private.private("jax._src.tree_util", "_registry")
    function: Any = getattr(registry.get(cls), name, None) if registry else None
    return function if callable(function) else None


class _RegisteredStatic:
    """An example for ``jax.tree_util.register_static``."""


jax.tree_util.register_static(_RegisteredStatic)


def is_registered_static(cls: type) -> bool:
    """True if ``jax.tree_util.register_static`` registered a class: its functions have the same
    code for all classes. Fallback: False, and the function is called for each instance."""
    functions = [
        [getattr(f, "__code__", None) for f in (registered_flatten(c), registered_unflatten(c))]
        for c in (cls, _RegisteredStatic)
    ]
    return None not in functions[0] and functions[0] == functions[1]
