"""Structures and static values as plain JSON, and back.

Static values are all that is not an array. A value is ``[tag, content]``; a structure is the list
of its nodes, each before its children. Classes and functions are stored as module and qualified
name, with traits that are compared when they are looked up again, the names of fields; and there
is one description (`_functions`) of all of them. They are only looked up in modules that the
program has imported, so decoding imports nothing. Decoding runs the same code as flattening and
building such a tree in any call.
"""

import collections
import contextlib
import dataclasses
import enum
import inspect
import struct
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from .. import _core
from .._base._errors import format_path, short
from .._call._chosen import Chosen
from .._compat import _equinox_compat, _flax_compat, _other_compat, _registered_compat
from .._functions._texts import PYTHON, difference, texts
from .._functions._values import ATOMS
from .._trees import _nodes
from .._trees._filters import Expression, Filter, depends_on_leaves, format_pattern

Json = Any


class Unsupported(ValueError):
    """A value cannot be stored, or cannot be found again; the message gives the reason."""


# ---- options by name of parameter ----


def encode_chosen(chosen: Chosen) -> Json:
    """Returns the parameters of an option: a name, or a name and the filter of its argument.

    Raises Unsupported.
    """
    found: list[Json] = []
    for name in chosen.names:
        expression = chosen.expression(name)
        if depends_on_leaves(expression):
            raise Unsupported(
                f"`{chosen.option}` has a function of leaves for {name!r}, which a file cannot "
                "hold. Path patterns can be saved"
            )
        found.append(name if expression is True else [name, _encode_filter(expression)])
    return found


def decode_chosen(option: str, json: Json) -> Chosen:
    named = (item if type(item) is list else [item, True] for item in json)
    return Chosen.of(option, {name: _decode_filter(filter) for name, filter in named})


def _encode_filter(expression: Expression) -> Json:
    match expression:
        case ("path", components):
            return format_pattern(components)
        case (op, *operands):
            return [op, *map(_encode_filter, operands)]
    return expression


def _decode_filter(json: Json) -> Any:
    match json:
        case str() | bool():
            return json
        case ["not", operand]:
            return ~Filter(_decode_filter(operand))
        case ["and", p, q]:
            return Filter(_decode_filter(p)) & _decode_filter(q)
        case ["or", p, q]:
            return Filter(_decode_filter(p)) | _decode_filter(q)
    raise TypeError("not a filter")


# ---- classes and functions, by module and name ----


def _find(module: str, qualname: str) -> Any:
    """Looks an object up by its name, without imports and without calling any ``__getattr__``."""
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


def _traits(x: Any) -> dict[str, Json]:
    """Returns what must be unchanged in a class or function when it is looked up again, whatever
    version of Python does it."""
    traits: dict[str, Json] = {"type": f"{type(x).__module__}.{type(x).__qualname__}"}
    if issubclass(type(x), type):
        if dataclasses.is_dataclass(x):
            traits["fields"] = [field.name for field in dataclasses.fields(x)]
        elif hasattr(x, "_fields"):
            traits["fields"] = list(x._fields)
    return traits


def encode_reference(x: Any) -> Json:
    module = getattr(x, "__module__", None)
    qualname = getattr(x, "__qualname__", None) or getattr(x, "__name__", None)
    if type(module) is not str or type(qualname) is not str:
        raise Unsupported(f"{short(x)} has no module or name to look it up by")
    try:
        found = _find(module, qualname) is x
    except Unsupported:
        found = False
    if not found:
        name = _search(module, x)
        if name is None:
            raise Unsupported(f"`{qualname}` cannot be found in `{module}`; define it there")
        qualname = name
    return [module, qualname, _traits(x)]


def _decode_reference(json: Json) -> Any:
    module, qualname, traits = json
    if type(module) is not str or type(qualname) is not str or type(traits) is not dict:
        raise TypeError("not a reference")
    found = _find(module, qualname)
    if traits != _traits(found):
        raise Unsupported(f"`{module}.{qualname}` has changed since the file was written")
    return found


# ---- what classes and functions do ----


def describe(nodes: Json) -> dict[str, Json]:
    """Returns the description of the classes and functions that the nodes of structures refer to."""
    return {"python": PYTHON, "parts": [list(part) for part in _description(nodes)]}


