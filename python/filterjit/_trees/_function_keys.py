"""The keys of functions for ``functions="structure"``.

By default, a function among the static values (the values in a pytree that are not arrays) equals
only itself. With ``functions="structure"``, two functions share a variant if they cannot behave
differently. A *key* stands for each static function: a tuple of all that its code can use without
reading an attribute of an object, which are its code, globals, defaults, closure and attributes.
Functions with equal keys are equal.

The C core computes and freezes the key when it looks for a variant. It computes the key again on
each later call, for the function that is passed, and also for the function that the variant
holds if that is another object. On a hit, therefore, neither function has changed since the
trace.

A key covers also the functions that the static function refers to by its closure, defaults or
attributes, directly or through others. They are numbered in the order in which they are found, and
a reference to a function is its number, so recursive functions need no special case. Cells are
numbered too, so two functions that share a cell do not equal two functions with a cell each. A
function that is the value of a global variable is compared by identity.

A function is *in doubt* if it refers to a value that may change in a way that the key does not
show, such as a global list. A function in doubt is a part of its own key and equals only itself.

A trace may change the functions that it is given, for example a counter of traces in a closure.
`tracing` compares the functions before and after the trace. The parts of the key that changed are
*distrusted*: they are left out of the keys of all functions with that code, and these functions are
in doubt.
"""

import collections
import contextlib
import dis
import enum
import functools
import types
import weakref
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from .. import _core
from .._base import _jax_compat
from . import _registry, _static_keys

_ATOMS: frozenset[type] = frozenset(
    {bool, int, float, complex, str, bytes, type(None), type(...), type(NotImplemented)}
)
_MUTABLE = list, dict, set, bytearray, collections.deque, np.ndarray
_OWN_ATTRIBUTES = "__filterjit_"  # the prefix of attributes that filterjit sets on functions
_TRUSTED = 8  # the number of parts, at the beginning of a key, that are never distrusted
_identity = _core.identity
_OMITTED = _identity(object())  # takes the place of a distrusted part


class _Code:
    """Facts about a code object.

    Attributes:
        globals: the names of the globals that it reads, or that functions defined in it read.
        distrusted: the indices of the parts to leave out of the keys of its functions.
        ref: a weak reference to the code object.
    """

    __slots__ = ("distrusted", "globals", "ref")

    def __init__(self, code: types.CodeType) -> None:
        address, forget = id(code), _codes.pop
        self.ref = weakref.ref(code, lambda _: forget(address, None))
        self.globals = tuple(sorted(_globals_of(code)))
        self.distrusted: frozenset[int] = frozenset()


_codes: dict[int, _Code] = {}  # by address, because hashing a code object reads all of it


def _facts_of(code: types.CodeType) -> _Code:
    facts = _codes.get(id(code))
    if facts is None or facts.ref() is not code:
        facts = _codes[id(code)] = _Code(code)
    return facts


def _globals_of(code: types.CodeType) -> set[str]:
    names = {
        i.argval
        for i in dis.get_instructions(code)
        if i.opname.startswith("LOAD") and ("GLOBAL" in i.opname or "NAME" in i.opname)
    }
    for constant in code.co_consts:
        if type(constant) is types.CodeType:
            names |= _globals_of(constant)
    return {name for name in names if isinstance(name, str)}


