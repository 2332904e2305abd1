"""``functions="structure"``: functions that cannot behave differently share a variant.

For a function stands a key: all that its code can reach without asking an object for an
attribute. The C core freezes the key when it looks for a variant, and takes it again on each
call, of the function that comes in and, where that is another, of the one that the variant
holds: so a hit means that neither is other than what was traced.

The functions that one static leads to are numbered as they are met, and named by their numbers,
so recursion is no matter; their cells likewise, so two that share a cell are not taken for two
that do not. What is not known to be harmless leaves a function *in doubt*: then it is itself a
part of its key, and equals no other. What a trace changes in the functions that it is given
(one counts its traces, say) is left out from then on, for all functions of that code, and they
are in doubt: `tracing`.
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
from . import _registry

_ATOMS: frozenset[type] = frozenset(
    {bool, int, float, complex, str, bytes, type(None), type(...), type(NotImplemented)}
)
_MUTABLE = list, dict, set, bytearray, collections.deque, np.ndarray
_OURS = "__filterjit_"  # attributes that we keep in functions
_ALWAYS = 8  # parts of a function that are never distrusted
_identity = _core.identity
_DROPPED = _identity(object())  # stands for a part that is distrusted


class _Code:
    """What is known of a code object: the names of the globals that it reads, itself or in
    functions that it makes; and which parts of its functions' keys are not to be trusted."""

    __slots__ = ("distrusted", "globals", "ref")

    def __init__(self, code: types.CodeType) -> None:
        address, forget = id(code), _codes.pop
        self.ref = weakref.ref(code, lambda _: forget(address, None))
        self.globals = tuple(sorted(_globals_of(code)))
        self.distrusted: frozenset[int] = frozenset()


_codes: dict[int, _Code] = {}  # by address: a code object's own hash reads all of it


def _code(code: types.CodeType) -> _Code:
    known = _codes.get(id(code))
    if known is None or known.ref() is not code:
        known = _codes[id(code)] = _Code(code)
    return known


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
    """Writes down a static that is a function, and all functions that it leads to.

    Each part of a key that is not an atom is a tuple headed by a word, so that none is taken for
    another.
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
        """What `f` is made of: always as many parts for the same code."""
        code = f.__code__
        known = _code(code)
        names: dict[str, Any] = f.__globals__
        built_in: dict[str, Any] = f.__builtins__
        self._doubt = bool(known.distrusted)
        parts = [
            code,
            code.co_filename,  # == of code leaves it out
            _identity(names),
            _identity(built_in),
            f.__name__,
            f.__qualname__,
            self.part(f.__module__),
            self.part(f.__doc__),
        ]
        skip = known.distrusted
        kinds = getattr(f, "__type_params__", None)
        for x in f.__defaults__, f.__kwdefaults__, f.__dict__, self._annotations(f), kinds:
            parts.append(None if not x else _DROPPED if len(parts) in skip else self._own(x))
        for cell in f.__closure__ or ():
            parts.append(_DROPPED if len(parts) in skip else self._cell(cell))
        for k in known.globals:
            value = names.get(k, built_in.get(k, _identity))
            parts.append(_DROPPED if len(parts) in skip else self._global(value))
        if self._doubt:
            parts.append(_identity(f))
        return tuple(parts)

    def _annotations(self, f: Any) -> Any:
        try:
            return f.__annotations__
        except Exception:  # from Python 3.14 on they are computed here, and may fail
            self._doubt = True
            return {}

    def _own(self, x: Any) -> Any:
        """What belongs to a function or a partial, so that a dict is no cause for doubt."""
        if type(x) is not dict:
            return self.part(x)
        items = [
            (self.part(k), self.part(v))
            for k, v in list(x.items())
            if not (type(k) is str and k.startswith(_OURS))
        ]
        return tuple(items) or None

    def _cell(self, cell: types.CellType) -> Any:
        number = self._cells.setdefault(id(cell), len(self._cells))
        try:
            return "cell", number, self.part(cell.cell_contents)
        except ValueError:
            return "empty", number

    def _global(self, value: Any) -> Any:
        """The value of a global variable; a name that is not there has `_identity`'s."""
        cls = type(value)
        if cls is types.ModuleType or cls is types.FunctionType:
            return _identity(value)
        if cls in _ATOMS or cls is tuple:
            return self.part(value)
        if isinstance(value, _MUTABLE):
            self._doubt = True
        return _identity(value)

    def part(self, x: Any) -> Any:
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
        """By what it holds now. Of NumPy's arrays only by which it is."""
        match x:
            case bytearray():
                held: Any = (bytes(x),)
            case dict():
                held = self._own(dict(x)) or ()
            case np.ndarray():
                return _identity(x)
            case _:
                held = map(self.part, list(x))
        return "mutable", _identity(type(x)), *held

    def _leaf(self, x: Any) -> Any:
        """By the rule for statics where that says more than identity, and is safe to ask."""
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
            key = _registry._static_key(cls)
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
    """What one function holds, other functions by their identity."""

    def part(self, x: Any) -> Any:
        return _identity(x) if type(x) is types.FunctionType else super().part(x)


def _contents(f: types.FunctionType) -> tuple[Any, ...]:
    try:
        return _Contents().function(f)
    except Exception:
        return ()


@contextlib.contextmanager
def tracing(variant: _core.Variant) -> Iterator[None]:
    """Around a trace: what it changes in the functions that it is given is distrusted."""
    walk = _Walk()
    for _, _, _, detail, _ in variant.structure._nodes():
        with contextlib.suppress(Exception):  # the C core meets it as well
            walk.part(detail)
    with contextlib.suppress(Exception):
        walk.key(None)
    before = [(f, f.__code__, _contents(f)) for f in walk.functions]
    yield
    for f, code, parts in before:
        if f.__code__ is code:
            pairs = zip(parts, _contents(f), strict=False)
            changed = {i for i, (x, y) in enumerate(pairs) if i >= _ALWAYS and not _same(x, y)}
            _code(code).distrusted |= changed


def _same(x: Any, y: Any) -> bool:
    try:
        return _core.same_static(registry, x, y)
    except Exception:
        return False


def _classify(cls: type, x: Any) -> tuple[Any, ...]:
    answer = _registry._classify(cls, x)
    registry.missing = _registry.registry.missing
    return answer


registry: _core.Registry = _core.Registry(
    array_type=_jax_compat.ARRAY_IMPL,
    classify=_classify,
    is_array=_registry.is_array,
    flatten_one_level=_registry._split,
    flatten_with_keys=_registry._describe,
    missing=_registry.registry.missing,
    keyed=tuple((cls, _key) for cls in (types.FunctionType, types.MethodType, functools.partial)),
)
