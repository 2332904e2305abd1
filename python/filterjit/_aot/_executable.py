"""JAX's executables as bytes and plain JSON, and back.

The fields of JAX's dataclass of an executable are stored one by one. If a version of JAX has other
fields, executables cannot be saved.
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
from ._encode import Coder, Json, Unsupported, decode_dtype, encode_dtype

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
    if rest_of(sharding.spec):
        raise Unsupported(f"the partition {sharding.spec}")
    mesh, ids = sharding.mesh, None
    if isinstance(mesh, jax.sharding.Mesh):
        ids = [int(device.id) for device in mesh.devices.flat]
    types = [kind.name for kind in mesh.axis_types]
    axes = [list(mesh.axis_names), list(mesh.axis_sizes), types, ids]
    return [axes, Coder().encode(tuple(sharding.spec)), _memory(sharding)]


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
    spec = jax.sharding.PartitionSpec(*Coder().decode(spec))
    return jax.sharding.NamedSharding(mesh, spec, memory_kind=memory)


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
    return Coder().encode((tuple(layout.major_to_minor), *_executable_compat.tiling_of(layout)))


def _decode_layout(json: Json, devices: Devices) -> Any:
    if json is None:
        return None
    layout = _executable_compat.layout_type()
    if layout is None:
        raise Unsupported(_OTHER_FIELDS)
    return layout(*Coder().decode(json))


# ---- the executable ----

_Codec = tuple[Callable[[Any], Json], Callable[[Json, Devices], Any]]


def _each(encode: Callable[[Any], Json], decode: Callable[[Json, Devices], Any]) -> _Codec:
    return (
        lambda found: list(map(encode, found)),
        lambda json, devices: [decode(one, devices) for one in json],
    )


def _plain(kind: type) -> _Codec:
    def decode(json: Json, _: Devices) -> Any:
        if type(json) is not kind:
            raise TypeError("not an executable")
        return json

    return lambda found: found, decode


def _without(what: str, make: Callable[[], Any]) -> _Codec:
    def encode(found: Any) -> None:
        if found:
            raise Unsupported(f"JAX cannot serialize it: it has {what}")

    return encode, lambda *_: make()


# The fields of JAX's dataclass. The executable itself, its client and its devices are beside them.
_FIELDS: dict[str, _Codec] = {
    "unordered_effects": _without("unordered effects", list),
    "ordered_effects": _without("ordered effects", list),
    "host_callbacks": _without("host callbacks", list),
    "keepalive": _without("objects to keep alive", list),
    "mut": _without("mutable arrays", lambda: None),
    "pgle_profiler": _without("a profiler", lambda: None),
    "auto_spmd_lowering": _without("automatic shardings", lambda: False),
    "input_avals": _each(encode_aval, decode_aval),
    "output_avals": _each(encode_aval, decode_aval),
    "input_shardings": _each(encode_sharding, decode_sharding),
    "output_shardings": _each(encode_sharding, decode_sharding),
    "xla_in_layouts": _each(_encode_layout, _decode_layout),
    "dispatch_in_layouts": _each(_encode_layout, _decode_layout),
    "xla_out_layouts": _each(_encode_layout, _decode_layout),
    "kept_var_idx": (lambda found: sorted(map(int, found)), lambda json, _: set(json)),
    "committed": _plain(bool),
    "name": _plain(str),
    "all_args_info": (lambda _: None, lambda *_: None),
}
_DEVICES = ("device_list", "device_assignment")  # in older versions of JAX, the second
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
    if parts is None or parts.keys() - {*_FIELDS, *_DEVICES, "xla_executable", "backend"}:
        raise Unsupported(f"{_OTHER_FIELDS}; pass portable=True")
    (devices,) = (parts[name] for name in _DEVICES if name in parts)
    json = {name: encode(parts[name]) for name, (encode, _) in _FIELDS.items() if name in parts}
    json["devices"] = [device.id for device in devices]
    return json, _executable_compat.serialize_executable(parts["backend"], parts["xla_executable"])


def decode_executable(
    json: Json,
    data: bytes,
    devices: Devices,
    constants: Sequence[Any],
    args_info: Any,
) -> Callable[[Any], Any]:
    """Loads the result of `encode_executable`. Returns what makes a ``jax.stages.Compiled`` of it, of the
    treedef of its result, which raises ValueError for one of another number of arrays.

    `devices` are those that it runs on in the place of those that it was compiled for; `constants`
    are the arrays that JAX passes before the arguments.

    Raises Unsupported if the version of JAX has other fields, KeyError if a device is missing, and
    any exception if the JSON is malformed.
    """
    on = [devices[id] for id in json["devices"]]
    moved = [device.id for device in on] != json["devices"]
    parts = {k: decode(json[k], devices) for k, (_, decode) in _FIELDS.items() if k in json}
    count = len(constants) + len(jax.tree_util.tree_leaves(args_info))
    if (
        not all(type(i) is int and 0 <= i < count for i in parts["kept_var_idx"])
        or len(parts["input_avals"]) != len(parts["kept_var_idx"])
        or not parts["kept_var_idx"].issuperset(range(len(constants)))
        or any(
            (x.shape, x.dtype) != (aval.shape, aval.dtype)
            for x, aval in zip(constants, parts["input_avals"], strict=False)
        )
    ):
        raise ValueError("not an executable of these arguments")
    placed = list(map(jax.device_put, constants, parts["input_shardings"]))
    make = _executable_compat.load_executable(data, on, moved, parts, placed, args_info)
    if make is None:
        raise Unsupported(_OTHER_FIELDS)

    def compiled(out_tree: Any) -> Any:
        if len(parts["output_avals"]) != out_tree.num_leaves:
            raise ValueError("the number of results")
        return make(out_tree)

    return compiled
