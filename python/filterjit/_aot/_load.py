"""Loading a compiled function from a file."""

import inspect
import os
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from .. import _core
from .._base import _jax_compat
from .._base._package import public
from .._call._options import registry_for
from . import _encode, _executable, _file
from ._compiled_options import CompiledOptions
from ._encode import Json, Unsupported
from ._prepared import PreparedCall, unbind
from ._save import NEEDS_FLATBUFFERS, export_module
from ._stages import CompiledDetails

_Parameter = inspect.Parameter


@public
def load(path: str | os.PathLike[str]) -> _core.Compiled:
    """Loads a compiled function that ``compiled.save`` wrote.

    The functions and classes that its static values name are looked up in the modules that the
    program has imported; nothing is imported. A portable file is compiled now. Only load files
    from people whose code you would run.

    Arguments:
        path: of the file.

    Returns:
        The compiled function. The arrays in the function itself are those that it had when it was
        saved.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if it was not written by ``compiled.save``, is damaged, or is for another
            machine, version of JAX or number of devices; or if a class or function that it names
            is missing or has changed.

    Examples:
        >>> compiled = filter_jit(lambda x: x + 1).lower(jnp.ones(2)).compile()
        >>> compiled.save("add.jit")
        >>> load("add.jit")(jnp.ones(2))
        Array([2., 2.], dtype=float32)
    """
    path = os.fsdecode(path)
    header, blobs = _file.read(path)
    devices = {device.id: device for device in jax.devices()}
    try:
        _check_machine(header, devices)
        return _load(header, blobs)
    except Unsupported as e:
        raise ValueError(f"`{path}` cannot be loaded: {e}.") from None
    except Exception as e:  # JAX, constructors and the checks raise anything for malformed parts
        raise _file.damaged(path, f"its contents are malformed ({type(e).__name__}: {e})") from e


def _check_machine(header: dict[str, Json], devices: dict[int, jax.Device]) -> None:
    wanted = header["devices"]
    portable = header["kind"] == "portable"
    if portable and len(wanted) == 1:  # runs on the default device
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
            f"it is an executable for {'; '.join(differ)}. An executable runs only on the kind "
            "of machine and with the version of JAX that compiled it; "
            "`save(..., portable=True)` saves a program that others can compile"
        )


def _count(devices: int) -> str:
    return f"{devices} device{'s' * (devices != 1)}"


def _load(header: dict[str, Json], blobs: list[bytes]) -> _core.Compiled:
    registry = registry_for(header["functions"])
    shardings = [_decode_sharding(header["kind"], one) for _, _, one in header["specs"]]
    own = [
        _decode_array(array, blob, sharding if _is_placed(sharding) else None)
        for array, blob, sharding in zip(header["own"], blobs[1:], shardings, strict=False)
    ]
    hoisted = header.get("constants", [])
    if len(own) != len(header["own"]) or len(blobs) != 1 + len(own) + len(hoisted):
        raise ValueError("the number of arrays")
    constants = [
        _decode_array(array, blob, None)
        for array, blob in zip(hoisted, blobs[1 + len(own) :], strict=True)
    ]

    array = np.zeros(())
    result = _encode.decode_tree(header["result"], array, registry.missing)
    output = _core.flatten(registry, result)[1]
    avals = [_executable.decode_aval(aval) for aval, _, _ in header["specs"]]
    donated = [bool(flag) for _, flag, _ in header["specs"]]
    if header["kind"] == "executable":
        infos = tuple(map(jax.stages.ArgInfo, avals, donated))
        leaves = max(1, output.num_leaves)
        tree = jax.tree_util.tree_structure(_core.output_unflatten(0, (0,) * leaves))
        stage = _executable.decode_executable(
            header["program"], blobs[0], constants, (infos, {}), tree
        )
    else:
        stage = _compile_portable(blobs[0], avals, shardings, donated)
    parameters = [
        _Parameter(name, _Parameter.__dict__[kind], default=None if optional else _Parameter.empty)
        for name, kind, optional in header["signature"]
    ]
    name = header["name"]
    signature = inspect.Signature(parameters)
    options = CompiledOptions(registry, name, signature, stage)
    # The jitted function itself is not in the file: a tuple with its arrays stands for it.
    function = _core.flatten(registry, (f"loaded {name}", *own))[1]
    f = options.make_filter_jit(function, tuple(own))
    arguments = _encode.decode_tree(header["arguments"], array, registry)
    args, kwargs = unbind(f._parts()[0].signature, list(arguments.values()), registry)
    structure = f._peek(*args, **kwargs)[1]
    variant = options.insert_variant(f, structure, (output,))
    if variant.function.num_leaves + structure.num_leaves != len(avals):
        raise ValueError("the number of arrays")
    specs = tuple(map(_jax_compat.spec_of, avals, shardings))
    prepared = PreparedCall(name, signature, f, variant, specs, header["functions"])
    return _core.Compiled(f, CompiledDetails(stage, prepared))


def _decode_array(header: Json, blob: bytes, sharding: Any) -> jax.Array:
    shape, dtype, key = header
    values = np.frombuffer(blob, _executable.decode_dtype(dtype)).reshape(shape)
    array = jax.numpy.asarray(values)
    if key is not None:
        array = jax.random.wrap_key_data(array, impl=_executable.key_impl(key))
    return array if sharding is None else jax.device_put(array, sharding)


def _decode_sharding(kind: str, json: Json) -> Any:
    """Returns None for a portable program that runs on the default device."""
    single = json is not None and json[0] == "single" and json[2] is None
    return None if kind == "portable" and single else _executable.decode_sharding(json)


def _is_placed(sharding: Any) -> bool:
    return sharding is not None and len(sharding.device_set) > 1


def _compile_portable(
    blob: bytes, avals: Sequence[Any], shardings: Sequence[Any], donated: Sequence[bool]
) -> Any:
    try:
        exported = export_module().deserialize(bytearray(blob))
    except ImportError as e:
        raise Unsupported(NEEDS_FLATBUFFERS) from e
    numbers = tuple(i for i, flag in enumerate(donated) if flag)
    specs = [
        _jax_compat.spec_of(aval, sharding if _is_placed(sharding) else None)
        for aval, sharding in zip(avals, shardings, strict=True)
    ]
    return jax.jit(exported.call, donate_argnums=numbers).lower(*specs).compile()
