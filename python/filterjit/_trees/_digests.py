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
from collections.abc import Iterable, Sequence
from typing import Any

import jax

from .. import _core
from .._base._errors import short_repr
from .._base._package import is_installed, is_library
from .._compat import _jax_compat
from . import _codes, _keys, _values
from ._codes import Place, Unsupported
from ._registry import flatten_one_level
from ._values import ATOMS, Facts

Part = tuple[Any, ...]
"""Nested tuples of texts and ints, with equal reprs in every process."""

_IDENTITY = type(_core.identity(object()))
_GENERATED = "<string>"  # the file of a dataclass's methods
# Members of a class that Python makes: annotations (with all of its dict), and the values of an enum.
_UNSTABLE = ("__annotate_func__", "_value2member_map_")
_UNSAID = ("maxsize", "on_retrace")  # settings that don't affect a program


def _atom(x: Any) -> Part:
    text = repr(x)
    if isinstance(x, (float, complex)):
        text = struct.pack("dd", x.real, x.imag).hex()
    elif type(x) is int:
        text = hex(x)
    elif type(x) is bytes:
        text = hashlib.sha256(x).hexdigest()
    return type(x).__name__, text


class _Walk:
    """Describes values. The methods that take `Facts` are the rules of `_values`."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}  # the values that contain this one
        # Of functions and cells, which it keeps alive.
        self._numbers: dict[int, tuple[int, Any]] = {}
        self._is_lenient = False  # if it describes values by their class

    def part(self, x: Any) -> Part:
        if type(x) in ATOMS:
            return _atom(x)
        if id(x) in self._open:
            return "again", self._open[id(x)]
        self._open[id(x)] = len(self._open)
        try:
            facts = _values.facts_of(type(x))
            found: Part = getattr(self, facts.rule)(x, facts)
            return found
        finally:
            del self._open[id(x)]

    def _all(self, xs: Iterable[Any]) -> Part:
        return tuple(map(self.part, xs))

    def _lenient(self, x: Any) -> Part:
        """Describes a value as far as possible."""
        before, self._is_lenient = self._is_lenient, True
        try:
            return self.part(x)
        except Exception:
            return "object", type(x).__module__, type(x).__qualname__
        finally:
            self._is_lenient = before

    def _number(self, x: Any) -> tuple[int, bool]:
        """Returns an object's number, and True at its first occurrence."""
        count = len(self._numbers)
        number, _ = self._numbers.setdefault(id(x), (count, x))
        return number, number == count

    # ---- functions ----

    def function(self, f: types.FunctionType, _: Facts) -> Part:
        if (place := _place_in_library(f)) is not None:
            return "named", *place, self.part(f.__code__)
        number, is_new = self._number(f)
        if not is_new:
            return "function", number
        # JAX puts sentinels into closures.
        part = self._lenient if is_installed(f.__code__.co_filename) else self.part
        parts = []
        for kind, name, x in _values.parts_of_function(f):
            try:
                parts.append((kind, name, part(x)))
            except Unsupported as e:
                where = f"`{name}` in the {kind} of `{f.__qualname__}`"
                raise Unsupported(f"{where}: {e}") from None
        return "function", f.__module__, f.__qualname__, *parts

    def code(self, x: types.CodeType, _: Facts) -> Part:
        """Ignores files and lines."""
        names = x.co_names, x.co_varnames, x.co_freevars, x.co_cellvars, x.co_name
        counts = x.co_argcount, x.co_posonlyargcount, x.co_kwonlyargcount, x.co_flags
        return self._all((x.co_code, x.co_exceptiontable, names, counts, *x.co_consts))

    def cell(self, x: types.CellType, _: Facts) -> Part:
        number, is_new = self._number(x)
        try:
            contents = x.cell_contents
        except ValueError:
            return "empty", number
        return "cell", number, self.part(contents) if is_new else None

    # ---- classes and modules ----

    def cls(self, cls: type, _: Facts) -> Part:
        """Describes a class and its bases, up to the first class of an installed package."""
        found: list[Part] = []
        for base in cls.__mro__:
            found.append((base.__module__, base.__qualname__))
            if is_library(base.__module__):
                break
            for name, x in vars(base).items():
                if name == "__dataclass_fields__":
                    x = [(y.name, y.init, y.compare, y.kw_only, y.default) for y in x.values()]
                elif name in _UNSTABLE or (
                    name.startswith("__") and (not callable(x) or _is_generated(x))
                ):
                    continue
                found.append((name, self._lenient(x)))
        return "class", *found

    def module(self, x: types.ModuleType, _: Facts) -> Part:
        if sys.modules.get(x.__name__) is not x:
            raise Unsupported(f"a module `{x.__name__}` that is not imported by this name")
        return "module", x.__name__

    # ---- other values ----

    def contents(self, x: Any, facts: Facts) -> Part:
        found = () if facts.contents is None else facts.contents(x)
        is_many = type(found) is tuple or type(found) is frozenset
        parts = self._all(found if is_many else [found])
        if type(found) is frozenset:
            parts = tuple(sorted(parts, key=repr))
        named = () if facts.attributes is None else facts.attributes(x)
        return "contents", self.part(type(x)), parts, *((str(k), self.part(y)) for k, y in named)

    array = method = contents

    def jax_array(self, x: Any, _: Facts) -> Part:
        if isinstance(x, jax.core.Tracer):
            raise Unsupported("a tracer")
        if not x.is_fully_addressable:
            raise Unsupported("an array that is partly on other machines")
        weak = bool(getattr(x, "weak_type", False))
        return "jax", *self._all((x.shape, str(x.dtype), weak, _values.bytes_of(x)))

    def of_library(self, x: Any, facts: Facts) -> Part:
        place = _place_in_library(x) if callable(x) else None
        if place is not None:
            return "named", *place
        if facts.contents is not None and facts.is_complete:
            return self.contents(x, facts)
        if isinstance(x, _core.FilterJit):
            settings = vars(x._hooks.settings).items()
            options: Any = {k: y for k, y in settings if k not in _UNSAID}
            return "jitted", *self._all((x._function, options))
        if callable(x) and (options := _jax_compat.jit_options(x)) is not None:
            return "jit", *self._all((x.__wrapped__, options))
        return self.instance(x, facts)

    def instance(self, x: Any, facts: Facts) -> Part:
        cls = type(x)
        if (found := _codes.parts_of(x)) is not None:
            return found[0], *self._all(found[1])
        if not jax.tree_util.all_leaves((x,)):
            children, aux = flatten_one_level(x)
            return "node", *self._all((cls, list(children), aux))
        if (key := _keys.static_key(cls)) is not None:
            contents = key(x)
            if type(contents) is not _IDENTITY:
                return "static", *self._all((cls, contents))
        if self._is_lenient:
            is_wrapper = facts.is_library and _values.wraps_function(x)
            held = _values.parts_of_wrapper(x) if is_wrapper else []
            return "object", *self._all((cls, held))
        x = x.value if type(x) is _keys.OwnEquality else x
        what = f"{short_repr(x)} of type `{type(x).__qualname__}`"
        raise Unsupported(f"{what}, which a file cannot describe")


def _is_generated(x: Any) -> bool:
    return getattr(getattr(x, "__code__", None), "co_filename", "") == _GENERATED


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
    text = repr(_Walk().part(x))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def check_digests(names: Sequence[Place], digests: Sequence[str]) -> None:
    """Raises Unsupported if a function or class has changed."""
    for (module, name), saved in zip(names, digests, strict=True):
        x = _codes.find((module, name))
        if digest(x) != saved:
            is_class = isinstance(x, type)
            what = "class" if is_class else "function"
            by = "fields, attributes or methods" if is_class else "code, defaults or closure"
            raise Unsupported(f"the {what} `{name}` of `{module}` has changed since, by its {by}")