def check_description(nodes: Json, described: Json, versions: bool) -> None:
    """Raises Unsupported if what the nodes refer to has changed since it was described.

    `versions` is whether the versions of installed packages count.
    """
    if not any(True for _ in references_in(nodes)):
        return
    if described is None:
        raise Unsupported(
            "an earlier version of filterjit wrote it, which described functions in another way; "
            "save it again"
        )
    changed = difference(
        described["parts"],
        _description(nodes),
        versions=versions,
        bytecode=described["python"] == PYTHON,
    )
    if changed is not None:
        raise Unsupported(f"since the file was written, something has changed: {changed}")


def _description(nodes: Json) -> list[tuple[str, str]]:
    places = dict.fromkeys(references_in(nodes))
    return texts([(".".join(place), _find(*place)) for place in places], for_file=True)


def references_in(nodes: Json) -> Iterator[tuple[str, str]]:
    """Yields the modules and names that nodes refer to. Only references have a dict, their traits."""
    todo = [nodes]
    while todo:
        json = todo.pop()
        if type(json) is not list:
            continue
        if len(json) == 3 and type(json[2]) is dict:
            if type(json[0]) is not str or type(json[1]) is not str:
                raise TypeError("not a reference")
            yield json[0], json[1]
        else:
            todo += reversed(json)


# ---- values ----


def encode_value(x: Any) -> Json:
    """Returns a static value as JSON. Raises Unsupported."""
    cls = type(x)
    if (codec := _BY_TYPE.get(cls)) is not None:
        return [codec.tag, codec.encode(x)]
    if isinstance(x, enum.Enum):
        return ["enum", [encode_reference(cls), x.name, _encode_member(x)]]
    if isinstance(x, np.dtype):
        return ["dtype", _encode_dtype(x)]
    if isinstance(x, tuple) and hasattr(cls, "_fields"):
        return ["namedtuple", [encode_reference(cls), _encode_items(x)]]
    if cls is _flax_compat.hashable_mapping():
        return ["mapping", _BY_TYPE[dict].encode(dict(x))]
    if not isinstance(x, type) and dataclasses.is_dataclass(x):
        fields = {f.name: getattr(x, f.name) for f in dataclasses.fields(x)}
        if getattr(x, "__dict__", fields).keys() != fields.keys():
            raise Unsupported(f"{short(x)} has attributes other than its fields")
        return ["dataclass", [encode_reference(cls), _BY_TYPE[dict].encode(fields)]]
    if isinstance(x, type) or callable(x):
        return ["object", encode_reference(x)]
    raise Unsupported(f"{short(x)} of type `{cls.__qualname__}`")


def decode_value(json: Json) -> Any:
    """Returns the value that `encode_value` encoded.

    Raises Unsupported if a class or function is missing or has changed, and any exception if the
    JSON is malformed.
    """
    tag, content = json
    return _BY_TAG[tag](content)


def _encode_items(items: Any) -> Json:
    return [encode_value(item) for item in items]


def _decode_items(json: Json) -> list[Any]:
    if type(json) is not list:
        raise TypeError("not a list")
    return [decode_value(item) for item in json]


def _encode_member(x: enum.Enum) -> Json:
    """Returns the value of a member as JSON, to notice a change; None if it cannot be encoded."""
    try:
        return encode_value(x._value_)
    except Unsupported:
        return None


def _decode_enum(json: Json) -> Any:
    reference, name, value = json
    cls = _decode_reference(reference)
    if not (issubclass(type(cls), type) and issubclass(cls, enum.Enum)):
        raise TypeError("not an Enum")
    x: Any = cls.__members__.get(name)
    if x is None or _encode_member(x) != value:
        where = f"{reference[0]}.{reference[1]}.{name}"
        raise Unsupported(f"`{where}` has changed since the file was written")
    return x


def _encode_dtype(x: Any) -> str:
    """Returns a name of a dtype: JAX's, or NumPy's, which tells a length and a byte order."""
    for name in (x.name, x.str):
        with contextlib.suppress(TypeError):
            if jnp.dtype(name) == x:
                return str(name)
    raise Unsupported(f"the dtype {x!r}")


def _decode_dtype(json: Json) -> Any:
    if type(json) is not str:
        raise TypeError("not a dtype")
    return jnp.dtype(json)


def _decode_namedtuple(json: Json) -> Any:
    return _new_namedtuple(_decode_reference(json[0]), _decode_items(json[1]))


def _new_namedtuple(cls: Any, items: Sequence[Any]) -> Any:
    if not (issubclass(type(cls), type) and issubclass(cls, tuple)):
        raise TypeError("not a named tuple")
    if len(getattr(cls, "_fields", ())) != len(items):
        raise TypeError("not a named tuple")
    return tuple.__new__(cls, items)


