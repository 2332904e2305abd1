"""Digests of the functions and classes in a file, to notice that one has changed.

- **A function**: module, qualified name, code, defaults, closure and attributes, recursively for
  functions in these, with the contents of arrays.
- **A class**: fields, plain attributes and the code of its methods, with its bases, up to the first
  class of an installed package.

Names that code looks up (globals, imported modules) aren't part of a digest, and neither is the code
of installed packages. A value that equals itself alone is described by its class if an installed
package holds it, and otherwise raises Unsupported.
"""

import dataclasses
import enum
import functools
import hashlib
import inspect
import struct
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

import jax

from .. import _core
from .._base._arrays import Aval
from .._base._errors import format_path, short_repr
from .._base._package import is_installed, is_library
from .._call._as_in_jax import _Opaque
from .._compat import _executable_compat, _jax_compat
from .._trees import _contents, _static_keys
from .._trees._registry import registry
from . import _encode, _program
from ._encode import Unsupported
from ._prepared import place_of

_LONG = 256


def tagged(tag: str, *parts: bytes) -> bytes:
    """Joins parts into bytes that no other parts produce."""
    return b"".join([f"{tag} {len(parts)}:".encode(), *(b"%d:%b" % (len(x), x) for x in parts)])


def _text(x: str) -> bytes:
    return x.encode("utf-8", "surrogatepass")


def _bytes(x: bytes) -> bytes:
    return x if len(x) < _LONG else hashlib.sha256(x).digest() + b"..."


_ATOMS: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda x: b"",
    type(...): lambda x: b"",
    type(NotImplemented): lambda x: b"",
    bool: lambda x: b"%d" % x,
    int: lambda x: b"%x" % x,
    float: lambda x: struct.pack("<d", x),
    complex: lambda x: struct.pack("<dd", x.real, x.imag),
    str: _text,
    bytes: _bytes,
}


# ---- values ----


