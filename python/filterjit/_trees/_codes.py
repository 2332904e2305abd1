"""Encodes structures and static values as plain JSON.

A value, or the tree of a structure, is a list of codes. None, booleans, strings and small ints
represent themselves. Any other code is ``[tag, n]``, which combines the `n` values after it
(`_MAKE`). Classes and functions are ``["object", number]``, an index into a separate list of
modules and qualified names.

Decoding imports nothing: it looks up names in modules that the program has imported. It runs only
code that flattening and building such a tree would run. The avals, shardings and layouts of
programs are encoded the same way.
"""

import collections
import contextlib
import dataclasses
import enum
import inspect
import itertools
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import _core
from .._base._arrays import rest_of
from .._base._errors import format_path, short_repr
from .._compat import _equinox_compat, _executable_compat, _flax_compat, _registered_compat
from . import _nodes
from ._registry import registry
from ._values import ROWS, columns, pairs

Json = Any
Place = Sequence[str]
"""(module, qualified name)."""


class Unsupported(ValueError):
    """A value can't be stored, or not found when loading. The message says why."""


# ---- classes and functions, by module and name ----


def find(place: Place) -> Any:
    """Looks up an object by name, without importing or calling ``__getattr__``."""
    module, qualname = place
    if type(module) is not str or type(qualname) is not str:
        raise TypeError("not a name")
    found: Any = sys.modules.get(module)
    if found is None:
        raise Unsupported(f"`{module}` is not imported; import it first")
    for name in qualname.split("."):
        members = dict(_members(found))
        if name not in members:
            raise Unsupported(f"there is no `{qualname}` in `{module}`")
        found = members[name]
    return found


def _members(x: Any) -> Iterator[tuple[str, Any]]:
    """Yields the named members of a module or class, and the defaults of a function."""
    cls = type(x)  # `isinstance` would read `__class__`, and could trigger imports
    if issubclass(cls, types.ModuleType):
        yield from object.__getattribute__(x, "__dict__").items()
    elif issubclass(cls, type):
        for name, value in type.__dict__["__dict__"].__get__(x).items():
            method = issubclass(type(value), (staticmethod, classmethod))
            yield name, value.__func__ if method else value
    elif cls is types.FunctionType:
        defaults = x.__defaults__ or ()
        names = x.__code__.co_varnames[: x.__code__.co_argcount]
        yield from zip(names[len(names) - len(defaults) :], defaults, strict=True)
        yield from (x.__kwdefaults__ or {}).items()


def _search(module: str, x: Any) -> str | None:
    """Returns the qualified name of an object in a module, its classes or defaults, or None."""
    root = sys.modules.get(module)
    todo: list[tuple[Any, list[str]]] = [(root, [])]
    while todo:
        parent, path = todo.pop()
        for name, value in _members(parent):
            if value is x:
                return ".".join([*path, name])
            own = getattr(value, "__module__", None) == module
            if own and len(path) < 3 and isinstance(value, (type, types.FunctionType)):
                todo.append((value, [*path, name]))
    return None


def _place_of(x: Any) -> Place:
    module = getattr(x, "__module__", None)
    qualname = getattr(x, "__qualname__", None) or getattr(x, "__name__", None)
    if type(module) is not str or type(qualname) is not str:
        raise Unsupported(f"{short_repr(x)} has no module or name to look it up by")
    if module == "__main__":
        raise Unsupported(
            f"`{qualname}` is in `__main__`: define it in a module that every process imports"
        )
    with contextlib.suppress(Unsupported):
        if find((module, qualname)) is x:
            return module, qualname
    name = _search(module, x)
    if name is None:
        why = f"cannot be found in `{module}`; define it there"
        if isinstance(x, types.MethodType):
            why = "is bound to an object, which a file cannot hold"
        elif "<locals>" in qualname:
            why = "is made by a function, and a file finds functions by their names in modules"
        raise Unsupported(f"`{qualname}` {why}")
    return module, name


# ---- values ----


