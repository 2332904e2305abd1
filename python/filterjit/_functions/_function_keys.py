"""The keys of functions for ``functions="structure"``.

By default, a function among the static values (the values in a pytree that are not arrays) equals
only itself. With ``functions="structure"``, two functions share a variant if they cannot behave
differently. A *key* stands for each static function: its description (`_describe`). Functions with
equal keys are equal.

The C core computes the key and takes a snapshot of it when it looks for a variant. It computes the
key again on each later call, for the function that is passed, and also for the function that the
variant holds if that is another object. On a hit, therefore, neither function has changed since the
trace.

In a key,

* values that cannot change stand for their contents;
* so do the containers of the standard library (`_static_keys.CONTENTS`), dataclasses, small NumPy
  arrays and other values that are known by them; if such a value can change in place, its identity
  is in the key too, because a callback of the program may change it at any time;
* classes and modules have their identity in it, besides their description;
* JAX's arrays and objects, and the functions and classes of installed packages, stand for
  themselves;
* all other objects have their identity, the attributes whose names occur in the code that was
  found, and their own ``==`` if they define one. They can change in ways that the key does not
  show, so they put the function *in doubt*. The key of a static function in doubt has the
  function's identity.

A trace may change the functions that it is given, for example a counter of traces in a closure.
`tracing` compares the functions, classes, modules and objects before and after the trace. What
changed is *distrusted* (`_distrust`): it is left out of keys, and what has it is in doubt.
"""

import contextlib
import dataclasses
import functools
import logging
import operator
import types
from collections.abc import Iterable, Iterator
from typing import Any

from .. import _core
from .._trees import _registry
from .._trees._static_keys import dict_of
from . import _describe, _types
from ._describe import ATOMS, Item, Part
from ._distrust import distrust

logger = logging.getLogger("filterjit.functions")

_MOST_BYTES = 1 << 16  # of a NumPy array that is compared by contents in each call
_identity = _core.identity


class _Key(_describe.Walk):
    """The walk that makes a key.

    Attributes:
        in_doubt: whether something was found that can change in ways that the key does not show.
    """

    def __init__(self) -> None:
        super().__init__()
        self.in_doubt = False

    def key(self, static: Any) -> tuple[Any, ...]:
        part = self.part(static)
        items = self.describe()
        return (_itself(static) if self.in_doubt else None, part, *items)

    def doubt(self, reason: str) -> None:
        self.in_doubt = True

    def itself(self, x: Any) -> Part:
        return _identity(x)

    def identity(self, x: Any, facts: _types.Type | None = None) -> Part:
        return _identity(x)

    def cls(self, x: Any, facts: Any = None) -> Part:
        return _identity(x) if _types.of_type(x).is_library else ("class", self.number(x))

    def of_library(self, x: Any, module: str, name: str) -> Part:
        return _identity(x)

    def in_library(self, module: Any, name: str, x: Any) -> Item:
        return ("global", name), _identity(x)

    def value(self, x: Any, facts: _types.Type) -> Part:
        try:
            hash(x)
        except Exception:
            return self.unknown(x, facts)
        return "value", x

    def array(self, x: Any, facts: _types.Type) -> Part:
        if x.nbytes > _MOST_BYTES or x.dtype.hasobject or not facts.is_complete:
            return self.unknown(x, facts)
        return self.contents(x, facts)

    def field(self, x: Any, facts: _types.Type) -> Part:
        """The attributes, most of which are the same in all fields."""
        if x.__class__ is not dataclasses.Field:
            return self.contents(x, facts)
        seen = self._seen.get(id(x))
        if seen is not None:
            return "seen", seen[0]
        self._seen[id(x)] = len(self._seen), x
        try:
            values = _ATTRIBUTES_OF_FIELD(x)
        except AttributeError:  # one was deleted
            return self.unknown(x, facts)
        return (
            "field",
            _identity(x),
            *[v if type(v) in ATOMS else _USUAL.get(id(v)) or self.part(v) for v in values],
        )

    def unknown(self, x: Any, facts: _types.Type) -> Part:
        if facts.is_library:
            if dict_of(x).get("__wrapped__") is not None:
                return self.wrapper(x)
            bare = facts.is_complete and facts.contents is _types.nothing
            if bare and not (facts.attributes and facts.attributes(x)):
                return _identity(x)  # such as a sentinel
            if _core.is_immutable(_registry.registry, x):
                return "value", x
        self.doubt("it can change in ways that are not seen")
        self.add_open(x)
        return "unknown", self.cls(type(x)), _identity(x), *_compared(x)

    def code(self, f: Any) -> Part:
        return (
            f.__code__,
            f.__code__.co_filename,  # which the == of code objects ignores
            _identity(f.__globals__),
            _identity(f.__builtins__),
            f.__name__,
            f.__qualname__,
            self.part(f.__module__),
            self.part(f.__doc__),
        )

    def items_of_function(self, f: Any) -> tuple[Item, ...]:
        before, self.in_doubt = self.in_doubt, False
        items = super().items_of_function(f)
        if self.in_doubt:
            items = (*items, (("function", ""), _identity(f)))
        self.in_doubt |= before
        return items

    def annotation(self, owner: Any, name: Any, x: Any) -> Item:
        before = self.in_doubt
        item = self.at(owner, "annotation", name, x)
        self.in_doubt = before
        return item


