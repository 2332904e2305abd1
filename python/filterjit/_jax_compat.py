"""The only imports of private names of JAX and of Equinox, each with its fallback.

A name that is not there makes filterjit slower or its messages plainer, never wrong.
"""

import sys
from collections.abc import Callable, MutableSet, Sequence
from types import CodeType, ModuleType
from typing import Any

import jax
import numpy as np


def private(module: str, *names: str) -> Any:
    """The object at ``module.names[0].names[1]...``, or None where there is none."""
    try:
        found = __import__(module, fromlist=["_"])
        for name in names:
            found = getattr(found, name)
    except (ImportError, AttributeError):
        return None
    return found


# The types of equinox.is_array: arrays, NumPy's, and JAX's typed literals (JAX 0.7.2 and on).
# Fallback: without the literals, which then are static, as they are in Equinox.
_LITERALS = (
    private("jax._src.literals", "LiteralArray"),
    private("jax._src.literals", "TypedNdArray"),
)
ARRAY_TYPES: tuple[type, ...] = (np.ndarray, np.generic, jax.Array, *filter(None, _LITERALS))

# The type that nearly all arrays have: the first that a walk compares with. (Asking an array
# for it would start JAX's backends at import, after which some options cannot be set.)
# Fallback: any type of array; the others are found by a look-up.
ARRAY_IMPL: type = private("jax._src.array", "ArrayImpl") or np.ndarray


def hide_from_tracebacks(file: str) -> None:
    """Asks JAX to leave frames of `file` out of the tracebacks that it shows.

    Fallback: the frames are shown.
    """
    register = private("jax._src.traceback_util", "register_exclusion")
    if register is not None:
        register(file)


def registered_dataclass_fields(
    cls: type,
) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """The data and meta fields that a class was registered with by
    ``jax.tree_util.register_dataclass``; None where it was not, or where JAX does not tell.

    Fallback: the class is handled by its registered functions.
    """
    registry = private("jax._src.tree_util", "_registry")
    flatten: Any = getattr(registry.get(cls), "to_iter", None) if registry else None
    code = getattr(flatten, "__code__", None)
    if code is None or not flatten.__qualname__.startswith("register_dataclass."):
        return None
    cells = dict(zip(code.co_freevars, flatten.__closure__ or (), strict=True))
    try:
        data, meta = cells["data_fields"].cell_contents, cells["meta_fields"].cell_contents
    except (KeyError, ValueError):
        return None
    return tuple(data), tuple(meta)


def registered_unflatten(cls: type) -> Callable[[Any, Any], Any] | None:
    """The function ``(aux data, children) -> node`` that a class was registered with.

    Fallback: None, and a treedef does it.
    """
    registry = private("jax._src.tree_util", "_registry")
    unflatten: Any = getattr(registry.get(cls), "from_iter", None) if registry else None
    return unflatten if callable(unflatten) else None


def equinox() -> ModuleType | None:
    """Equinox, where the program has imported it."""
    return sys.modules.get("equinox")


def module_layout() -> tuple[Any, tuple[str, ...]] | None:
    """What Equinox puts in the place of a field that is not set, and the names of the
    attributes that a wrapper module carries.

    Fallback: None, and Modules are handled by their registered functions.
    """
    missing = private("equinox._module._flatten", "MISSING")
    names = private("equinox._module._flatten", "WRAPPER_FIELD_NAMES")
    return None if missing is None or names is None else (missing, tuple(names))


JaxRuntimeError: type[Exception] = (
    getattr(jax.errors, "JaxRuntimeError", None)
    or private("jaxlib.xla_extension", "XlaRuntimeError")
    or RuntimeError
)


def equinox_runtime_error(exception: Exception, jit_id: bytes) -> Exception | None:
    """The error that ``equinox.filter_jit`` would raise in the place of `exception`.

    `exception` is what a program raised while it ran, `jit_id` what the frame of the jitted
    function holds under ``__equinox_jit_id__``. None where ``eqx.error_if`` is not the cause.

    Fallback: None, and JAX's own error is raised, which holds the message as well.
    """
    if "_EquinoxRuntimeError: " not in str(exception):
        return None
    info = private("equinox._jit", "last_error_info")
    message = private("equinox._jit", "_on_error_msg")
    error = private("equinox", "EquinoxRuntimeError")
    if info is None or message is None or error is None:
        return None
    text, stack = info
    inside: list[str] = []
    for piece in stack:
        if piece == jit_id:
            break
        if isinstance(piece, str):
            inside.append(piece)
    better: Exception = error(message.format(msg=text, stack="".join(reversed(inside))))
    return better


