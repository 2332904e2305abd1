"""The program in a file: a ``jax.stages.Compiled``, and the structure of its result.

The file stores the fields of JAX's executable dataclass one by one. If a version of JAX has
different fields, executables can't be saved.
"""

import functools
import hashlib
import itertools
import os
import platform
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from .. import __version__, _core
from .._base._arrays import Aval
from .._base._errors import format_path
from .._base._versions import needs
from .._call._direct import arrange, restore
from .._compat import _executable_compat, _jax_compat
from .._observe._wording import describe_node
from .._trees import _codes
from .._trees._codes import Coder, Json, Unsupported
from .._trees._nodes import walk

Blob = tuple[Json, bytes]

# The fields of JAX's dataclass in a program that can be saved: some must be empty (described for
# errors), the rest have these types.
_NOTHING = {
    "unordered_effects": "unordered effects",
    "ordered_effects": "ordered effects",
    "host_callbacks": "host callbacks",
    "keepalive": "objects to keep alive",
    "mut": "mutable arrays",
    "pgle_profiler": "a profiler",
    "auto_spmd_lowering": "automatic shardings",
}
_TYPES: dict[str, Any] = {
    "input_avals": jax.core.ShapedArray,
    "output_avals": jax.core.ShapedArray,
    "input_shardings": jax.sharding.Sharding | None,
    "output_shardings": jax.sharding.Sharding | None,
    "xla_in_layouts": object,
    "dispatch_in_layouts": object,
    "xla_out_layouts": object,
    "kept_var_idx": int,
    "committed": bool,
    "name": str,
}
_OTHERS = {"xla_executable", "backend", "all_args_info", "device_list"}


def _unknown() -> Unsupported:
    if _executable_compat.can_save():
        return Unsupported("filterjit does not know the executables of this version of JAX")
    return Unsupported(needs("a file of an executable", "0.7.2"))


def encode(
    stage: Any,
    order: Sequence[int],
    specs: Sequence[Any] | None = None,
    exported: Any = None,
    serialize: Callable[[dict[str, Any]], bytes] | None = None,
) -> tuple[dict[str, Json], list[bytes], jax.Device]:
    """Returns the entry and the blobs of a signature, and one of its devices. Raises Unsupported.

    `stage` is the ``jax.stages.Compiled``, which takes arrays in `order`, and `specs` are those of
    all arrays, beginning with those in the function itself. For a portable program, `stage` is the ``jax.stages.Lowered``,
    and `exported` the ``jax.export.Exported`` with its bytes. `serialize` returns the bytes of
    an executable, from its parts.
    """
    shardings, devices = placement(stage)
    coder = Coder(devices)
    constants: list[Blob] = []
    program: Json = {}
    if exported is None:
        assert serialize is not None
        program, fields = _encode_executable(stage, coder)
        blob = serialize(fields)
        constants = [encode_array(x) for x in _executable_compat.executable_constants(stage)]
    else:
        blob = exported[1]
    infos = restore(jax.tree_util.tree_leaves(stage.args_info), order)
    entry: dict[str, Json] = {
        "devices": [device.id for device in devices],
        "specs": coder.encode(
            [
                # Symbolic dimensions are text here. The program has the symbols.
                (
                    tuple([n if type(n) is int else str(n) for n in info.shape]),
                    _codes.encode_dtype(info.dtype),
                    info.donated,
                    sharding,
                )
                for info, sharding in zip(infos, restore(shardings, order), strict=True)
            ]
        ),
        "order": list(order),
        "placed": specs and [x.sharding is not None for x in specs],
        "weak": specs and [x.weak_type for x in specs],
        "program": program,
        "constants": [array for array, _ in constants],
    }
    processes = [device.process_index for device in devices]
    if len(set(processes)) > 1:
        entry["processes"] = processes  # by device
    return entry, [blob, *(data for _, data in constants)], devices[0]


