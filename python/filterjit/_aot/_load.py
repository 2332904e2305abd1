"""Loads compiled functions from files."""

import contextlib
import inspect
import os
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import jax

from .. import _core
from .._base._checks import as_path
from .._base._package import public
from .._call._miss import registry_for
from .._call._selection import ArgumentSelection, TracedNumbers
from .._call._settings import Settings
from .._compat import _jax_compat
from .._observe._forbid import ForbiddenCompileError
from .._observe._wording import count
from . import _describe, _encode, _file, _program
from ._compiled_calls import CompiledHooks
from ._encode import Json, Unsupported
from ._prepared import PreparedCall, unbind
from ._save import NEEDS_FLATBUFFERS, export_module
from ._stages import Compiled

_Parameter = inspect.Parameter


@public
def load(
    path: str | os.PathLike[str],
    *,
    devices: jax.sharding.Mesh | Sequence[jax.Device] | None = None,
) -> Compiled:
    """Loads a compiled function that ``compiled.save`` or ``lowered.save`` wrote.

    Only load files from people whose code you would run.

    Loading imports nothing: it looks up the file's classes and functions in modules that the
    program has imported. A portable file is compiled when it is loaded, or if it has symbolic
    dimensions, when it is called with new shapes.

    Arguments:
        path: the path of the file. If the program runs on the devices of several processes, each
            process saves and loads its own file.
        devices: the devices to run on, or a mesh of them: as many as the program was compiled for,
            in the same order. The default is the devices with the same ids.

    Returns:
        A `Compiled`. The function itself contains the arrays from the time of saving.

    Raises:
        OSError: if the file can't be read.
        ValueError: if ``save`` didn't write the file; if it is damaged, or is for a different
            machine, version of JAX, number of devices or process; or if a
            class or function is missing, or a function's code, defaults or closure have changed.
        TypeError: if `devices` aren't devices.

    Examples:
        >>> compiled = filter_jit(lambda x: x + 1).lower(jnp.ones(2)).compile()
        >>> compiled.save("add.jit")
        >>> load("add.jit")(jnp.ones(2))
        Array([2., 2.], dtype=float32)
    """
    path = as_path("load(path)", path)
    given = devices.devices.flat if isinstance(devices, jax.sharding.Mesh) else devices
    try:
        given = None if given is None else list(given)
    except TypeError:
        given = [devices]  # refused below
    for device in given or ():
        if not isinstance(device, jax.Device):
            raise TypeError(f"`load(..., devices=...)` must be devices or a mesh, not {devices!r}.")
    header, blobs = _file.read(path)
    try:
        with _malformed(path):
            on = _devices_for(header, given)
            _check_machine(header["info"], on[0])
            for names, digests in zip(
                (header["arguments"][0], header["result"][0]), header["functions of"], strict=True
            ):
                _describe.check_digests(names, digests)
            # Otherwise JAX would truncate 64-bit arrays, and compile for the current mesh.
            with _jax_compat.enable_x64(True), _jax_compat.no_mesh():
                return _decode(header, blobs, on, given is not None)
    except Unsupported as e:
        raise ValueError(f"`{path}` cannot be loaded: {e}.") from None


@contextlib.contextmanager
def _malformed(path: str) -> Iterator[None]:
    """Turns unexpected errors, of JAX or constructors, into one about a malformed file."""
    try:
        yield
    except (Unsupported, ForbiddenCompileError):
        raise
    except Exception as e:
        raise _file.malformed(path, e) from e


def _is_portable(header: dict[str, Json]) -> bool:
    return bool(header["info"]["kind"] == "portable")


def _devices_for(header: dict[str, Json], given: list[jax.Device] | None) -> list[jax.Device]:
    """Returns the devices to run on, in the order of the ones the program was compiled for. Raises
    Unsupported if they aren't available, or if the file belongs to a different process."""
    wanted, here = header["devices"], [jax.process_index(), jax.process_count()]
    process = header["info"].get("process", here)
    if process != here:
        raise Unsupported(
            f"it is the file of process {process[0]} of {process[1]}, and this is process "
            f"{here[0]} of {here[1]}: each process loads the file that it has saved"
        )
    if given is None and _is_portable(header) and len(wanted) == 1:
        return [jax.local_devices()[0]]  # runs on the default device
    by_id = {device.id: device for device in given or jax.devices()}
    what = f"it is a program for {count(len(wanted), 'device')}, numbered {wanted}"
    if given is not None and not len(by_id) == len(given) == len(wanted):
        ids = [device.id for device in given]
        raise Unsupported(f"{what}; `devices` are {count(len(ids), 'device')}: {ids}")
    if given is None and not (wanted and by_id.keys() >= set(wanted)):
        raise Unsupported(
            f"{what}; here are {count(len(by_id), 'device')}: {sorted(by_id)}. Pass `devices=` to run "
            "it on others"
        )
    found = given or [by_id[id] for id in wanted]
    belong = [device.process_index for device in found]
    owners = header.get("processes", here[:1] * len(found))
    if belong != owners:
        raise Unsupported(
            f"{what}. These are to belong to the processes {owners}, and belong to {belong}. Pass "
            "`devices=` to run it on others"
        )
    return found


