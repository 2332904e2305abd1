"""How pytrees of libraries other than JAX, Equinox and Flax keep their children, and the private
names that this needs.

The rules are those of `_flax_compat`: this module imports none of the libraries; an instance has to
prove what it says of a class; and if a name is missing or a function differs, the registered
functions flatten the class.
"""

import dataclasses
import operator
from typing import Any

from . import _private, _registered_compat
from ._flax_compat import ObjectFields, inherits

# The functions of a Struct that decide about its children, their keys, and how it is rebuilt.
_STRUCT_FUNCTIONS = (
    "tree_flatten",
    "tree_flatten_with_keys",
    "tree_unflatten",
    "key_for_field",
    "from_attributes",
)


def object_fields(cls: type) -> ObjectFields | None:
    """Returns the fields of a ``penzai`` Struct, which tell which of them are children; None
    for other classes, and for a class of Structs that has one of the functions of its own."""
    struct = _private.loaded("penzai.core.struct", "Struct")
    is_child = _private.loaded("penzai.core.struct", "is_pytree_node_field")
    if (
        is_child is None
        or struct not in cls.__mro__  # not issubclass: an ABC's virtual subclass inherits nothing
        or not _calls(_registered_compat.registered_flatten(cls), "tree_flatten")
        or _registered_compat.registered_unflatten(cls) != getattr(cls, "tree_unflatten", None)
        or not all(inherits(cls, struct, name) for name in _STRUCT_FUNCTIONS)
    ):
        return None
    fields = dataclasses.fields(cls)
    dynamic = tuple([field.name for field in fields if is_child(field)])
    static = tuple([field.name for field in fields if not is_child(field)])
    return ObjectFields(dynamic, static, dynamic + static)


def _calls(function: Any, name: str) -> bool:
    """Whether a function only calls the method of its argument by this name, as does that with
    which JAX registers a class that flattens itself."""
    caller = operator.methodcaller(name)
    return type(function) is type(caller) and function.__reduce__() == caller.__reduce__()