def _new(cls: Any, fields: dict[Any, Any]) -> Any:
    """Returns an instance of a dataclass with these fields, without calling its constructor."""
    if not (issubclass(type(cls), type) and dataclasses.is_dataclass(cls)):
        raise TypeError("not a dataclass")
    details = _equinox_compat.module_details() if _equinox_compat.equinox() is not None else None
    names = {field.name for field in dataclasses.fields(cls)}.union(*(details or ((), ()))[1:])
    x: Any = object.__new__(cls)  # type: ignore[arg-type]
    for name, value in fields.items():
        if name not in names:
            raise ValueError(f"a field {name!r}")
        object.__setattr__(x, name, value)
    return x


def _new_node(cls: Any, fields: dict[Any, Any]) -> Any:
    """Returns an instance of a class of pytrees with these fields, as the C core builds it."""
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


def _decode_dict(json: Json) -> dict[Any, Any]:
    return {decode_value(key): decode_value(value) for key, value in json}


def _decode_mapping(json: Json) -> Any:
    make = _flax_compat.hashable_mapping()
    if make is None:
        raise Unsupported("Flax is not imported")
    return make(_decode_dict(json))


@dataclasses.dataclass(frozen=True)
class _Codec:
    """How values of one builtin type are stored."""

    tag: str
    encode: Callable[[Any], Json]
    decode: Callable[[Json], Any]


def _encode_float(x: float) -> str:
    return struct.pack(">d", x).hex()


def _decode_float(json: str) -> float:
    (x,) = struct.unpack(">d", bytes.fromhex(json))
    return float(x)


_BY_TYPE = {
    type(None): _Codec("none", lambda _: None, lambda _: None),
    bool: _Codec("bool", bool, bool),
    int: _Codec("int", hex, lambda json: int(json, 16)),
    float: _Codec("float", _encode_float, _decode_float),
    complex: _Codec(
        "complex",
        lambda x: [_encode_float(x.real), _encode_float(x.imag)],
        lambda json: complex(*map(_decode_float, json)),
    ),
    str: _Codec("str", str, str),
    bytes: _Codec("bytes", bytes.hex, bytes.fromhex),
    tuple: _Codec("tuple", _encode_items, lambda json: tuple(_decode_items(json))),
    list: _Codec("list", _encode_items, _decode_items),
    set: _Codec("set", _encode_items, lambda json: set(_decode_items(json))),
    frozenset: _Codec("frozenset", _encode_items, lambda json: frozenset(_decode_items(json))),
    dict: _Codec("dict", lambda x: [_encode_items(pair) for pair in x.items()], _decode_dict),
    slice: _Codec(
        "slice",
        lambda x: _encode_items((x.start, x.stop, x.step)),
        lambda json: slice(*_decode_items(json)),
    ),
    range: _Codec(
        "range",
        lambda x: _encode_items((x.start, x.stop, x.step)),
        lambda json: range(*_decode_items(json)),
    ),
    type(...): _Codec("ellipsis", lambda _: None, lambda _: ...),
}
_BY_TAG: dict[str, Callable[[Json], Any]] = {
    **{codec.tag: codec.decode for codec in _BY_TYPE.values()},
    "enum": _decode_enum,
    "dtype": _decode_dtype,
    "namedtuple": _decode_namedtuple,
    "mapping": _decode_mapping,
    "dataclass": lambda json: _new(_decode_reference(json[0]), _decode_dict(json[1])),
    "object": _decode_reference,
}


# ---- structures ----


def encode_structure(
    registry: _core.Registry, structure: _core.Structure, what: str, known: Sequence[Any] = ()
) -> Json:
    """Returns the nodes of a structure: for each its kind, its number of children, and details.

    A type or a static that is one of `known` is ``{"known": its number}``.

    Raises:
        ValueError: if a file cannot hold some of the static values; the message gives their paths.
            `what` names the whole structure.
    """
    nodes: list[Json] = []
    problems: list[str] = []
    for node, path in _nodes.walk(structure):
        try:
            nodes.append([node.kind, len(node.children), encode_node(registry, node, known)])
        except (Unsupported, RecursionError) as e:
            why = "it is nested too deeply" if isinstance(e, RecursionError) else e
            problems.append(f"  `{format_path(path) or what}`: {why}")
    if problems:
        raise ValueError(
            f"a file cannot hold these parts of {what}:\n" + "\n".join(problems) + "\n"
            "A file can hold numbers, strings, containers, enums, dataclasses, dtypes, and "
            "functions and classes that are found in a module by their names."
        )
    return nodes


