"""Where Flax's pytrees hold their children, and the private names for this.

JAX flattens these classes by Python functions. If a function only reads attributes, the C core can
read them itself. ``_trees/_registry.py`` first checks this module's description of a class against
its registered functions, on an instance. If a version of Flax lacks a name or has different
functions, these flatten its classes: slower, with the same results.

This module doesn't import Flax, because a program that has Flax objects has imported it.
"""

import dataclasses
import functools
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

import jax.tree_util as jtu

from . import _private, _registered_compat

Description = tuple[tuple[str, ...], tuple[str, ...], tuple[Any, ...] | None]


@dataclasses.dataclass(frozen=True)
class ObjectFields:
    """The attributes of a class with its children, and how to build an instance. `read_object` in
    csrc/structure/node_kind.c reads these fields."""

    dynamic: tuple[str, ...]
    static: tuple[str, ...]
    keys: tuple[str | tuple[Any] | None, ...]
    dict_fields: tuple[str, ...] = ()
    mode: str = "fill"
    factories: Mapping[str, Callable[[], Any]] = dataclasses.field(default_factory=dict)


def object_fields(cls: type) -> ObjectFields | None:
    """Returns the fields of ``jax.tree_util.Partial``, or of a class of Flax with registered
    functions that only read and set attributes, otherwise None."""
    if cls is jtu.Partial and cls.__base__ is functools.partial:
        return ObjectFields(("args", "keywords"), ("func",), ((0,), (1,), "func"), mode="partial")
    if cls is _private.loaded("flax.core.frozen_dict", "FrozenDict"):
        factories: dict[str, Callable[[], Any]] = {"_hash": lambda: None}
        return ObjectFields(("_dict",), (), (None,), dict_fields=("_dict",), factories=factories)
    state = _private.loaded("flax.nnx.statelib", "State")
    if isinstance(state, type) and issubclass(cls, state) and inherits(cls, state, "__init__"):
        return ObjectFields(("_mapping",), (), (None,), dict_fields=("_mapping",))
    trace_state = _private.loaded("flax.nnx.tracers", "TraceState")
    if trace_state is None:
        return None
    factories = {"_trace_state": trace_state}
    variable = _private.loaded("flax.nnx.variablelib", "Variable")
    flatten = _private.loaded("flax.nnx.variablelib", "_variable_flatten")
    if isinstance(variable, type) and issubclass(cls, variable):
        if _registered_compat.registered_flatten(cls) is flatten is not None and inherits(
            cls, variable, "_new"
        ):
            metadata = "_var_metadata"
            keys = (None, "metadata")
            return ObjectFields(
                ("_raw_value",), (metadata,), keys, dict_fields=(metadata,), factories=factories
            )
        return None
    if cls is _private.loaded("flax.nnx.pytreelib", "PytreeState"):
        names = ("_initializing", "_is_setup")
        return ObjectFields((), names, ("initializing", "is_setup"), factories=factories)
    return None


def inherits(cls: type, base: type, name: str) -> bool:
    """True if a class has the function of `base` by this name, not its own."""
    function, inherited = getattr(cls, name, None), getattr(base, name, None)
    unbound = [getattr(f, "__func__", f) for f in (function, inherited)]
    return unbound[0] is unbound[1] is not None


def describer(cls: type) -> Callable[[Any], Description | None] | None:
    """Returns a function that lists the dynamic and static attributes of a ``flax.nnx.Pytree``, or
    returns None if it isn't sure. Returns None for other classes."""
    base = _private.loaded("flax.nnx.pytreelib", "Pytree")
    mapping_type = hashable_mapping()
    if not (isinstance(base, type) and issubclass(cls, base) and mapping_type):
        return None
    flatten = _registered_compat.registered_flatten(cls)
    if (
        flatten is None
        or flatten is not getattr(base, "_pytree__flatten", None)
        or not inherits(cls, base, "_pytree__unflatten")
        or _registered_compat.registered_unflatten(cls) != getattr(cls, "_pytree__unflatten", None)
        or not _reads_its_dict(cls)
    ):
        return None
    return functools.partial(_describe, flatten, mapping_type)


