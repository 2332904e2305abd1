"""The keys of functions for ``functions="structure"``.

By default, a function among the static values (the values in a pytree that are not arrays) equals
only itself. With ``functions="structure"``, two functions share a variant if they cannot behave
differently. A *key* stands for each static function: a tuple of all that its code can use, as far
as that can be known. Functions with equal keys are equal.

The C core computes the key and takes a snapshot of it when it looks for a variant. It computes the
key again on each later call, for the function that is passed, and also for the function that the
variant holds if that is another object. On a hit, therefore, neither function has changed since the
trace.

A key has the code, globals, defaults, closure and attributes of the function, and what it can reach
from there. The type of a value decides what it contributes (`_function_facts`):

* The containers and values of the standard library (`_static_keys.CONTENTS`) and their subclasses,
  partials, dataclasses, Equinox Modules and enums: the exact type, the contents and the attributes,
  as for static values. If the value can change in place, its identity too, because a callback of
  the program may change it at any time.
* Functions in a closure, in defaults, in attributes and in contents: all parts, as for the static
  function itself.
* Modules of Python, classes, and functions that are the value of a global variable or of an
  attribute: the identity, and the values of the attributes that the code reads by name, as in
  ``config.scale``.
* JAX's arrays and objects, and the globals of JAX's and other libraries' functions: the identity.
* All other objects, NumPy arrays included: the identity, the attributes that the code reads by name,
  and their own ``==`` if they define one. They can change in ways that the key does not show, so
  they put the function *in doubt*, and with it all that refer to it. The key of a static function
  in doubt has the function's identity.

Functions are numbered in the order in which they are found, and a reference to a function is its
number, so recursive functions need no special case. Cells and containers are numbered too, so two
functions that share a cell do not equal two functions with a cell each.

A trace may change the functions that it is given, for example a counter of traces in a closure.
`tracing` compares the functions before and after the trace. The parts of the key that changed are
*distrusted*: they are left out of the keys of all functions with that code, and these functions are
in doubt.
"""

import contextlib
import functools
import itertools
import types
from collections.abc import Iterable, Iterator
from typing import Any

from .. import _core
from .._trees import _registry
from .._trees._static_keys import OWN_ATTRIBUTES, dict_of
from . import _function_facts as _facts

_TRUSTED = 8  # the number of parts, at the beginning of a key, that are never distrusted
_SELF = -1  # the index, among the distrusted parts, of the object of a bound method
_identity = _core.identity
_OMITTED = _identity(object())  # takes the place of a distrusted part
_UNSET = _identity(object())  # takes the place of a variable or an attribute that is not set
_NONE: _facts.Names = {}

_ATOMS: frozenset[type] = frozenset(
    {bool, int, float, complex, str, bytes, type(None), type(...), type(NotImplemented)}
    | {type(_UNSET)}
)


