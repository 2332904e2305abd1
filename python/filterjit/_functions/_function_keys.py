"""The keys of functions for ``functions="structure"``.

By default, a static function equals only itself. With ``functions="structure"``, functions with
equal keys share a variant. The *key* of a function contains its code, defaults, closure, attributes
and annotations, the identity of its globals, and recursively the keys of functions in these. It
doesn't follow names that the code looks up.

When the C core looks for a variant, it computes the key and takes a snapshot of it. Each later call
computes the key of the function passed, and of the variant's function if that is a different
object. A hit therefore means that neither key has changed since the trace.

In a key,

* unchanging values are represented by their contents;
* standard containers (`_values.ROWS`), dataclasses, small arrays and other values with
  known contents are too. If they are mutable, the key also has their identity, because a callback
  of the program can change them at any time. Functions of installed packages, such as those of an
  optimizer, don't do this: the identity of their values is omitted, and packages' objects among
  these are represented by contents;
* classes, modules, large arrays, JAX's objects, and functions of installed packages that hold
  nothing are represented by their identity;
* all other objects are too, but can change in ways the key doesn't show. The key is then *in
  doubt*, and has the identities of its functions: a new function gets a different key.

Functions, cells and containers are numbered in the order of discovery. References are numbers. This
handles recursion, and tells two functions that share a cell from two functions with a cell each.
"""

import functools
import logging
import types
from collections.abc import Iterable
from typing import Any

import jax

from .. import _core
from .._base._package import is_library
from .._trees import _registry, _values
from .._trees._keys import Compared
from .._trees._values import ATOMS, Facts

logger = logging.getLogger("filterjit.functions")

Part = Any
"""An atom, or a tuple headed by the name of its kind."""

_AS_THEY_ARE = ATOMS | {types.CodeType}
_MOST_BYTES = 1 << 16  # of an array to compare by contents in each call
_identity = _core.identity


class _Walk:
    """Computes a key. The methods that take `Facts` are the rules of `_values`."""

    def __init__(self, holder: Any = None) -> None:
        self.in_doubt = False
        self._holder = holder  # the function or method being described
        self._functions: list[Any] = []
        self._numbers: dict[int, tuple[int, Any]] = {}  # by address; keeps the objects alive

    def key(self, static: Any) -> Part:
        is_function = type(static) is types.FunctionType
        part = self.function(static) if is_function else self.part(static)
        parts = [self._parts_of(f) for f in self._functions]  # the list grows meanwhile
        if self.in_doubt:
            return _itself(static), *map(_identity, self._functions), part, *parts
        return part, *parts

    def part(self, x: Any) -> Part:
        cls = type(x)
        if cls in _AS_THEY_ARE:
            return x
        facts = _values.known.get(id(cls))
        if facts is None or facts.ref() is not cls:
            facts = _values.facts_of(cls)
        return getattr(self, facts.rule)(x, facts)

    def _items(self, items: Iterable[tuple[Any, Any]]) -> Part:
        return tuple([(self.part(k), self.part(v)) for k, v in items])

    def _number(self, x: Any) -> tuple[int, bool]:
        """Returns an object's number, and True at its first occurrence."""
        count = len(self._numbers)
        number, _is_new = self._numbers.setdefault(id(x), (count, x))
        return number, number == count

    # ---- functions ----

    def function(self, f: Any, _: Any = None) -> Part:
        is_nested = f.__closure__ is not None or "<locals>" in f.__code__.co_qualname
        if not is_nested and _values.name_in_library(f) is not None:
            return _identity(f)
        count = len(self._numbers)
        number, _is_new = self._numbers.setdefault(id(f), (count, f))
        if number == count:
            self._functions.append(f)
        return "function", number

    def _parts_of(self, f: Any) -> Part:
        self._holder = f
        module, doc, annotations = f.__module__, f.__doc__, f.__annotations__
        return (
            f.__code__.co_filename,  # ignored by the == of code objects
            _identity(f.__globals__),
            _identity(f.__builtins__),
            f.__name__,
            f.__qualname__,
            module if type(module) is str else self.part(module),
            doc if doc is None else self.part(doc),
            self._items(annotations.items()) if annotations else (),
            *[
                (
                    kind,
                    name if type(name) is str else self.part(name),
                    x if type(x) in _AS_THEY_ARE else self.part(x),
                )
                for kind, name, x in _values.parts_of_function(f)
            ],
        )

    def cell(self, x: Any, _: Facts) -> Part:
        number = self._number(x)[0]
        try:
            return "cell", number, self.part(x.cell_contents)
        except ValueError:
            return "empty", number

    # ---- other values ----

    def _is_in_library(self) -> bool:
        """True for values held by a function of an installed package."""
        return is_library(getattr(self._holder, "__globals__", {}).get("__name__"))

    def contents(self, x: Any, facts: Facts) -> Part:
        number, is_new = self._number(x)
        named = () if facts.attributes is None else facts.attributes(x)
        can_change = facts.is_mutable or (named and not facts.is_frozen)
        itself = _identity(x) if can_change and not self._is_in_library() else None
        if not is_new:
            return "seen", number, itself
        contents = () if facts.contents is None else facts.contents(x)
        is_many = type(contents) is tuple or type(contents) is frozenset
        part = tuple(map(self.part, contents)) if is_many else self.part(contents)
        return "contents", _identity(type(x)), itself, part, self._items(named)

    def array(self, x: Any, facts: Facts) -> Part:
        is_small = x.nbytes <= _MOST_BYTES and not x.dtype.hasobject
        return self.contents(x, facts) if is_small else self.instance(x)

    def of_library(self, x: Any, facts: Facts) -> Part:
        if _values.wraps_function(x):
            is_named = _values.name_in_library(x) is not None
            parts = () if is_named else self._items(_values.parts_of_wrapper(x))
            return "wrapper", _identity(x), parts
        attributes = facts.attributes(x) if facts.is_complete and facts.attributes else ()
        is_plain = (
            attributes and not facts.is_fixed and getattr(type(x), "__eq__", None) is object.__eq__
        )
        if is_plain and self._is_in_library():
            number, is_new = self._number(x)
            return "plain", number, _Plain(x, self._items(attributes)) if is_new else None
        is_bare = facts.is_complete and not attributes
        if facts.is_fixed or is_bare or _core.is_fixed(_registry.registry, x):
            try:
                hash(x)
            except Exception:
                return self.instance(x)
            return "value", x
        return self.instance(x)

    def method(self, x: Any, facts: Facts) -> Part:
        before, self._holder = self._holder, x.__func__
        found = self.contents(x, facts)
        self._holder = before
        return found

    def instance(self, x: Any, _: Any = None) -> Part:
        self.in_doubt = True
        return _identity(x)

    def cls(self, x: Any, _: Facts) -> Part:
        return _identity(x)

    module = cls

    def jax_array(self, x: Any, _: Facts) -> Part:
        # Typed keys have no `nbytes` before JAX 0.5.3.
        is_small = not isinstance(x, jax.core.Tracer) and x.size * x.dtype.itemsize <= _MOST_BYTES
        return x if is_small else _identity(x)