class Coder:
    """Encodes values as lists of codes, and decodes them.

    A code can refer to one of the `objects`: first the `known` ones, which must be the same when
    decoding, such as devices, then those found by `names`.
    """

    def __init__(self, known: Sequence[Any] = (), names: Iterable[Place] = ()) -> None:
        self.names = list(names)
        self.objects = [*known, *map(find, self.names)]
        self._numbers = {id(x): i for i, x in reversed(list(enumerate(self.objects)))}

    def object(self, x: Any) -> Json:
        """Returns the code of an object. Unknown objects must have a name."""
        number: int | None = self._numbers.get(id(x))
        if number is None:
            self.names.append(_place_of(x))
            number = self._numbers[id(x)] = len(self.objects)
            self.objects.append(x)
        return ["object", number]

    def encode(self, x: Any) -> list[Json]:
        """Raises Unsupported for values that don't fit into JSON."""
        if x is None or type(x) in (bool, str) or (type(x) is int and abs(x) < _LARGE):
            return [x]
        found = parts_of(x)
        if found is not None:
            tag, parts = found
            if tag in ("set", "frozenset"):
                if len(x) > 1 and any(type(item) is not int for item in x):
                    raise Unsupported(
                        f"{short_repr(x)}, whose order differs between processes: pass a sorted tuple"
                    )
                parts = sorted(parts)
            codes = list(map(self.encode, parts))
            return [[tag, len(codes)], *itertools.chain.from_iterable(codes)]
        if not callable(x) and id(x) not in self._numbers:
            raise Unsupported(f"{short_repr(x)} of type `{type(x).__qualname__}`")
        return [self.object(x)]

    def decode(self, codes: Json) -> Any:
        """Raises Unsupported if a name is missing, and any exception for malformed JSON."""
        made: list[Any] = []
        for code in reversed(codes):
            if code is None or type(code) in (bool, str, int):
                made.append(code)
                continue
            tag, count = code
            if type(count) is not int or count < 0:
                raise TypeError("not a number")
            if tag == "object":
                made.append(self.objects[count])
                continue
            if count > len(made):
                raise ValueError("a value has more parts than follow it")
            made.append(_MAKE[tag](*[made.pop() for _ in range(count)]))
        (x,) = made
        return x

    def encode_static(self, registry: _core.Registry, x: Any) -> list[Json]:
        """Encodes a value, and checks that it decodes to an equal one."""
        codes = self.encode(x)
        back = self.decode(codes)
        with contextlib.suppress(Exception):
            if _core.same_static(registry, back, x):
                return codes
        raise Unsupported(f"{short_repr(x)} would not be equal after loading")


_LARGE = 1 << 53  # beyond it, some JSON readers convert ints to floats


def parts_of(x: Any) -> tuple[str, Iterable[Any]] | None:
    """Returns a value's tag and parts, or None for a named object."""
    cls = type(x)
    row = ROWS.get(cls)
    if row is not None and row.make is not None:
        return cls.__name__, (row.parts or row.contents)(x)
    if x is ...:
        return "ellipsis", []
    if cls is _flax_compat.hashable_mapping():
        return "mapping", columns(x)
    if isinstance(x, enum.Enum):
        if x.name not in cls.__members__:
            raise Unsupported(f"{short_repr(x)}, which is no member of its class")
        return "enum", [cls, x.name]
    if isinstance(x, np.dtype):
        return "dtype", [encode_dtype(x)]
    if isinstance(x, tuple) and hasattr(cls, "_fields"):
        return "namedtuple", [cls, *x]
    if isinstance(x, type) or not dataclasses.is_dataclass(x):
        return _parts_of_jax(x)
    try:
        fields = {f.name: getattr(x, f.name) for f in dataclasses.fields(x)}
    except AttributeError as e:
        raise Unsupported(f"a `{cls.__qualname__}` with a field that is not set ({e})") from None
    if getattr(x, "__dict__", fields).keys() != fields.keys():
        raise Unsupported(f"{short_repr(x)} has attributes other than its fields")
    return "instance", [cls, *columns(fields)]


# ---- values of JAX in programs ----


def _parts_of_jax(x: Any) -> tuple[str, Iterable[Any]] | None:
    """Like `parts_of`. Devices are known objects."""
    cls = type(x)
    if cls is jax.core.ShapedArray:
        sharding = getattr(x, "sharding", None)
        if sharding is not None and getattr(sharding.mesh, "empty", False):
            sharding = None
        return "aval", [tuple(x.shape), encode_dtype(x.dtype), x.weak_type, sharding]
    if cls is jax.sharding.SingleDeviceSharding:
        return "sharding", [*x.device_set, None, memory_of(x)]
    if cls is jax.sharding.NamedSharding:
        return "sharding", [x.mesh, x.spec, memory_of(x)]
    if (of_xla := _executable_compat.parts_of_gspmd(x)) is not None:
        return "gspmd", [*of_xla, memory_of(x)]
    if cls is jax.sharding.PartitionSpec:
        if rest_of(x):
            raise Unsupported(f"the partition {x}")
        return "partition", x
    if cls in (jax.sharding.Mesh, jax.sharding.AbstractMesh):
        devices = x.devices.flat if cls is jax.sharding.Mesh else ()
        kinds = tuple([kind.name for kind in x.axis_types])
        return "mesh", [x.axis_names, x.axis_sizes, kinds, *devices]
    if not callable(x) and cls is _executable_compat.layout_type():
        return "layout", list(_executable_compat.parts_of_layout(x))
    return None


