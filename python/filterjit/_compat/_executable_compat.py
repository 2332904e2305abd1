"""The private names of JAX for calling, saving and loading executables, each with a fallback."""

import contextlib
import dataclasses
import itertools
import os
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax

from . import _private


def compiled_call(compiled: Any) -> Any:
    """Returns the C++ callable that runs a ``jax.stages.Compiled``. Fallback: `compiled` itself,
    which calls it from Python."""
    create = _private.private_attribute(compiled, "_executable", "create_cpp_call")
    if create is not None:
        with contextlib.suppress(AttributeError, TypeError):
            if (call := create(compiled._params)) is not None:
                return call
    return compiled


def lowered_facts(lowered: Any) -> tuple[dict[str, Any], list[Any]] | None:
    """Returns named plain values that affect compiling a ``jax.stages.Lowered`` in addition to its
    text, and the arrays that it passes before the arguments.

    The text lacks weak types, and says nothing of unused arguments, which JAX omits.

    Fallback: None, and programs are compared by their text alone.
    """
    lowering = _private.private_attribute(lowered, "_lowering")
    options = getattr(lowering, "compile_args", None)
    devices = getattr(lowering, "_device_list", None)
    if not isinstance(options, dict) or not options.keys() >= _LOWERED or devices is None:
        return None
    facts: dict[str, Any] = {name: _text(options[name]) for name in sorted(_LOWERED)}
    facts["kept_var_idx"] = sorted(map(int, options["kept_var_idx"]))
    facts["devices"] = [device.id for device in devices]
    facts["platforms"] = list(map(str, getattr(lowering, "_platforms", ())))
    facts["compiler options"] = _text(getattr(lowering, "_compiler_options_kvs", ()))
    infos = jax.tree_util.tree_leaves(lowered.args_info)
    facts["arguments"] = [[repr(getattr(x, "_aval", x)), x.donated] for x in infos]
    return facts, list(getattr(lowering, "const_args", ()))


_LOWERED = {"global_in_avals", "global_out_avals", "in_shardings", "out_shardings", "in_layouts"}
_LOWERED |= {"out_layouts", "kept_var_idx", "committed", "ordered_effects", "unordered_effects"}


def _text(x: Any) -> str:
    """Describes avals, shardings, layouts or effects, with weak types and memory."""
    if isinstance(x, (list, tuple)):
        return f"[{', '.join(map(_text, x))}]"
    if isinstance(x, jax.sharding.Sharding):
        return f"{x!r} {x.memory_kind}"
    return _ADDRESS.sub("", repr(x))  # effects of callbacks contain addresses


_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def processes_of(lowered: Any) -> set[int]:
    """Returns the processes with the devices of a ``jax.stages.Lowered``. Fallback: none."""
    devices = _private.private_attribute(lowered, "_lowering", "_device_list")
    return {device.process_index for device in devices or ()}


def jaxlib_version() -> str:
    """Returns jaxlib's version. Fallback: JAX's."""
    return str(_private.private("jaxlib", "__version__") or jax.__version__)


def layout_type() -> Any:
    """Returns the class of layouts: ``(major_to_minor, tiling, sub-byte bits)``. Fallback: None,
    and executables with layouts can't be saved."""
    return _private.private("jax.experimental.layout", "Layout")


def parts_of_layout(x: Any) -> tuple[Any, ...]:
    """Returns the arguments from which `layout_type` makes a layout."""
    name = "sub_byte_element_size_in_bits"
    bits = getattr(x, name, None)
    # Before JAX 0.9, the name begins with an underscore.
    return tuple(x.major_to_minor), x.tiling or (), getattr(x, f"_{name}") if bits is None else bits


def parts_of_gspmd(x: Any) -> tuple[tuple[Any, ...], bytes] | None:
    """Returns the devices and the division of a sharding that XLA chose, or None for other ones.
    Fallback: None, and executables with these shardings can't be saved."""
    if type(x) is not _private.private("jax._src.sharding_impls", "GSPMDSharding"):
        return None
    devices = _private.private_attribute(x, "_device_assignment")
    proto = _private.private_attribute(x, "_hlo_sharding", "to_proto")
    return None if devices is None or proto is None else (devices, proto().SerializeToString())