class Description:
    def __init__(self) -> None:
        self._numbers: dict[int, tuple[int, Any]] = {}  # by address; keeps the objects alive
        self._open: dict[int, int] = {}  # objects in progress
        self._known: dict[Any, bytes] = {}

    def value(self, x: Any) -> bytes:
        cls = type(x)
        if (atom := _ATOMS.get(cls)) is not None:
            return tagged(cls.__name__, atom(x))
        if cls is tuple or cls is list:
            return self._inside(x, lambda: tagged(cls.__name__, *map(self.value, x)))
        if cls is dict:
            return self._inside(x, lambda: tagged("dict", *map(self.value, _encode._columns(x))))
        if cls is set or cls is frozenset:
            return tagged(cls.__name__, *sorted([Description().value(y) for y in x]))
        if (describe := _RULES.get(cls)) is not None:
            return self._inside(x, lambda: describe(self, x))
        if isinstance(x, type):
            return self._inside(x, lambda: self._class(x))
        if isinstance(x, _core.FilterJit):
            return self._inside(x, lambda: self.tree(x))
        if isinstance(x, enum.Enum):
            return tagged("enum", self.name_of(cls), self.value(x.name), self.value(x.value))
        return self._inside(x, lambda: self._other(x, cls))

    def _inside(self, x: Any, describe: Callable[[], bytes]) -> bytes:
        """Describes a value that might contain itself."""
        if id(x) in self._open:
            return tagged("again", b"%d" % self._open[id(x)])
        self._open[id(x)] = len(self._open)
        try:
            return describe()
        finally:
            del self._open[id(x)]

    def _other(self, x: Any, cls: Any) -> bytes:
        if isinstance(x, jax.Device):
            return tagged("device", *map(self.value, (x.platform, x.id, x.device_kind)))
        if (found := _encode._parts_of_jax(x)) is not None:
            return tagged(found[0], *map(self.value, found[1]))
        if cls.__module__.startswith("filterjit.") and (names := _fields(cls)):
            return tagged("ours", self.name_of(cls), *(self.value(getattr(x, n)) for n in names))
        if dataclasses.is_dataclass(x) and hasattr(x, "__dict__"):
            columns = map(self.value, _encode._columns(vars(x)))  # also fields that == ignores
            return tagged("fields", self.name_of(cls), *columns)
        if callable(x) and (named := self._in_library(x)) is not None:
            return named
        if callable(x) and (options := _jax_compat.jit_options(x)) is not None:
            return tagged("jit", self.value(x.__wrapped__), self.value(options))
        if (key := _static_keys.static_key(cls)) is not None:
            contents = key(x)
            if type(contents) is not _IDENTITY:
                return tagged("static", self.name_of(cls), self.value(contents))
        raise Unsupported(
            f"{short_repr(x)} of type `{cls.__qualname__}`, which a file cannot describe"
        )

    def array(self, x: Any) -> bytes:
        if isinstance(x, jax.core.Tracer):
            raise Unsupported("a tracer")
        header, data = _program.encode_array(x)
        return tagged("array", self.kind(x), self.value(header), _bytes(data))

    def kind(self, x: Any) -> bytes:
        """Describes an array without its contents: its aval, placement and layout."""
        aval, (sharding, is_committed) = Aval.of(x), place_of(x)
        order = _executable_compat.order_of_layout(x) if isinstance(x, jax.Array) else None
        layout = None if order == tuple(range(len(aval.shape))) else order
        key = aval.shape, aval.dtype, aval.weak_type, sharding, is_committed, layout
        if key not in self._known:  # many arrays are alike
            dtype = _encode.encode_dtype(aval.dtype)
            self._known[key] = self.value((key[0], dtype, *key[2:]))
        return self._known[key]

    def own_equality(self, cls: Any) -> bytes:
        """Describes that values are compared by their own ``==`` too."""
        if not is_library(cls.__module__):
            raise Unsupported(f"a `{cls.__qualname__}`, which has its own `==`")
        return b"=="

    # ---- functions and classes ----

    def _in_library(self, x: Any) -> bytes | None:
        """Describes an object by name if an installed library has it there, otherwise None."""
        module, name = getattr(x, "__module__", None), getattr(x, "__qualname__", None)
        name = name or getattr(x, "__name__", None)  # of a ufunc
        if type(module) is not str or type(name) is not str or not is_library(module):
            return None
        try:
            is_there = _encode._find((module, name)) is x
        except Unsupported:
            return None
        return tagged("named", _text(module), _text(name)) if is_there else None

    def _function(self, f: types.FunctionType) -> bytes:
        name = (self.value(f.__module__), _text(f.__qualname__), code(f.__code__))
        if self._in_library(f) is not None:
            return tagged("function", *name)
        parts = list(name)
        for what, items in (
            ("default", list(enumerate(f.__defaults__ or ()))),
            ("default", list((f.__kwdefaults__ or {}).items())),
            ("attribute", list(_attributes(f).items())),
        ):
            parts += [self._held(f, f"{what} {k!r}", k, x) for k, x in items]
            parts.append(b"")
        for variable, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
            number, _ = self._numbers.setdefault(id(cell), (len(self._numbers), cell))
            try:
                x = cell.cell_contents
            except ValueError:
                parts.append(tagged("empty", b"%d" % number))
                continue
            parts.append(self._held(f, f"`{variable}` in the closure", number, x))
        return tagged("function", *parts)

    def _module(self, x: types.ModuleType) -> bytes:
        if sys.modules.get(x.__name__) is not x:
            raise Unsupported(f"a module `{x.__name__}` that is not imported by this name")
        return tagged("module", _text(x.__name__))

    def _held(self, f: Any, what: str, key: Any, x: Any) -> bytes:
        try:
            return tagged("held", self.value(key), self.tree(x))
        except Unsupported as e:
            if is_installed(f.__code__.co_filename):  # such as the sentinels of JAX
                return tagged("object", _text(type(x).__qualname__))
            raise Unsupported(f"{what} of `{f.__qualname__}`: {e}") from None

    def name_of(self, cls: Any) -> bytes:
        """Describes a value's class, assuming that the version covers its code."""
        names = cls.__module__, cls.__qualname__
        if is_library(names[0]) and "<locals>" not in names[1]:
            return tagged("named", *map(_text, names))
        try:
            if _encode._find(names) is cls:
                return tagged("class", *map(_text, names))
        except Unsupported:
            pass
        return self._inside(cls, lambda: self._class(cls))

    def _class(self, cls: Any) -> bytes:
        if (named := self._in_library(cls)) is not None:
            return named
        attributes = [
            tagged("attribute", _text(name), self._attribute(name, x))
            for name, x in vars(cls).items()
            if not (name.startswith("__") and name.endswith("__")) and name != "_abc_impl"
        ]
        names = _text(cls.__module__), _text(cls.__qualname__)
        return tagged("class", *names, *map(self.value, cls.__bases__), *attributes)

    def _attribute(self, name: str, x: Any) -> bytes:
        if isinstance(x, (staticmethod, classmethod, functools.cached_property)):
            return tagged(
                "method", self.value(getattr(x, "__func__", None) or getattr(x, "func", None))
            )
        if isinstance(x, property):
            return tagged("property", *map(self.value, (x.fget, x.fset, x.fdel)))
        if isinstance(x, (types.MemberDescriptorType, types.GetSetDescriptorType)):
            return b"slot"
        try:
            return self.tree(x)
        except Unsupported as e:
            raise Unsupported(f"`{name}` of a class: {e}") from None

    # ---- trees ----

    def tree(self, x: Any) -> bytes:
        if type(x) in _ATOMS:
            return self.value(x)
        try:
            arrays, structure = _core.flatten(registry, x)
        except Exception as e:
            raise Unsupported(f"{short_repr(x)} cannot be flattened ({e})") from None
        leaves = (self.array(y) if isinstance(y, jax.Array) else self.value(y) for y in arrays)
        return tagged("tree", self.structure(structure), *leaves)

    def structure(self, structure: _core.Structure, what: str = "") -> bytes:
        """Describes the nodes of a Structure. `what` names it in errors."""
        nodes, found, known = structure._nodes(), [], dict[Any, bytes]()
        for i, (kind, arity, cls, detail, _) in enumerate(nodes):
            key = kind, arity, id(cls), id(detail)
            if (one := known.get(key)) is None:
                try:
                    of = b"" if cls is None else self.name_of(cls)
                    one = tagged(kind, b"%d" % arity, of, self.value(detail))
                except Unsupported as e:
                    if not what:
                        raise
                    path = format_path(structure._key_path(i))
                    raise Unsupported(f"`{path or what}`: {e}") from None
                known[key] = one
            found.append(one)
        return b"".join(found)


