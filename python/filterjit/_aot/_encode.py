"""Structures and static values as plain JSON, and back.

Static values are all that is not an array. None, booleans, strings and small ints are themselves in
JSON; any other value is ``[tag, content]`` (`_CODECS`). A structure is the list of its nodes, each
before its children (`_NODES`). Classes and functions have numbers, and beside the nodes there is the
module and the qualified name of each: they are looked up in modules that the program has imported,
so decoding imports nothing. Decoding runs the same code as flattening and building such a tree in any
call.

A file also has one description (`describe`) of what these classes and functions are, which is compared
before they are used.
"""

import collections
import contextlib
import dataclasses
import enum
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import _core
from .._base._errors import format_path, short
from .._compat import _equinox_compat, _flax_compat, _other_compat, _registered_compat
from .._functions._texts import PYTHON, difference, texts
from .._functions._values import ATOMS
from .._trees import _nodes

Json = Any
Place = Sequence[str]
"""A module and a qualified name in it."""


class Unsupported(ValueError):
    """A value cannot be stored, or cannot be found again; the message gives the reason."""


# ---- classes and functions, by module and name ----


def _find(place: Place) -> Any:
    """Looks an object up by its name, without imports and without calling any ``__getattr__``."""
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
    """Yields names and members of a module or class, and names and defaults of a function.

    Defaults are included because a lambda, which has no name of its own, is often one.
    """
    cls = type(x)  # `isinstance` would read `__class__`, which may import something
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
    """Returns the qualified name of an object in a module, its classes and its functions' defaults,
    or None."""
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
        raise Unsupported(f"{short(x)} has no module or name to look it up by")
    with contextlib.suppress(Unsupported):
        if _find((module, qualname)) is x:
            return module, qualname
    name = _search(module, x)
    if name is None:
        raise Unsupported(f"`{qualname}` cannot be found in `{module}`; define it there")
    return module, name


# ---- what they are ----


def describe(places: Iterable[Place]) -> Json:
    """Returns the version of Python and a description of what is found under these names."""
    found = [(".".join(place), _find(place)) for place in dict.fromkeys(map(tuple, places))]
    kinds = [(f"the kind of `{name}`", f"str {_kind(x)}") for name, x in found]
    return [PYTHON, [*map(list, texts(found, for_file=True)), *map(list, kinds)]]


def check_description(places: Sequence[Place], described: Json, versions: bool) -> None:
    """Raises Unsupported if what is found under these names is not as it was described.

    `versions` is whether the versions of installed packages count.
    """
    python, parts = described
    now = describe(places)[1]
    changed = difference(parts, now, versions=versions, bytecode=python == PYTHON)
    if changed is not None:
        raise Unsupported(f"since the file was written, something has changed: {changed}")


def _kind(x: Any) -> str:
    """Returns what must be unchanged whatever version of Python looks an object up again: its type,
    and the fields or members of a class."""
    kind, parts = type(x).__qualname__, []
    if issubclass(type(x), type):
        if dataclasses.is_dataclass(x):
            parts = [field.name for field in dataclasses.fields(x)]
        elif issubclass(x, enum.Enum):
            members = x.__members__.items()
            parts = [f"{k}={v.value!r}" if type(v.value) in ATOMS else k for k, v in members]
        else:
            parts = list(getattr(x, "_fields", ()))
    return f"{kind}({', '.join(parts)})"


# ---- values ----


