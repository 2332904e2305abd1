"""Saves the programs of a jitted function to a file."""

import contextlib
import inspect
import os
import platform
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax

from .. import __version__, _core
from .._base import _errors
from .._base._arrays import Aval
from .._base._checks import as_path
from .._base._files import replacing
from .._base._locks import RLock
from .._base._versions import needs
from .._call import _events, _running
from .._call._caches import names_of
from .._call._programs import programs_of
from .._call._settings import Settings
from .._compat import _executable_compat, _jax_compat
from .._observe._records import TraceRecord, record_of
from .._observe._wording import count, list_first
from .._trees import _codes, _digests
from .._trees._codes import Json, Unsupported
from . import _file, _program
from ._prepared import PreparedCall, is_shape_spec

NEEDS_FLATBUFFERS = "portable files need `flatbuffers`: pip install flatbuffers"
_CAN_HOLD = (
    "A file can hold numbers, strings, containers, enums, dataclasses, dtypes, and functions and "
    "classes that are found in a module by their names."
)
_MOST = 12  # signatures in a warning
_compiling_again = RLock()


class Lowering:
    """A traced program and JAX's settings at that time. Replaces a ``jax.jit`` in ``jax.export``,
    which would retrace the function."""

    def __init__(self, traced: Any) -> None:
        self.settings = _jax_compat.settings()
        self.traced = traced

    def trace(self) -> Any:
        return self.traced

    def lower(self) -> Any:
        return self.traced.lower()

    def __call__(self) -> Any:
        raise AssertionError("it is not called")


class _File:
    """The header and the blobs of a file, from one signature to the next.

    Structures and settings that several signatures share are written once."""

    def __init__(self, name: str, registry: _core.Registry) -> None:
        self.name, self.registry = name, registry
        self.signatures: list[dict[str, Json]] = []
        self.described: list[dict[str, Json]] = []  # for `show`
        self.structures: list[Json] = []
        self.settings: list[Json] = []
        self.blobs: list[bytes] = []
        self.device: jax.Device | None = None
        self._numbers: dict[_core.Structure, int] = {}

    def structure(self, structure: _core.Structure, what: str) -> int:
        """Returns the number of a structure in the file. Raises Unsupported."""
        if structure in self._numbers:
            return self._numbers[structure]
        encoded = _codes.encode_structure(self.registry, structure, what)
        try:
            _codes.decode_tree(encoded)
        except Exception as e:
            raise Unsupported(
                f"{what} cannot be built of other leaves, as `load` does ({type(e).__name__}: {e}). JAX asks "
                "that the functions that a class is registered with take any leaves"
            ) from e
        digests = [_digests.digest(_codes.find(place)) for place in encoded[0]]
        self.structures.append([encoded, digests])
        return self._numbers.setdefault(structure, len(self.structures) - 1)

    def add(
        self,
        variant: _core.Variant,
        stage: Any,
        specs: Sequence[Any],
        settings: dict[str, Any] | None,
        exported: Any = None,
        serialize: Any = None,
    ) -> None:
        """Adds a signature. Raises Unsupported."""
        result = variant.outputs[stage.out_tree.node_data()[1]]  # by trace number
        arguments = self.structure(variant.structure, "the arguments")
        numbers = arguments, self.structure(result, "the result")
        encoded = settings and _codes.encode_settings(settings)
        of_file = None if exported else specs
        entry, blobs, self.device = _program.encode(
            stage, programs_of(variant).order, of_file, exported, serialize
        )
        if encoded not in self.settings:
            self.settings.append(encoded)
        at = self.settings.index(encoded)
        self.signatures.append({**entry, "structures": numbers, "settings": at})
        self.blobs += blobs
        own = variant.function.num_leaves
        self.described.append(
            {
                "arguments": _program.described(variant.structure, list(map(Aval.of, specs[own:]))),
                "results": _program.described(
                    result, list(map(Aval.of, _executable_compat.results_of(stage)))
                ),
            }
        )

    def write(
        self,
        path: str,
        own: Sequence[Any],
        settings: Settings,
        signature: inspect.Signature,
        platforms: Sequence[str] | None = None,
    ) -> None:
        """Writes the file. `own` are the function's arrays; `platforms` those of a portable file.
        Raises Unsupported."""
        assert self.device is not None
        arrays = [_program.encode_array(x) for x in own]
        info: dict[str, Json] = {
            "name": self.name,
            "kind": "portable" if platforms else "executable",
            "filterjit": __version__,
            "python": platform.python_version(),
            "machine": _program.machine(self.device),
            "platforms": list(platforms or [self.device.platform]),
            "devices": max(len(one["devices"]) for one in self.signatures),
            "signatures": self.described,
        }
        if any("processes" in one for one in self.signatures):
            info["process"] = [jax.process_index(), jax.process_count()]
        header = {
            "info": info,
            "functions": settings.functions,
            # Numbers that were traced as part of an argument are arrays now, and stay traced.
            "traced": {
                k: True if chosen is True else "**" for k, chosen in settings.traced.filters
            },
            "numbers traced": settings.numbers_traced,
            "static": [sorted(settings.static.positions), sorted(settings.static.names)],
            "signature": [
                [p.name, p.kind.name, p.default is not inspect.Parameter.empty]
                for p in signature.parameters.values()
            ],
            "structures": self.structures,
            "settings": self.settings,
            "signatures": self.signatures,
            "own": [array for array, _ in arrays],
        }
        blobs = [*self.blobs, *(data for _, data in arrays)]
        with replacing(path) as file:
            file.writelines(_file.chunks(header, blobs))


