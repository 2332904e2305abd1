"""Warns of static objects that hold arrays: plain objects with arrays in attributes, and objects with
``__array__``, such as another library's tensors. In an argument, their arrays are compiled in. In a
result, and in attributes that the function assigns, they hold tracers."""

import contextlib
import types
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import jax

from .. import _core
from .._base._errors import attributes_of, format_path, holds_arrays, is_array_like
from .._base._package import is_library_class
from .._call._events import stack_level
from .._compat import _jax_compat

_TEXT = "{} is static, so the values in this `{}` are compiled in, and later changes are not seen. "
_ARRAY_LIKE = (
    "{} is a `{}`, which is static: its values are compiled in, and later changes are not seen. "
    "Pass `np.asarray(...)` of it, which is traced."
)
_WITHOUT_ATTRIBUTES = {type(None), bool, int, float, complex, str, bytes}
_warned: "weakref.WeakSet[type]" = weakref.WeakSet()
_leaking: "weakref.WeakSet[type]" = weakref.WeakSet()
_looked_at: "weakref.WeakSet[Any]" = weakref.WeakSet()


def warn_of_arguments(variant: _core.Variant) -> None:
    """Warns, once per class, that a program contains the arrays of an object that might change and
    equals only itself. Looks at each object once."""
    for x, structure, index in _statics_of(variant):
        if type(x) not in _warned and (text := _warning_of(x)):
            _warned.add(type(x))
            path = _path_of(variant, structure, index)
            where = path if path == "the function" else f"`{path}`"
            text = text.format(where, type(x).__qualname__)
            warnings.warn(text, stacklevel=stack_level())


def _statics_of(variant: _core.Variant) -> Iterator[tuple[Any, _core.Structure, int]]:
    """Yields each static, or the object of a bound method, its Structure and index."""
    for structure in (variant.function, variant.structure):
        for index, value in structure._statics():
            x = value.__self__ if type(value) is types.MethodType else value
            yield x, structure, index


def _path_of(variant: _core.Variant, structure: _core.Structure, index: int) -> str:
    root = ["the function"] if structure is variant.function else []
    return format_path([*root, *structure._key_path(index)])


def warn_of_leaks(variant: _core.Variant) -> None:
    """Warns, at the end of a trace, if the function has assigned a tracer to an attribute of a static
    object. JAX raises its own error if the tracer is used later."""
    for x, structure, index in _statics_of(variant):
        if type(x) in _WITHOUT_ATTRIBUTES:
            continue
        for name, value in attributes_of(x):
            if _is_tracer(value) and type(x) not in _leaking:
                _leaking.add(type(x))
                path = f"{_path_of(variant, structure, index)}.{name}"
                text = f"`{path}` holds a tracer, which can't be used after the trace: the function assigns to it. Return the new value instead."
                warnings.warn(text, stacklevel=stack_level())


def warn_of_result(fun: Any, out: Any) -> None:
    """Warns if a leaf of a trace's result has a tracer in an attribute. JAX raises its own error if
    the tracer is used later."""
    try:
        leaves = jax.tree_util.tree_leaves(out)
        # A large result has few types.
        types_with_attributes = {type(x) for x in leaves} - _WITHOUT_ATTRIBUTES
        for i, x in enumerate(leaves if types_with_attributes else ()):
            if type(x) in types_with_attributes and any(_is_tracer(y) for _, y in attributes_of(x)):
                path, _ = jax.tree_util.tree_leaves_with_path(out)[i]
                break
        else:
            return
    except Exception:  # from a user's flatten function; the call raises it
        return
    where = f"result{jax.tree_util.keystr(path)}"
    text = f"`{where}` is static (a `{type(x).__qualname__}`), and holds a tracer, which can't be used after the trace. {holds_arrays(x)}"
    if isinstance(fun, type):
        text += " Or jit the methods of the class, one by one."
    warnings.warn(text, stacklevel=stack_level())


def _is_tracer(x: Any) -> bool:
    """True for a tracer of the current trace."""
    return isinstance(x, jax.core.Tracer) and _jax_compat.is_of_current_trace(x)


def _warning_of(x: Any) -> str:
    """Returns the warning about a static, or "", also if its own code raises."""
    with contextlib.suppress(Exception):
        if is_array_like(x) and not _has_bool_equality(x):
            return _ARRAY_LIKE
        cls: Any = type(x)
        is_plain = cls.__eq__ is object.__eq__ and cls.__setattr__ is object.__setattr__
        if is_plain and not is_library_class(cls) and _is_new(x) and (holds := holds_arrays(x)):
            return _TEXT + holds.replace("{", "{{").replace("}", "}}")
    return ""


def _is_new(x: Any) -> bool:
    """True the first time for each object, and always without weak references or a hash."""
    with contextlib.suppress(Exception):  # for example from a user's __hash__
        if x in _looked_at:
            return False
        _looked_at.add(x)
    return True


def _has_bool_equality(x: Any) -> bool:
    """True if ``==`` compares an object by value, not by identity or item by item."""
    cls: Any = type(x)
    if cls.__eq__ is object.__eq__:
        return False
    try:
        return isinstance(x == x, bool)
    except Exception:
        return False