def new_gspmd(devices: Sequence[Any], text: bytes, memory: str | None) -> Any:
    """Recreates such a sharding. Raises TypeError if JAX lacks it."""
    cls = _private.private("jax._src.sharding_impls", "GSPMDSharding")
    proto = _private.private("jaxlib._hlo", "OpSharding")
    sharding = proto()
    sharding.ParseFromString(text)
    return cls(list(devices), sharding, memory_kind=memory)


def executable_parts(compiled: Any) -> dict[str, Any] | None:
    """Returns the fields of the object from which JAX builds a ``jax.stages.Compiled``. Fallback:
    None, and executables can't be saved."""
    unloaded = _private.private_attribute(compiled, "_executable", "_unloaded_executable")
    if type(unloaded) is not _unloaded_type():
        return None
    return {field.name: getattr(unloaded, field.name) for field in dataclasses.fields(unloaded)}


def results_of(stage: Any) -> list[Any]:
    """Returns the avals of a stage's results."""
    if hasattr(stage, "out_info"):  # any Lowered; a Compiled since JAX 0.7.2
        return list(jax.tree_util.tree_leaves(stage.out_info))
    return list(stage._executable.out_avals)


class NotSerializable(Exception):
    """XLA can't serialize an executable: one that it has deserialized, which lacks its kernels on
    the CPU, or one that has run and sorts."""


def serialized(parts: dict[str, Any]) -> bytes:
    """Serializes an executable. Raises NotSerializable."""
    executable = parts["xla_executable"]
    try:
        if hasattr(executable, "serialize"):  # JAX 0.8.2 and newer
            return bytes(executable.serialize())
        return bytes(parts["backend"].serialize_executable(executable))
    except jax.errors.JaxRuntimeError as e:
        raise NotSerializable from e


_numbers = itertools.count()


def compile_again(lowered: Any) -> bytes:
    """Compiles a ``jax.stages.Lowered`` again, or finds it in JAX's persistent cache, and returns
    its serialized executable. Raises NotSerializable. One thread at a time can call this.

    JAX's cache has complete executables, but nothing can serialize the ones that it returns.
    Therefore this thread's reads of the cache are recorded.

    Fallback: it is compiled, with an option of another platform, so that no cache has it.
    """
    with contextlib.suppress(
        NotSerializable, AttributeError, TypeError, jax.errors.JaxRuntimeError
    ):
        return _read_or_compiled(lowered)
    devices = _private.private_attribute(lowered, "_lowering", "_device_list") or jax.devices()
    option = _UNUSED_ON_CPU if next(iter(devices)).platform == "cpu" else _UNUSED_ON_OTHERS
    number = int.from_bytes(os.urandom(3), "big")
    try:
        compiled = lowered.compile(compiler_options={option: str(number)})
    except jax.errors.JaxRuntimeError as e:  # XLA doesn't know the option
        raise NotSerializable from e
    return _serialized_stage(compiled)


_UNUSED_ON_CPU = "xla_gpu_nccl_termination_timeout_seconds"
_UNUSED_ON_OTHERS = "xla_cpu_parallel_codegen_split_count"


def _serialized_stage(compiled: Any) -> bytes:
    parts = executable_parts(compiled)
    if parts is None:
        raise NotSerializable
    return serialized(parts)


