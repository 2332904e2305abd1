"""Digests of the functions and classes in a file, to notice that one has changed.

- **A function**: module, qualified name, code, defaults, closure and attributes, recursively for
  functions in these, with the contents of arrays.
- **A class**: fields, plain attributes and the code of its methods, with its bases, up to the first
  class of an installed package.

Names that code looks up (globals, imported modules) aren't part of a digest, and neither is the code
of installed packages. A function that holds a value that can't be described, for example an object
that equals itself alone, raises Unsupported. In a class, or in a function that an installed package
has made, such a value is described by its class.
"""

import dataclasses
import functools
import hashlib
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from .. import _core
from .._base._errors import short_repr
from .._base._package import is_installed, is_library
from .._call._as_in_jax import _Opaque
from .._compat import _jax_compat
from .._trees import _contents, _static_keys
from . import _encode, _program
from ._encode import Unsupported


def _tagged(tag: str, *parts: bytes) -> bytes:
    """Joins parts into bytes that no other parts produce."""
    return b"".join([f"{tag} {len(parts)}:".encode(), *(b"%d:%b" % (len(x), x) for x in parts)])


def _text(x: str) -> bytes:
    return x.encode("utf-8", "surrogatepass")


_ATOMS = {type(None), type(...), type(NotImplemented), bool, int, float, complex, str, bytes}
_IDENTITY = type(_core.identity(object()))
_GENERATED = "<string>"  # the file of a dataclass's methods


class _Description:
    """Describes values as bytes that are equal in every process."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}  # the values that contain this one

    def value(self, x: Any) -> bytes:
        if type(x) in _ATOMS:
            return _tagged(type(x).__name__, _text(hex(x) if type(x) is int else repr(x)))
        if id(x) in self._open:
            return _tagged("again", b"%d" % self._open[id(x)])
        self._open[id(x)] = len(self._open)
        try:
            return self._compound(x, type(x))
        finally:
            del self._open[id(x)]

    def _all(self, tag: str, items: Iterable[Any]) -> bytes:
        return _tagged(tag, *map(self.value, items))

    def _compound(self, x: Any, cls: Any) -> bytes:
        if cls is tuple or cls is list:
            return self._all(cls.__name__, x)
        if cls is set or cls is frozenset:
            return _tagged(cls.__name__, *sorted(map(self.value, x)))
        if isinstance(x, Mapping):
            return _tagged("dict", self.value(cls), *map(self.value, _encode._columns(x)))
        if (rule := _RULES.get(cls)) is not None:
            return _tagged(cls.__name__, *rule(self, x))
        if isinstance(x, type):
            return self._class(x)
        if isinstance(x, (jax.Array, np.ndarray)):
            return self._array(x)
        if isinstance(x, jax.Device):
            return self._all("device", (x.platform, x.id, x.device_kind))
        if isinstance(x, _core.FilterJit):
            skipped = ("maxsize", "on_retrace")
            settings = {k: y for k, y in vars(x._hooks.settings).items() if k not in skipped}
            return self._all("jitted", (x._function, settings))
        if cls.__module__.startswith("filterjit.") and (names := _fields(cls)):
            return self._all(cls.__name__, [getattr(x, name) for name in names])
        if dataclasses.is_dataclass(x) and hasattr(x, "__dict__"):
            return _tagged("instance", self.value(cls), *map(self.value, _encode._columns(vars(x))))
        if callable(x) and (named := _named(x)) is not None:
            return named
        if callable(x) and (options := _jax_compat.jit_options(x)) is not None:
            return self._all("jit", (x.__wrapped__, options))
        return self._other(x, cls)

    def _other(self, x: Any, cls: Any) -> bytes:
        found = _encode._parts_of(x)
        if found is not None:
            return self._all(*found)
        if (key := _static_keys.static_key(cls)) is not None:
            contents = key(x)
            if type(contents) is not _IDENTITY and not isinstance(
                contents, _static_keys.OwnEquality
            ):
                return _tagged("static", self.value(cls), self.value(contents))
        if not jax.tree_util.all_leaves((x,)):
            children, aux = jax.tree_util.default_registry.flatten_one_level(x)
            return self._all("node", (cls, list(children), aux))
        raise Unsupported(
            f"{short_repr(x)} of type `{cls.__qualname__}`, which a file cannot describe"
        )

    def _array(self, x: Any) -> bytes:
        if isinstance(x, jax.core.Tracer):
            raise Unsupported("a tracer")
        header, data = _program.encode_array(x)
        weak = bool(getattr(x, "weak_type", False))
        kind = "array" if isinstance(x, np.ndarray) else "jax"
        return _tagged(kind, self.value((header, weak)), hashlib.sha256(data).digest())

    def _code(self, x: types.CodeType) -> list[bytes]:
        """Ignores files and lines."""
        names = x.co_names, x.co_varnames, x.co_freevars, x.co_cellvars, x.co_name
        counts = x.co_argcount, x.co_posonlyargcount, x.co_kwonlyargcount, x.co_flags
        return [x.co_code, x.co_exceptiontable, self.value((x.co_consts, names, counts))]

    def _function(self, f: types.FunctionType) -> list[bytes]:
        parts = [_text(f.__module__ or ""), _text(f.__qualname__), self.value(f.__code__)]
        if _named(f) is not None:
            return parts
        cells = zip(f.__code__.co_freevars, f.__closure__ or (), strict=True)
        held = {
            **{f"default {i}": x for i, x in enumerate(f.__defaults__ or ())},
            **{f"default {name!r}": x for name, x in (f.__kwdefaults__ or {}).items()},
            **{f"attribute {name!r}": x for name, x in _attributes(f).items()},
            **{f"`{name}` in the closure": _contents_of(cell) for name, cell in cells},
        }
        for what, x in held.items():
            try:
                parts.append(_tagged(what, self.value(x)))
            except Unsupported as e:
                if not is_installed(f.__code__.co_filename):
                    raise Unsupported(f"{what} of `{f.__qualname__}`: {e}") from None
                parts.append(self._class(type(x)))  # such as a sentinel of JAX
        return parts

    def _class(self, cls: type) -> bytes:
        """Describes a class and its bases, up to the first class of an installed package."""
        if is_library(cls.__module__):
            return _tagged("named", _text(cls.__module__), _text(cls.__qualname__))
        found = []
        for base in cls.__mro__:
            if is_library(base.__module__):
                break
            parts = [_text(base.__module__), _text(base.__qualname__)]
            for name, x in vars(base).items():
                if name == "__dataclass_fields__":
                    x = [(y.name, y.init, y.compare, y.kw_only, y.default) for y in x.values()]
                elif name.startswith("__") and (not callable(x) or _is_generated(x)):
                    continue
                parts.append(_tagged(name, self._attribute(x)))
            found.append(_tagged("base", *parts))
        return _tagged("class", *found)

    def _attribute(self, x: Any) -> bytes:
        """Describes an attribute of a class, or its class."""
        try:
            if type(x) in (list, tuple):
                return _tagged("items", *map(self._attribute, x))
            for name in ("__func__", "fget", "func", "method", "__wrapped__"):
                if not isinstance(x, (type, types.FunctionType)) and hasattr(type(x), name):
                    return _tagged("around", self._attribute(getattr(x, name)))
            if isinstance(x, types.FunctionType):
                cells = map(_contents_of, x.__closure__ or ())
                held = [self._attribute(y) for y in (x.__defaults__, x.__kwdefaults__, *cells)]
                return _tagged("method", self.value(x.__code__), *held)
            return self.value(x)
        except Exception:
            return _tagged("object", _text(type(x).__module__), _text(type(x).__qualname__))


def _contents_of(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return NotImplemented


def _is_generated(x: Any) -> bool:
    return getattr(getattr(x, "__code__", None), "co_filename", "") == _GENERATED


def _named(x: Any) -> bytes | None:
    """Describes an object by name if an installed library has it there, otherwise None."""
    module, name = getattr(x, "__module__", None), getattr(x, "__qualname__", None)
    name = name or getattr(x, "__name__", None)  # of a ufunc
    if type(module) is not str or type(name) is not str or not is_library(module):
        return None
    try:
        is_there = _encode._find((module, name)) is x
    except Unsupported:
        return None
    return _tagged("named", _text(module), _text(name)) if is_there else None


def _fields(cls: Any) -> list[str]:
    """Returns the attributes that define one of filterjit's own objects."""
    fields = getattr(cls, "__dataclass_fields__", {})
    return [*getattr(cls, "DESCRIBED_BY", [k for k, field in fields.items() if field.init])]


