"""What a file of a program cache holds: a header of JSON, and blobs of bytes.

The header begins with what the code was (`_program_key.Dependencies`), which is compared before
anything else is believed. The result of a program may hold statics of the call, such as a local
function in a model that is returned: it refers to them by their number among `Key.known`.
"""

import json
import struct
from typing import Any

import jax
import numpy as np

from .. import _core
from .._compat import _executable_compat, _jax_compat
from .._functions import _description, _packages
from .._functions._describe import ATOMS
from .._trees import _nodes
from . import _encode, _executable, _load, _program_key, _save
from ._encode import Json, Unsupported
from ._program_key import Key

_LENGTH = struct.Struct("<Q")
MOST_CONSTANTS = 64 << 20
"""Bytes of arrays that a program may hold beside its executable."""


def encode(
    key: Key, packages: set[str], state: dict[str, str], registry: _core.Registry, result: _core.Structure,
    stage: Any, text: str | None,
) -> bytes:  # fmt: skip
    """Returns the contents of a file for a ``jax.stages.Compiled``. Raises Unsupported.

    Arguments:
        packages: the top-level modules of the packages whose code the trace has run.
        state: of their modules, see `_program_key.state_of`.
        registry: of the arguments.
        result: the Structure of the result.
        text: a digest of the lowered program.
    """
    constants = [_save.encode_array(x) for x in _executable_compat.executable_constants(stage)]
    if sum(len(blob) for _, blob in constants) > MOST_CONSTANTS:
        raise Unsupported(f"it holds constants of more than {MOST_CONSTANTS >> 20} MiB")
    program, blob = _executable.encode_executable(stage)
    infos = jax.tree_util.tree_leaves(stage.args_info)
    header: dict[str, Json] = {
        "parts": key.dependencies.parts,
        "packages": {top: _stamp(top) for top in sorted(packages | key.dependencies.packages)},
        "state": state,
        "result": _encode_result(registry, result, key.known),
        "specs": [[_executable.encode_aval(info), info.donated] for info in infos],
        "program": program,
        "constants": [description for description, _ in constants],
        "text": text,
    }
    blobs = [blob, *(blob for _, blob in constants)]
    header["blobs"] = [len(blob) for blob in blobs]
    start = json.dumps(header, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return b"".join([_LENGTH.pack(len(start)), start, *blobs])


def _stamp(top: str) -> str:
    stamp = _packages.stamp_of(top)
    if stamp is None:
        raise Unsupported(f"it is not known which build of the package `{top}` is installed")
    return stamp


def header_of(contents: bytes) -> dict[str, Json]:
    """Returns the header of a file."""
    (length,) = _LENGTH.unpack_from(contents)
    found = json.loads(contents[_LENGTH.size : _LENGTH.size + length])
    assert type(found) is dict
    return found


def changed(header: dict[str, Json], key: Key) -> str | None:
    """Returns what has changed since a file was written; None if nothing has."""
    found = _description.difference(header["parts"], key.dependencies.parts)
    if found is None:
        for top, stamp in header["packages"].items():
            if _packages.stamp_of(top) != stamp:
                return f"the package `{top}` was installed anew"
        now = _program_key.state_of(header["state"])
        for module, digest in header["state"].items():
            if now.get(module, digest) != digest:  # what is not imported is as it was installed
                return f"a value in the module `{module}` is another"
    return found


def decode(
    contents: bytes, header: dict[str, Json], key: Key, registry: _core.Registry,
    variant: _core.Variant,
) -> Any:  # fmt: skip
    """Returns the ``jax.stages.Compiled`` of a file, and gives the variant the structure of the result.

    Raises anything for what is not as `encode` has written it.
    """
    (length,) = _LENGTH.unpack_from(contents)
    at, blobs = _LENGTH.size + length, []
    for size in header["blobs"]:
        blobs.append(contents[at : at + size])
        at += size
    devices = {device.id: device for device in jax.devices()}
    with jax.enable_x64(True), _jax_compat.no_mesh():
        constants = [
            _load.decode_array(array, blob, None, None)
            for array, blob in zip(header["constants"], blobs[1:], strict=True)
        ]
        infos = tuple(
            jax.stages.ArgInfo(_executable.decode_aval(aval, devices), donated)
            for aval, donated in header["specs"]
        )
        tree = _encode.decode_tree(header["result"], np.zeros(()), registry.missing, key.known)
        output = variant.finish(tree, lambda: np.zeros(()))
        out_tree = jax.tree_util.tree_structure(output)  # numbers the trace
        return _executable.decode_executable(
            header["program"], blobs[0], devices, constants, (infos, {}), out_tree
        )


# ---- results ----


def _encode_result(registry: _core.Registry, structure: _core.Structure, known: list[Any]) -> Json:
    return [
        [node.kind, len(node.children), _encode_node(registry, node, known)]
        for node, _ in _nodes.walk(structure)
    ]


def _encode_node(registry: _core.Registry, node: _nodes.Node, known: list[Any]) -> Json:
    """Returns the details of a node: as `_encode` has them, with {"known": number} in the place of
    a type or a static that is one of the call's."""

    def of_type(x: Any) -> Json:
        number = _number(x, known)
        return _encode.encode_reference(x) if number is None else {"known": number}

    def of_static(x: Any) -> Json:
        if type(x) in ATOMS:
            return _encode.encode_static(registry, x)
        number = _number(x, known)
        if number is None:
            try:
                return _encode.encode_static(registry, x)
            except Unsupported as e:
                alike = (i for i, y in enumerate(known) if _same(registry, x, y))
                if (number := next(alike, None)) is None:
                    what = "a static value of its result cannot be written"
                    raise Unsupported(f"{what}: {e}") from None
        return {"known": number}

    match node.kind:
        case "static":
            return of_static(node.detail)
        case "namedtuple":
            return of_type(node.type)
        case "module" | "object":
            return [of_type(node.type), list(node.detail)]
        case "custom":
            return [of_type(node.type), of_static(node.detail)]
    return _encode.encode_node(registry, node)


def _number(x: Any, known: list[Any]) -> int | None:
    return next((number for number, y in enumerate(known) if y is x), None)


def _same(registry: _core.Registry, x: Any, y: Any) -> bool:
    try:
        return type(x) is type(y) and bool(_core.same_static(registry, x, y))
    except Exception:
        return False
