"""JAX's executables as bytes and plain JSON, and back.

JAX's own ``serialize_executable`` writes a pickle, and reading a pickle runs it. This module stores
the fields of JAX's dataclass of an executable one by one. If a version of JAX has other fields,
executables cannot be saved, and the error message names the alternative, a portable file.
"""

import functools
import hashlib
import itertools
import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from .._compat import _executable_compat
from .._shardings._specs import rest_of
from ._encode import Json, Unsupported, decode_dtype, encode_dtype

Devices = Mapping[int, jax.Device]
"""The devices that a program runs on, by the ids of those that it was compiled for."""


# ---- the machine ----


def machine(device: jax.Device) -> dict[str, Json]:
    """Returns what an executable depends on; the processor counts for its instruction set."""
    found = {
        "jax": jax.__version__,
        "jaxlib": _executable_compat.jaxlib_version(),
        "platform": device.platform,
        "platform version": str(getattr(device.client, "platform_version", "")),
        "device": device.device_kind,
        "machine": f"{platform.system()}-{platform.machine()}",
    }
    if device.platform == "cpu":
        found["processor"] = _processor()
    return found


@functools.cache
def _processor() -> str:
    """Returns a digest of the processor's features, as far as the system lists them."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
            first = itertools.takewhile(str.strip, f)  # the system takes long to list all
            lines = {line.partition(":")[0].strip(): line.strip() for line in first}
        text = "".join(lines.get(key, "") for key in ("model name", "flags", "Features"))
    except OSError:
        text = platform.processor()
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# ---- avals, shardings, layouts ----


def _encode_spec(spec: Any) -> Json:
    entries: list[Json] = []
    if rest_of(spec):
        raise Unsupported(f"the partition {spec}")
    for entry in spec:
        if entry is None or type(entry) is str:
            entries.append(entry)
        elif type(entry) is tuple and all(type(name) is str for name in entry):
            entries.append(list(entry))
        else:
            raise Unsupported(f"the partition {spec}")
    return entries


def _decode_spec(json: Json) -> Any:
    return jax.sharding.PartitionSpec(
        *(tuple(entry) if type(entry) is list else entry for entry in json)
    )


def _memory(sharding: Any) -> str | None:
    """Returns the memory kind, or None for the default, whose name depends on the version of JAX."""
    kind: str | None = sharding.memory_kind
    if isinstance(getattr(sharding, "mesh", None), jax.sharding.AbstractMesh):
        return kind
    return None if kind in {d.default_memory().kind for d in sharding.device_set} else kind


def encode_sharding(sharding: Any) -> Json:
    """Returns the mesh, the partition and the memory of a sharding, with devices by their ids; for a
    single device, its id is in the place of the mesh. Raises Unsupported."""
    if sharding is None:
        return None
    if isinstance(sharding, jax.sharding.SingleDeviceSharding):
        (device,) = sharding.device_set
        return [device.id, None, _memory(sharding)]
    if not isinstance(sharding, jax.sharding.NamedSharding):
        raise Unsupported(f"the sharding {sharding}")
    mesh, ids = sharding.mesh, None
    if isinstance(mesh, jax.sharding.Mesh):
        ids = [int(device.id) for device in mesh.devices.flat]
    types = [kind.name for kind in mesh.axis_types]
    axes = [list(mesh.axis_names), list(mesh.axis_sizes), types, ids]
    return [axes, _encode_spec(sharding.spec), _memory(sharding)]


def decode_sharding(json: Json, devices: Devices) -> Any:
    """Returns the sharding of which `encode_sharding` returned the JSON, over these devices."""
    if json is None:
        return None
    on, spec, memory = json
    if type(on) is int:
        return jax.sharding.SingleDeviceSharding(devices[on], memory_kind=memory)
    names, sizes, types, ids = on
    kinds = tuple(jax.sharding.AxisType[name] for name in types)
    mesh: Any
    if ids is None:
        mesh = jax.sharding.AbstractMesh(tuple(sizes), tuple(names), axis_types=kinds)
    else:
        grid = np.array([devices[id] for id in ids], dtype=object).reshape(sizes)
        mesh = jax.sharding.Mesh(grid, tuple(names), axis_types=kinds)
    return jax.sharding.NamedSharding(mesh, _decode_spec(spec), memory_kind=memory)


def encode_aval(aval: Any) -> Json:
    sharding = getattr(aval, "sharding", None)
    if sharding is not None and getattr(sharding.mesh, "empty", False):
        sharding = None
    weak = bool(getattr(aval, "weak_type", False))
    # A symbolic dimension is a text here; the program itself has the symbol.
    shape = [int(n) if isinstance(n, (int, np.integer)) else str(n) for n in aval.shape]
    return [shape, encode_dtype(aval.dtype), weak, encode_sharding(sharding)]


def decode_aval(json: Json, devices: Devices) -> Any:
    shape, dtype, weak, sharding = json
    options = {} if sharding is None else {"sharding": decode_sharding(sharding, devices)}
    return jax.core.ShapedArray(tuple(shape), decode_dtype(dtype), weak_type=weak, **options)


def _encode_layout(layout: Any) -> Json:
    if layout is None:
        return None
    tiling, bits = _executable_compat.tiling_of(layout)
    return [list(layout.major_to_minor), [list(tile) for tile in tiling], bits]


def _decode_layout(json: Json, devices: Devices) -> Any:
    if json is None:
        return None
    order, tiling, bits = json
    layout = _executable_compat.layout_type()
    if layout is None:
        raise Unsupported(_OTHER_FIELDS)
    return layout(tuple(order), tuple(map(tuple, tiling)), bits)


# ---- the executable ----

# The fields of JAX's dataclass. Lists, with the functions that encode and decode an element:
_LIST_FIELDS = {
    "input_avals": (encode_aval, decode_aval),
    "output_avals": (encode_aval, decode_aval),
    "input_shardings": (encode_sharding, decode_sharding),
    "output_shardings": (encode_sharding, decode_sharding),
    "xla_in_layouts": (_encode_layout, _decode_layout),
    "dispatch_in_layouts": (_encode_layout, _decode_layout),
    "xla_out_layouts": (_encode_layout, _decode_layout),
}
# Fields that are stored as they are:
_JSON_FIELDS = ("committed", "name")
# Fields that are not stored and must be empty, with the value that they get when loaded:
_EMPTY_FIELDS: dict[str, Callable[[], Any]] = {
    "unordered_effects": list,
    "ordered_effects": list,
    "host_callbacks": list,
    "keepalive": list,
    "mut": lambda: None,
    "pgle_profiler": lambda: None,
    "auto_spmd_lowering": lambda: False,
}
# The devices; older versions of JAX use the second name:
_DEVICE_FIELDS = ("device_list", "device_assignment")
# Fields that the functions below convert:
_CONVERTED_FIELDS = {"xla_executable", "backend", "kept_var_idx", "all_args_info"}
_ALL_FIELDS = {
    *_LIST_FIELDS,
    *_JSON_FIELDS,
    *_EMPTY_FIELDS,
    *_DEVICE_FIELDS,
    *_CONVERTED_FIELDS,
}
_OTHER_FIELDS = "filterjit does not know the executables of this version of JAX"


def input_shardings(stage: Any) -> list[Any]:
    """Returns the sharding of each argument of a ``jax.stages.Compiled``; None if it is unused.

    Raises Unsupported if JAX cannot tell: of a ``jax.stages.Lowered``, and JAX 0.9 with
    `jax_use_simplified_jaxpr_constants`.
    """
    try:
        found = stage.input_shardings
    except (ValueError, AttributeError) as e:
        raise Unsupported(f"JAX does not tell where its arguments are placed ({e})") from None
    shardings: list[Any] = jax.tree_util.tree_leaves(found, is_leaf=lambda x: x is None)
    return shardings


def encode_executable(compiled: Any) -> tuple[Json, bytes]:
    """Returns the fields of a ``jax.stages.Compiled``, and the bytes of its executable.

    Raises Unsupported.
    """
    parts = _executable_compat.executable_parts(compiled)
    if parts is None or parts.keys() - _ALL_FIELDS or {*_LIST_FIELDS, *_JSON_FIELDS} - parts.keys():
        raise Unsupported(f"{_OTHER_FIELDS}; pass portable=True")
    if parts["mut"] is not None:
        raise Unsupported("JAX cannot serialize it: it holds a mutable array")
    for name in _EMPTY_FIELDS:
        if parts.get(name):
            raise Unsupported(f"JAX cannot serialize it: it has {name.replace('_', ' ')}")
    (devices,) = (list(parts[name]) for name in _DEVICE_FIELDS if name in parts)
    json: dict[str, Json] = {name: parts[name] for name in _JSON_FIELDS}
    json["kept"] = sorted(map(int, parts["kept_var_idx"]))
    json["devices"] = [device.id for device in devices]
    for name, (encode, _) in _LIST_FIELDS.items():
        json[name] = [encode(x) for x in parts[name]]
    return json, _executable_compat.serialize_executable(parts["backend"], parts["xla_executable"])


def decode_executable(
    json: Json,
    data: bytes,
    devices: Devices,
    constants: Sequence[Any],
    args_info: Any,
    out_tree: Any,
) -> Any:
    """Returns a ``jax.stages.Compiled`` from the result of `encode_executable`.

    `devices` are those that it runs on in the place of those that it was compiled for; `constants`
    are the arrays that JAX passes before the arguments.

    Raises Unsupported if the version of JAX has other fields, KeyError if a device is missing, and
    any exception if the JSON is malformed.
    """
    on = [devices[id] for id in json["devices"]]
    moved = [device.id for device in on] != json["devices"]
    parts: dict[str, Any] = {name: json[name] for name in _JSON_FIELDS}
    if type(parts["committed"]) is not bool or type(parts["name"]) is not str:
        raise TypeError("not an executable")
    parts |= {name: empty() for name, empty in _EMPTY_FIELDS.items()}
    for name, (_, decode) in _LIST_FIELDS.items():
        parts[name] = [decode(x, devices) for x in json[name]]
    parts["kept_var_idx"] = set(json["kept"])
    parts["all_args_info"] = None
    count = len(constants) + len(jax.tree_util.tree_leaves(args_info))
    if (
        not all(type(i) is int and 0 <= i < count for i in parts["kept_var_idx"])
        or len(parts["output_avals"]) != out_tree.num_leaves
        or len(parts["input_avals"]) != len(parts["kept_var_idx"])
        or not parts["kept_var_idx"].issuperset(range(len(constants)))
        or any(
            (x.shape, x.dtype) != (aval.shape, aval.dtype)
            for x, aval in zip(constants, parts["input_avals"], strict=False)
        )
    ):
        raise ValueError("not an executable of these arguments")
    placed = list(map(jax.device_put, constants, parts["input_shardings"]))
    compiled = _executable_compat.load_executable(
        data, on, moved, parts, placed, args_info, out_tree
    )
    if compiled is None:
        raise Unsupported(_OTHER_FIELDS)
    return compiled