class _Walk:
    """Computes the key of one static function, and of the functions that it refers to.

    Each part of a key is an atom or a tuple that starts with the name of its kind, so that parts
    of different kinds are never equal.

    `functions` lists the functions found so far, in the order of their numbers.
    """

    def __init__(self) -> None:
        self.functions: list[types.FunctionType] = []
        self._numbers: dict[int, int] = {}
        self._cells: dict[int, int] = {}
        self._doubt = False

    def key(self, static: Any) -> tuple[Any, ...]:
        parts = [self.part(static), self._doubt and _identity(static)]
        done = 0
        while done < len(self.functions):
            parts.append(self.function(self.functions[done]))
            done += 1
        return tuple(parts)

    def function(self, f: Any) -> tuple[Any, ...]:
        """Returns the parts of one function's key: equally many for functions of equal code."""
        code = f.__code__
        facts = _facts_of(code)
        names: dict[str, Any] = f.__globals__
        built_in: dict[str, Any] = f.__builtins__
        self._doubt = bool(facts.distrusted)
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
        for x in f.__defaults__, f.__kwdefaults__, f.__dict__, annotations, type_parameters:
            parts.append(None if not x else _OMITTED if len(parts) in skip else self._own(x))
        for cell in f.__closure__ or ():
            parts.append(_OMITTED if len(parts) in skip else self._cell(cell))
        for k in facts.globals:
            value = names.get(k, built_in.get(k, _identity))
            parts.append(_OMITTED if len(parts) in skip else self._global(value))
        if self._doubt:
            parts.append(_identity(f))
        return tuple(parts)

    def _annotations(self, f: Any) -> Any:
        try:
            return f.__annotations__
        except Exception:  # since Python 3.14, reading them runs code
            self._doubt = True
            return {}

    def _own(self, x: Any) -> Any:
        """Returns the part for an object that no other function uses, such as ``__dict__``.

        A dict here does not put the function in doubt.
        """
        if type(x) is not dict:
            return self.part(x)
        items = [
            (self.part(k), self.part(v))
            for k, v in list(x.items())
            if not (type(k) is str and k.startswith(_OWN_ATTRIBUTES))
        ]
        return tuple(items) or None

    def _cell(self, cell: types.CellType) -> Any:
        number = self._cells.setdefault(id(cell), len(self._cells))
        try:
            return "cell", number, self.part(cell.cell_contents)
        except ValueError:
            return "empty", number

    def _global(self, value: Any) -> Any:
        """Returns the part for the value of a global variable; `_identity` if it is not set."""
        cls = type(value)
        if cls is types.ModuleType or cls is types.FunctionType:
            return _identity(value)
        if cls in _ATOMS or cls is tuple:
            return self.part(value)
        if isinstance(value, _MUTABLE):
            self._doubt = True
        return _identity(value)

    def part(self, x: Any) -> Any:
        """Returns the part for any value."""
        cls = type(x)
        if cls in _ATOMS:
            return x
        if cls is types.FunctionType:
            number = self._numbers.setdefault(id(x), len(self.functions))
            if number == len(self.functions):
                self.functions.append(x)
            return "function", number
        if cls is tuple:
            return ("tuple", *map(self.part, x))
        if cls is functools.partial:
            parts = x.func, x.args, x.keywords, x.__dict__
            return ("partial", *map(self._own, parts))
        if cls is types.MethodType:
            return "method", self.part(x.__func__), self.part(x.__self__)
        if isinstance(x, (type, types.ModuleType, enum.Enum, jax.Array)):
            return _identity(x)
        if isinstance(x, _MUTABLE):
            self._doubt = True
            return self._mutable(x)
        return self._leaf(x)

    def _mutable(self, x: Any) -> Any:
        """Returns the part for a mutable value: its contents, or its identity for a NumPy array."""
        match x:
            case bytearray():
                contents: Any = (bytes(x),)
            case dict():
                contents = self._own(dict(x)) or ()
            case np.ndarray():
                return _identity(x)
            case _:
                contents = map(self.part, list(x))
        return "mutable", _identity(type(x)), *contents

    def _leaf(self, x: Any) -> Any:
        """Returns the part for a value of any other type.

        The value is compared as static values are if its type defines ``__hash__`` and ``__eq__``,
        and by identity otherwise.
        """
        cls: Any = type(x)
        if cls in (range, slice):
            return cls.__name__, self.part((x.start, x.stop, x.step))
        if isinstance(x, np.generic) and x.dtype.kind in "biufc":
            return "scalar", _identity(cls), x.tobytes()
        if cls is frozenset:
            return x if all(type(y) in _ATOMS for y in x) else ("set", *map(self.part, x))
        if cls.__hash__ is object.__hash__ and cls.__eq__ is object.__eq__:
            return _identity(x)
        if cls.__hash__ is None:
            self._doubt = True
            return _identity(x)
        if registry.kind(x) != "static":
            return _identity(x)
        try:
            key = _static_keys.static_key(cls)
            if key is not None:
                return "dataclass", _identity(cls), self.part(key(x))
            hash(x)
        except Exception:
            self._doubt = True
            return _identity(x)
        return "value", x


def _key(static: Any) -> Any:
    try:
        return _Walk().key(static)
    except RecursionError:
        return _identity(static)


class _Contents(_Walk):
    """Computes the parts of one function; other functions are compared by identity."""

    def part(self, x: Any) -> Any:
        return _identity(x) if type(x) is types.FunctionType else super().part(x)


def _contents(f: types.FunctionType) -> tuple[Any, ...]:
    try:
        return _Contents().function(f)
    except Exception:
        return ()


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
    yield
    for f, code, parts in before:
        if f.__code__ is code:
            pairs = zip(parts, _contents(f), strict=False)
            changed = {i for i, (x, y) in enumerate(pairs) if i >= _TRUSTED and not _same(x, y)}
            _facts_of(code).distrusted |= changed


def _same(x: Any, y: Any) -> bool:
    try:
        return _core.same_static(registry, x, y)
    except Exception:
        return False


def _classify(cls: type, x: Any) -> tuple[Any, ...]:
    answer = _registry.classify(cls, x)
    registry.missing = _registry.registry.missing
    return answer


registry: _core.Registry = _core.Registry(
    array_type=_jax_compat.ARRAY_IMPL,
    classify=_classify,
    is_array=_registry.is_array,
    flatten_one_level=_registry.flatten_one_level,
    flatten_with_keys=_registry.flatten_with_keys,
    missing=_registry.registry.missing,
    keyed=tuple((cls, _key) for cls in (types.FunctionType, types.MethodType, functools.partial)),
)
