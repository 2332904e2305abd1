"""Stale entries in JAX's caches, which a trace must not find: they are of objects that have
changed.

By identity, JAX keeps what it has made of a NumPy array, and the traces of functions that are given
to `jax.lax.scan` or the like (`_constants_compat`). This module makes JAX look again at the objects
that a trace can reach: in statics that are compared by contents or by identity, in closures, and in
global variables.
"""

import functools
import gc
import itertools
import types
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np

from .. import _core
from .._compat import _constants_compat, _jax_compat

_NEAREST = 1_000_000
"""Objects after which the walk ends: one that holds more than these, a data set say, would take
seconds. Those that fewer references lead to come first."""


def forget(root: Any, functions: bool) -> None:
    """Makes JAX look again at the NumPy arrays and callable objects that `root` holds.

    Of the user's code, the ``__hash__`` of callable objects runs.

    Arguments:
        functions: whether functions are among them, since they are compared by what they hold.
    """
    held: dict[int, Any] = {}  # so that no other object gets the address of one
    kinds: dict[int, _Kind] = {}  # by address of a class, because a metaclass may define a hash
    level = [root]
    while level and len(held) < _NEAREST:
        others: list[Any] = []
        below: list[Any] = []
        for x in level:
            kind = kinds.get(id(type(x)))
            if kind is None:
                kind = kinds[id(type(x))] = _Kind(type(x), functions)
            if kind.reader is None or id(x) in held:
                continue
            held[id(x)] = x
            if kind.is_traced:
                _constants_compat.trace_again(x)
            if kind.reader is gc.get_referents:
                others.append(x)
            else:
                below.extend(kind.reader(x))
        level = gc.get_referents(*others) + below


_Reader = Callable[[Any], Iterable[Any]]

# What asks no metaclass.
_mro = type.__dict__["__mro__"].__get__
_vars = type.__dict__["__dict__"].__get__


class _Kind:
    """What is known of the instances of a class.

    Attributes:
        reader: returns the objects that one refers to; None if none of them counts.
        is_traced: whether JAX may have traced one, which has changed since.
    """

    __slots__ = ("cls", "is_traced", "reader")

    def __init__(self, cls: type, functions: bool) -> None:
        self.cls = cls  # is held
        bases = _mro(cls)
        readers = [_READERS[id(base)] for base in bases if id(base) in _READERS]
        self.reader: _Reader | None = (readers or [gc.get_referents])[0]
        if id(cls) in _NUMBERS_AND_TEXTS:
            self.reader = None
        if id(cls) in _FUNCTIONS:
            self.is_traced = functions
        else:
            calls = (_vars(base).get("__call__") for base in bases)
            self.is_traced = any(type(call) is types.FunctionType for call in calls)


def _of_array(x: np.ndarray) -> Iterable[Any]:
    _constants_compat.convert_again(x)
    items = np.ndarray.tolist(x) if x.dtype.hasobject else ()
    return items, *gc.get_referents(x)  # which a subclass has


def _of_function(x: types.FunctionType) -> Iterable[Any]:
    """Of its global variables, the arrays that its code names count."""
    found = [x.__globals__.get(name) for name in _names(x.__code__)]
    arrays = [y for y in found if _Kind(type(y), False).reader is _of_array]
    return x.__closure__, x.__defaults__, x.__kwdefaults__, x.__dict__, *arrays


def _names(code: types.CodeType) -> Iterable[str]:
    inner = (_names(x) for x in code.co_consts if type(x) is types.CodeType)
    return itertools.chain(code.co_names, *inner)


def _of_jitted(x: Any) -> Iterable[Any]:
    return (getattr(x, "__wrapped__", None),)  # which anyone can delete


# By class address. The instances include those of subclasses.
_READERS: dict[int, _Reader | None] = {
    id(np.ndarray): _of_array,
    id(types.FunctionType): _of_function,
    id(_core.FilterJit): _of_jitted,
    id(type(_jax_compat.jit(lambda: None))): _of_jitted,
}
_READERS |= dict.fromkeys(  # they hold no array, or refer to objects outside of this trace
    map(
        id,
        (
            *(type, types.ModuleType, types.CodeType, types.FrameType, types.TracebackType),
            *(jax.core.Tracer, _jax_compat.ARRAY_IMPL),
            *(_core.Cache, _core.Variant, _core.Structure),
        ),
    )
)

_NUMBERS_AND_TEXTS = frozenset(map(id, (type(None), bool, int, float, complex, str, bytes)))
_FUNCTIONS = frozenset(map(id, (types.FunctionType, types.MethodType, functools.partial)))
