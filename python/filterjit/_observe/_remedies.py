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

CLASS_ONCE = "Define the class once, outside the loop: each definition is a new class."
SAME_LENGTH = "Each length has its own program: keep it the same, or put the items into one array."
SAME_KEYS = "Give the dict the same keys on every call."
SAME_ATTRIBUTES = "Give the object the same attributes on every call, and change none from static."

ENDLESS = frozenset({CLASS_ONCE, SAME_LENGTH, SAME_KEYS, SAME_ATTRIBUTES})
"""What helps where a class or a structure is another one, and there can be any number of these."""


def decorator_of(cache: _core.Cache) -> str:
    """Returns what jitted a function: "filter_jit", "jit" or "nnx.jit"; "" if nothing did."""
    return str(getattr(cache.hooks, "decorator", ""))


def of_value(x: Any, in_field: bool = False) -> str:
    """Returns what helps where a static value was `x` and is another one of the same kind.

    `in_field` says that the value is in a field that its class declares to be static.
    """
    if isinstance(x, bool):
        return "A flag has two programs, one for each value: this is normal."
    if isinstance(x, enum.Enum):
        return "Each member has its own program: this is normal."
    if isinstance(x, (int, float, complex)):
        return of_number(None, (), in_field)
    if isinstance(x, _jax_compat.ARRAY_TYPES):
        return "An array in a static field is compared by its contents. Make the field not static."
    if isinstance(x, (str, bytes)):
        return (
            f"Each {'string' if isinstance(x, str) else 'value'} has its own program: this is normal "
            "if there are few. Leave it out if the function does not need it."
        )
    if isinstance(x, os.PathLike):
        return (
            "Each path has its own program. Leave it out, or read the file before the call and pass "
            "what is in it."
        )
    if dtype_of(x) is not None:
        return "Each dtype has its own program: this is normal."
    if isinstance(x, type):
        return "Each class has its own program: this is normal if there are few."
    if is_function(x):
        return "Each function has its own program: this is normal if there are few."
    return (
        "Each value has its own program. If a part of it changes often, pass that as an array of its "
        "own."
    )


def of_number(
    cache: _core.Cache | None, paths: Collection[Sequence[Any]], in_field: bool = False
) -> str:
    """Returns what helps where a Python number has another value.

    Arguments:
        cache: of the function that takes it, if it is known.
        paths: of such numbers, which are leaves of arguments.
        in_field: whether the number is in a field that its class declares to be static.
    """
    how = "make it an array (`jnp.asarray`)" + ", and its field not static" * in_field
    if cache is not None and paths and {path[0] for path in paths} <= {*cache.signature.names}:
        if decorator_of(cache) in ("jit", "nnx.jit"):
            how = "leave it out of `static_argnames` and `static_argnums`, so that it is traced"
        elif decorator_of(cache) == "filter_jit" and (option := _traced(paths)):
            if cache.hooks.settings.traced:
                how = f"add {option.strip('(,)')} to the option `traced`, or {how}"
            else:
                how = f"jit it with `filterjit.filter_jit(traced={option})`, or {how}"
    return (
        f"If the function only computes with it, {how}. If it is a size or a shape, each value needs "
        "its own program."
    )


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
