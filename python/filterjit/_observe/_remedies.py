"""What helps against a static value that differs: it depends on what the value is.

Many differences are normal: a flag has two programs. So a remedy says what is normal, and only a
number may be told to become an array.
"""

import enum
import os
from collections.abc import Collection, Sequence
from typing import Any

from .. import _core
from .._base._unwrap import is_function
from .._base._words import format_pattern
from .._compat import _jax_compat
from ._wording import dtype_of

_FLAG = "A flag has two programs, one for each value: this is normal."
_MODE = (
    "Each {kind} has its own program: this is normal if there are few. Leave it out if the function "
    "does not need it."
)
_PATH = (
    "Each path has its own program. Leave it out, or read the file before the call and pass what is "
    "in it."
)
_MEMBER = "Each member has its own program: this is normal."
_DTYPE = "Each dtype has its own program: this is normal."
_FUNCTION = "Each function has its own program: this is normal if there are few."
_CLASS = "Each class has its own program: this is normal if there are few."
_ARRAY = "An array in a static field is compared by its contents. Make the field not static."
_OTHER = "Each value has its own program. If a part of it changes often, pass that as an array of its own."
_NUMBER = (
    "If the function only computes with it, {how}. If it is a size or a shape, each value needs its "
    "own program."
)
_TO_ARRAY = "make it an array (`jnp.asarray`)"
_NO_STATIC = "leave it out of `static_argnames` and `static_argnums`, so that it is traced"


def decorator_of(cache: _core.Cache) -> str:
    """Returns what jitted a function: "filter_jit", "jit" or "nnx.jit"; "" if nothing did."""
    return str(getattr(cache.hooks, "decorator", ""))


def of_value(x: Any, in_field: bool = False) -> str:
    """Returns what helps where a static value was `x` and is another one of the same kind.

    `in_field` says that the value is in a field that its class declares to be static.
    """
    if isinstance(x, bool):
        return _FLAG
    if isinstance(x, enum.Enum):
        return _MEMBER
    if isinstance(x, (int, float, complex)):
        return of_number(None, (), in_field)
    if isinstance(x, _jax_compat.ARRAY_TYPES):
        return _ARRAY
    if isinstance(x, (str, bytes)):
        return _MODE.format(kind="string" if isinstance(x, str) else "value")
    if isinstance(x, os.PathLike):
        return _PATH
    if dtype_of(x) is not None:
        return _DTYPE
    if isinstance(x, type):
        return _CLASS
    if is_function(x):
        return _FUNCTION
    return _OTHER


def of_number(
    cache: _core.Cache | None, paths: Collection[Sequence[Any]], in_field: bool = False
) -> str:
    """Returns what helps where a Python number has another value.

    Arguments:
        cache: of the function that takes it, if it is known.
        paths: of such numbers, which are leaves of arguments.
        in_field: whether the number is in a field that its class declares to be static.
    """
    how = _TO_ARRAY + (", and its field not static" if in_field else "")
    if cache is not None and paths and {path[0] for path in paths} <= {*cache.signature.names}:
        if decorator_of(cache) in ("jit", "nnx.jit"):
            how = _NO_STATIC
        elif decorator_of(cache) == "filter_jit" and (option := _traced(paths)):
            if cache.hooks.settings.traced:
                how = f"add {option.strip('(,)')} to the option `traced`, or {how}"
            else:
                how = f"jit it with `filterjit.filter_jit(traced={option})`, or {how}"
    return _NUMBER.format(how=how)


_MOST_NUMBERS = 3  # of one argument that an option names


def _traced(paths: Collection[Sequence[Any]]) -> str:
    """Returns the option that traces the numbers at some paths, and no others: those beside them may
    be sizes, or be asked in an ``if``. An empty text if they are too many."""
    filters: dict[str, list[str]] = {}
    for name, *below in sorted(paths, key=str):
        keys = [str(key[0] if isinstance(key, tuple) else key) for key in below]
        filters.setdefault(name, []).append(format_pattern(keys))
    if all(patterns == [""] for patterns in filters.values()):
        return f"({', '.join(map(_quote, filters))}{',' * (len(filters) == 1)})"
    if max(map(len, filters.values())) > _MOST_NUMBERS:
        return ""
    items = [f"{_quote(name)}: {_filter(patterns)}" for name, patterns in filters.items()]
    return f"{{{', '.join(items)}}}"


def _filter(patterns: Sequence[str]) -> str:
    if "" in patterns:
        return "True"
    first, *others = map(_quote, patterns)
    return " | ".join([f"filterjit.Filter({first})", *others]) if others else first


def _quote(text: str) -> str:
    return repr(text) if {*text} & {"\\", '"'} else f'"{text}"'