def memory_of(sharding: Any) -> str | None:
    """Returns the memory kind; None for the default, which JAX versions name differently."""
    kind: str | None = sharding.memory_kind
    if isinstance(getattr(sharding, "mesh", None), jax.sharding.AbstractMesh):
        return kind
    return None if kind in {d.default_memory().kind for d in sharding.device_set} else kind


def _new_aval(shape: Any, dtype: Any, weak: Any, sharding: Any) -> Any:
    options = {} if sharding is None else {"sharding": sharding}
    return jax.core.ShapedArray(shape, decode_dtype(dtype), weak_type=weak, **options)


def _new_sharding(on: Any, spec: Any, memory: Any) -> Any:
    if isinstance(on, jax.Device):
        return jax.sharding.SingleDeviceSharding(on, memory_kind=memory)
    return jax.sharding.NamedSharding(on, spec, memory_kind=memory)


def _new_mesh(names: Any, sizes: Any, kinds: Any, *devices: Any) -> Any:
    types = tuple([jax.sharding.AxisType[kind] for kind in kinds])
    if not devices:
        return jax.sharding.AbstractMesh(sizes, names, axis_types=types)
    grid = np.array(devices, dtype=object).reshape(sizes)
    return jax.sharding.Mesh(grid, names, axis_types=types)


def encode_settings(settings: dict[str, Any]) -> Json:
    coder = Coder(jax.devices())
    return [coder.encode({k: setting(x) for k, x in settings.items()}), coder.names]


def decode_settings(encoded: Json) -> dict[str, Any]:
    codes, names = encoded
    found: dict[str, Any] = Coder(jax.devices(), names).decode(codes)
    return found


def setting(x: Any) -> Any:
    """Returns a setting as it is compared: all empty meshes are one."""
    is_mesh = isinstance(x, (jax.sharding.Mesh, jax.sharding.AbstractMesh))
    return None if is_mesh and x.empty else x


# ---- structures ----


def encode_structure(registry: _core.Registry, structure: _core.Structure, what: str) -> Json:
    """Returns the names of the classes and functions in a structure, and the codes of its tree.
    Raises ValueError with the paths of static values that a file can't hold. `what` names the
    structure."""
    coder = Coder()
    codes: list[Json] = []
    problems: list[str] = []
    for node, path in _nodes.walk(structure):
        try:
            codes += _encode_node(coder, registry, node)
        except (Unsupported, RecursionError) as e:
            why = "it is nested too deeply" if isinstance(e, RecursionError) else e
            problems.append(f"`{format_path(path) or what}`: {why}")
    if problems:
        raise Unsupported(f"a file cannot hold these parts of {what}: {'; '.join(problems)}")
    return [coder.names, codes]


def _encode_node(coder: Coder, registry: _core.Registry, node: _nodes.Node) -> list[Json]:
    """Returns a node's codes, without its children's."""
    statics = () if node.kind == "namedtuple" else node.statics
    own = [code for x in statics for code in coder.encode_static(registry, x)]
    if node.kind == "none":
        return [None]
    if node.kind == "static":
        return own
    tag = _TAGS.get(node.kind, node.kind)
    if tag not in _MAKE:
        raise Unsupported(f"a node of kind {node.kind}")
    count = len(statics) + node.arity
    if tag in ("namedtuple", "instance", "custom"):
        return [[tag, count + 1], coder.object(node.type), *own]
    return [[tag, count], *own]


def decode_tree(encoded: Json) -> Any:
    """Builds the tree of a structure, with NumPy arrays for arrays and the registry's sentinel for
    missing arguments. The arguments of a call form a dict by parameter. Raises Unsupported if a
    class or function is missing, and any exception for malformed codes."""
    names, codes = encoded
    return Coder(names=names).decode(codes)


def _checked(x: Any, base: type) -> Any:
    """Returns `x` if it's a subclass of `base`, otherwise raises TypeError."""
    if not (issubclass(type(x), type) and issubclass(x, base)):
        raise TypeError(f"not a class of {base.__name__}")
    return x


