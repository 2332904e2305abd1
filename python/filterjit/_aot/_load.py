"""Loads the functions in files."""

import inspect
import itertools
import os
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, final

import jax

from .. import _core
from .._base._checks import as_path
from .._base._generic import _P, _T
from .._base._package import public
from .._call import _direct, _running
from .._call._miss import registry_for
from .._call._selection import ArgumentSelection, TracedNumbers
from .._call._settings import Settings
from .._call._signature import unbind
from .._compat import _jax_compat
from .._observe import _report
from .._observe._forbid import ForbiddenCompileError
from .._observe._wording import count
from .._trees import _codes, _digests
from .._trees._codes import Json, Unsupported
from . import _file, _program
from ._compiled_calls import CompiledHooks, LoadedCall, Program
from ._save import NEEDS_FLATBUFFERS, export_module

if TYPE_CHECKING:
    from .._observe._report_output import Report

_Parameter = inspect.Parameter


@final
class Loaded(_core.CallProxy[_P, _T]):
    """A function from a file, returned by `filterjit.load`. It runs the file's signatures.

    A call raises `MismatchError` for arguments of no signature. The message names the argument.

    Examples:
        >>> f = filter_jit(lambda x, n: x * n)
        >>> y = f(jnp.ones(2), 3)
        >>> f.save("times.jit")
        1
        >>> loaded = filterjit.load("times.jit")
        >>> loaded(jnp.ones(2), 3)
        Array([3., 3.], dtype=float32)
        >>> loaded.signatures
        [((ShapeDtypeStruct(shape=(2,), dtype=float32), 3), {})]
    """

    __slots__ = ()
    __module__ = "filterjit.types"

    def __new__(cls, function: _core.FilterJit, hooks: CompiledHooks) -> "Loaded[_P, _T]":
        return super().__new__(cls, function, SimpleNamespace(function=function, hooks=hooks))

    @property
    def signatures(self) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        """The arguments ``(args, kwargs)`` of each signature, with ``jax.ShapeDtypeStruct`` in
        place of arrays, as ``warm_up_all`` takes them."""
        found = []
        function, hooks = self._attributes.function, self._attributes.hooks
        cache = function._parts()[0]
        variants = {variant.structure: variant for variant in cache.variants()}
        for one in hooks.programs:
            pairs = zip(one.avals, one.shardings, strict=True)
            with _jax_compat.enable_x64(True):
                specs = [_jax_compat.spec_of(x, s if _is_far(s) else None) for x, s in pairs]
            arguments = variants[one.structure]._arguments(tuple(specs))[1]
            found.append(unbind(cache.signature, arguments, hooks.registry))
        return found

    def report(self) -> "Report":
        """Returns a `Report` of the time that calls took, by variant."""
        return _report.report_of(self._attributes.function._parts()[0])

    @property
    def __signature__(self) -> inspect.Signature:
        found: inspect.Signature = self._attributes.hooks.signature
        return found

    def __repr__(self) -> str:
        return f"<Loaded of {self._attributes.hooks.name}>"


@public
def load(path: str | os.PathLike[str]) -> Loaded:
    """Loads a function that ``f.save`` or ``f.lower(...).save`` wrote.

    Only load files from people whose code you would run.

    Loading traces and compiles nothing and imports no modules: it looks up the file's classes and
    functions in modules that the program has imported. A portable file is compiled when it is
    loaded, or if it has symbolic dimensions, when it is called with new shapes.

    Arguments:
        path: the path of the file. If the program runs on the devices of several processes, each
            process saves and loads its own file.

    Returns:
        A `Loaded`, which runs the signatures of the file. The function itself contains the arrays
        from the time of saving.

    Raises:
        OSError: if the file can't be read.
        ValueError: if ``save`` didn't write the file; if it is damaged, or is for a different
            machine, version, number of devices, process or ``XLA_FLAGS``; or if a class or function
            is missing or has changed.

    Examples:
        >>> f = filter_jit(lambda x: x + 1)
        >>> f.warm_up(jnp.ones(2))
        >>> f.save("add.jit")
        1
        >>> load("add.jit")(jnp.ones(2))
        Array([2., 2.], dtype=float32)
    """
    path = as_path("load(path)", path)
    header, blobs = _file.read(path)
    try:
        devices = [_devices_for(header, entry) for entry in header["signatures"]]
        _check_machine(header["info"], devices[0][0])
        for (names, _), digests in header["structures"]:
            _digests.check_digests(names, digests)
        # Otherwise JAX would truncate 64-bit arrays, and compile for the current mesh.
        with _jax_compat.enable_x64(True), _jax_compat.no_mesh():
            return _decode(header, blobs, devices)
    except Unsupported as e:
        raise ValueError(f"`{path}` cannot be loaded: {e}.") from None
    except ForbiddenCompileError:
        raise
    except Exception as e:  # of JAX, or of a constructor
        raise _file.malformed(path, e) from e


