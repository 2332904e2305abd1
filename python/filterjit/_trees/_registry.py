"""The registry of JAX's and Equinox's node types, which the C core asks once per type.

`classify` describes types. A separate policy says which leaves are traced: here, JAX and NumPy
arrays. Registries with other policies share the types::

    registry.with_policy(traced=(bool, int, float, complex))

This module also registers the C core's pytree types with JAX.
"""

import collections
import dataclasses
import types
from collections.abc import Callable
from typing import Any

import jax
import jax.tree_util as jtu

from .. import _core
from .._base import _messages
from .._compat import _equinox_compat, _flax_compat, _jax_compat, _registered_compat
from ._keys import OwnEquality, fixed_of, is_like_generated, static_contents, static_key
from ._values import has_other_dict

_BUILTIN: dict[type, str] = {
    type(None): "none",
    tuple: "tuple",
    list: "list",
    dict: "dict",
    collections.OrderedDict: "ordered_dict",
    collections.defaultdict: "default_dict",
}
# Types with only static instances.
_STATIC: frozenset[type] = frozenset(
    {bool, int, float, complex, str, bytes, type, type(print), type(lambda: None)}
)

flatten_one_level: Callable[[Any], Any] = jtu.default_registry.flatten_one_level


class _Missing:
    """The type of the sentinel for missing arguments and fields."""

    def __repr__(self) -> str:
        return "missing"


def is_array(x: Any) -> bool:
    """True for tracers and arrays of JAX and NumPy, which `filter_jit` traces. All other leaves are
    static."""
    return isinstance(x, _jax_compat.ARRAY_TYPES)


def _key(entry: Any) -> str | tuple[Any]:
    """Converts a key of JAX to the C core's format: a name, or ``(key,)`` for an item."""
    match entry:
        case jtu.GetAttrKey(name=name) if type(name) is str:
            return name
        case jtu.DictKey(key=key) | jtu.FlattenedIndexKey(key=key):
            return (key,)
        case jtu.SequenceKey(idx=index):
            return (index,)
        case _:
            return str(entry)


def flatten_with_keys(
    x: Any,
) -> tuple[tuple[Any, ...], Any, Callable[[Any, Any], Any], tuple[str | tuple[Any], ...]]:
    """Flattens one level. Returns (children, aux data, unflatten, keys of children)."""
    # `is_leaf` sees the root first, then its children, which can include the root.
    answers = iter((False,))
    pairs, treedef = jtu.tree_flatten_with_path(x, is_leaf=lambda _: next(answers, True))
    children = tuple([child for _, child in pairs])
    keys = tuple([_key(path[0]) for path, _ in pairs])
    aux = treedef.node_data()[1]
    # Not treedef.unflatten: the garbage collector can't see through a treedef, and would never free
    # a cycle through a function in the aux data.
    registered = _registered_compat.registered_unflatten(type(x))
    unflatten = registered or (lambda _, children: treedef.unflatten(children))
    return children, aux, unflatten, keys


def _classify_module(cls: type, x: Any) -> dict[str, Any] | None:
    """Describes a class of Equinox Modules to the C core, or returns None. Checks, by flattening
    and rebuilding `x`, that the class's registered functions do what the C core would."""
    equinox = _equinox_compat.equinox()
    details = _equinox_compat.module_details() if equinox is not None else None
    if equinox is None or details is None or not issubclass(cls, equinox.Module):
        return None
    if object.__getattribute__(x, "__dict__") is not x.__dict__ or any(
        map(has_other_dict, cls.__mro__)
    ):
        return None  # its attributes might not be in `x.__dict__`
    missing, wrapper = details
    fields = dataclasses.fields(cls)
    dynamic = tuple([f.name for f in fields if not f.metadata.get("static", False)])
    static = tuple([f.name for f in fields if f.metadata.get("static", False)])

    children, aux, unflatten, _ = flatten_with_keys(x)
    attributes = x.__dict__

    def values(names: tuple[str, ...]) -> list[Any]:
        return [attributes.get(name, missing) for name in names]

    wrapped = missing if len(attributes) == len(fields) else tuple(values(wrapper))
    if not (
        _same_objects(children, values(dynamic))
        and isinstance(aux, tuple)
        and _same_objects(aux[1:], values(static))
        and (aux[0] is wrapped or (wrapped is not missing and _same_objects(aux[0], wrapped)))
    ):
        return None
    rebuilt = unflatten(aux, children)
    present = {name for name in dynamic + static if name in attributes}
    if type(rebuilt) is not cls or any(
        rebuilt.__dict__.get(name, missing) is not attributes[name] for name in present
    ):
        return None
    registry.missing = missing
    return {
        "kind": "module",
        "key": static_key(cls),
        "dynamic": dynamic,
        "static": static,
        "extra": wrapper,
    }


