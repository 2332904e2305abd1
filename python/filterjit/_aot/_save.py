"""Compiled functions in files.

A file is a head of fixed size, a header of JSON, and blobs of bytes:

    8 bytes   the magic
    2 bytes   the version of this format, little-endian
    8 bytes   the length of the header, little-endian
    32 bytes  SHA-256 of the header and the 18 bytes above
    header    what it is, structures and statics (`_encode`), the blobs' lengths and SHA-256
    blobs     the program, then the arrays in the function itself

Nothing in it is a pickle, and reading one imports nothing. The digests tell of damage, not of who
wrote it: a program in a file is a program, and does what it does when it is called.
"""

import contextlib
import dataclasses
import errno
import hashlib
import inspect
import json
import os
import secrets
import stat
import struct
import sys
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from .. import __version__, _core
from .._base import _jax_compat
from .._base._errors import format_path
from .._call import _options
from .._observe import _nodes, _records
from .._observe._records import Aval
from . import _encode, _executable, _stages
from ._encode import Json, Unsupported

_MAGIC = b"\x89FJIT\r\n\x1a"
_FORMAT = 1
_HEAD = struct.Struct("<8sHQ32s")
_FLATBUFFERS = "portable files need `flatbuffers`: pip install 'filterjit[portable]'"
_Parameter = inspect.Parameter
_DAMAGE = (
    AssertionError, AttributeError, IndexError, KeyError, LookupError, MemoryError, OverflowError,
    RecursionError, TypeError, ValueError, struct.error,
)  # fmt: skip


# ---- files ----