class _Walk:
    """Computes the key of one static function, with the functions that it refers to.

    Each part of a key is an atom or a tuple that starts with the name of its kind, so that parts
    of different kinds are never equal. The methods that take a value, the facts about its type
    and the names of its attributes that code reads are the rules of `_function_facts`.

    Attributes:
        functions: the functions found so far, in the order of their numbers.
        methods: the bound methods found so far.
    """

    def __init__(self) -> None:
        self.functions: list[types.FunctionType] = []
        self.methods: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._cells: dict[int, int] = {}
        self._seen: dict[int, list[Any]] = {}
        self._doubt = False

    def key(self, static: Any) -> tuple[Any, ...]:
        parts = [self.part(static)]
        done = 0
        while done < len(self.functions):
            parts.append(self.function(self.functions[done]))
            done += 1
        return (_itself(static) if self._doubt else None, *parts)

    def function(self, f: Any) -> tuple[Any, ...]:
        """Returns the parts of one function's key: equally many for functions of equal code."""
        code = f.__code__
        facts = _facts.of_code(code)
        names: dict[str, Any] = f.__globals__
        built_in: dict[str, Any] = f.__builtins__
        is_library = _facts.is_library(names.get("__name__"))
        imports = facts.imports and not is_library
        outer, self._doubt = self._doubt, bool(facts.distrusted) or imports
        parts = [
            code,
            code.co_filename,  # which the == of code objects ignores
            _identity(names),
            _identity(built_in),
            f.__name__,
            f.__qualname__,
            self.part(f.__module__),
            self.part(f.__doc__),
        ]
        skip = facts.distrusted
        type_parameters = getattr(f, "__type_params__", None)
        annotations = self._annotations(f)
        parts.append(
            None
            if not f.__defaults__
            else _OMITTED
            if len(parts) in skip
            else self._defaults(f.__defaults__, facts)
        )
        for x in f.__kwdefaults__, f.__dict__, annotations, type_parameters:
            parts.append(
                None if not x else _OMITTED if len(parts) in skip else self._own(x, facts.names)
            )
        for k, cell in zip(code.co_freevars, f.__closure__ or (), strict=True):
            content = facts.names.get(k, _NONE)
            parts.append(_OMITTED if len(parts) in skip else self._cell(cell, content))
        for k, attributes in () if is_library else facts.globals:
            value = names[k] if k in names else built_in.get(k, _UNSET)
            parts.append(_OMITTED if len(parts) in skip else self._global(value, attributes))
        if self._doubt:
            parts.append(_identity(f))
        self._doubt |= outer
        return tuple(parts)

    def _defaults(self, values: tuple[Any, ...], facts: _facts.Code) -> tuple[Any, ...]:
        parameters = itertools.chain(facts.parameters, itertools.repeat(_NONE))
        return tuple(map(self.part, reversed(values), parameters))

    def _annotations(self, f: Any) -> Any:
        try:
            return f.__annotations__
        except Exception:  # since Python 3.14, reading them runs code
            self._doubt = True
            return {}

    def _own(self, x: Any, names: _facts.Names = _NONE) -> Any:
        """Returns the part for an object that no other function uses, such as ``__dict__``.

        A dict here does not put the function in doubt.
        """
        if type(x) is not dict:
            return self.part(x)
        return self._items(list(x.items()), names) or None

    def _items(self, items: Iterable[tuple[Any, Any]], names: _facts.Names = _NONE) -> Any:
        parts = []
        for k, v in items:
            if type(k) is not str:
                parts.append((self.part(k), self.part(v)))
            elif k == "__annotations__":  # a copy, which functools.wraps made
                parts.append((k, self._own(v)))
            elif not k.startswith(OWN_ATTRIBUTES):
                parts.append((k, self.part(v, names.get(k, _NONE))))
        return tuple(parts)

    def _cell(self, cell: types.CellType, names: _facts.Names) -> Any:
        number = self._cells.setdefault(id(cell), len(self._cells))
        try:
            return "cell", number, self.part(cell.cell_contents, names)
        except ValueError:
            return "empty", number

    def _global(self, value: Any, names: _facts.Names) -> Any:
        """Returns the part for a value that a name gives: of a global variable, or an attribute."""
        if type(value) in _facts.FUNCTIONS:
            return self.named(value, None, names) if names else _identity(value)
        return self.part(value, names)

    def part(self, x: Any, names: _facts.Names = _NONE) -> Any:
        """Returns the part for any value, of which code reads the attributes `names`."""
        cls = type(x)
        if cls in _ATOMS:
            return x
        if cls is types.FunctionType:
            return self.function_number(x)
        if cls is type and not names:
            return _identity(x)
        facts = _facts.of_type(cls)
        return getattr(self, facts.rule)(x, facts, names)

    # ---- the rules ----

    def contents(self, x: Any, facts: _facts.Type, _: _facts.Names) -> Any:
        """The type, the contents and the attributes."""
        seen = self._seen.get(id(x))
        if seen is None:
            outer, self._doubt = self._doubt, False
            seen = self._seen[id(x)] = [len(self._seen), False, x]
            contents = self._contents(facts.contents(x))
            attributes = self._attributes(x, facts)
            seen[1] = self._doubt
            self._doubt |= outer
            mutable = attributes if facts.mutable == "attributes" else facts.mutable == "yes"
            itself = _identity(x) if mutable else None
            return "contents", _identity(type(x)), itself, contents, attributes
        self._doubt |= seen[1]
        return "seen", seen[0]

    def _contents(self, x: Any) -> Any:
        if type(x) not in (tuple, frozenset):
            return self.part(x)
        if set(map(type, x)) <= _ATOMS:
            return x
        return tuple(map(self.part, x))

    def _attributes(self, x: Any, facts: _facts.Type) -> Any:
        return () if facts.attributes is None else self._items(facts.attributes(x))

    def function_number(self, f: types.FunctionType, *_: Any) -> Any:
        number = self._numbers.setdefault(id(f), len(self.functions))
        if number == len(self.functions):
            self.functions.append(f)
        return "function", number

    def partial(self, x: Any, facts: _facts.Type, _: _facts.Names) -> Any:
        parts = map(self._own, (x.func, x.args, x.keywords))
        return "partial", _identity(type(x)), *parts, self._attributes(x, facts)

    def method(self, x: Any, facts: Any = None, names: Any = None) -> Any:
        self.methods.append(x)
        return "method", self.part(x.__func__), self.object_of(x)

    def object_of(self, method: Any, all_parts: bool = False) -> Any:
        """Returns the part for the object of a bound method."""
        f = method.__func__
        if type(f) is not types.FunctionType:
            return self.part(method.__self__)
        code = f.__code__
        facts = _facts.of_code(code)
        if _SELF in facts.distrusted and not all_parts:
            self._doubt = True
            return _identity(method.__self__)
        names = facts.names.get(code.co_varnames[0], _NONE) if code.co_varnames else _NONE
        return self.part(method.__self__, names)

    def built_in(self, x: Any, *_: Any) -> Any:
        return "built-in", x, self.part(x.__self__)

    def wrapper(self, x: Any, *_: Any) -> Any:
        return "wrapper", _identity(x), self.part(dict_of(x).get("__wrapped__"))

    def cell(self, x: Any, facts: _facts.Type, names: _facts.Names) -> Any:
        return _identity(x), self._cell(x, names)

    def reduced(self, x: Any, *_: Any) -> Any:
        return "reduced", self.part(x.__reduce__())

    def identity(self, x: Any, *_: Any) -> Any:
        return _identity(x)

    def value(self, x: Any, facts: _facts.Type, names: _facts.Names) -> Any:
        try:
            hash(x)
        except Exception:
            return self.unknown(x, facts, names)
        return "value", x

    def named(self, x: Any, _: Any, names: _facts.Names) -> Any:
        """The identity, and the attributes that the code reads by name."""
        if not names:
            return _identity(x)
        if type(x) is types.ModuleType and _facts.is_library(x.__name__):
            values = [_attribute(x, k) for k in names]
            parts = [v if type(v) in _ATOMS else _identity(v) for v in values]
        else:
            parts = [self._global(_attribute(x, k), deeper) for k, deeper in names.items()]
        return "named", _identity(x), *parts

    def unknown(self, x: Any, facts: _facts.Type, names: _facts.Names) -> Any:
        """The identity, the attributes that the code reads by name, and the own ``==``."""
        self._doubt = True
        return "unknown", _identity(type(x)), self.named(x, facts, names), *_compared(x)