def _encode_executable(compiled: Any, coder: Coder) -> tuple[Json, dict[str, Any]]:
    """Returns the encoded parts of a ``jax.stages.Compiled``, and the parts."""
    parts = _executable_compat.executable_parts(compiled)
    if parts is None or parts.keys() - {*_TYPES, *_NOTHING, *_OTHERS}:
        raise _unknown()
    for name, what in _NOTHING.items():
        if parts.get(name):
            raise Unsupported(f"JAX cannot serialize it: it has {what}")
    fields = {name: x for name, x in parts.items() if name not in _OTHERS}
    fields |= {
        "kept_var_idx": set(map(int, parts["kept_var_idx"])),
        "devices": list(parts["device_list"]),
        "custom calls": sorted(set(_TARGET.findall(compiled.as_text() or ""))),
    }
    return coder.encode(fields), parts


_TARGET = re.compile(r'custom_call_target="([^"]*)"')


def register(targets: Sequence[str]) -> None:
    """Registers the targets of custom calls with JAX. Raises Unsupported if JAX lacks one."""
    if missing := _executable_compat.register_custom_calls(targets):
        raise _unregistered(missing[0])


def _unregistered(target: str) -> Unsupported:
    return Unsupported(
        f"it calls `{target}`, which is not registered in this process: import the library that "
        "registers it first"
    )


def decode(
    entry: dict[str, Json], blobs: Sequence[bytes], devices: Sequence[jax.Device]
) -> Callable[[Any], jax.stages.Compiled]:
    """Loads the executable of a signature. Returns a function from the treedef of a trace's Output to
    the ``jax.stages.Compiled``. `devices` are the program's, in order.

    Raises Unsupported, or any exception for invalid data. The returned function raises ValueError
    for a wrong number of arrays in the result.
    """
    with _jax_compat.enable_x64(True), _jax_compat.no_mesh():
        arrays, coder = entry["constants"], Coder(devices)
        constants = [
            decode_array(array, blob, None, None)
            for array, blob in zip(arrays, blobs[1 : 1 + len(arrays)], strict=True)
        ]
        infos = tuple(
            jax.stages.ArgInfo(
                jax.core.ShapedArray(shape, _codes.decode_dtype(dtype)), bool(donated)
            )
            for shape, dtype, donated, _ in arrange(coder.decode(entry["specs"]), entry["order"])
        )
        parts = {**coder.decode(entry["program"]), "all_args_info": None}
        on, numbers = parts.pop("devices"), parts["kept_var_idx"]
        targets = parts.pop("custom calls")
        for name, kind in _TYPES.items():
            x = parts.get(name, ())
            if not all(isinstance(y, kind) for y in (x if type(x) in (list, tuple, set) else [x])):
                raise TypeError(f"not an executable: {name}")
        if (
            not all(type(i) is int and 0 <= i < len(constants) + len(infos) for i in numbers)
            or len(parts["input_avals"]) != len(numbers)
            or not numbers.issuperset(range(len(constants)))
            or any(
                (x.shape, x.dtype) != (aval.shape, aval.dtype)
                for x, aval in zip(constants, parts["input_avals"], strict=False)
            )
        ):
            raise ValueError("not an executable of these arguments")
        placed = list(map(jax.device_put, constants, parts["input_shardings"]))
        register(targets)
        try:
            make = _executable_compat.load_executable(blobs[0], on, parts, placed, (infos, {}))
        except jax.errors.JaxRuntimeError as e:
            for target in targets:
                if f" {target} " in str(e):
                    raise _unregistered(target) from e
            raise
    if make is None:
        raise _unknown()

    def compiled(out_tree: Any) -> Any:
        if len(parts["output_avals"]) != out_tree.num_leaves:
            raise ValueError("the number of results")
        return make(out_tree)

    return compiled


def described(structure: _core.Structure, avals: Sequence[Aval]) -> list[list[str]]:
    """Returns (path, description) of each array and static value."""
    found: list[list[str]] = []
    for node, path in walk(structure):
        if not node.arity and node.kind != "arguments":
            found.append([format_path(path), describe_node(node, avals)])
    return found


