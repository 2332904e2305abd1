"""Where pytrees of further libraries hold their children, and the private names for this.

The rules are those of `_flax_compat`: no imports of the libraries; each description is checked on
an instance; and if a name is missing or a function differs, the registered functions flatten the
class.
"""

import dataclasses
import operator
from typing import Any

from . import _private, _registered_compat
from ._flax_compat import ObjectFields, inherits

# A Struct's functions for its children, their keys, and rebuilding.
_STRUCT_FUNCTIONS = (
    "tree_flatten",
    "tree_flatten_with_keys",
    "tree_unflatten",
    "key_for_field",
    "from_attributes",
)


def object_fields(cls: type) -> ObjectFields | None:
    """Returns the fields of a ``penzai`` Struct, which say whether they are children; None for
    other classes, and for Structs that override one of the functions."""
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
    """True if a function only calls its argument's method by this name, like the function with
    which JAX registers classes that flatten themselves."""
    caller = operator.methodcaller(name)
    return type(function) is type(caller) and function.__reduce__() == caller.__reduce__()
