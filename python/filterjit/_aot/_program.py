"""What a file holds of a program: one encoder for the files of `save` and for a program cache.

A program is a ``jax.stages.Compiled`` and the structure of its result. The result may hold statics
of the call, such as a local function in a model that is returned: a program cache refers to them by
their number among the statics of the call.
"""

import platform
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from .. import __version__, _core
from .._base._errors import format_path
from .._compat import _executable_compat, _jax_compat
from .._observe._records import Aval
from .._observe._wording import describe_node
from .._trees._nodes import walk
from . import _encode, _executable
from ._encode import Json, Unsupported
from ._executable import Devices

Blob = tuple[Json, bytes]


def encode(
    name: str, stage: Any, result: Json, exported: Any = None
) -> tuple[dict[str, Json], list[bytes]]:
    """Returns the header of a file and its blobs. Raises Unsupported.

    Arguments:
        name: of the function.
        stage: the ``jax.stages.Compiled``, or the ``jax.stages.Lowered`` of a portable program.
        result: the structure of the result, as `_encode.encode_structure` returns it.
        exported: the ``jax.export.Exported`` of a portable program and its bytes, or None.
    """
    shardings, devices = placement(stage)
    constants: list[Blob] = []
    program: Json = {}
    if exported is None:
        program, blob = _executable.encode_executable(stage)
        constants = [encode_array(x) for x in _executable_compat.executable_constants(stage)]
        platforms = [jax.devices()[0].platform]
    else:
        platforms, blob = list(exported[0].platforms), exported[1]
    infos = jax.tree_util.tree_leaves(stage.args_info)
    header: dict[str, Json] = {
        "info": {  # the fields of `SavedInfo` that each program has
            "name": name,
            "kind": "executable" if exported is None else "portable",
            "filterjit": __version__,
            "python": platform.python_version(),
            "machine": _executable.machine(devices[0]),
            "platforms": platforms,
            "devices": len(devices),
            "arguments": [],
            "results": [],
        },
        "devices": [device.id for device in devices],
        "result": result,
        "specs": [  # of all arrays, those in the function itself first
            [_executable.encode_aval(info), info.donated, _executable.encode_sharding(sharding)]
            for info, sharding in zip(infos, shardings, strict=True)
        ],
        "program": program,
        "constants": [array for array, _ in constants],
    }
    processes = [device.process_index for device in devices]
    if len(set(processes)) > 1:
        header["info"]["process"] = [jax.process_index(), jax.process_count()]
        header["processes"] = processes  # of each device
    return header, [blob, *(data for _, data in constants)]


def decode(
    header: dict[str, Json], blobs: Sequence[bytes], devices: Devices
) -> Callable[[Any], jax.stages.Compiled]:
    """Loads the executable of a file. Returns what makes the ``jax.stages.Compiled``, of the treedef of
    the Output of a trace.

    Arguments:
        header, blobs: as `encode` has returned them; further blobs do not matter.
        devices: what it runs on.

    Raises Unsupported, or anything for what is not as `encode` has written it.
    """
    with jax.enable_x64(True), _jax_compat.no_mesh():
        arrays = header["constants"]
        constants = [
            decode_array(array, blob, None, None)
            for array, blob in zip(arrays, blobs[1 : 1 + len(arrays)], strict=True)
        ]
        infos = tuple(
            jax.stages.ArgInfo(_executable.decode_aval(aval, devices), bool(donated))
            for aval, donated, _ in header["specs"]
        )
        return _executable.decode_executable(
            header["program"], blobs[0], devices, constants, (infos, {})
        )


def described(structure: _core.Structure, arrays: Sequence[Any]) -> list[list[str]]:
    """Returns pairs of a path and a description of the array or static value, for `SavedInfo`."""
    found: list[list[str]] = []
    avals = list(map(Aval.of, arrays))
    for node, path in walk(structure):
        if not node.children and node.kind != "arguments":
            found.append([format_path(path), describe_node(node, avals)])
    return found


def placement(stage: Any) -> tuple[list[Any], list[jax.Device]]:
    """Returns the sharding of each argument, and the devices of the program: in the order of its
    mesh, or else by their ids. A lowered program runs on the default device."""
    if isinstance(stage, jax.stages.Lowered):
        return [None] * len(jax.tree_util.tree_leaves(stage.args_info)), jax.local_devices()[:1]
    inputs = _executable.input_shardings(stage)
    shardings = jax.tree_util.tree_leaves((inputs, stage.output_shardings))
    found = {device.id: device for sharding in shardings for device in sharding.device_set}
    for sharding in shardings:
        mesh = getattr(sharding, "mesh", None)
        if isinstance(mesh, jax.sharding.Mesh) and mesh.size == len(found):
            return inputs, list(mesh.devices.flat)
    return inputs, [found[id] for id in sorted(found)]


# ---- arrays ----


def encode_array(x: Any) -> Blob:
    """Returns the shape and the dtypes of an array, and its bytes. Raises Unsupported."""
    if isinstance(x, jax.ShapeDtypeStruct):
        raise Unsupported(f"the function holds {x}, which has no values, in the place of an array")
    if isinstance(x, jax.Array) and jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
        (shape, dtype, _), blob = encode_array(jax.random.key_data(x))
        return [shape, dtype, _encode.encode_dtype(x.dtype)], blob
    if isinstance(x, jax.Array) and not x.is_fully_addressable:
        raise Unsupported("an array in the function itself is partly on other machines")
    values = np.asarray(x)
    return [list(values.shape), _encode.encode_dtype(values.dtype), None], values.tobytes()


def decode_array(header: Json, blob: bytes, sharding: Any, taken: Any) -> jax.Array:
    """Returns an array of a file, with the dtype that the program takes, if that is given."""
    shape, dtype, key = header
    values = np.frombuffer(blob, _encode.decode_dtype(dtype)).reshape(shape)
    array = jax.numpy.asarray(values)
    if key is not None:
        array = jax.random.wrap_key_data(array, impl=_encode.KEYS[key])
    elif taken is not None:
        array = array.astype(taken)
    return array if sharding is None else jax.device_put(array, sharding)
