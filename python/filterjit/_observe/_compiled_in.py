"""The warning about a plain object with arrays in its attributes: it is static, so the arrays are
compiled in."""

import types
import warnings
import weakref
from typing import Any

from .. import _core
from .._base._errors import format_path, holds_arrays
from .._base._package import is_library_class
from .._call._frames import stack_level
from .._trees._nodes import walk

_TEXT = (
    "{} is static, so the values in this `{}` are compiled in, and later changes are not seen. {}"
)
_told: "weakref.WeakSet[type]" = weakref.WeakSet()


def warn_of_objects(variant: _core.Variant) -> None:
    """Warns, once a class, that a program is compiled for the arrays of an object that is equal
    only to itself, and whose attributes may be set."""
    for structure, root in ((variant.function, ["the function"]), (variant.structure, [])):
        for node, path in walk(structure):
            x = node.detail
            x = x.__self__ if isinstance(x, types.MethodType) else x
            cls: Any = type(x)
            is_plain = cls.__eq__ is object.__eq__ and cls.__setattr__ is object.__setattr__
            if node.kind != "static" or not is_plain or cls in _told or is_library_class(cls):
                continue
            if holds := holds_arrays(x):
                _told.add(cls)
                where = f"`{format_path([*root, *path])}`" if path else root[0]
                text = _TEXT.format(where, cls.__qualname__, holds)
                warnings.warn(text, stacklevel=stack_level())
