"""What a trace must not find in JAX's caches: what JAX knows of NumPy arrays that have changed since.

JAX keeps what it has made of an array by the array's address (`_constants_compat`). It is made to look
again at the arrays that a trace can reach, wherever they are: in statics that are compared by contents
or by identity, in closures, in global variables.
"""

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
"""Objects after which the walk ends: one that holds more than these, a data set say, would take seconds.
Those that fewer references lead to come first."""


def forget(root: Any) -> None:
    """Makes JAX look again at the NumPy arrays that `root` holds. No Python code of theirs runs."""
    held: dict[int, Any] = {}  # so that no other object gets the address of one
    readers: dict[type, _Reader | None] = {}
    level = [root]
    while level and len(held) < _NEAREST:
        others: list[Any] = []
        below: list[Any] = []
        for x in level:
            cls = type(x)
            reader = readers[cls] if cls in readers else readers.setdefault(cls, _reader_of(cls))
            if reader is None or id(x) in held:
                continue
            held[id(x)] = x
            if reader is gc.get_referents:
                others.append(x)
            else:
                below.extend(reader(x))
        level = gc.get_referents(*others) + below


_Reader = Callable[[Any], Iterable[Any]]

_mro = type.__dict__["__mro__"].__get__  # asks no metaclass


def _of_array(x: np.ndarray) -> Iterable[Any]:
    _constants_compat.convert_again(x)
    return np.ndarray.tolist(x) if x.dtype.hasobject else ()


def _of_function(x: types.FunctionType) -> Iterable[Any]:
    """Of its global variables, the arrays that its code names count."""
    found = [x.__globals__.get(name) for name in _names(x.__code__)]
    arrays = [y for y in found if np.ndarray in _mro(type(y))]
    return x.__closure__, x.__defaults__, x.__kwdefaults__, x.__dict__, *arrays


def _names(code: types.CodeType) -> Iterable[str]:
    inner = (_names(x) for x in code.co_consts if type(x) is types.CodeType)
    return itertools.chain(code.co_names, *inner)


def _of_jitted(x: Any) -> Iterable[Any]:
    return (x.__wrapped__,)


# The types of objects that hold no array, or refer to what is not of this trace alone.
_NOTHING = frozenset(
    {
        *(type(None), bool, int, float, complex, str, bytes),
        *(type, types.ModuleType, types.CodeType, types.FrameType, types.TracebackType),
        *(jax.core.Tracer, _jax_compat.ARRAY_IMPL),
        *(_core.Cache, _core.Variant, _core.Structure),
    }
)

_READERS: dict[type, _Reader] = {
    np.ndarray: _of_array,
    types.FunctionType: _of_function,
    _core.FilterJit: _of_jitted,
    type(jax.jit(lambda: None)): _of_jitted,
}


def _reader_of(cls: type) -> _Reader | None:
    """Returns what returns the objects that an instance refers to; None if none of them counts."""
    for base in _mro(cls):
        if base in _READERS:
            return _READERS[base]
        if base in _NOTHING:
            return None
    return gc.get_referents