# ---- all programs of a function ----


def save(f: _core.FilterJit, path: str | os.PathLike[str]) -> int:
    """Saves all programs of a function; see `FilterJit.save`."""
    path = as_path("save(path)", path)
    if not _executable_compat.can_save():
        raise RuntimeError(needs("`save`", "0.7.2"))
    cache, own = f._parts()
    fun: Any = f._function
    name = str(f.__dict__.get("__qualname__") or names_of(fun)[1])
    file = _File(name, cache.hooks.registry)
    refused: list[tuple[str, str]] = []
    known: list[tuple[Any, dict[str, Any]]] = []
    for array, keys in zip(own, _errors.array_paths(cache.function, None), strict=True):
        if isinstance(array, jax.Array) and array.is_deleted():
            path_in_f = _errors.format_path(keys)
            raise ValueError(f"`{name}` cannot be saved: its array `{path_in_f}` was donated.")
    avals = list(map(Aval.of, own))
    for variant in cache.variants():
        # `warm_up_all` compiles in threads, in any order.
        signatures = sorted(
            _signatures_of(variant), key=lambda one: [(x.shape, str(x.dtype)) for x in one[0]]
        )
        for specs, record in signatures:
            if [*map(Aval.of, specs[: len(own)])] != avals:
                continue  # of an equal function with other arrays
            try:
                found = _find(cache, variant, specs, record)
                if found is None:
                    continue
                stage, serialize = found
                executable = stage.runtime_executable()
                if not any(executable is x and record.context == y for x, y in known):
                    with record.settings():
                        file.add(variant, stage, specs, record.context, serialize=serialize)
                    known.append((executable, record.context))
            except Unsupported as e:
                structure, own_count = variant.structure, variant.function.num_leaves
                entries = _program.described(structure, record.avals[own_count:])
                text = list_first([f"{k}={x}" for k, x in entries if "." not in k], 4)
                refused.append((text, str(e)))
    if not file.signatures:
        why = "it has compiled nothing: call it or `warm_up` first"
        if held := [x for x in jax.tree_util.tree_leaves(fun) if is_shape_spec(x)]:
            why = f"it holds {held[0]}, which has no values"
        raise ValueError(f"`{name}` cannot be saved: {refused[0][1] if refused else why}.")
    settings = f._hooks.settings
    signature = f._given_signature or inspect.signature(fun, follow_wrapped=False)
    try:
        file.write(path, own, settings, signature)
    except Unsupported as e:
        raise ValueError(f"`{name}` cannot be saved: {e}.") from None
    if refused:
        total = len(refused) + len(file.signatures)
        lines = list_first([f"  ({text}): {why}" for text, why in refused], _MOST, "\n")
        warnings.warn(
            f"`{name}` was saved without {len(refused)} of {count(total, 'signature')}:\n{lines}\n"
            + _CAN_HOLD,
            stacklevel=_events.stack_level(),
        )
    return len(file.signatures)


