"""The warning about a plain object with arrays in its attributes: it is static, so the arrays are
compiled in."""

import contextlib
import types
import warnings
import weakref
from typing import Any

from .. import _core
from .._base._errors import format_path, holds_arrays
from .._base._package import is_library_class
from .._call._events import stack_level

_TEXT = (
    "{} is static, so the values in this `{}` are compiled in, and later changes are not seen. {}"
)
_told: "weakref.WeakSet[type]" = weakref.WeakSet()
_looked_at: "weakref.WeakSet[Any]" = weakref.WeakSet()


def warn_of_objects(variant: _core.Variant) -> None:
    """Warns, once a class, that a program is compiled for the arrays of an object that is equal
    only to itself, and whose attributes may be set. Looks at each object once."""
    for structure, root in ((variant.function, ["the function"]), (variant.structure, [])):
        for index, value in structure._statics():
            x = value.__self__ if isinstance(value, types.MethodType) else value
            cls: Any = type(x)
            is_plain = cls.__eq__ is object.__eq__ and cls.__setattr__ is object.__setattr__
            if not is_plain or cls in _told or is_library_class(cls) or not _is_new(x):
                continue
            if holds := holds_arrays(x):
                _told.add(cls)
                path = structure._key_path(index)
                where = f"`{format_path([*root, *path])}`" if path else root[0]
                text = _TEXT.format(where, cls.__qualname__, holds)
                warnings.warn(text, stacklevel=stack_level())


def _is_new(x: Any) -> bool:
    """True the first time for each object, and always for one without a weak reference or hash."""
    with contextlib.suppress(TypeError):
        if x in _looked_at:
            return False
        _looked_at.add(x)
    return True