def _devices_for(header: dict[str, Json], entry: dict[str, Json]) -> list[jax.Device]:
    """Returns a signature's devices. Raises Unsupported if they aren't available, or if the file
    belongs to a different process."""
    wanted, here = entry["devices"], [jax.process_index(), jax.process_count()]
    process = header["info"].get("process", here)
    if process != here:
        raise Unsupported(
            f"it is the file of process {process[0]} of {process[1]}, and this is process "
            f"{here[0]} of {here[1]}: each process loads the file that it has saved"
        )
    if header["info"]["kind"] == "portable":
        return [jax.local_devices()[0]]  # runs on the default device
    by_id = {device.id: device for device in jax.devices()}
    what = f"it is a program for {count(len(wanted), 'device')}, numbered {wanted}"
    if not (wanted and by_id.keys() >= set(wanted)):
        raise Unsupported(f"{what}; here are {count(len(by_id), 'device')}: {sorted(by_id)}")
    found = [by_id[id] for id in wanted]
    belong = [device.process_index for device in found]
    owners = entry.get("processes", here[:1] * len(found))
    if belong != owners:
        raise Unsupported(
            f"{what}. These are to belong to the processes {owners}, and belong to {belong}"
        )
    return found


def _check_machine(info: dict[str, Json], device: jax.Device) -> None:
    if info["kind"] == "portable":
        platforms = {device.platform, {"gpu": "cuda"}.get(device.platform, device.platform)}
        if platforms.isdisjoint(map(str, info["platforms"])):
            raise Unsupported(
                f"it is a program for {', '.join(map(str, info['platforms']))}; this is "
                f"{device.platform}. Name it in `f.lower(...).save(path, platforms=...)`"
            )
        return
    saved, here = info["machine"], _program.machine(device)
    differ = [f"{k} {saved.get(k)!r} (here: {x!r})" for k, x in here.items() if saved.get(k) != x]
    if differ:
        raise Unsupported(
            f"it is an executable for {'; '.join(differ)}. Save it here, or use a portable file, "
            "from `f.lower(...).save(path)`"
        )