def raw_stack(equation: Any) -> tuple[Sequence[CodeType], Sequence[int]]:
    """Where an equation was made: code objects and the offsets in them, the innermost first.

    Fallback: nowhere.
    """
    traceback = stack_key(equation)
    frames = getattr(traceback, "raw_frames", None)
    return ((), ()) if frames is None else frames()


def stack_key(equation: Any) -> Any:
    """What is equal and hashable for equations that were made in the same place."""
    return getattr(getattr(equation, "source_info", None), "traceback", None)


def clears_with_jax(clear: Callable[[], None]) -> None:
    """Asks ``jax.clear_caches`` to call a function, which it holds weakly.

    Fallback: it does not, but JAX's own programs are gone, so that ours are traced anew.
    """
    register = private("jax._src.util", "register_cache")
    known = private("jax._src.util", "cache_clearing_funs")  # the older ones'
    if register is not None:
        clear.cache_clear = clear  # type: ignore[attr-defined]
        register(clear, "filterjit")
    elif isinstance(known, MutableSet):
        known.add(clear)


def equinox_cache_clears() -> list[Callable[[], object]] | None:
    """What ``equinox.clear_caches`` calls. Fallback: None."""
    found = private("equinox._caches", "cache_clears") if equinox() is not None else None
    return found if isinstance(found, list) else None


def aval(x: Any) -> Any:
    """What ``jax.jit`` knows of an array while it traces: its shape, dtype and weak type.

    Fallback: the array itself, which has a shape and a dtype.
    """
    typeof = getattr(jax, "typeof", None) or private("jax.core", "get_aval")
    return x if typeof is None else typeof(x)


def flatten_one_level() -> Callable[[Any], Any]:
    """JAX's function that takes a node apart: ``x -> (children, aux data)``, None for a leaf."""
    function: Callable[[Any], Any] = jax.tree_util.default_registry.flatten_one_level
    return function


_WRAPPER_FIELDS = frozenset(
    {"_signature", "_cached", "filter_warning", "donate_first", "donate_rest"}
)
# What ``jax.jit`` was given for a wrapper, by the field of its record that holds it, with what
# is there where it was not given.
_JIT_INFO = {"keep_unused": False, "inline": False, "device": None, "backend": None}


def equinox_wrapper_type() -> type | None:
    """The class of what ``equinox.filter_jit`` returns.

    Fallback: None where it is not as we know it, and `install` changes nothing.
    """
    cls = private("equinox._jit", "_JitWrapper")
    fields = getattr(cls, "__dataclass_fields__", {})
    known = (
        isinstance(cls, type)
        and fields.keys() >= _WRAPPER_FIELDS
        and isinstance(getattr(cls, "__wrapped__", None), property)
        and callable(getattr(cls, "lower", None))
    )
    return cls if known else None


def equinox_wrapper_parts(wrapper: Any) -> tuple[Any, Any, str, dict[str, Any]] | None:
    """Function, signature, `donate` and jitkwargs that one of Equinox's wrappers was made with.

    Fallback: None where JAX does not tell the jitkwargs, and the wrapper runs as it is.
    """
    info = getattr(wrapper._cached, "_jit_info", None)
    options = getattr(info, "compiler_options_kvs", None)
    if info is None or options is None or any(not hasattr(info, name) for name in _JIT_INFO):
        return None
    jitkwargs = {
        name: getattr(info, name)
        for name, default in _JIT_INFO.items()
        if getattr(info, name) != default
    }
    if options:
        jitkwargs["compiler_options"] = dict(options)
    if not wrapper.donate_rest:
        donate = "none"
    else:
        donate = "all" if wrapper.filter_warning else "warn"
        donate += "" if wrapper.donate_first else "-except-first"
    return wrapper.__wrapped__, wrapper._signature, donate, jitkwargs
