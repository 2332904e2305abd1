"""The private names of Equinox, each with a fallback."""

import sys
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

from . import _jax_compat, _private


def equinox() -> ModuleType | None:
    """Returns the module ``equinox``, or None if the program hasn't imported it."""
    return sys.modules.get("equinox")


def module_details() -> tuple[Any, tuple[str, ...]] | None:
    """Returns Equinox's sentinel for an unset field, and the names of the attributes of Modules
    that wrap a function. Fallback: None, and registered functions handle Modules."""
    missing = _private.private("equinox._module._flatten", "MISSING")
    names = _private.private("equinox._module._flatten", "WRAPPER_FIELD_NAMES")
    return None if missing is None or names is None else (missing, tuple(names))


def module_getattribute() -> FunctionType | None:
    """Returns the ``__getattribute__`` of equinox.Module. Fallback: None, and the C core doesn't
    replace it, which makes looking up methods slower."""
    module = getattr(equinox(), "Module", None)
    found = getattr(module, "__dict__", {}).get("__getattribute__")
    return found if isinstance(found, FunctionType) else None


def runtime_error(exception: Exception, jit_id: bytes) -> Exception | None:
    """Returns the error that ``equinox.filter_jit`` raises for a program's `exception`, or None if
    it isn't from ``eqx.error_if``.

    `jit_id` is the local variable ``__equinox_jit_id__`` in the jitted function's frame.

    Fallback: None, and JAX's own error is raised, which contains the message too.
    """
    if "_EquinoxRuntimeError: " not in str(exception):
        return None
    info = _private.private("equinox._jit", "last_error_info")
    message = _private.private("equinox._jit", "_on_error_msg")
    error = _private.private("equinox", "EquinoxRuntimeError")
    if info is None or message is None or error is None:
        return None
    text, stack = info
    inside: list[str] = []
    for piece in stack:
        if piece == jit_id:
            break
        if isinstance(piece, str):
            inside.append(piece)
    found: Exception = error(message.format(msg=text, stack="".join(reversed(inside))))
    return found


def cache_clears() -> list[Callable[[], object]] | None:
    """Returns the list of functions that ``equinox.clear_caches`` calls. Fallback: None."""
    found = _private.private("equinox._caches", "cache_clears") if equinox() is not None else None
    return found if isinstance(found, list) else None


_WRAPPER_FIELDS = frozenset(
    {"_signature", "_cached", "filter_warning", "donate_first", "donate_rest"}
)


# Options of ``jax.jit`` that are fields of a jitted function.
_JIT_INFO = ("keep_unused", "inline", "device", "backend")


def wrapper_type() -> type | None:
    """Returns the class of Equinox's jitted functions. Fallback: None if the class lacks an
    attribute that filterjit uses, and `install` changes nothing."""
    cls = _private.private("equinox._jit", "_JitWrapper")
    fields = getattr(cls, "__dataclass_fields__", {})
    usable = (
        isinstance(cls, type)
        and fields.keys() >= _WRAPPER_FIELDS
        and isinstance(getattr(cls, "__wrapped__", None), property)
        and callable(getattr(cls, "lower", None))
    )
    return cls if usable else None


def wrapper_parts(wrapper: Any) -> tuple[Any, Any, str, dict[str, Any]] | None:
    """Returns the function, signature, `donate` and jitkwargs of one of Equinox's wrappers.
    Fallback: None if JAX doesn't record the jitkwargs, and the wrapper runs unchanged."""
    info = getattr(wrapper._cached, "_jit_info", None)
    options = getattr(info, "compiler_options_kvs", None)
    if info is None or options is None or any(not hasattr(info, name) for name in _JIT_INFO):
        return None
    # JAX converts the options: `inline` is a ``jax.Inline`` since 0.12.
    without_options = _jax_compat.jit(lambda: None)
    default = without_options._jit_info
    jitkwargs = {
        name: getattr(info, name)
        for name in _JIT_INFO
        if getattr(info, name) != getattr(default, name)
    }
    if options:
        jitkwargs["compiler_options"] = dict(options)
    if not wrapper.donate_rest:
        donate = "none"
    else:
        donate = "all" if wrapper.filter_warning else "warn"
        donate += "" if wrapper.donate_first else "-except-first"
    return wrapper.__wrapped__, wrapper._signature, donate, jitkwargs