def _decode(
    header: dict[str, Json], blobs: list[bytes], devices: Sequence[list[jax.Device]]
) -> Loaded:
    settings = Settings(
        functions=header["functions"],
        traced=TracedNumbers.of(header["traced"]),
        numbers_traced=bool(header["numbers traced"]),
        static=ArgumentSelection(*map(frozenset, header["static"])),
    )
    registry = registry_for(settings)
    parameters = [
        _Parameter(name, _Parameter.__dict__[kind], default=None if optional else _Parameter.empty)
        for name, kind, optional in header["signature"]
    ]
    name = header["info"]["name"]
    hooks = CompiledHooks(settings, name, inspect.Signature(parameters), is_loaded=True)
    entries = header["signatures"]
    specs = [
        _codes.Coder(on).decode(entry["specs"]) for entry, on in zip(entries, devices, strict=True)
    ]
    orders = [tuple(entry["order"]) for entry in entries]
    if any(x and sorted(x) != [*range(len(y))] for x, y in zip(orders, specs, strict=True)):
        raise ValueError("the number of arrays")
    left = iter(blobs)
    parts = [list(itertools.islice(left, 1 + len(entry["constants"]))) for entry in entries]
    # The arrays in the function itself, placed as one of its programs takes them. A NumPy array
    # might have had 64 bits, while the program takes 32.
    own = tuple(
        _program.decode_array(
            *array, sharding if _is_far(sharding) else None, _codes.decode_dtype(dtype)
        )
        for array, (_, dtype, _, sharding) in zip(
            zip(header["own"], left, strict=True), specs[0], strict=False
        )
    )
    # The file doesn't have the jitted function. A tuple with its arrays replaces it.
    function = _core.flatten(registry, (f"loaded {name}", *own))[1]
    numbers = [entry["structures"] for entry in entries]
    f = hooks.make_filter_jit(
        function, own, f"{name} (loaded)", maxsize=len({pair[0] for pair in numbers})
    )
    trees = [_codes.decode_tree(encoded) for encoded, _ in header["structures"]]
    all_settings = [x if x is None else _codes.decode_settings(x) for x in header["settings"]]
    cache = f._parts()[0]
    if header["info"]["kind"] == "portable":
        ((arguments, result),) = numbers
        structure = _structure_of(f, trees[arguments], registry)
        output = _core.flatten(registry, trees[result])[1]
        _insert_portable(hooks, f, structure, output, parts[0][0], specs[0], orders[0])
        return Loaded(f, hooks)
    by_structure: dict[int, list[int]] = {}
    for i, (arguments, _) in enumerate(numbers):
        by_structure.setdefault(arguments, []).append(i)
    with ThreadPoolExecutor(min(len(entries), os.cpu_count() or 1)) as pool:
        many = pool.map if len(entries) > 1 else map
        makes = list(many(_program.decode, entries, parts, devices))
    for arguments, indices in by_structure.items():
        structure = _structure_of(f, trees[arguments], registry)
        programs, outputs = [], []
        for trace, i in enumerate(indices):
            outputs.append(_core.flatten(registry, trees[numbers[i][1]])[1])
            leaves = (0,) * max(1, outputs[-1].num_leaves)
            tree = jax.tree_util.tree_structure(_core.output_unflatten(trace, leaves))
            stage = makes[i](tree)
            one = Program.of(structure, stage, orders[i])
            avals = [
                x if not weak else type(x)(x.shape, x.dtype, True)
                for x, weak in zip(one.avals, entries[i]["weak"], strict=True)
            ]
            if cache.function.num_leaves + structure.num_leaves != len(avals):
                raise ValueError("the number of arrays")
            placed, of_trace = entries[i]["placed"], all_settings[entries[i]["settings"]]
            if len(placed) != len(avals):
                raise ValueError("the number of placements")
            programs.append(one._replace(avals=avals, placed=placed, settings=of_trace))
        hooks.insert_variant(f, programs, LoadedCall(programs).call, tuple(outputs))
    return Loaded(f, hooks)


def _structure_of(f: _core.FilterJit, tree: Any, registry: _core.Registry) -> _core.Structure:
    args, kwargs = unbind(f._parts()[0].signature, list(tree.values()), registry.missing)
    structure: _core.Structure = f._find(*args, **kwargs)[1]
    return structure


def _is_far(sharding: Any) -> bool:
    """True if a sharding isn't a single device."""
    return sharding is not None and len(sharding.device_set) > 1


def _insert_portable(
    hooks: CompiledHooks,
    f: _core.FilterJit,
    structure: _core.Structure,
    output: _core.Structure,
    blob: bytes,
    specs: Sequence[Any],
    order: tuple[int, ...],
) -> None:
    """Gives `f` the program of a portable file: compiled, unless it has symbolic dimensions."""
    specs = _direct.arrange(specs, order)
    try:
        exported = export_module().deserialize(bytearray(blob))
    except ImportError as e:
        raise Unsupported(NEEDS_FLATBUFFERS) from e
    if "cpu" in exported.platforms:
        # JAX 0.9 doesn't register these; all other targets are unportable
        _program.register(["lapack_"])
    donated = tuple(i for i, (_, _, is_donated, _) in enumerate(specs) if is_donated)
    num_leaves = f._parts()[0].function.num_leaves + structure.num_leaves
    if not len(exported.in_avals) == len(specs) == num_leaves:
        raise ValueError("the number of arrays")

    def call(*arrays: Any) -> Any:
        return exported.call(*arrays)

    jitted = _jax_compat.jit(call, donate_argnums=donated)
    try:
        with _running.running(None) as call_of_jax:
            _running.ignore_donation(call_of_jax)  # JAX has warned when it was saved
            stage = jitted.lower(*(_jax_compat.spec_of(aval, None) for aval in exported.in_avals))
    except ValueError as e:
        raise Unsupported(f"JAX cannot call it: {e}") from e
    if all(isinstance(n, int) for aval in exported.in_avals for n in aval.shape):
        stage = stage.compile()
        program = Program.of(structure, stage, order)
        hooks.insert_variant(f, [program], LoadedCall([program]).call, (output,))
        return
    variant = hooks.insert_variant(
        f, [Program.of(structure, stage, order)], _direct.wrap(jitted), (output,)
    )
    cache, found = weakref.ref(f._parts()[0]), weakref.ref(variant)
    jitted.__wrapped__.__dict__["observed"] = lambda: (cache(), found())
