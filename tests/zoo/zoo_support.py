"""What the zoo's tables are made of: a static, the places where one can stand, and what a function sees.

A table, such as that of values.py, has a static under each name::

    "bytearray": Static(lambda: [bytearray(b"ab"), b"ab"], lambda x: x.append(3))

The first function makes values that differ. The second one changes the first of them.
"""

import collections
import collections.abc
import dataclasses
import enum
import functools
import gc
import inspect
import pathlib
import struct
import sys
import time
import types
import uuid
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.tree_util as jtu
import numpy as np
from flax.nnx import Variable

from support.modules import Holder
from support.nodes import Custom, Point
from support.statics import Constant
from support.trees import ONE

# Each puts a value into an argument: as a leaf, where it must be hashable,
LEAVES: dict[str, Callable[[Any], Any]] = {
    "argument": lambda v: v,
    "containers": lambda v: {"a": [(v, 1)]},
    "Partial": lambda v: jtu.Partial(print, v),
    "dataclass": lambda v: Constant((v, 1)),
    "key": lambda v: {(v,): 1},
}
# and in static fields, aux data, and functions that are compared by structure.
FIELDS: dict[str, Callable[[Any], Any]] = {
    "static field": lambda v: Holder(ONE, v),
    "containers in a static field": lambda v: Holder(None, Point(1, [{"k": (v, 1)}])),
    "dataclass in a static field": lambda v: Holder(None, Constant(v)),
    "Module in a static field": lambda v: Holder(None, Holder(v)),
    "key in a static field": lambda v: Holder(None, {v: 1}),
    "aux data": lambda v: Custom(None, label=v),
    "metadata of a Variable": lambda v: Variable._new(None, {"c": v}),
    "closure": lambda v: lambda: v,
}
PLACES = LEAVES | FIELDS
fields = tuple(FIELDS)


@dataclasses.dataclass(frozen=True)
class Static:
    """Values that differ, and what is true of them."""

    make: Callable[[], list[Any]]  # anew on each call
    change: Callable[[Any], object] | None = None  # of the first one, in place
    places: tuple[str, ...] = tuple(PLACES)
    shared: bool = True  # equal copies share a program; others are compared by identity
    noticed: bool = True  # the change is; else the value equals what it was
    # Of functions that hold it: whether they do, by identity, since little is known of it; and how
    # many values no new function shares a program with, if not those that have no hash.
    opaque: bool = False
    apart: int | None = None

    def apart_in_functions(self, values: list[Any]) -> int:
        if self.apart is not None:
            return self.apart
        return len(values) if self.opaque else sum(map(_has_no_hash, values))


def of_numbers(
    make: Callable[[Any], Any],
    change: Callable[[Any], object] | None = None,
    places: tuple[str, ...] = tuple(PLACES),
    numbers: tuple[Any, ...] = (-1, 1, True, 1.0),
    **more: Any,
) -> Static:
    """A static that holds a number: one value of each of these, which differ."""
    return Static(lambda: [make(n) for n in numbers], change, places, **more)


def _has_no_hash(x: Any) -> bool:
    try:
        hash(x)
    except (TypeError, ValueError):
        return True
    return False


def attributed(x: Any, **attributes: Any) -> Any:
    """Returns an object with these attributes set."""
    for name, value in attributes.items():
        setattr(x, name, value)
    return x


def set_to(name: str, value: Any) -> Callable[[Any], object]:
    """Returns a function that sets an attribute."""
    return lambda x: setattr(x, name, value)


def set_frozen(name: str, value: Any) -> Callable[[Any], object]:
    """Returns a function that sets an attribute, of a frozen object too."""
    return lambda x: object.__setattr__(x, name, value)


_STANDARD_LIBRARY = sys.stdlib_module_names - {"types"}
_BY_REPR = {"http", "numpy", "omegaconf"}  # these keep more than they show
_PARTS_OF_FUNCTIONS = "__qualname__", "__self__", "__func__", "__wrapped__", "__defaults__"