class Coder:
    """Encodes static values as JSON, and decodes them.

    Arguments:
        known: objects that have the same numbers where the JSON is decoded.
        names: where further objects are found.

    Attributes:
        objects: what JSON refers to by numbers: the known objects, and then what `names` has.
    """

    def __init__(self, known: Sequence[Any] = (), names: Iterable[Place] = ()) -> None:
        self.names = list(names)
        self.objects = [*known, *map(_find, self.names)]
        self._known = len(known)
        self._numbers = {id(x): i for i, x in reversed(list(enumerate(self.objects)))}

    def number(self, x: Any) -> int:
        """Returns the number of an object, which is found by its name if it is not known."""
        number: int | None = self._numbers.get(id(x))
        if number is None:
            self.names.append(_place_of(x))
            number = self._numbers[id(x)] = len(self.objects)
            self.objects.append(x)
        return number

    def object(self, number: Json) -> Any:
        """Returns the object of a number."""
        if type(number) is not int or number < 0:
            raise TypeError("not a number of an object")
        return self.objects[number]

    def encode(self, x: Any) -> Json:
        """Raises Unsupported for what JSON cannot hold."""
        cls = type(x)
        if x is None or cls is bool or cls is str or (cls is int and abs(x) < _LARGE):
            return x
        tag = _TAGS.get(cls) or next((tag for tag, fits in _KINDS if fits(x)), None)
        if tag is None:
            raise Unsupported(f"{short(x)} of type `{cls.__qualname__}`")
        return [tag, _CODECS[tag][0](self, x)]

    def decode(self, json: Json) -> Any:
        """Raises Unsupported if something is missing or has changed, and any exception if the JSON is
        malformed."""
        if json is None or type(json) in (bool, str, int):
            return json
        tag, content = json
        return _CODECS[tag][1](self, content)

    def encode_all(self, items: Iterable[Any]) -> list[Json]:
        return list(map(self.encode, items))

    def decode_all(self, json: Json) -> list[Any]:
        if type(json) is not list:
            raise TypeError("not a list")
        return list(map(self.decode, json))

    def encode_static(self, registry: _core.Registry, x: Any) -> Json:
        """As `encode`, of a value that must be equal when it is decoded."""
        if type(x) not in ATOMS and self._numbers.get(id(x), self._known) < self._known:
            return ["object", self._numbers[id(x)]]
        try:
            json = self.encode(x)
            if not _same(registry, self.decode(json), x):
                raise Unsupported(f"{short(x)} would not be equal after loading")
        except Unsupported:
            for number, y in enumerate(self.objects[: self._known]):
                if type(x) is type(y) and _same(registry, x, y):
                    return ["object", number]
            raise
        return json


def _same(registry: _core.Registry, x: Any, y: Any) -> bool:
    try:
        return bool(_core.same_static(registry, x, y))
    except Exception:
        return False


def _checked(x: Any, base: type) -> Any:
    """Returns a class that inherits from another one; raises TypeError for anything else."""
    if not (issubclass(type(x), type) and issubclass(x, base)):
        raise TypeError(f"not a class of {base.__name__}")
    return x


_LARGE = 1 << 53  # other readers of JSON take larger ints for floats


def _encode_set(coder: Coder, x: Any) -> Json:
    """In an order that is the same in all processes, since the digest of a program has it."""
    return sorted(coder.encode_all(x), key=repr)


def _bounds(coder: Coder, x: Any) -> Json:
    return coder.encode_all((x.start, x.stop, x.step))


def _encode_dict(coder: Coder, x: Any) -> Json:
    return list(map(coder.encode_all, x.items()))


def _decode_dict(coder: Coder, json: Json) -> dict[Any, Any]:
    return dict(map(coder.decode_all, json))


def _decode_enum(coder: Coder, json: Json) -> enum.Enum:
    number, name = json
    cls = _checked(coder.object(number), enum.Enum)
    if type(name) is not str or name not in cls.__members__:
        raise Unsupported(f"there is no {name!r} in `{cls.__qualname__}`")
    member: enum.Enum = cls.__members__[name]
    return member


def _decode_namedtuple(coder: Coder, json: Json) -> Any:
    number, items = json
    return _new_namedtuple(coder.object(number), coder.decode_all(items))


def _new_namedtuple(cls: Any, items: Sequence[Any]) -> Any:
    if len(getattr(_checked(cls, tuple), "_fields", ())) != len(items):
        raise TypeError("not a named tuple")
    return tuple.__new__(cls, items)


def _decode_mapping(coder: Coder, json: Json) -> Any:
    make = _flax_compat.hashable_mapping()
    if make is None:
        raise Unsupported("Flax is not imported")
    return make(_decode_dict(coder, json))


def _encode_dataclass(coder: Coder, x: Any) -> Json:
    fields = {f.name: getattr(x, f.name) for f in dataclasses.fields(x)}
    if getattr(x, "__dict__", fields).keys() != fields.keys():
        raise Unsupported(f"{short(x)} has attributes other than its fields")
    return [coder.number(type(x)), _encode_dict(coder, fields)]


def _decode_dataclass(coder: Coder, json: Json) -> Any:
    number, fields = json
    return _new(coder.object(number), _decode_dict(coder, fields))