def input_shardings(stage: Any) -> list[Any]:
    """Returns the sharding of each argument of a ``jax.stages.Compiled``, None for unused ones.
    Raises Unsupported if JAX doesn't say: for a ``jax.stages.Lowered``, and in JAX 0.9 with
    `jax_use_simplified_jaxpr_constants`."""
    try:
        found = stage.input_shardings
    except (ValueError, AttributeError) as e:
        raise Unsupported(f"JAX does not tell where its arguments are placed ({e})") from None
    shardings: list[Any] = jax.tree_util.tree_leaves(found, is_leaf=lambda x: x is None)
    return shardings


def placement(stage: Any) -> tuple[list[Any], list[jax.Device]]:
    """Returns the sharding of each argument, and the program's devices in the order of its mesh,
    otherwise by id. A lowered program runs on the default device."""
    if isinstance(stage, jax.stages.Lowered):
        return [None] * len(jax.tree_util.tree_leaves(stage.args_info)), jax.local_devices()[:1]
    inputs = input_shardings(stage)
    shardings = jax.tree_util.tree_leaves((inputs, stage.output_shardings))
    found = {device.id: device for sharding in shardings for device in sharding.device_set}
    for sharding in shardings:
        mesh = getattr(sharding, "mesh", None)
        if isinstance(mesh, jax.sharding.Mesh) and mesh.size == len(found):
            return inputs, list(mesh.devices.flat)
    return inputs, [found[id] for id in sorted(found)]


# ---- the machine ----


def machine(device: jax.Device) -> dict[str, str]:
    """Returns versions and machine properties, by their names in messages."""
    flags = os.environ.get("XLA_FLAGS", "").split()
    found = {
        "filterjit": __version__,
        "python": ".".join(platform.python_version_tuple()[:2]),
        "jax": jax.__version__,
        "jaxlib": _executable_compat.jaxlib_version(),
        "platform": device.platform,
        "platform version": str(getattr(device.client, "platform_version", "")),
        "device": device.device_kind,
        "machine": f"{platform.system()}-{platform.machine()}",
        "XLA_FLAGS": " ".join(sorted({x for x in flags if not x.startswith("--xla_dump_")})),
    }
    if device.platform == "cpu":
        found["processor"] = _processor()
    return found


@functools.cache
def _processor() -> str:
    """Returns a digest of the processor's features, as far as the system lists them."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
            first = itertools.takewhile(str.strip, f)  # the first core; listing all takes long
            lines = {line.partition(":")[0].strip(): line.strip() for line in first}
        text = "".join(lines.get(key, "") for key in ("model name", "flags", "Features"))
    except OSError:
        text = platform.processor()
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# ---- arrays ----


def encode_array(x: Any) -> Blob:
    """Returns the shape and dtypes of an array, and its bytes. Raises Unsupported."""
    if isinstance(x, jax.ShapeDtypeStruct):
        raise Unsupported(f"the function holds {x}, which has no values, in the place of an array")
    if isinstance(x, jax.Array) and jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
        (shape, dtype, _), blob = encode_array(jax.random.key_data(x))
        return [shape, dtype, _codes.encode_dtype(x.dtype)], blob
    if isinstance(x, jax.Array) and not x.is_fully_addressable:
        raise Unsupported("an array in the function itself is partly on other machines")
    values = np.asarray(x)
    return [list(values.shape), _codes.encode_dtype(values.dtype), None], values.tobytes()


def decode_array(header: Json, blob: bytes, sharding: Any, taken: Any) -> jax.Array:
    """Returns an array of a file, converted to the dtype that the program takes, if given."""
    shape, dtype, key = header
    values = np.frombuffer(blob, _codes.decode_dtype(dtype)).reshape(shape)
    if key is None and taken is not None:
        values = values.astype(taken, copy=False)
    array = jax.device_put(values)
    if key is not None:
        array = jax.random.wrap_key_data(array, impl=_codes.KEYS[key])
    return array if sharding is None else jax.device_put(array, sharding)