def _attributes(x: Any) -> dict[str, Any]:
    """Returns a function's attributes, except filterjit's."""
    own = _contents.OWN_ATTRIBUTES
    return {k: y for k, y in vars(x).items() if not k.startswith(own) and k != "__wrapped__"}


def _module(x: types.ModuleType) -> str:
    if sys.modules.get(x.__name__) is not x:
        raise Unsupported(f"a module `{x.__name__}` that is not imported by this name")
    return x.__name__


_RULES: dict[Any, Callable[[_Description, Any], Iterable[bytes]]] = {
    types.FunctionType: _Description._function,
    types.CodeType: _Description._code,
    types.ModuleType: lambda d, x: [_text(_module(x))],
    types.MethodType: lambda d, x: map(d.value, (x.__func__, x.__self__)),
    functools.partial: lambda d, x: map(d.value, (x.func, x.args, x.keywords, _attributes(x))),
    types.BuiltinFunctionType: lambda d, x: map(d.value, (x.__qualname__, x.__self__)),
    _static_keys._Array: lambda d, x: [d.value(x.array)],
    _Opaque: lambda d, x: [d.value(x.fun)],
}


# ---- functions and classes in a file ----


def digest(x: Any) -> str:
    """Returns a digest of a function or class."""
    return hashlib.sha256(_Description().value(x)).hexdigest()


def check_digests(names: Sequence[_encode.Place], digests: Sequence[str]) -> None:
    """Raises Unsupported if a function or class has changed."""
    for (module, name), saved in zip(names, digests, strict=True):
        x = _encode._find((module, name))
        if digest(x) != saved:
            is_class = isinstance(x, type)
            what = "class" if is_class else "function"
            by = "fields, attributes or methods" if is_class else "code, defaults or closure"
            raise Unsupported(f"the {what} `{name}` of `{module}` has changed since, by its {by}")