class _Plain(Compared):
    """Compares objects of libraries by identity or contents."""

    __slots__ = ("contents",)

    def __init__(self, value: Any, contents: Part) -> None:
        super().__init__(value)
        self.contents = contents

    def is_equal(self, other: Any) -> bool:
        is_same = _core.same_static(_registry.registry, self.contents, other.contents)
        return is_same and type(self.value) is type(other.value)


class _ByContents(_Walk):
    """A walk that ignores the identity of containers."""

    def _is_in_library(self) -> bool:
        return True


def are_equal(x: Any, y: Any, holders: tuple[Any, Any] | None = None) -> bool:
    """True if two functions, or values that two functions hold, have equal keys. Without holders,
    compares their current contents."""
    walks = (_ByContents(), _ByContents()) if holders is None else map(_Walk, holders)
    try:
        keys = [walk.key(value) for walk, value in zip(walks, (x, y), strict=True)]
        return bool(_core.same_static(_registry.registry, *keys))
    except Exception:
        return x is y


def _itself(static: Any) -> Any:
    """Returns the default key of a function in doubt: its identity."""
    if isinstance(static, types.MethodType | _core.BoundMethod):
        return _identity(static.__func__), _identity(static.__self__)
    return _identity(static)


def _key(static: Any) -> Any:
    try:
        return _Walk().key(static)
    except Exception:  # from user code; or a RecursionError
        logger.debug("a %s could not be described", type(static).__name__, exc_info=True)
        return _itself(static)


_METHODS: tuple[type, ...] = (types.MethodType, *_core.BoundMethod.__subclasses__())
_KEYED = tuple([(cls, _key) for cls in (types.FunctionType, functools.partial, *_METHODS)])

registry: _core.Registry = _registry.registry.with_policy(keyed=_KEYED)

# The same, but tracing numbers in the arguments of some parameters.
with_numbers_in_some: _core.Registry = _registry.registry.with_policy(
    keyed=_KEYED, traced_in=_registry.NUMBERS
)
