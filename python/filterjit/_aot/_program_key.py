"""The key of a call in the index of a program cache: a guess at what its program depends on.

A key has what is cheap to tell before a trace: the structure of the arguments with exact statics, the
avals and the placements of the arrays, the options, JAX's settings, the environment, the machine, the
versions, ``sys.argv``, the sources of the user's modules, what is installed, and a description of the
function and of the functions and classes among the statics. It need not be complete: what a key does
not tell, a trace does (`_proofs`).
"""

import dataclasses
import enum
import functools
import hashlib
import json
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

import jax

from .. import __version__
from .._base._errors import format_path
from .._call._kept import KeptCall, placement
from .._call._plain_hooks import wrapped_in
from .._call._settings import Settings
from .._compat import _executable_compat, _jax_compat
from .._functions import _texts
from .._functions._values import ATOMS
from .._trees import _nodes
from . import _program, _world
from ._encode import Coder, Json, Unsupported

_FORMAT = 3
# What begins the names of variables that compilers, JAX or libraries read.
_VARIABLES = re.compile(
    r"(XLA|JAX|LIBTPU|TPU|CUDA|CUBLAS|CUDNN|NVIDIA|NCCL|ROCM|HIP|TF|TRITON|EQX|FLAX|MKL|ONEDNN|"
    r"DNNL|NPROC|OPENBLAS|OMP)_|TF32|PYTHONHASHSEED$"
)
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]+")


def known_in(call: KeptCall) -> list[Any]:
    """Returns the types and the statics of a call that are no plain values, each once. A result refers
    to them by their numbers."""
    return [x for _, x in _described(call)[1]]


def key_of(call: KeptCall, arrays: Sequence[Any], environment: str) -> str:
    """Returns the key of a call. Raises Unsupported, or anything that a static raises."""
    _, cache, hooks = call.alive()
    nodes, known = _described(call)
    described = [(name, wrapped_in(x)) for name, x in known]
    facts = [
        environment,
        sys.argv,
        [f"{type(hooks).__module__}.{type(hooks).__qualname__}", call.flat.qualname],
        list(cache.signature.names),
        nodes,
        _texts.texts([*described, ("the options", _options(hooks.settings))]),
        _kinds(arrays),
        [hashlib.sha256(_program.encode_array(x)[1]).hexdigest() for x in hooks.held[1]],
        sorted(_world.sources()),
        _world.installed(),
        _world.filters(),
    ]
    text = json.dumps(facts, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).hexdigest()


def _described(call: KeptCall) -> tuple[list[Json], list[tuple[str, Any]]]:
    """Returns the nodes of the Structures of a call, and what is no plain value in them (types and
    statics), each once and with a name; the nodes have its number."""
    variant, _, hooks = call.alive()
    structures = [(variant.function, ["the function"]), (variant.structure, [])]
    structures += [(structure, ["what is frozen"]) for structure in hooks.held[0]]
    nodes: list[Json] = []
    numbers: dict[int, int] = {}
    known: list[tuple[str, Any]] = []
    for structure, prefix in structures:
        for node, path in _nodes.walk(structure):
            nodes.append([node.kind, len(node.children)])
            for x in (node.type, *node.statics):
                if type(x) in ATOMS:
                    nodes[-1].append(_texts.atom(x))
                    continue
                if id(x) not in numbers:
                    numbers[id(x)] = len(known)
                    known.append((format_path([*prefix, *path]) or "the arguments", x))
                nodes[-1].append(numbers[id(x)])
    return nodes, known


def _options(settings: Settings) -> Settings:
    """Returns the options that a program depends on."""
    return dataclasses.replace(settings, program_cache=None, on_retrace=None, maxsize=1)


def environment() -> str:
    """Returns what decides how a lowered program is compiled: the versions, the machine, the devices,
    the variables that compilers read, and JAX's settings."""
    variables = sorted((k, v) for k, v in os.environ.items() if _VARIABLES.match(k))
    settings = _jax_compat.settings_by_name() or []
    facts = [
        _machine(tuple(jax.devices())),
        jax.local_devices()[0].id,
        variables,
        [[name, _plain(value)] for name, value in settings],
    ]
    return json.dumps(facts, separators=(",", ":"))


def _plain(x: Any) -> str:
    text = f"{type(x).__qualname__} {x._value_ if isinstance(x, enum.Enum) else x!r}"
    return _ADDRESS.sub("", text)


@functools.lru_cache
def _machine(devices: tuple[jax.Device, ...]) -> list[Json]:
    own = [_FORMAT, __version__, sys.version, list(sys.flags), sys.byteorder]
    topology = [[d.id, d.platform, d.device_kind, d.process_index] for d in devices]
    return [own, _world.machine(devices[0]), topology]


def _kinds(arrays: Sequence[Any]) -> list[Json]:
    coder, found = Coder(jax.devices()), {}
    kinds = list(map(_kind, arrays))
    for kind in kinds:  # most are alike
        if kind not in found:
            found[kind] = coder.encode(kind)
    return [found[kind] for kind in kinds]


def _kind(x: Any) -> tuple[Any, ...]:
    sharding, committed = placement(x)
    if not sharding.is_fully_addressable:
        raise Unsupported("an array is partly on other machines")
    order = None
    if x.ndim > 1:
        is_made = isinstance(x, jax.Array)
        order = _executable_compat.order_of_layout(x) if is_made else tuple(range(x.ndim))
    return jax.typeof(x), sharding, committed, order