@contextlib.contextmanager
def _replacing(path: str) -> Any:
    """A file to be written, which takes the place of `path` when all of it is on the disk."""
    path = os.path.realpath(path)  # a link stays one
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    folder = os.path.dirname(path)
    temporary = os.path.join(folder, f".filterjit-{secrets.token_hex(8)}")
    try:
        with open(temporary, "xb") as file:
            with contextlib.suppress(FileNotFoundError):
                os.chmod(temporary, stat.S_IMODE(os.stat(path).st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    with contextlib.suppress(OSError):  # the folder's entry too, where folders can be opened
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _write(path: str, header: dict[str, Json], blobs: Sequence[bytes]) -> None:
    header["blobs"] = [[len(blob), hashlib.sha256(blob).hexdigest()] for blob in blobs]
    text = json.dumps(header, separators=(",", ":")).encode()
    start = _MAGIC + struct.pack("<HQ", _FORMAT, len(text))
    with _replacing(path) as file:
        file.write(start + hashlib.sha256(start + text).digest() + text)
        for blob in blobs:
            file.write(blob)


def _damaged(path: str, what: str) -> ValueError:
    return ValueError(f"`{path}` is damaged: {what}. Write it again with `compiled.save`.")


def _read_header(file: Any, path: str) -> dict[str, Json]:
    head = file.read(_HEAD.size)
    if head[:8] != _MAGIC:
        raise ValueError(f"`{path}` was not written by filterjit's `compiled.save`.")
    if len(head) < _HEAD.size:
        raise _damaged(path, "it ends in its head")
    _, version, length, digest = _HEAD.unpack(head)
    if version != _FORMAT:
        raise ValueError(
            f"`{path}` is of format {version}; filterjit {__version__} reads format {_FORMAT}."
        )
    if length > os.fstat(file.fileno()).st_size:
        raise _damaged(path, "it ends in its header")
    text = file.read(length)
    if hashlib.sha256(head[:18] + text).digest() != digest:
        raise _damaged(path, "the checksum of its header is wrong")
    try:
        header = json.loads(text)
        for key, kind in _SCHEMA.items():
            if type(header[key]) is not kind:
                raise TypeError(key)
        if header["kind"] not in ("executable", "portable"):
            raise ValueError("kind")
        for length, digest in header["blobs"]:
            if type(length) is not int or length < 0 or type(digest) is not str:
                raise TypeError("blobs")
    except _DAMAGE as e:
        raise _damaged(path, f"its header is malformed ({type(e).__name__}: {e})") from None
    return dict(header)


_SCHEMA: dict[str, type] = {
    "kind": str,
    "name": str,
    "filterjit": str,
    "python": str,
    "machine": dict,
    "platforms": list,
    "devices": list,
    "words": list,
    "functions": str,
    "signature": list,
    "arguments": list,
    "result": list,
    "specs": list,
    "own": list,
    "program": dict,
    "blobs": list,
}


def _read_blobs(file: Any, path: str, header: dict[str, Json]) -> list[bytes]:
    blobs = []
    for length, digest in header["blobs"]:
        blob = file.read(length) if length <= os.fstat(file.fileno()).st_size else b""
        if len(blob) != length:
            raise _damaged(path, "it is too short")
        if hashlib.sha256(blob).hexdigest() != digest:
            raise _damaged(path, "a checksum is wrong")
        blobs.append(blob)
    if file.read(1):
        raise _damaged(path, "it is too long")
    return blobs


# ---- what a file is ----


@dataclasses.dataclass(frozen=True)
class SavedInfo:
    """What a file says that it is; nothing of it is loaded, and nothing of it checked.

    Attributes:
        name: of the function.
        kind: ``"executable"``, or ``"portable"`` for StableHLO.
        filterjit, python: the versions that wrote it.
        machine: what an executable depends on: JAX and jaxlib, platform, device, processor.
        platforms: that it runs on.
        devices: how many devices it runs on.
        arguments: pairs of a path and what it was compiled for, arrays and statics.
        nbytes: of the file.
    """

    name: str
    kind: str
    filterjit: str
    python: str
    machine: dict[str, str]
    platforms: tuple[str, ...]
    devices: int
    arguments: tuple[tuple[str, str], ...]
    nbytes: int

    def __str__(self) -> str:
        lines = [
            f"{self.name}: {self.kind} for {', '.join(self.platforms)}, {self.devices} "
            f"device{'s' * (self.devices != 1)}, {self.nbytes:,} bytes",
            f"written by filterjit {self.filterjit} on Python {self.python}",
            *(f"  {key}: {value}" for key, value in self.machine.items()),
            "arguments:",
            *(f"  {path}: {words}" for path, words in self.arguments),
        ]
        return "\n".join(lines)


def saved_info(path: str | os.PathLike[str]) -> SavedInfo:
    """What a file of ``compiled.save`` is, without loading it.

    Raises:
        OSError: where it cannot be read.
        ValueError: where it is not such a file, or its header is damaged.
    """
    path = os.fsdecode(path)
    with open(path, "rb") as file:
        header = _read_header(file, path)
        size = os.fstat(file.fileno()).st_size
    try:
        return SavedInfo(
            header["name"],
            header["kind"],
            header["filterjit"],
            header["python"],
            {str(key): str(value) for key, value in header["machine"].items()},
            tuple(map(str, header["platforms"])),
            len(header["devices"]),
            tuple((str(where), str(words)) for where, words in header["words"]),
            size,
        )
    except _DAMAGE as e:
        raise _damaged(path, f"its header is malformed ({e})") from None


def _words(structure: _core.Structure, specs: Sequence[Any]) -> list[list[str]]:
    found: list[list[str]] = []
    avals = [Aval.of(x) for x in specs]
    for node, path in _nodes.walk(structure):
        if not node.children and node.kind != "arguments":
            found.append([format_path(path), node.describe(avals)])
    return found


# ---- saving ----


def save(
    details: _stages.CompiledDetails,
    path: str | os.PathLike[str],
    portable: bool,
    platforms: Sequence[str] | None,
) -> None:
    """What `CompiledDetails.save` says."""
    path = os.fsdecode(path)
    if platforms is not None and not portable:
        raise ValueError("`save(..., platforms=...)` is for portable files: pass portable=True.")
    made, stage = details.made, details.stage
    options = made.cache.options
    registry = options.registry
    own = made.cache.function.num_leaves
    infos = jax.tree_util.tree_leaves(stage.args_info)
    shardings = jax.tree_util.tree_leaves(stage.input_shardings, is_leaf=lambda x: x is None)
    trace = stage.out_tree.node_data()[1]
    header: dict[str, Json] = {
        "kind": "portable" if portable else "executable",
        "name": made.name,
        "filterjit": __version__,
        "python": sys.version.split()[0],
        "functions": options.functions,
        "signature": [
            [p.name, p.kind.name, p.default is not _Parameter.empty]
            for p in made.signature.parameters.values()
        ],
        "arguments": _encode.encode_structure(registry, made.variant.structure, "the arguments"),
        "result": _encode.encode_structure(registry, made.variant.outputs[trace], "the result"),
        "words": _words(made.variant.structure, made.arrays[own:]),
    }
    try:
        header["specs"] = [
            [_executable.encode_aval(info), info.donated, _executable.encode_sharding(sharding)]
            for info, sharding in zip(infos, shardings, strict=True)
        ]
        arrays = [_encode_array(x) for x in made.own]
        if isinstance(options, _stages.Fixed):
            raise ValueError(f"`{made.name}` was loaded from a file; copy that.")
        if portable:
            program, blob, header["platforms"] = _export(made, platforms)
        elif _records.record_of(made.variant).spent.from_disk:
            raise Unsupported(
                "JAX took it out of its persistent compilation cache, and XLA cannot serialize "
                "such an executable again. Set `jax_enable_compilation_cache` to False first, or "
                "pass portable=True"
            )
        else:
            program, blob = _executable.encode_executable(stage)
            header["platforms"] = [jax.devices()[0].platform]
    except Unsupported as e:
        raise ValueError(f"`{made.name}` cannot be saved: {e}.") from None
    header["program"] = program
    header["own"] = [array for array, _ in arrays]
    devices = _devices(stage)
    header["devices"] = [device.id for device in devices]
    header["machine"] = _executable.machine(devices[0])
    header["platforms"] = list(header["platforms"])
    _write(path, header, [blob, *(data for _, data in arrays)])


def _devices(stage: Any) -> list[jax.Device]:
    shardings = jax.tree_util.tree_leaves((stage.input_shardings, stage.output_shardings))
    found = {device.id: device for sharding in shardings for device in sharding.device_set}
    return [found[id] for id in sorted(found)]


def _encode_array(x: Any) -> tuple[Json, bytes]:
    if isinstance(x, jax.ShapeDtypeStruct):
        raise Unsupported(f"the function holds no array, but {x}, which has no values")
    if isinstance(x, jax.Array) and jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
        (shape, dtype, _), blob = _encode_array(jax.random.key_data(x))
        return [shape, dtype, _executable.encode_dtype(x.dtype)], blob
    if isinstance(x, jax.Array) and not x.is_fully_addressable:
        raise Unsupported("an array in the function itself is on other machines too")
    values = np.asarray(x)
    return [list(values.shape), _executable.encode_dtype(values.dtype), None], values.tobytes()


def _decode_array(header: Json, blob: bytes, sharding: Any) -> jax.Array:
    shape, dtype, key = header
    values = np.frombuffer(blob, _executable.decode_dtype(dtype)).reshape(shape)
    array = jax.numpy.asarray(values)
    if key is not None:
        array = jax.random.wrap_key_data(array, impl=_executable.key_impl(key))
    return array if sharding is None else jax.device_put(array, sharding)


def _export_module() -> Any:
    """``jax.export``, which takes long to import, and is told of Output: its trace is then the
    first."""
    from jax import export

    with contextlib.suppress(ValueError):  # registered already
        export.register_pytree_node_serialization(
            _core.Output,
            serialized_name="filterjit.Output",
            serialize_auxdata=lambda trace: b"",
            deserialize_auxdata=lambda data: 0,
        )
    return export


def _export(
    made: _stages.Made, platforms: Sequence[str] | None
) -> tuple[Json, bytes, Sequence[str]]:
    try:
        with made.working():
            exported = _export_module().export(made.variant.call, platforms=platforms)(*made.arrays)
            return {}, bytes(exported.serialize()), exported.platforms
    except ImportError as e:
        raise Unsupported(_FLATBUFFERS) from e
    except (ValueError, TypeError, KeyError, NotImplementedError) as e:
        raise Unsupported(f"`jax.export` cannot: {e}") from e


# ---- loading ----


def load(path: str | os.PathLike[str]) -> _core.Compiled:
    """A compiled function that ``compiled.save`` wrote, to be called as it was.

    The functions and classes that its statics name are looked for in the modules that the program
    has imported. A portable one is compiled now.

    Arguments:
        path: of the file.

    Returns:
        the compiled function. The arrays in the function itself are those of then.

    Raises:
        OSError: where it cannot be read.
        ValueError: where it is not such a file, is damaged, or is for another machine, version
            of JAX or number of devices; and where a class or function that it names is not there
            or is not what it was.
    """
    path = os.fsdecode(path)
    with open(path, "rb") as file:
        header = _read_header(file, path)
        blobs = _read_blobs(file, path, header)
    devices = {device.id: device for device in jax.devices()}
    try:
        _check_machine(header, devices)
        return _load(header, blobs)
    except Unsupported as e:
        raise ValueError(f"`{path}` cannot be loaded: {e}.") from None
    except Exception as e:  # of whoever was handed a part of it
        raise _damaged(path, f"it holds what was not expected ({type(e).__name__}: {e})") from e


def _check_machine(header: dict[str, Json], devices: dict[int, jax.Device]) -> None:
    wanted = header["devices"]
    portable = header["kind"] == "portable"
    if portable and len(wanted) == 1:  # it runs on the default one
        wanted = list(devices)[:1]
    if not wanted or not devices.keys() >= set(wanted):
        raise Unsupported(
            f"it is a program for {_count(len(wanted))}, numbered {wanted}; here are "
            f"{_count(len(devices))}: {sorted(devices)}"
        )
    device = devices[wanted[0]]
    if portable:
        platforms = {device.platform, {"gpu": "cuda"}.get(device.platform, device.platform)}
        if not platforms & set(map(str, header["platforms"])):
            raise Unsupported(
                f"it is a program for {', '.join(map(str, header['platforms']))}; this is "
                f"{device.platform}. Name it in `save(..., portable=True, platforms=...)`"
            )
        return
    here = _executable.machine(device)
    differ = [
        f"{key} {header['machine'].get(key)!r} (here: {value!r})"
        for key, value in here.items()
        if header["machine"].get(key) != value
    ]
    if differ:
        raise Unsupported(
            f"it is an executable for {'; '.join(differ)}. Executables fit the machine and "
            "the version of JAX that made them; `save(..., portable=True)` writes others"
        )


def _count(devices: int) -> str:
    return f"{devices} device{'s' * (devices != 1)}"


def _load(header: dict[str, Json], blobs: list[bytes]) -> _core.Compiled:
    options = _options.Options("none", {}, functions=header["functions"])
    registry = options.registry
    shardings = [_decode_sharding(header["kind"], one) for _, _, one in header["specs"]]
    own = [
        _decode_array(array, blob, sharding if _is_placed(sharding) else None)
        for array, blob, sharding in zip(header["own"], blobs[1:], shardings, strict=False)
    ]
    if len(own) != len(header["own"]) or len(blobs) != len(own) + 1:
        raise ValueError("the number of arrays")

    array = np.zeros(())
    result = _encode.decode_tree(header["result"], array, registry.missing)
    output = _core.flatten(registry, result)[1]
    avals = [_executable.decode_aval(aval) for aval, _, _ in header["specs"]]
    donated = [bool(flag) for _, flag, _ in header["specs"]]
    if header["kind"] == "executable":
        infos = tuple(map(jax.stages.ArgInfo, avals, donated))
        leaves = max(1, output.num_leaves)
        tree = jax.tree_util.tree_structure(_core.output_unflatten(0, (0,) * leaves))
        stage = _executable.decode_executable(header["program"], blobs[0], (infos, {}), tree)
    else:
        stage = _compile_portable(blobs[0], avals, shardings, donated)
    parameters = [
        _Parameter(name, _Parameter.__dict__[kind], default=None if optional else _Parameter.empty)
        for name, kind, optional in header["signature"]
    ]
    name = header["name"]
    signature = inspect.Signature(parameters)
    fixed = _stages.Fixed(options, name, signature, stage)
    function = _core.flatten(registry, (f"loaded {name}", *own))[1]
    f = fixed.function(function, tuple(own))
    slots = _encode.decode_tree(header["arguments"], array, registry)
    args, kwargs = _stages.arguments_of(f._parts()[0].signature, list(slots.values()), registry)
    structure = f._peek(*args, **kwargs)[1]
    variant = fixed.insert_compiled(f, structure, (output,))
    if variant.function.num_leaves + structure.num_leaves != len(avals):
        raise ValueError("the number of arrays")
    made = _stages.Made(
        name, signature, f, variant, tuple(map(_jax_compat.spec_of, avals, shardings))
    )
    return _core.Compiled(f, _stages.CompiledDetails(stage, made))


def _decode_sharding(kind: str, json: Json) -> Any:
    """None for a portable program on the default device."""
    single = json is not None and json[0] == "single" and json[2] is None
    return None if kind == "portable" and single else _executable.decode_sharding(json)


def _is_placed(sharding: Any) -> bool:
    return sharding is not None and len(sharding.device_set) > 1


def _compile_portable(
    blob: bytes, avals: Sequence[Any], shardings: Sequence[Any], donated: Sequence[bool]
) -> Any:
    try:
        exported = _export_module().deserialize(bytearray(blob))
    except ImportError as e:
        raise Unsupported(_FLATBUFFERS) from e
    numbers = tuple(i for i, flag in enumerate(donated) if flag)
    specs = [
        _jax_compat.spec_of(aval, sharding if _is_placed(sharding) else None)
        for aval, sharding in zip(avals, shardings, strict=True)
    ]
    return jax.jit(exported.call, donate_argnums=numbers).lower(*specs).compile()