def _check_machine(info: dict[str, Json], device: jax.Device) -> None:
    if info["kind"] == "portable":
        platforms = {device.platform, {"gpu": "cuda"}.get(device.platform, device.platform)}
        if platforms.isdisjoint(map(str, info["platforms"])):
            raise Unsupported(
                f"it is a program for {', '.join(map(str, info['platforms']))}; this is "
                f"{device.platform}. Name it in `save(..., portable=True, platforms=...)`"
            )
        return
    saved, here = info["machine"], _program.machine(device)
    differ = [f"{k} {saved.get(k)!r} (here: {x!r})" for k, x in here.items() if saved.get(k) != x]
    if differ:
        raise Unsupported(
            f"it is an executable for {'; '.join(differ)}. An executable runs only on the kind "
            "of machine and with the version of JAX that compiled it; "
            "`save(..., portable=True)` saves a program that others can compile"
        )


def _decode(
    header: dict[str, Json],
    blobs: list[bytes],
    devices: list[jax.Device],
    placed: bool,
) -> Compiled:
    """Returns the function of a file. `placed` is True if the user chose `devices`."""
    specs = _encode.Coder(devices).decode(header["specs"])
    settings = Settings(
        functions=header["functions"],
        traced=TracedNumbers.of(header["traced"]),
        numbers_traced=bool(header["numbers traced"]),
        static=ArgumentSelection(*map(frozenset, header["static"])),
    )
    registry = registry_for(settings)
    shardings = [sharding for *_, sharding in specs]
    if _is_portable(header) and not placed:
        shardings = [None if _is_default(one) else one for one in shardings]
    put = [s if s is not None and (placed or len(s.device_set) > 1) else None for s in shardings]
    dtypes = [_encode.decode_dtype(dtype) for _, dtype, _, _ in specs]
    own_arrays = zip(header["own"], blobs[1 + len(header["constants"]) :], strict=True)
    own = [  # a NumPy array might have had 64 bits, while the program takes 32
        _program.decode_array(*array, sharding, dtype)
        for array, sharding, dtype in zip(own_arrays, put, dtypes, strict=False)
    ]
    output = _core.flatten(registry, _encode.decode_tree(header["result"]))[1]
    jitted = None
    if _is_portable(header):
        donated = [bool(flag) for _, _, flag, _ in specs]
        avals, jitted, stage = _lower_portable(blobs[0], put, donated)
        if all(isinstance(n, int) for aval in avals for n in aval.shape):
            jitted, stage = None, stage.compile()
    else:
        leaves = max(1, output.num_leaves)
        tree = jax.tree_util.tree_structure(_core.output_unflatten(0, (0,) * leaves))
        stage = _program.decode(header, blobs, devices)(tree)
        avals = jax.tree_util.tree_leaves(stage.args_info)
    parameters = [
        _Parameter(name, _Parameter.__dict__[kind], default=None if optional else _Parameter.empty)
        for name, kind, optional in header["signature"]
    ]
    name = header["info"]["name"]
    signature = inspect.Signature(parameters)
    hooks = CompiledHooks(settings, name, signature, stage)
    # The file doesn't have the jitted function. A tuple with its arrays replaces it.
    function = _core.flatten(registry, (f"loaded {name}", *own))[1]
    f = hooks.make_filter_jit(function, tuple(own), f"{name} (loaded)")
    arguments = _encode.decode_tree(header["arguments"]).values()
    args, kwargs = unbind(f._parts()[0].signature, list(arguments), registry.missing)
    structure = f._find(*args, **kwargs)[1]
    variant = hooks.insert_variant(f, structure, (output,), jitted)
    if jitted is not None:
        cache, found = weakref.ref(f._parts()[0]), weakref.ref(variant)
        jitted.__wrapped__.__dict__["observed"] = lambda: (cache(), found())
    if variant.function.num_leaves + structure.num_leaves != len(avals):
        raise ValueError("the number of arrays")
    arrays = tuple(map(_jax_compat.spec_of, avals, shardings))
    return Compiled(f, stage, PreparedCall(name, signature, f, variant, arrays, settings))


def _is_default(sharding: Any) -> bool:
    """True if a sharding means a single device that any device can replace."""
    single = isinstance(sharding, jax.sharding.SingleDeviceSharding)
    return single and _encode.memory_of(sharding) is None


def _lower_portable(
    blob: bytes, shardings: Sequence[Any], donated: Sequence[bool]
) -> tuple[list[Any], Any, Any]:
    """Returns a portable program's avals, its ``jax.jit``, and its lowered program."""
    try:
        exported = export_module().deserialize(bytearray(blob))
    except ImportError as e:
        raise Unsupported(NEEDS_FLATBUFFERS) from e
    if (
        "cpu" in exported.platforms
    ):  # JAX 0.9 doesn't register these; all other targets are unportable
        _program.register(["lapack_"])
    numbers = tuple(i for i, flag in enumerate(donated) if flag)
    if len(exported.in_avals) != len(shardings):
        raise ValueError("the number of arrays")
    specs = map(_jax_compat.spec_of, exported.in_avals, shardings)

    def call(*arrays: Any) -> Any:
        return exported.call(*arrays)

    jitted = _jax_compat.jit(call, donate_argnums=numbers)
    try:
        return list(exported.in_avals), jitted, jitted.lower(*specs)
    except ValueError as e:
        raise Unsupported(f"JAX cannot call it: {e}") from e