def _fields(cls: Any) -> list[str]:
    """Returns the attributes that define one of filterjit's own objects."""
    fields = getattr(cls, "__dataclass_fields__", {})
    given = [name for name, field in fields.items() if field.init]
    return [*getattr(cls, "DESCRIBED_BY", given)]


def _attributes(x: Any) -> dict[str, Any]:
    """Returns a function's attributes, except filterjit's."""
    own = _contents.OWN_ATTRIBUTES
    return {k: y for k, y in vars(x).items() if not k.startswith(own) and k != "__wrapped__"}


_IDENTITY = type(_core.identity(object()))


def _options(hooks: Any) -> dict[str, Any]:
    kept = {k: x for k, x in vars(hooks.settings).items() if k not in ("maxsize", "on_retrace")}
    return {"decorator": hooks.decorator, **kept}


_RULES: dict[Any, Callable[[Description, Any], bytes]] = {
    types.FunctionType: Description._function,
    types.ModuleType: Description._module,
    types.MethodType: lambda d, x: tagged("method", d.value(x.__func__), d.tree(x.__self__)),
    functools.partial: lambda d, x: tagged(
        "partial", d.value(x.func), d.tree((x.args, x.keywords, _attributes(x)))
    ),
    types.BuiltinFunctionType: lambda d, x: tagged(
        "built-in", _text(x.__qualname__), d.value(x.__self__)
    ),
    _static_keys.OwnEquality: lambda d, x: d.own_equality(type(x.value)),
    _static_keys._Array: lambda d, x: d.array(x.array),
    _core.Cache: lambda d, x: tagged("jitted", d.structure(x.function), d.value(_options(x.hooks))),
    _Opaque: lambda d, x: d.tree(x.fun),
}