def _read_or_compiled(lowered: Any) -> bytes:
    """Does `compile_again` without its fallback. Raises any error if JAX has changed."""
    compiler = _private.private("jax._src.compiler")
    cache = _private.private("jax._src.compilation_cache")
    # JAX finds no program with this option, which the compiler doesn't see.
    name, found, thread = f"filterjit {next(_numbers)}", [], threading.get_ident()
    compile_or_get = compiler.compile_or_get_cached
    read = cache.get_executable_and_time

    def compile_without_option(
        backend: Any, module: Any, devices: Any, options: Any, *args: Any, **kwargs: Any
    ) -> Any:
        if threading.get_ident() == thread:
            overrides = options.env_option_overrides
            options.env_option_overrides = [x for x in overrides if x[0] != name]
        return compile_or_get(backend, module, devices, options, *args, **kwargs)

    def read_and_record(key: str, options: Any, backend: Any, *args: Any, **kwargs: Any) -> Any:
        files = cache._get_cache(backend) if threading.get_ident() == thread else None
        if files is not None:
            packed = files.get(key)
            if packed is not None:
                whole = cache.decompress_executable(packed)
                found.append(cache.extract_executable_and_time(whole)[0])
        return read(key, options, backend, *args, **kwargs)

    try:
        compiler.compile_or_get_cached = compile_without_option
        cache.get_executable_and_time = read_and_record
        compiled = lowered.compile(compiler_options={name: "1"})
    finally:
        compiler.compile_or_get_cached = compile_or_get
        cache.get_executable_and_time = read
    return bytes(found[-1]) if found else _serialized_stage(compiled)


def executable_constants(compiled: Any) -> list[Any]:
    """Returns the large constants that JAX passes before the arguments with the option
    ``jax_use_simplified_jaxpr_constants``. Fallback: none, as if the executable had all
    constants."""
    return list(_private.private_attribute(compiled, "_params", "const_args") or ())


def can_save() -> bool:
    """True if executables of this JAX can be saved, from 0.7.2 on."""
    fields = getattr(_unloaded_type(), "__dataclass_fields__", {})
    return "device_list" in fields


def _unloaded_type() -> Any:
    found = _private.private("jax._src.interpreters.pxla", "UnloadedMeshExecutable")
    return found if dataclasses.is_dataclass(found) else None


def load_executable(
    data: bytes,
    devices: Sequence[Any],
    parts: dict[str, Any],
    constants: Sequence[Any],
    args_info: Any,
) -> Callable[[Any], Any] | None:
    """Loads a serialized executable. Returns a function from the treedef of its result to the
    ``jax.stages.Compiled``.

    `parts` are from `executable_parts`, with executable, backend and devices to be replaced.
    `constants` are from `executable_constants`.

    Fallback: None, and saved executables can't be loaded.
    """
    unloaded_type = _unloaded_type()
    device_list = _private.private("jax._src.lib", "xla_client", "DeviceList")
    if unloaded_type is None or device_list is None:
        return None
    on = device_list(tuple(devices))
    client = devices[0].client
    executable = client.deserialize_executable(data, executable_devices=on)
    parts = {**parts, "xla_executable": executable, "backend": client, "device_list": on}
    names = {field.name for field in dataclasses.fields(unloaded_type)}
    if not names <= parts.keys():
        return None
    loaded = unloaded_type(**{name: parts[name] for name in names}).load()
    first = list(constants)
    return lambda tree: jax.stages.Compiled(loaded, first, args_info, tree, no_kwargs=True)


# By a part of a custom call's target: a function that JAX calls for lowering, or a module that it
# imports, to register the target or fill its table.
_REGISTERED_BY: dict[str, tuple[str, ...]] = {
    "lapack_": ("jaxlib.lapack", "_lapack", "initialize"),
    "hybrid_": ("jaxlib.gpu_solver", "initialize_hybrid_kernels"),
    "cpu_csr_": ("jax.experimental.sparse",),
}


def register_custom_calls(targets: Iterable[str]) -> list[str]:
    """Registers targets of custom calls that JAX registers only when it lowers or traces. XLA
    refuses to load a program with unregistered targets.

    Returns the targets that couldn't be registered. Without them, a program might crash the
    process.
    """
    missing = []
    for part, place in _REGISTERED_BY.items():
        if named := [target for target in targets if part in target]:
            if (found := _private.private(*place)) is None:
                missing += named
            elif callable(found):
                found()
    return missing