def _same_objects(xs: Any, ys: Any) -> bool:
    xs, ys = tuple(xs), tuple(ys)
    return len(xs) == len(ys) and all(x is y for x, y in zip(xs, ys, strict=True))


def _classify_dataclass(cls: type, x: Any) -> dict[str, Any] | None:
    """Describes a class that ``jax.tree_util.register_dataclass`` registered, or returns None."""
    fields = _registered_compat.registered_dataclass_fields(cls)
    if fields is None:
        return None
    data, meta = fields
    children, aux, unflatten, _ = flatten_with_keys(x)
    try:
        values = [getattr(x, name) for name in data], [getattr(x, name) for name in meta]
    except AttributeError:
        return None
    if not (_same_objects(children, values[0]) and _same_objects(aux, values[1])):
        return None
    expected = dict(zip(data + meta, values[0] + values[1], strict=True))
    sets = _is_init_generated(cls, data + meta) and _has_just(
        unflatten(aux, children), cls, expected
    )
    build = "init" if sets else "call"
    return {"kind": "object", "dynamic": data, "static": meta, "build": build} | _key_of(cls)


def _is_init_generated(cls: Any, names: tuple[str, ...]) -> bool:
    """True if constructing the dataclass runs only a generated ``__init__``, and no user code."""
    return (
        is_like_generated(cls.__init__, "__init__")
        and hasattr(cls, "__dataclass_params__")
        and all(field.init for field in dataclasses.fields(cls))
        and {field.name for field in dataclasses.fields(cls)} == set(names)
        and not hasattr(cls, "__post_init__")
        and cls.__new__ is object.__new__
        and type(cls).__call__ is type.__call__
        and (cls.__dataclass_params__.frozen or cls.__setattr__ is object.__setattr__)
    )


def _stored_in(x: Any) -> dict[str, Any]:
    """Returns an instance's ``__dict__`` and slots."""
    try:
        found = dict(object.__getattribute__(x, "__dict__"))  # not what a __getattr__ returns
    except AttributeError:
        found = {}
    for base in type(x).__mro__:
        for name, descriptor in base.__dict__.items():
            if type(descriptor) is types.MemberDescriptorType:
                try:
                    found[name] = descriptor.__get__(x)
                except AttributeError:
                    pass
    return found


def _has_just(x: Any, cls: type, expected: dict[str, Any]) -> bool:
    """True if `x` is an instance of the class with exactly these attributes."""
    found = _stored_in(x)
    return (
        type(x) is cls
        and found.keys() == expected.keys()
        and all(found[name] is value for name, value in expected.items())
    )


def _has_same_items(a: Any, b: Any) -> bool:
    """True if two objects are identical, or are dicts or tuples of identical objects."""
    if type(a) is not type(b):
        return False
    if type(a) is dict:
        return a.keys() == b.keys() and all(a[key] is value for key, value in b.items())
    return a is b or (type(a) is tuple and _same_objects(a, b))


def _classify_object(cls: type, x: Any) -> dict[str, Any] | None:
    """Describes a class of Flax with children in attributes, or returns None. Checks the
    registered functions by flattening and rebuilding `x`."""
    fields = _flax_compat.object_fields(cls)
    if fields is None:
        return None
    values = {name: getattr(x, name) for name in fields.dynamic + fields.static}
    if any(type(values[name]) is not dict for name in fields.dict_fields):
        return None
    expected: list[Any] = []
    for name in fields.dynamic:
        value = values[name]
        expected += [value[k] for k in sorted(value)] if name in fields.dict_fields else [value]
    children, aux, unflatten, _ = flatten_with_keys(x)
    rebuilt = unflatten(aux, children)
    found = _stored_in(rebuilt)
    names = values.keys() | fields.factories.keys()
    if not (
        _same_objects(children, expected)
        and type(rebuilt) is cls
        and (found.keys() == names if fields.mode == "fill" else found.keys() >= names)
        and all(_has_same_items(found[name], value) for name, value in values.items())
    ):
        return None
    return {
        "kind": "object",
        "dynamic": fields.dynamic,
        "static": fields.static,
        "keys": fields.keys,
        "dict_fields": fields.dict_fields,
        "build": fields.mode,
        "factories": dict(fields.factories),
    } | _key_of(cls)


def _classify_described(cls: type, x: Any) -> dict[str, Any] | None:
    """Describes a class whose instances list their children, or returns None."""
    describe = _flax_compat.describer(cls)
    if describe is None:
        return None
    children, aux, unflatten, _ = flatten_with_keys(x)
    if not _has_just(unflatten(aux, children), cls, _stored_in(x)):
        return None
    return {"kind": "described", "describe": describe} | _key_of(cls)