def _compared(x: Any) -> tuple[Any, ...]:
    """Returns `x` and its hash if it is compared by an ``==`` of its own."""
    cls: Any = type(x)
    if cls.__hash__ is None or (cls.__hash__ is object.__hash__ and cls.__eq__ is object.__eq__):
        return ()
    try:
        return (x, hash(x)) if registry.kind(x) == "static" else ()
    except Exception:
        return ()


def _slot(descriptor: Any, x: Any) -> Any:
    try:
        return descriptor.__get__(x)
    except AttributeError:
        return _UNSET


def _attribute(x: Any, name: str) -> Any:
    """Returns an attribute as it is stored, without running code of a descriptor."""
    cls = type(x)
    if issubclass(cls, type):
        mro = x.__mro__
    else:
        own = dict_of(x)
        if name in own:
            return own[name]
        mro = cls.__mro__
    for c in mro:
        if name in c.__dict__:
            value = c.__dict__[name]
            return _slot(value, x) if type(value) is types.MemberDescriptorType else value
    return _UNSET


def _itself(static: Any) -> Any:
    """Returns what a function in doubt is compared by: the objects, as by default."""
    if isinstance(static, types.MethodType):
        return _identity(static.__func__), _identity(static.__self__)
    return _identity(static)


def _key(static: Any) -> Any:
    try:
        return _Walk().key(static)
    except Exception:  # such as a RecursionError
        return _itself(static)


class _Contents(_Walk):
    """Computes the parts of one function; other functions are compared by identity."""

    def function_number(self, f: types.FunctionType, *_: Any) -> Any:
        return _identity(f)


def _contents(f: types.FunctionType) -> tuple[Any, ...]:
    try:
        return _Contents().function(f)
    except Exception:
        return ()


def _object_of(method: Any) -> Any:
    try:
        return _Contents().object_of(method, all_parts=True)
    except Exception:
        return None


@contextlib.contextmanager
def tracing(variant: _core.Variant) -> Iterator[None]:
    """A context around a trace, which distrusts the parts of functions that the trace changes."""
    walk = _Walk()
    for _, _, _, detail, _ in variant.structure._nodes():
        with contextlib.suppress(Exception):  # the C core raises the error
            walk.part(detail)
    with contextlib.suppress(Exception):
        walk.key(None)
    before = [(f, f.__code__, _contents(f)) for f in walk.functions]
    objects = [(m, m.__func__, _object_of(m)) for m in walk.methods]
    yield
    for f, code, parts in before:
        if f.__code__ is code:
            pairs = zip(parts, _contents(f), strict=False)
            changed = {i for i, (x, y) in enumerate(pairs) if i >= _TRUSTED and not _same(x, y)}
            _facts.of_code(code).distrusted |= changed
    for method, f, part in objects:
        if type(f) is types.FunctionType and not _same(part, _object_of(method)):
            _facts.of_code(f.__code__).distrusted |= {_SELF}


def _same(x: Any, y: Any) -> bool:
    try:
        return _core.same_static(registry, x, y)
    except Exception:
        return False


registry: _core.Registry = _registry.registry.with_policy(
    keyed=tuple((cls, _key) for cls in (types.FunctionType, types.MethodType, functools.partial))
)