def _signatures_of(variant: _core.Variant) -> Iterator[tuple[tuple[Any, ...], TraceRecord]]:
    """Yields the specs of each program that a variant has compiled, and its record."""
    record, seen = record_of(variant), set()
    for one in (*record.traces, *record.compiled, *record.warmed):
        if one.placements is None:  # it has never been compiled
            continue
        pairs = zip(one.avals, one.placements, strict=True)
        with one.settings():  # otherwise JAX would truncate 64-bit dtypes
            specs = tuple(
                _jax_compat.spec_of(x, at[0] if at and at[1] else None) for x, at in pairs
            )
        key = (*((x.shape, x.dtype, x.weak_type, x.sharding) for x in specs), *one.context.values())
        if key not in seen:
            seen.add(key)
            yield specs, one


def _find(
    cache: _core.Cache, variant: _core.Variant, specs: tuple[Any, ...], record: TraceRecord
) -> tuple[Any, Callable[[dict[str, Any]], bytes]] | None:
    """Returns the ``jax.stages.Compiled`` that JAX has for a signature, and a function that
    serializes its executable. None if JAX has dropped it."""
    with record.settings():
        try:
            with _running.running(None):
                jitted, arrays = programs_of(variant).find(specs)
                traced = jitted.trace(*arrays)
        except _running.WouldTrace:
            return None
        lowered = traced.lower()
        compiled = lowered.compile()

    def again() -> bytes:
        try:
            with _running.running(variant), record.settings(), _compiling_again:
                _events.notify("ahead_of_time", cache, variant)
                return _executable_compat.compile_again(lowered)
        except _executable_compat.NotSerializable as e:
            raise Unsupported("JAX cannot serialize its executable") from e

    def serialize(parts: dict[str, Any]) -> bytes:
        if not record_of(variant).cost.from_disk:  # otherwise kernels would be missing
            with contextlib.suppress(_executable_compat.NotSerializable):
                return _executable_compat.serialized(parts)
        return again()

    return compiled, serialize


# ---- portable files ----


def save_portable(
    prepared: PreparedCall,
    stage: Any,
    path: str | os.PathLike[str],
    platforms: Iterable[str] | None,
) -> None:
    """Saves a lowered program; see `Lowered.save`. `stage` is the ``jax.stages.Lowered``."""
    path = as_path("save(path)", path)
    if platforms is not None:
        names = () if isinstance(platforms, str) else tuple(platforms)
        if not (names and all(isinstance(name, str) for name in names)):
            raise TypeError(
                "`save(..., platforms=...)` must be a sequence of names, such as ('cpu', 'cuda'), not "
                f"{platforms!r}."
            )
        platforms = names
    file = _File(prepared.name, prepared.registry)
    try:
        _program.placement(stage)  # first, because it can raise Unsupported
        exported = _export(prepared, platforms)
        if exported[0].nr_devices > 1:
            raise Unsupported(
                f"it runs on {exported[0].nr_devices} devices. Compile it, and save the function"
            )
        file.add(prepared.variant, stage, prepared.arrays, None, exported)
        own, settings = prepared.function_arrays, prepared.settings
        if specs := [x for x in own if is_shape_spec(x)]:
            raise Unsupported(f"the function holds {specs[0]}, which has no values")
        file.write(path, own, settings, prepared.signature, exported[0].platforms)
    except Unsupported as e:
        raise ValueError(f"`{prepared.name}` cannot be saved: {e}.") from None


def export_module() -> Any:
    """Imports ``jax.export`` (slow), and registers Output with it. Output's trace number isn't
    stored, because a loaded program has one trace."""
    from jax import export

    with contextlib.suppress(ValueError):  # already registered
        export.register_pytree_node_serialization(
            _core.Output,
            serialized_name="filterjit.Output",
            serialize_auxdata=lambda trace: b"",
            deserialize_auxdata=lambda data: 0,
        )
    return export


def _export(prepared: PreparedCall, platforms: Sequence[str] | None) -> tuple[Any, bytes]:
    """Returns the program as a ``jax.export.Exported``, and as bytes."""
    program = prepared.program
    try:
        with prepared.working(), program.settings():
            exported = export_module().export(program, platforms=platforms)()
            return exported, bytes(exported.serialize())
    except ImportError as e:
        raise Unsupported(NEEDS_FLATBUFFERS) from e
    except (ValueError, TypeError, KeyError, NotImplementedError) as e:
        raise Unsupported(f"`jax.export` cannot export it: {e}") from e