@dataclasses.dataclass
class _Example:
    x: int


_ATTRIBUTES_OF_FIELD: Any = operator.attrgetter(*dataclasses.Field.__slots__)
# What most fields hold, and nothing changes: MISSING, the kind of field, no metadata.
_FIELD: Any = dataclasses.fields(_Example)[0]
_USUAL: dict[int, Part] = {
    id(x): ("usual", i) for i, x in enumerate((_FIELD.default, _FIELD._field_type, _FIELD.metadata))
}


def _compared(x: Any) -> tuple[Any, ...]:
    """Returns `x` and its hash if it is compared by an ``==`` of its own."""
    cls: Any = type(x)
    if cls.__hash__ is None or (cls.__hash__ is object.__hash__ and cls.__eq__ is object.__eq__):
        return ()
    try:
        return (x, hash(x)) if registry.kind(x) == "static" else ()
    except Exception:
        return ()


def _itself(static: Any) -> Any:
    """Returns what a function in doubt is compared by: the objects, as by default."""
    if isinstance(static, types.MethodType):
        return _identity(static.__func__), _identity(static.__self__)
    return _identity(static)


def _failed(x: Any) -> None:
    """Logs the exception that is being handled.

    An object of the user's may raise any. A fault of this walk would be seen in misses only."""
    logger.debug("a %s could not be described", type(x).__name__, exc_info=True)


def _key(static: Any) -> Any:
    try:
        return _Key().key(static)
    except Exception:  # such as a RecursionError
        _failed(static)
        return _itself(static)


# ---- what a trace changes ----


class _Shallow(_Key):
    """Describes one object; other functions and classes are compared by identity."""

    def number(self, x: Any) -> Any:
        return _identity(x)

    def add_open(self, x: Any) -> None:
        pass


def _items(x: Any, names: Iterable[str]) -> dict[Any, Part]:
    """Returns the parts of one object by their kinds and names."""
    walk = _Shallow()
    try:
        if type(x) is types.FunctionType:
            return dict(walk.items_of_function(x))
        if issubclass(type(x), type):
            return dict(walk.items_of_class(x))
        variables = _describe.variables_of(x)
        if variables is not None:
            names = [name for name in names if name in variables]
        return dict(walk.items_of_open(x, variables, names))
    except Exception:
        _failed(x)
        return {}


def _owner(x: Any) -> Any:
    if type(x) is types.FunctionType:
        return x.__code__
    return x if issubclass(type(x), (type, types.ModuleType)) else type(x)


@contextlib.contextmanager
def tracing(variant: _core.Variant) -> Iterator[None]:
    """A context around a trace, which distrusts what the trace changes of what functions use."""
    walk = _Key()
    for _, _, _, detail, _ in variant.structure._nodes():
        try:
            walk.part(detail)
        except Exception:  # the C core raises the error
            _failed(detail)
    try:
        walk.describe()
    except Exception:
        _failed(walk)
    found = [*walk.found, *(x for x, _ in walk.open)]
    names = frozenset(walk.names)
    before = [(x, _owner(x), _items(x, names)) for x in found]
    yield
    for x, owner, items in before:
        if _owner(x) is owner:
            now = _items(x, names)
            changed = {
                k
                for k in (items.keys() | now.keys()) - _NEVER
                if not _same(items.get(k), now.get(k))
            }
            if changed:
                distrust(owner, frozenset(changed))


_NEVER = {("code", ""), ("function", ""), ("class", "")}


def _same(x: Any, y: Any) -> bool:
    try:
        return _core.same_static(registry, x, y)
    except Exception:
        _failed(x)
        return False


_KEYED = tuple((cls, _key) for cls in (types.FunctionType, types.MethodType, functools.partial))

registry: _core.Registry = _registry.registry.with_policy(keyed=_KEYED)

# The same, with numbers traced in the arguments of some parameters.
with_numbers_in_some: _core.Registry = _registry.registry.with_policy(
    keyed=_KEYED, traced_in=_registry.NUMBERS
)