def _new_enum(cls: Any, name: Any) -> enum.Enum:
    _checked(cls, enum.Enum)
    if type(name) is not str or name not in cls.__members__:
        raise Unsupported(f"there is no {name!r} in `{cls.__qualname__}`")
    member: enum.Enum = cls.__members__[name]
    return member


def _new_namedtuple(cls: Any, *items: Any) -> Any:
    if len(getattr(_checked(cls, tuple), "_fields", ())) != len(items):
        raise TypeError("not a named tuple")
    return tuple.__new__(cls, items)


def _new_mapping(*columns: Any) -> Any:
    make = _flax_compat.hashable_mapping()
    if make is None:
        raise Unsupported("Flax is not imported")
    return make(dict(pairs(columns)))


def _new_default_dict(*columns: Any) -> Any:
    """Returns a defaultdict. Its factory is between the keys and the values."""
    half = len(columns) // 2
    return collections.defaultdict(columns[half], pairs([*columns[:half], *columns[half + 1 :]]))


def _new_custom(cls: Any, aux: Any, *children: Any) -> Any:
    unflatten = _registered_compat.registered_unflatten(cls)
    if unflatten is None:
        raise Unsupported(f"`{cls}` is not registered as a pytree")
    return unflatten(aux, children)


def _new_instance(cls: Any, *columns: Any) -> Any:
    """Builds an instance from its fields like the C core: without its constructor."""
    fields = {name: x for name, x in pairs(columns) if x is not registry.missing}
    _checked(cls, object)
    known = _flax_compat.object_fields(cls)
    if known:
        if fields.keys() != {*known.dynamic, *known.static}:
            raise ValueError(f"other fields of a {cls}: {list(fields)}")
        if known.mode == "partial":
            return cls(fields["func"], *fields["args"], **fields["keywords"])
        fields |= {name: make() for name, make in known.factories.items()}
    elif _flax_compat.describer(cls) is not None:
        if not all(type(name) is str for name in fields):
            raise TypeError("the names of attributes")
    elif other := fields.keys() - _names_of_fields(cls):
        raise ValueError(f"fields {other}")
    x: Any = object.__new__(cls)
    for name, value in fields.items():
        if isinstance(inspect.getattr_static(cls, name, None), property):
            raise Unsupported(f"`{name}` of {short_repr(x)} is set by a property")
        object.__setattr__(x, name, value)
    return x


def _names_of_fields(cls: Any) -> set[str]:
    """Returns the names of the attributes that a dataclass instance can have."""
    if not dataclasses.is_dataclass(cls):
        raise TypeError("not a dataclass")
    details = _equinox_compat.module_details() if _equinox_compat.equinox() is not None else None
    return {field.name for field in dataclasses.fields(cls)}.union(*(details or ((), ()))[1:])


# The dtypes of PRNG keys, and JAX's names for their implementations.
KEYS = {"key<fry>": "threefry2x32", "key<rbg>": "rbg", "key<urbg>": "unsafe_rbg"}


def encode_dtype(dtype: Any) -> str:
    """Returns JAX's name of a dtype; or NumPy's, if it has a length or byte order."""
    for name in (str(getattr(dtype, "name", dtype)), getattr(dtype, "str", None)):
        with contextlib.suppress(Exception):
            if decode_dtype(name) == dtype:
                return str(name)
    raise Unsupported(f"the dtype {dtype}")


def decode_dtype(name: Json) -> Any:
    if type(name) is not str:
        raise TypeError("not a dtype")
    if name in KEYS:
        return jax.eval_shape(lambda: jax.random.key(0, impl=KEYS[name])).dtype
    return jnp.dtype(name)


# Tags of node kinds, if different.
_TAGS = {"arguments": "dict", "module": "instance", "object": "instance"}
# Constructors by tag.
_MAKE: dict[str, Callable[..., Any]] = {
    **{cls.__name__: row.make for cls, row in ROWS.items() if row.make is not None},
    "ellipsis": lambda: ...,
    "enum": _new_enum,
    "dtype": decode_dtype,
    "namedtuple": _new_namedtuple,
    "mapping": _new_mapping,
    "instance": _new_instance,
    "array": lambda: np.zeros(()),
    "missing": lambda: registry.missing,
    "ordered_dict": lambda *columns: collections.OrderedDict(pairs(columns)),
    "default_dict": _new_default_dict,
    "custom": _new_custom,
    "aval": _new_aval,
    "sharding": _new_sharding,
    "gspmd": _executable_compat.new_gspmd,
    "partition": jax.sharding.PartitionSpec,
    "mesh": _new_mesh,
    "layout": lambda *parts: _executable_compat.layout_type()(*parts),
}