def seen(x: Any, inside: tuple[int, ...] = ()) -> str:
    """Tells apart all that a traced function can tell apart. `inside` are the objects around it."""
    if id(x) in inside:
        return "..."
    if x is ONE or isinstance(x, jax.core.Tracer):
        return "an array"
    parts = [y if isinstance(y, _Text) else seen(y, (*inside, id(x))) for y in _parts(x)]
    return f"{type(x).__module__}.{type(x).__qualname__}({', '.join(parts)})"


class _Text(str):
    """A part that is shown as it is."""


def _shown(x: Any) -> list[Any]:
    text = repr(x)
    return [] if " at 0x" in text else [_Text(text)]


def _parts(x: Any) -> list[Any]:
    match x:
        case _Text() | None | bool():
            return _shown(x)
        case enum.Enum():
            return [_Text(x.name), x.value]
        case jax.Array():
            with jax.ensure_compile_time_eval():
                is_key = jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)
                data = jax.random.key_data(x) if is_key else x
            return [_Text(x.aval), np.asarray(data)]
        case np.dtype():
            return [*_shown(x), x.str, x.metadata, *([] if x.fields is None else x.fields.values())]
        case np.ndarray():
            return [x.dtype, *_shown((x.shape, x.strides, x.flags.writeable, x.tolist()))]
        case np.generic():
            return [x.dtype, *_shown(x), x.tobytes(), *_attributes(x)]
        case float():
            return [struct.pack("d", x), *_attributes(x)]
        case pathlib.PurePath():
            return list(x.parts)
        case memoryview():
            return [x.format, x.shape, x.strides, x.readonly, x.tobytes()]
        case time.struct_time():
            return [*_shown(x), x.tm_zone]
        case uuid.UUID():
            return [*_shown(x), x.is_safe]
        case functools.partial():
            return [x.func, x.args, x.keywords]
        case types.ModuleType():
            return [v for k, v in vars(x).items() if not k.startswith("_")]
        case type():
            return [_Text(x.__qualname__), *(v for k, v in vars(x).items() if k == "scale")]
        case weakref.ref():
            return [x()]
        case Variable():
            return [x.get_metadata()]
        case types.FunctionType() | types.MethodType() | types.BuiltinMethodType():
            return _parts_of_function(x)
        case types.MethodWrapperType() | jax.stages.Wrapped() | functools._lru_cache_wrapper():
            return _parts_of_function(x)
    if type(x).__module__.partition(".")[0] in _BY_REPR:
        return _shown(x)
    return [*_elements(x), *_attributes(x)]


def _parts_of_function(x: Any) -> list[Any]:
    cells = [cell.cell_contents for cell in getattr(x, "__closure__", None) or ()]
    return [*cells, *(getattr(x, name, None) for name in _PARTS_OF_FUNCTIONS)]


def _elements(x: Any) -> list[Any]:
    match x:
        case types.MappingProxyType():
            return list(gc.get_referents(x))
        case collections.ChainMap():
            return list(x.maps)
        case collections.abc.Mapping():
            return [getattr(x, "default_factory", None), *((k, x[k]) for k in x)]
        case set() | frozenset():
            return sorted(_Text(seen(y)) for y in type(x).__mro__[-2].__iter__(x))
        case weakref.WeakSet():
            return sorted(_Text(seen(y)) for y in x)
        case tuple() | list() | collections.deque() | collections.abc.MappingView():
            return [getattr(x, "maxlen", None), *x]
    by_attributes = dataclasses.is_dataclass(x) or isinstance(x, types.SimpleNamespace)
    if by_attributes or type(x).__repr__ is object.__repr__:
        return []
    return _shown(x)


def _attributes(x: Any) -> list[Any]:
    """Returns the attributes that a program has set: none of an object of the standard library,
    and no cached properties."""
    if type(x).__module__.partition(".")[0] in _STANDARD_LIBRARY:
        return []
    names = list(getattr(x, "__dict__", ()))
    for cls in type(x).__mro__:
        if cls.__module__.partition(".")[0] not in _STANDARD_LIBRARY:
            names += [k for k, v in vars(cls).items() if type(v) is types.MemberDescriptorType]
    return [
        (name, getattr(x, name, "absent"))
        for name in names
        if name != "_hash"
        and not isinstance(inspect.getattr_static(type(x), name, None), functools.cached_property)
    ]
