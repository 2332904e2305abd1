"""The warnings about an object that is or has arrays and is static, so that they are compiled in: one
with ``__array__``, such as a tensor of another library, and a plain object with arrays in its
attributes."""

import contextlib
import types
import warnings
import weakref
from typing import Any

from .. import _core
from .._base._errors import format_path, holds_arrays, is_array_like
from .._base._package import is_library_class
from .._call._events import stack_level

_TEXT = "{} is static, so the values in this `{}` are compiled in, and later changes are not seen. "
_ARRAY_LIKE = (
    "{} is a `{}`, which is static: its values are compiled in, and later changes are not seen. "
    "Pass `np.asarray(...)` of it, which is traced."
)
_told: "weakref.WeakSet[type]" = weakref.WeakSet()
_looked_at: "weakref.WeakSet[Any]" = weakref.WeakSet()


def warn_of_objects(variant: _core.Variant) -> None:
    """Warns, once a class, that a program is compiled for the arrays of an object that is equal
    only to itself, and that may change. Looks at each object once."""
    for structure, root in ((variant.function, ["the function"]), (variant.structure, [])):
        for index, value in structure._statics():
            x = value.__self__ if isinstance(value, types.MethodType) else value
            if type(x) not in _told and (text := _warning_of(x)):
                _told.add(type(x))
                path = structure._key_path(index)
                where = f"`{format_path([*root, *path])}`" if path else root[0]
                text = text.format(where, type(x).__qualname__)
                warnings.warn(text, stacklevel=stack_level())


def _warning_of(x: Any) -> str:
    """Returns the warning about a static; an empty text if there is none."""
    if is_array_like(x) and not _has_bool_equality(x):
        return _ARRAY_LIKE
    cls: Any = type(x)
    is_plain = cls.__eq__ is object.__eq__ and cls.__setattr__ is object.__setattr__
    if not is_plain or is_library_class(cls) or not _is_new(x):
        return ""
    holds = holds_arrays(x)
    return _TEXT + holds.replace("{", "{{").replace("}", "}}") if holds else ""


def _is_new(x: Any) -> bool:
    """True the first time for each object, and always for one without a weak reference or hash."""
    with contextlib.suppress(TypeError):
        if x in _looked_at:
            return False
        _looked_at.add(x)
    return True


def _has_bool_equality(x: Any) -> bool:
    """Whether ``==`` compares an object by its values, and not by identity or item by item."""
    cls: Any = type(x)
    if cls.__eq__ is object.__eq__:
        return False
    try:
        return isinstance(x == x, bool)
    except Exception:
        return False