def code(x: types.CodeType) -> bytes:
    """Returns a digest of a code object, ignoring files and lines."""
    parts = [x.co_code, x.co_exceptiontable, *map(_constant, x.co_consts)]
    names = x.co_names, x.co_varnames, x.co_freevars, x.co_cellvars, x.co_name
    counts = x.co_argcount, x.co_posonlyargcount, x.co_kwonlyargcount, x.co_flags
    return hashlib.sha256(tagged("code", *parts, Description().value((names, counts)))).digest()


def _constant(x: Any) -> bytes:
    if type(x) is types.CodeType:
        return code(x)
    if type(x) is tuple:
        return tagged("tuple", *map(_constant, x))
    if type(x) is frozenset:
        return tagged("frozenset", *sorted(map(_constant, x)))
    if type(x) is slice:  # since Python 3.14
        return tagged("slice", *map(_constant, (x.start, x.stop, x.step)))
    return Description().value(x)


# ---- classes ----


def _class_code(cls: type) -> bytes:
    """Describes a class and its bases, up to the first class of an installed package."""
    found = []
    for base in cls.__mro__:
        if is_library(base.__module__):
            break
        parts = [_text(base.__module__), _text(base.__qualname__)]
        for name, x in vars(base).items():
            if name == "__dataclass_fields__":
                for field in x.values():
                    flags = field.init, field.compare, field.kw_only
                    parts += [_text(field.name), _or_class((flags, field.default))]
            elif name in ("__init__", "__eq__", "__hash__", "__repr__") and _is_generated(x):
                continue
            elif not (name.startswith("__") and name.endswith("__")) or callable(x):
                parts += [_text(name), _method(x)]
        found.append(tagged("base", *parts))
    return tagged("code", *found)


def _is_generated(x: Any) -> bool:
    return getattr(getattr(x, "__code__", None), "co_filename", "") == "<string>"


def _method(x: Any) -> bytes:
    """Describes an attribute of a class: a function by its code and defaults."""
    for name in ("__func__", "fget", "func", "method", "__wrapped__"):
        inner = inspect.getattr_static(x, name, None)
        if inner is not None and not isinstance(x, (type, types.FunctionType)):
            inner = getattr(x, name, None)
            return tagged("around", _text(type(x).__qualname__), _method(inner))
    if isinstance(x, types.FunctionType):
        defaults = _or_class((x.__defaults__, x.__kwdefaults__))
        held = [_cell(cell) for cell in x.__closure__ or ()]
        return tagged("function", code(x.__code__), defaults, *held)
    return _or_class(x)


def _cell(cell: Any) -> bytes:
    try:
        x = cell.cell_contents
    except ValueError:
        return b""
    return _method(x) if isinstance(x, types.FunctionType) else _or_class(x)


def _or_class(x: Any) -> bytes:
    """Describes a value, or if that isn't possible, its class."""
    if isinstance(x, type):
        return tagged("type", _text(x.__module__), _text(x.__qualname__))
    try:
        return Description().value(x)
    except Exception:
        return tagged("object", _text(type(x).__qualname__))


# ---- functions and classes in a file ----


def digests_of(names: Sequence[_encode.Place]) -> list[str]:
    """Returns a digest of each named function or class."""
    return [_digest(_encode._find(name)) for name in names]


def _digest(x: Any) -> str:
    is_own_class = isinstance(x, type) and not is_library(x.__module__)
    described = _class_code(x) if is_own_class else Description().value(x)
    return hashlib.sha256(described).hexdigest()


def check_digests(names: Sequence[_encode.Place], digests: Sequence[str]) -> None:
    """Raises Unsupported if a function or class has changed."""
    for (module, name), digest in zip(names, digests, strict=True):
        x = _encode._find((module, name))
        if _digest(x) != digest:
            is_class = isinstance(x, type)
            what = "class" if is_class else "function"
            by = "fields, attributes or methods" if is_class else "code, defaults or closure"
            raise Unsupported(f"the {what} `{name}` of `{module}` has changed since, by its {by}")
