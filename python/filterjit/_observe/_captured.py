"""Describes the arrays that a program holds as constants."""

import types
from collections.abc import Sequence
from typing import Any

import jax

from .._base._unwrap import closure_of, unwrap_chain
from .._compat import _jax_compat
from ._wording import count, show_bytes

_LARGE = 1 << 17  # bytes; variables with smaller arrays aren't named


def captured(constants: Sequence[Any], fun: Any) -> str:
    """Describes a program's constant arrays. The function's name goes in front."""
    arrays = [x for x in constants if hasattr(x, "nbytes")]
    size = show_bytes(sum(x.nbytes for x in arrays))
    held = _names_of_captured(fun)
    names = f" ({', '.join(f'`{name}`' for name in held)})" if held else ""
    remedy = "Pass them as arguments, or in a Module that is an argument."
    if "self" in held:
        remedy = (
            "Jit the object itself, or pass it as an argument: a bound method holds its object."
        )
    return (
        f"captures {count(len(arrays), 'array')} of {size}{names} as constants. Each of its programs "
        f"holds a copy and is slow to compile. {remedy}"
    )


def _names_of_captured(fun: Any) -> tuple[str, ...]:
    """Returns the names of cells and globals, and perhaps ``self``, that hold large arrays."""
    held: list[tuple[str, Any]] = []
    for inner in unwrap_chain(fun, "__wrapped__", "__func__"):
        if isinstance(inner, types.MethodType):
            held.append(("self", inner.__self__))
    if not isinstance(inner, types.FunctionType):
        return ()
    held += closure_of(inner)
    names = inner.__code__.co_names
    held += [(n, inner.__globals__[n]) for n in names if n in inner.__globals__]
    found = []
    for name, value in held:
        if isinstance(value, types.ModuleType):
            continue
        leaves = jax.tree_util.tree_leaves(value)
        arrays = [x for x in leaves if isinstance(x, _jax_compat.ARRAY_TYPES)]
        if sum(getattr(x, "nbytes", 0) for x in arrays) >= _LARGE:
            found.append(name)
    return tuple(found)
