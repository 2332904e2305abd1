"""Saves compiled functions to files."""

import contextlib
import inspect
import os
from collections.abc import Sequence
from typing import Any

import jax

from .. import _core
from .._base._checks import as_path, check_bool
from .._base._files import replacing
from .._compat import _executable_compat, _jax_compat
from .._observe import _records
from . import _describe, _encode, _file, _program
from ._encode import Json, Unsupported
from ._prepared import PreparedCall

NEEDS_FLATBUFFERS = "portable files need `flatbuffers`: pip install flatbuffers"


class Program:
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


def save(
    prepared: PreparedCall,
    stage: Any,
    path: str | os.PathLike[str],
    *,
    portable: bool = False,
    platforms: Sequence[str] | None = None,
) -> None:
    """Saves a compiled function; see `Compiled.save`. `stage` is a ``jax.stages.Compiled``, or for
    a portable file a ``jax.stages.Lowered``."""
    path = as_path("save(path)", path)
    check_bool("save(..., portable=...)", portable)
    if platforms is not None and not portable:
        raise ValueError("`save(..., platforms=...)` is for portable files: pass portable=True.")
    if platforms is not None:
        names = () if isinstance(platforms, str) else tuple(platforms)
        if not (names and all(isinstance(name, str) for name in names)):
            raise TypeError(
                "`save(..., platforms=...)` must be a sequence of names, such as ('cpu', 'cuda'), not "
                f"{platforms!r}."
            )
        platforms = names
    if prepared.program is None:
        raise ValueError(f"`{prepared.name}` was loaded from a file; copy that file.")
    try:
        header, blobs = _contents(prepared, stage, portable, platforms)
    except Unsupported as e:
        raise ValueError(f"`{prepared.name}` cannot be saved: {e}.") from None
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise ValueError(f"`{path}` is not a regular file")
    with replacing(path, durable=True) as file:
        file.writelines(_file.chunks(header, blobs))


def _contents(
    prepared: PreparedCall,
    stage: Any,
    portable: bool,
    platforms: Sequence[str] | None,
) -> tuple[dict[str, Json], list[bytes]]:
    """Returns the header and blobs of a file. Raises Unsupported, or ValueError with paths."""
    registry, variant, settings = prepared.registry, prepared.variant, prepared.settings
    result = variant.outputs[stage.out_tree.node_data()[1]]  # by trace number
    arguments = _encode.encode_structure(registry, variant.structure, "the arguments")
    exported = None
    if portable:
        _program.placement(stage)  # first, because it can raise Unsupported
        exported = _export(prepared, platforms)
        if isinstance(stage, jax.stages.Lowered) and exported[0].nr_devices > 1:
            raise Unsupported(
                f"it runs on {exported[0].nr_devices} devices. Compile it, and save that"
            )
    elif _records.record_of(variant).cost.from_disk:
        raise Unsupported(
            "JAX loaded it from its persistent compilation cache, and XLA cannot serialize such "
            "an executable again. Set `jax_enable_compilation_cache` to False first, or pass "
            "portable=True"
        )
    nodes = _encode.encode_structure(registry, result, "the result")
    for what, encoded in ("the arguments", arguments), ("the result", nodes):
        try:
            _encode.decode_tree(encoded)
        except Exception as e:
            raise Unsupported(
                f"{what} cannot be built of other leaves, as `load` does ({type(e).__name__}: {e}). JAX asks "
                "that the functions that a class is registered with take any leaves"
            ) from e
    header, blobs = _program.encode(prepared.name, stage, nodes, exported)
    own = [_program.encode_array(x) for x in prepared.function_arrays]
    header["info"] |= {
        "arguments": _program.described(variant.structure, prepared.arrays[len(own) :]),
        "results": _program.described(result, _executable_compat.results_of(stage)),
    }
    header |= {
        "functions": settings.functions,
        # Numbers that were traced as part of an argument are arrays now, and stay traced.
        "traced": {k: True if chosen is True else "**" for k, chosen in settings.traced.filters},
        "numbers traced": settings.numbers_traced,
        "static": [sorted(settings.static.positions), sorted(settings.static.names)],
        "signature": [
            [p.name, p.kind.name, p.default is not inspect.Parameter.empty]
            for p in prepared.signature.parameters.values()
        ],
        "arguments": arguments,
        "functions of": [_describe.digests_of(names) for names, _ in (arguments, nodes)],
        "own": [array for array, _ in own],
    }
    return header, [*blobs, *(data for _, data in own)]


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