def encode_node(registry: _core.Registry, node: _nodes.Node, known: Sequence[Any] = ()) -> Json:
    """Returns the details of a node. Raises Unsupported."""

    def of_type(x: Any) -> Json:
        number = _number(x, known)
        return encode_reference(x) if number is None else {"known": number}

    match node.kind:
        case "array" | "none" | "missing" | "tuple" | "list":
            return None
        case "static":
            return encode_static(registry, node.detail, known)
        case "arguments":
            return list(node.detail)
        case "dict" | "ordered_dict" | "default_dict":
            return [encode_static(registry, key) for key in node.detail]
        case "namedtuple":
            return of_type(node.type)
        case "module" | "object":
            return [of_type(node.type), list(node.detail)]
        case "custom":
            return [of_type(node.type), encode_static(registry, node.detail, known)]
        case kind:
            raise Unsupported(f"a node of kind {kind}")


def encode_static(registry: _core.Registry, x: Any, known: Sequence[Any] = ()) -> Json:
    """As `encode_value`, of a value that must be equal when it is loaded."""
    if type(x) not in ATOMS and (number := _number(x, known)) is not None:
        return {"known": number}
    try:
        json = encode_value(x)
        if not _same(registry, decode_value(json), x):
            raise Unsupported(f"{short(x)} would not be equal after loading")
    except Unsupported:
        alike = (i for i, y in enumerate(known) if type(x) is type(y) and _same(registry, x, y))
        if (number := next(alike, None)) is None:
            raise
        return {"known": number}
    return json


def _number(x: Any, known: Sequence[Any]) -> int | None:
    return next((number for number, y in enumerate(known) if y is x), None)


def _same(registry: _core.Registry, x: Any, y: Any) -> bool:
    try:
        return bool(_core.same_static(registry, x, y))
    except Exception:
        return False


def decode_tree(nodes: Json, array: Any, missing: Any, known: Sequence[Any] = ()) -> Any:
    """Builds the tree of these nodes, with `array` in the place of each array.

    `missing` stands for arguments and fields that were not given. The arguments of a call are a
    dict by parameter. ``{"known": i}`` stands for ``known[i]``, a type or a static.

    Raises Unsupported if a class or function is missing or has changed, and any exception if the
    nodes are malformed.
    """
    stack: list[Any] = []
    for kind, count, detail in reversed(nodes):
        if type(count) is not int or not 0 <= count <= len(stack):
            raise ValueError("a node has more children than follow it")
        children = [stack.pop() for _ in range(count)]
        stack.append(_decode_node(kind, children, detail, array, missing, known))
    (tree,) = stack
    return tree


def _decode_node(
    kind: str, children: Sequence[Any], detail: Json, array: Any, missing: Any, known: Sequence[Any]
) -> Any:
    def type_of(json: Json) -> Any:
        return known[json["known"]] if type(json) is dict else _decode_reference(json)

    def static(json: Json) -> Any:
        return known[json["known"]] if type(json) is dict else decode_value(json)

    match kind:
        case "array":
            return array
        case "none":
            return None
        case "missing":
            return missing
        case "tuple":
            return tuple(children)
        case "list":
            return list(children)
        case "static":
            return static(detail)
        case "arguments":
            return dict(zip(detail, children, strict=True))
        case "dict":
            return dict(zip(_decode_items(detail), children, strict=True))
        case "ordered_dict":
            return collections.OrderedDict(zip(_decode_items(detail), children, strict=True))
        case "default_dict":
            items = zip(_decode_items(detail), children[1:], strict=True)
            return collections.defaultdict(children[0], items)
        case "namedtuple":
            return _new_namedtuple(type_of(detail), children)
        case "module" | "object":
            fields = zip(detail[1], children, strict=True)
            given = {name: value for name, value in fields if value is not missing}
            return _new_node(type_of(detail[0]), given)
        case "custom":
            cls, aux = type_of(detail[0]), static(detail[1])
            unflatten = _registered_compat.registered_unflatten(cls)
            if unflatten is None:
                raise Unsupported(f"`{cls}` is not registered as a pytree")
            return unflatten(aux, children)
        case _:
            raise ValueError(f"a node of kind {kind}")