def _new(cls: Any, fields: dict[Any, Any]) -> Any:
    """Returns an instance of a dataclass with these fields, without calling its constructor."""
    if not dataclasses.is_dataclass(_checked(cls, object)):
        raise TypeError("not a dataclass")
    details = _equinox_compat.module_details() if _equinox_compat.equinox() is not None else None
    names = {field.name for field in dataclasses.fields(cls)}.union(*(details or ((), ()))[1:])
    x: Any = object.__new__(cls)
    for name, value in fields.items():
        if name not in names:
            raise ValueError(f"a field {name!r}")
        object.__setattr__(x, name, value)
    return x


# The dtypes of PRNG keys, and JAX's names of their implementations.
KEYS = {"key<fry>": "threefry2x32", "key<rbg>": "rbg", "key<urbg>": "unsafe_rbg"}


def encode_dtype(dtype: Any) -> str:
    """Returns a name of a dtype: JAX's, or NumPy's, which tells a length and a byte order."""
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


# How values are encoded and decoded, by their tags.
_CODECS: dict[str, tuple[Callable[[Coder, Any], Json], Callable[[Coder, Json], Any]]] = {
    "int": (lambda _, x: hex(x), lambda _, json: int(json, 16)),
    "float": (lambda _, x: x.hex(), lambda _, json: float.fromhex(json)),
    "complex": (
        lambda _, x: [x.real.hex(), x.imag.hex()],
        lambda _, json: complex(*map(float.fromhex, json)),
    ),
    "bytes": (lambda _, x: x.hex(), lambda _, json: bytes.fromhex(json)),
    "tuple": (Coder.encode_all, lambda coder, json: tuple(coder.decode_all(json))),
    "list": (Coder.encode_all, Coder.decode_all),
    "set": (_encode_set, lambda coder, json: set(coder.decode_all(json))),
    "frozenset": (_encode_set, lambda coder, json: frozenset(coder.decode_all(json))),
    "dict": (_encode_dict, _decode_dict),
    "slice": (_bounds, lambda coder, json: slice(*coder.decode_all(json))),
    "range": (_bounds, lambda coder, json: range(*coder.decode_all(json))),
    "ellipsis": (lambda *_: None, lambda *_: ...),
    "enum": (lambda coder, x: [coder.number(type(x)), x.name], _decode_enum),
    "dtype": (lambda _, x: encode_dtype(x), lambda _, json: decode_dtype(json)),
    "namedtuple": (
        lambda coder, x: [coder.number(type(x)), coder.encode_all(x)],
        _decode_namedtuple,
    ),
    "mapping": (_encode_dict, _decode_mapping),
    "dataclass": (_encode_dataclass, _decode_dataclass),
    "object": (Coder.number, Coder.object),
}
# The tags of values of exactly these types, and of all others that fit.
_TAGS: dict[type, str] = {
    cls: cls.__name__
    for cls in (int, float, complex, bytes, tuple, list, set, frozenset, dict, slice, range)
} | {type(...): "ellipsis"}
_KINDS: tuple[tuple[str, Callable[[Any], bool]], ...] = (
    ("enum", lambda x: isinstance(x, enum.Enum)),
    ("dtype", lambda x: isinstance(x, np.dtype)),
    ("namedtuple", lambda x: isinstance(x, tuple) and hasattr(type(x), "_fields")),
    ("mapping", lambda x: type(x) is _flax_compat.hashable_mapping()),
    ("dataclass", lambda x: not isinstance(x, type) and dataclasses.is_dataclass(x)),
    ("object", lambda x: isinstance(x, type) or callable(x)),
)


# ---- structures ----


def encode_structure(
    registry: _core.Registry, structure: _core.Structure, what: str, known: Sequence[Any] = ()
) -> Json:
    """Returns the names of the classes and functions in a structure, and its nodes: for each its kind,
    its number of children, its type, and what is static in it.

    Types and statics that are among `known` need no names.

    Raises:
        ValueError: if a file cannot hold some of the static values; the message gives their paths.
            `what` names the whole structure.
    """
    coder = Coder(known)
    nodes: list[Json] = []
    problems: list[str] = []
    for node, path in _nodes.walk(structure):
        try:
            if node.kind not in _NODES:
                raise Unsupported(f"a node of kind {node.kind}")
            cls = None if node.type is None else coder.number(node.type)
            statics = [coder.encode_static(registry, x) for x in node.statics]
            nodes.append([node.kind, len(node.children), cls, statics])
        except (Unsupported, RecursionError) as e:
            why = "it is nested too deeply" if isinstance(e, RecursionError) else e
            problems.append(f"  `{format_path(path) or what}`: {why}")
    if problems:
        raise ValueError(
            f"a file cannot hold these parts of {what}:\n" + "\n".join(problems) + "\n"
            "A file can hold numbers, strings, containers, enums, dataclasses, dtypes, and "
            "functions and classes that are found in a module by their names."
        )
    return [coder.names, nodes]


