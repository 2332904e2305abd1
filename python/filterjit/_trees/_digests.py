"""Digests of the functions and classes in a file, to notice that one has changed.

- **A function**: module, qualified name, code, defaults, closure and attributes, recursively for
  functions in these, with the contents of arrays.
- **A class**: fields, plain attributes and the code of its methods, with its bases, up to the first
  class of an installed package.

Names that code looks up (globals, imported modules) aren't part of a digest, and neither is the code
of installed packages. A function that holds a value that can't be described, for example an object
that equals itself alone, raises Unsupported. In a class, or in a function that an installed package
has made, such a value is described by its class.

Values that share a program have equal digests: `_values` says of both what a value consists of.
Functions and cells are numbered, so a function held twice differs from two equal functions.
"""

import hashlib
import struct
import sys
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax

from .. import _core
from .._base._errors import short_repr
from .._base._package import is_installed, is_library
from .._compat import _jax_compat
from . import _codes, _values
from ._codes import Place, Unsupported
from ._values import ATOMS, Facts

_IDENTITY = type(_core.identity(object()))
_GENERATED = "<string>"  # the file of a dataclass's methods
_UNSAID = ("maxsize", "on_retrace")  # settings that don't affect a program


def _tagged(tag: str, *parts: bytes) -> bytes:
    """Joins parts into bytes that no other parts produce."""
    return b"".join([f"{tag} {len(parts)}:".encode(), *(b"%d:%b" % (len(x), x) for x in parts)])


def _text(x: str) -> bytes:
    return x.encode("utf-8", "surrogatepass")


def _atom(x: Any) -> bytes:
    match x:
        case float() | complex():
            data = struct.pack("dd", x.real, x.imag)
        case bytes():
            data = hashlib.sha256(x).digest()
        case int():
            data = b"%x" % x
        case _:
            data = _text(str(x))
    return _tagged(type(x).__name__, data)


