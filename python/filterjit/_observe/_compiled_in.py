"""The warnings about an object that is or has arrays and is static, so that they are compiled in: one
with ``__array__``, such as a tensor of another library, and a plain object with arrays in its
attributes."""

import types
import warnings
import weakref
from typing import Any

from .. import _core
from .._base._errors import format_path, holds_arrays, is_array_like
from .._base._package import is_library_class
from .._call._frames import stack_level
from .._trees._nodes import walk

_TEXT = (
    "{} is static, so the values in this `{}` are compiled in, and later changes are not seen. {}"
)
_ARRAY_LIKE = (
    "{} is a `{}`, which is static: its values are compiled in, and later changes are not seen. "
    "Pass `np.asarray(...)` of it, which is traced."
)
_told: "weakref.WeakSet[type]" = weakref.WeakSet()


def warn_of_objects(variant: _core.Variant) -> None:
    """Warns, once a class, that a program is compiled for the arrays of an object that is equal
    only to itself, and that may change."""
    for structure, root in ((variant.function, ["the function"]), (variant.structure, [])):
        for node, path in walk(structure):
            x = node.detail
            x = x.__self__ if isinstance(x, types.MethodType) else x
            cls: Any = type(x)
            if node.kind != "static" or cls in _told:
                continue
            where = f"`{format_path([*root, *path])}`" if path else root[0]
            if is_array_like(x) and not _has_bool_equality(x):
                _told.add(cls)
                text = _ARRAY_LIKE.format(where, cls.__qualname__)
                warnings.warn(text, stacklevel=stack_level())
            is_plain = cls.__eq__ is object.__eq__ and cls.__setattr__ is object.__setattr__
            if not is_plain or is_library_class(cls) or cls in _told:
                continue
            if holds := holds_arrays(x):
                _told.add(cls)
                text = _TEXT.format(where, cls.__qualname__, holds)
                warnings.warn(text, stacklevel=stack_level())


def _has_bool_equality(x: Any) -> bool:
    """Whether ``==`` compares an object by its values, and not by identity or item by item."""
    cls: Any = type(x)
    if cls.__eq__ is object.__eq__:
        return False
    try:
        return isinstance(x == x, bool)
    except Exception:
        return False