def decode_tree(encoded: Json, array: Any, missing: Any, known: Sequence[Any] = ()) -> Any:
    """Builds the tree of a structure, with `array` in the place of each array.

    `missing` stands for arguments and fields that were not given. The arguments of a call are a
    dict by parameter.

    Raises Unsupported if a class or function is missing or has changed, and any exception if the
    nodes are malformed.
    """
    names, nodes = encoded
    coder = Coder(known, names)
    leaves = {"array": array, "missing": missing}
    stack: list[Any] = []
    for kind, count, number, statics in reversed(nodes):
        if type(count) is not int or not 0 <= count <= len(stack):
            raise ValueError("a node has more children than follow it")
        children = [stack.pop() for _ in range(count)]
        cls = None if number is None else coder.object(number)
        found = coder.decode_all(statics)
        if kind in ("module", "object"):  # a field that was never set
            given = [(k, x) for k, x in zip(found, children, strict=True) if x is not missing]
            found, children = [k for k, _ in given], [x for _, x in given]
        stack.append(leaves[kind] if kind in leaves else _NODES[kind](cls, found, children))
    (tree,) = stack
    return tree


def _by_name(_: Any, names: list[Any], children: list[Any]) -> dict[Any, Any]:
    return dict(zip(names, children, strict=True))


def _new_default_dict(_: Any, keys: list[Any], children: list[Any]) -> Any:
    return collections.defaultdict(children[0], zip(keys, children[1:], strict=True))


def _new_custom(cls: Any, statics: list[Any], children: list[Any]) -> Any:
    unflatten = _registered_compat.registered_unflatten(cls)
    if unflatten is None:
        raise Unsupported(f"`{cls}` is not registered as a pytree")
    (aux,) = statics
    return unflatten(aux, children)


def _new_node(cls: Any, names: list[Any], children: list[Any]) -> Any:
    """Returns an instance of a class of pytrees with these fields, as the C core builds it."""
    fields = dict(zip(names, children, strict=True))
    known = isinstance(cls, type) and (
        _flax_compat.object_fields(cls) or _other_compat.object_fields(cls)
    )
    described = isinstance(cls, type) and _flax_compat.describer(cls) is not None
    if not known and not described:
        return _new(cls, fields)
    if not known:
        if not all(type(name) is str for name in fields):
            raise TypeError("the names of attributes")
    elif fields.keys() != {*known.dynamic, *known.static}:
        raise ValueError(f"other fields of a {cls}: {list(fields)}")
    elif known.mode == "partial":
        return cls(fields["func"], *fields["args"], **fields["keywords"])
    else:
        fields |= {name: make() for name, make in known.factories.items()}
    x: Any = object.__new__(cls)
    for name, value in fields.items():
        if isinstance(inspect.getattr_static(cls, name, None), property):
            raise Unsupported(f"`{name}` of {short(x)} is set by a property")
        object.__setattr__(x, name, value)
    return x


# What a node of a kind is, of its type, what is static in it, and its children.
_NODES: dict[str, Callable[[Any, list[Any], list[Any]], Any]] = {
    "array": lambda *_: None,  # `decode_tree` is given these two
    "missing": lambda *_: None,
    "none": lambda *_: None,
    "static": lambda _, statics, __: statics[0],
    "tuple": lambda _, __, children: tuple(children),
    "list": lambda _, __, children: children,
    "arguments": _by_name,
    "dict": _by_name,
    "ordered_dict": lambda *parts: collections.OrderedDict(_by_name(*parts)),
    "default_dict": _new_default_dict,
    "namedtuple": lambda cls, _, children: _new_namedtuple(cls, children),
    "module": _new_node,
    "object": _new_node,
    "custom": _new_custom,
}