def _reads_its_dict(cls: type) -> bool:
    """True if ``vars`` and attribute access show what is stored in an instance."""
    definer = next(c for c in cls.__mro__ if "__getattribute__" in c.__dict__)
    own = [c.__dict__["__dict__"] for c in cls.__mro__ if "__dict__" in c.__dict__]
    return (definer is object or definer.__module__.partition(".")[0] == "flax") and all(
        type(descriptor) is types.GetSetDescriptorType for descriptor in own
    )


def _describe(flatten: Any, mapping_type: Any, x: Any) -> Description | None:
    children, aux = flatten(x)
    attributes = object.__getattribute__(x, "__dict__")
    if not (isinstance(aux, tuple) and len(aux) == 3):
        return None
    dynamic, static = tuple(map(str, aux[0])), tuple(map(str, aux[1]))
    found = [attributes.get(name, attributes) for name in dynamic + static]
    described = [*children, *aux[2]]
    if (
        "_pytree__nodes" not in static
        or type(attributes["_pytree__nodes"]) is not mapping_type
        or len(attributes) != len(found)
        or len(described) != len(found)
        or any(a is not b for a, b in zip(found, described, strict=True))
        or not all(type(name) is str for name in attributes)
    ):
        return None
    keys = tuple((key,) if isinstance(key, int) else key for key in (*aux[0], *aux[1]))
    return dynamic, static, keys if any(type(key) is tuple for key in keys) else None


def hashable_mapping() -> Callable[[Mapping[Any, Any]], Any] | None:
    """Returns the type of the mappings in which Flax records whether attributes are data, or
    None."""
    found = _private.loaded("flax.typing", "HashableMapping")
    found = found or _private.loaded("flax.nnx.graph", "HashableMapping")  # before Flax 0.12.6
    return found if isinstance(found, type) else None


def contents(cls: type) -> tuple[str, ...] | None:
    """Returns the names of the attributes that define a `hashable_mapping`; None for other
    classes."""
    return ("_mapping",) if cls is hashable_mapping() else None


def fixed(cls: type) -> Callable[[Any], bool] | None:
    """Returns a predicate for values of `hashable_mapping` that nothing can change; None for other
    classes. These are compared by contents, but with themselves by identity alone."""
    # Not GraphDef: it holds static values of Modules, which can change in place.
    return _owns_its_dict if cls is hashable_mapping() else None


_INERT = frozenset({bool, int, str, type(None)})


def _owns_its_dict(x: Any) -> bool:
    """True if only the mapping refers to its dict of items, and these can't change."""
    return (
        type(x._mapping) is dict
        and _references(x) == _references(_Owner())
        and _INERT.issuperset(map(type, x._mapping))
        and _INERT.issuperset(map(type, x._mapping.values()))
    )


def _references(x: Any) -> int:
    return sys.getrefcount(x._mapping)


class _Owner:
    """Refers to a dict like a mapping that is its only owner."""

    def __init__(self) -> None:
        self._mapping: dict[str, bool] = {}


def variable_type() -> type | None:
    """Returns the class of NNX's Variables, or None if NNX isn't imported. Fallback: None."""
    found = _private.loaded("flax.nnx.variablelib", "Variable")
    return found if isinstance(found, type) and hasattr(found, "get_raw_value") else None


def graph_types() -> tuple[tuple[type, ...], tuple[type, ...]]:
    """Returns the NNX classes of mutable, shareable objects, and of trees with their contents, such
    as State; none if NNX isn't imported. Fallback: none."""
    nodes = (
        _private.loaded("flax.nnx.pytreelib", "Pytree"),
        _private.loaded("flax.nnx.variablelib", "Variable"),
    )
    state = _private.loaded("flax.nnx.statelib", "State")
    found = [[x for x in xs if isinstance(x, type)] for xs in (nodes, (state,))]
    return tuple(found[0]), tuple(found[1])