def _classify_custom(cls: type, x: Any) -> dict[str, Any]:
    """Describes a class flattened by its registered function."""
    flatten = _registered_compat.registered_flatten(cls)
    if flatten is not None:
        parts: Any = flatten(x)
        if not (isinstance(parts, tuple) and _same_objects(parts[0], flatten_one_level(x)[0])):
            flatten = None
    is_its_aux = _registered_compat.is_registered_static(cls)
    return {"kind": "custom", "flatten": flatten, "is_its_aux": is_its_aux} | _key_of(cls)


# Static types with fixed values (csrc/structure/statics.h).
_FIXED: frozenset[type] = frozenset(
    {
        OwnEquality,
        jax.numpy.ufunc,
        jax.sharding.PartitionSpec,
        jax.sharding.NamedSharding,
        jax.sharding.SingleDeviceSharding,
        jax.sharding.Mesh,
    }
)


def _key_of(cls: type) -> dict[str, Any]:
    """Says how values of a type compare, for `FjNodeKind`."""
    key = static_key(cls)
    if key is _core.identity or cls in _FIXED:
        return {"key": key, "fixed": True}
    contents = _flax_compat.contents(cls)
    return {
        "key": key,
        "fixed": fixed_of(cls) or _flax_compat.fixed(cls),
        "contents": static_contents(cls) if contents is None else contents,
    }


def _is_made_by_namedtuple(cls: Any) -> bool:
    """True if calling the class only builds a tuple, which the C core then does itself."""
    module = getattr(getattr(cls.__new__, "__globals__", None), "get", lambda _: "")("__name__")
    return (
        str(module).startswith("namedtuple_")
        and cls.__init__ is object.__init__
        and type(cls) is type
    )


def _item_names(cls: Any) -> tuple[str, ...]:
    names = cls._fields
    return names if type(names) is tuple and set(map(type, names)) <= {str} else ()


def _classify_tree(cls: type, x: Any) -> dict[str, Any]:
    native = (
        _classify_module(cls, x)
        or _classify_dataclass(cls, x)
        or _classify_object(cls, x)
        or _classify_described(cls, x)
    )
    if native is not None:
        return native
    if issubclass(cls, tuple) and flatten_one_level(x)[1] is cls:
        return {
            "kind": "namedtuple",
            "key": static_key(cls),
            "fill_directly": _is_made_by_namedtuple(cls),
            "dynamic": _item_names(cls),
        }
    return _classify_custom(cls, x)


def classify(cls: type, x: Any) -> dict[str, Any]:
    """Describes a type to the C core, given an instance: its node kind, and how to flatten it. The
    names are members of `FjNodeKind` in csrc/structure/node_kind.h."""
    if (builtin := _BUILTIN.get(cls)) is not None:
        return {"kind": builtin, "key": static_key(cls)}
    if cls in _STATIC:
        return {"kind": "static"}
    if not jtu.all_leaves((x,)):
        try:
            return _classify_tree(cls, x)
        except (MemoryError, RecursionError):
            raise
        except Exception:  # of an instance that can't be flattened, which a static need not be
            return {"kind": "custom"} | _key_of(cls)
    # Some tracers of one type are arrays, and some aren't. So are instances, if `__class__` is
    # defined, which `isinstance` believes.
    own_class = any("__class__" in c.__dict__ for c in cls.__mro__ if c is not object)
    if issubclass(cls, jax.core.Tracer) or own_class:
        return {"kind": "maybe_array"}
    return {"kind": "array" if is_array(x) else "static"} | _key_of(cls)


registry: _core.Registry = _core.Registry(
    array_type=_jax_compat.ARRAY_IMPL,
    classify=classify,
    is_array=is_array,
    flatten_one_level=flatten_one_level,
    flatten_with_keys=flatten_with_keys,
    missing=_Missing(),
    messages=_messages,
)


def leaves_of(tree: Any, is_leaf: Callable[[Any], Any] | None = None) -> list[Any]:
    return _core.tree_flatten(registry, tree, True, is_leaf)[0]


NUMBERS = (bool, int, float, complex)

# The rule of ``jax.jit``: Python numbers are traced.
with_numbers: _core.Registry = registry.with_policy(traced=NUMBERS)

# The same rule, but only in the arguments of some parameters.
with_numbers_in_some: _core.Registry = registry.with_policy(traced_in=NUMBERS)


def is_traced(x: Any) -> bool:
    """True if ``jax.jit`` certainly accepts and returns the leaf."""
    return type(x) in NUMBERS or isinstance(x, (*_jax_compat.ARRAY_TYPES, jax.core.Tracer))


jtu.register_pytree_node(_core.Output, _core.output_flatten, _core.output_unflatten)
