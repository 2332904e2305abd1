"""The only imports of private names of JAX and of Equinox, each with its fallback.

A name that is not there makes filterjit slower or its messages plainer, never wrong.
"""

import dataclasses
import inspect
import sys
from collections.abc import Callable, MutableSet, Sequence
from types import CodeType, FunctionType, ModuleType
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


def module_getattribute() -> FunctionType | None:
    """The ``__getattribute__`` of equinox.Module.

    Fallback: None, and methods are looked up by it.
    """
    module = getattr(equinox(), "Module", None)
    found = getattr(module, "__dict__", {}).get("__getattribute__")
    return found if isinstance(found, FunctionType) else None


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


def compiled_call(compiled: Any) -> Any:
    """What runs a ``jax.stages.Compiled``, without its Python wrapper.

    Fallback: the wrapper.
    """
    create = private_attribute(compiled, "_executable", "create_cpp_call")
    parameters = getattr(compiled, "_params", None)
    call = None
    if create is not None:
        try:
            if isinstance(parameters, tuple):
                call = create(parameters)
            else:  # older ones
                call = create(compiled._no_kwargs, compiled.in_tree, compiled.out_tree)
        except (AttributeError, TypeError):
            pass
    return compiled if call is None else call


def jaxlib_version() -> str:
    """Fallback: JAX's own."""
    return str(private("jaxlib", "__version__") or jax.__version__)


def layout_type() -> Any:
    """The class of an array's layout: ``(major_to_minor, tiling, sub-byte bits)``."""
    older = private("jax.experimental.layout", "DeviceLocalLayout")  # where Layout is another
    return older or private("jax.experimental.layout", "Layout")


def executable_parts(compiled: Any) -> dict[str, Any] | None:
    """The fields of what JAX makes a ``jax.stages.Compiled`` of.

    Fallback: None, and executables cannot be saved.
    """
    unloaded = private_attribute(compiled, "_executable", "_unloaded_executable")
    if type(unloaded) is not _unloaded_type() or private_attribute(
        compiled, "_params", "const_args"
    ):
        return None
    return {field.name: getattr(unloaded, field.name) for field in dataclasses.fields(unloaded)}


def _unloaded_type() -> Any:
    found = private("jax._src.interpreters.pxla", "UnloadedMeshExecutable")
    return found if dataclasses.is_dataclass(found) else None


def serialize_executable(client: Any, executable: Any) -> bytes:
    """The bytes that XLA makes of an executable."""
    serialize = getattr(executable, "serialize", None)
    data: bytes = client.serialize_executable(executable) if serialize is None else serialize()
    return data


def load_executable(
    data: bytes, devices: Sequence[Any], parts: dict[str, Any], args_info: Any, out_tree: Any
) -> Any:
    """A ``jax.stages.Compiled`` of `executable_parts`, without those that are said here.

    Fallback: None, and saved executables cannot be loaded.
    """
    unloaded_type = _unloaded_type()
    device_list = private("jax._src.lib", "xla_client", "DeviceList")
    if unloaded_type is None or device_list is None:
        return None
    on = device_list(tuple(devices))
    client = devices[0].client
    options = inspect.signature(jax.stages.Compiled).parameters
    try:
        executable = client.deserialize_executable(data, executable_devices=on)
    except TypeError:  # older ones
        executable = client.deserialize_executable(data)
    parts = {
        **parts,
        "xla_executable": executable,
        "backend": client,
        "device_list": on,
        "device_assignment": on,
    }
    names = {field.name for field in dataclasses.fields(unloaded_type)}
    if not names <= parts.keys():
        return None
    loaded = unloaded_type(**{name: parts[name] for name in names}).load()
    constants: tuple[Any, ...] = ([],) if "const_args" in options else ()
    return jax.stages.Compiled(loaded, *constants, args_info, out_tree, no_kwargs=True)


def private_attribute(x: Any, *names: str) -> Any:
    """``x.names[0].names[1]...``, or None where there is none."""
    for name in names:
        x = getattr(x, name, None)
    return x


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


def spec_of(aval: Any, sharding: Any) -> jax.ShapeDtypeStruct:
    """The ShapeDtypeStruct of an aval. Fallback: without its weak type, for older ones."""
    options = {"sharding": sharding, "weak_type": bool(getattr(aval, "weak_type", False))}
    known = inspect.signature(jax.ShapeDtypeStruct).parameters
    options = {name: value for name, value in options.items() if name in known}
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, **options)


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