class _Walk:
    """Describes values as bytes that are equal in every process. The methods that take `Facts` are
    the rules of `_values`."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}  # the values that contain this one
        self._numbers: dict[int, tuple[int, Any]] = {}  # of functions and cells; keeps these alive

    def part(self, x: Any) -> bytes:
        if type(x) in ATOMS:
            return _atom(x)
        if id(x) in self._open:
            return _tagged("again", b"%d" % self._open[id(x)])
        self._open[id(x)] = len(self._open)
        try:
            facts = _values.facts_of(type(x))
            found: bytes = getattr(self, facts.rule)(x, facts)
            return found
        finally:
            del self._open[id(x)]

    def _all(self, tag: str, parts: Iterable[Any]) -> bytes:
        return _tagged(tag, *map(self.part, parts))

    def _number(self, x: Any) -> tuple[int, bool]:
        """Returns an object's number, and True at its first occurrence."""
        count = len(self._numbers)
        number, _ = self._numbers.setdefault(id(x), (count, x))
        return number, number == count

    # ---- functions ----

    def function(self, f: types.FunctionType, _: Facts) -> bytes:
        number, is_new = self._number(f)
        if not is_new:
            return _tagged("function", b"%d" % number)
        parts = [_text(f.__module__ or ""), _text(f.__qualname__)]
        for kind, name, x in _values.parts_of_function(f):
            try:
                part = self.part(x)
            except Unsupported as e:
                if not is_installed(f.__code__.co_filename):
                    where = f"`{name}` in the {kind} of `{f.__qualname__}`"
                    raise Unsupported(f"{where}: {e}") from None
                part = self.cls(type(x))  # such as a sentinel of JAX
            parts.append(_tagged(f"{kind} {name}", part))
        return _tagged("function", *parts)

    def code(self, x: types.CodeType, _: Any = None) -> bytes:
        """Ignores files and lines."""
        names = x.co_names, x.co_varnames, x.co_freevars, x.co_cellvars, x.co_name
        counts = x.co_argcount, x.co_posonlyargcount, x.co_kwonlyargcount, x.co_flags
        return self._all("code", (x.co_code, x.co_exceptiontable, *x.co_consts, names, counts))

    def cell(self, x: types.CellType, _: Facts) -> bytes:
        number, is_new = self._number(x)
        if not is_new:
            return _tagged("cell", b"%d" % number)
        try:
            contents = x.cell_contents
        except ValueError:
            return _tagged("empty", b"%d" % number)
        return self._all("cell", [contents])

    def method(self, x: Any, facts: Facts) -> bytes:
        return self.contents(x, facts)

    # ---- classes ----

    def cls(self, cls: type, _: Any = None) -> bytes:
        """Describes a class and its bases, up to the first class of an installed package."""
        found = []
        for base in cls.__mro__:
            if is_library(base.__module__):
                found.append(_named(base.__module__, base.__qualname__))
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
        """Describes an attribute of a class by its contents, otherwise by what it is around, or by
        its class."""
        before = dict(self._numbers)
        try:
            return self.part(x)
        except Exception:
            self._numbers = before
        try:
            if isinstance(x, (list, tuple, Mapping)):
                items = _values.columns(x) if isinstance(x, Mapping) else x
                return _tagged("items", *map(self._attribute, items))
            if isinstance(x, types.FunctionType):
                held = [self._attribute(y) for _, _, y in _values.parts_of_function(x)]
                return _tagged("method", *held)
            if type(x) is types.CellType:
                return self._attribute(x.cell_contents)
            for name in ("__func__", "fget", "func", "method", "__wrapped__"):
                if not isinstance(x, type) and hasattr(type(x), name):
                    return _tagged("around", self._attribute(getattr(x, name)))
        except Exception:
            pass
        return _tagged("object", _text(type(x).__module__), _text(type(x).__qualname__))

    def module(self, x: types.ModuleType, _: Facts) -> bytes:
        if sys.modules.get(x.__name__) is not x:
            raise Unsupported(f"a module `{x.__name__}` that is not imported by this name")
        return _named(x.__name__)

    # ---- other values ----

    def contents(self, x: Any, facts: Facts) -> bytes:
        found = () if facts.contents is None else facts.contents(x)
        is_many = type(found) is tuple or type(found) is frozenset
        parts = list(map(self.part, found if is_many else [found]))
        if type(found) is frozenset:
            parts.sort()
        named = () if facts.attributes is None else facts.attributes(x)
        named = [_tagged(str(k), self.part(v)) for k, v in named]
        return _tagged("contents", self.part(type(x)), _tagged("", *parts), *named)

    array = contents

    def jax_array(self, x: Any, _: Facts) -> bytes:
        if isinstance(x, jax.core.Tracer):
            raise Unsupported("a tracer")
        if not x.is_fully_addressable:
            raise Unsupported("an array that is partly on other machines")
        return self._all(
            "jax", (x.shape, str(x.dtype), getattr(x, "weak_type", False), _values.bytes_of(x))
        )

    def of_library(self, x: Any, facts: Facts) -> bytes:
        place = _place_in_library(x) if callable(x) else None
        if place is not None:
            return _named(*place)
        if facts.contents is not None and facts.is_complete:
            return self.contents(x, facts)
        if isinstance(x, jax.Device):
            return self._all("device", (x.platform, x.id, x.device_kind))
        if isinstance(x, _core.FilterJit):
            settings = vars(x._hooks.settings).items()
            return self._all(
                "jitted", (x._function, {k: y for k, y in settings if k not in _UNSAID})
            )
        if callable(x) and (options := _jax_compat.jit_options(x)) is not None:
            return self._all("jit", (x.__wrapped__, options))
        return self.instance(x, facts)

    def instance(self, x: Any, _: Facts) -> bytes:
        cls = type(x)
        found = _codes.parts_of(x)
        if found is not None:
            return self._all(*found)
        if not jax.tree_util.all_leaves((x,)):
            children, aux = jax.tree_util.default_registry.flatten_one_level(x)
            return self._all("node", (cls, list(children), aux))
        if (key := _values.static_key(cls)) is not None:
            contents = key(x)
            if type(contents) is not _IDENTITY:
                return self._all("static", (cls, contents))
        raise Unsupported(
            f"{short_repr(x)} of type `{cls.__qualname__}`, which a file cannot describe"
        )


def _is_generated(x: Any) -> bool:
    return getattr(getattr(x, "__code__", None), "co_filename", "") == _GENERATED


def _named(*place: str) -> bytes:
    return _tagged("named", *map(_text, place))


def _place_in_library(x: Any) -> Place | None:
    """Returns the module and name by which an installed library has an object, or None."""
    module, name = getattr(x, "__module__", None), getattr(x, "__qualname__", None)
    name = name or getattr(x, "__name__", None)  # of a ufunc
    if type(module) is not str or type(name) is not str or not is_library(module):
        return None
    try:
        return (module, name) if _codes.find((module, name)) is x else None
    except Unsupported:
        return None


def digest(x: Any) -> str:
    """Returns a digest of a function or class."""
    return hashlib.sha256(_Walk().part(x)).hexdigest()


def check_digests(names: Sequence[Place], digests: Sequence[str]) -> None:
    """Raises Unsupported if a function or class has changed."""
    for (module, name), saved in zip(names, digests, strict=True):
        x = _codes.find((module, name))
        if digest(x) != saved:
            is_class = isinstance(x, type)
            what = "class" if is_class else "function"
            by = "fields, attributes or methods" if is_class else "code, defaults or closure"
            raise Unsupported(f"the {what} `{name}` of `{module}` has changed since, by its {by}")
