"""What a program depends on: its key in a program cache, and what is described beside it.

A key has what is known before a trace: the structure of the arguments with exact statics, the avals
and the placements of the arrays, the options, JAX's settings, the environment, the machine, the
versions, and what the code is: a list of named digests, `Dependencies`.

Where something cannot be told, `Unknown` is raised, and the program is neither looked up nor kept.
"""

import dataclasses
import enum
import functools
import hashlib
import json
import os
import re
import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from .. import __version__, _core
from .._base._errors import format_path
from .._base._unwrap import unwrap_chain
from .._call._kept import KeptCall, placement
from .._call._plain_hooks import wrapped_in
from .._call._settings import Settings
from .._compat import _executable_compat, _jax_compat
from .._functions import _description, _of_process, _packages
from .._functions._describe import ATOMS
from .._trees import _nodes
from .._trees._static_keys import STANDARD_LIBRARY
from . import _executable
from ._encode import Json, Unsupported

_FORMAT = 2
# What begins the names of variables that compilers, JAX or libraries read.
_VARIABLES = re.compile(
    r"(XLA|JAX|LIBTPU|TPU|CUDA|CUBLAS|CUDNN|NVIDIA|NCCL|ROCM|HIP|TF|TRITON|EQX|FLAX|MKL|ONEDNN|"
    r"DNNL|NPROC|OPENBLAS|OMP)_|TF32|PYTHONHASHSEED$"
)
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]+")
_MOST_DOUBTS = 3


class Unknown(Exception):
    """Says why the program of a call is not kept."""


@dataclasses.dataclass
class Dependencies:
    """What the code of a program is.

    Attributes:
        description: of the function, and of the functions and classes among the statics.
        argv: what the program was called with, if the code may read that.
    """

    description: _description.Description
    argv: list[str]

    @property
    def codes(self) -> frozenset[types.CodeType]:
        return self.description.codes

    def difference(self, now: "Dependencies") -> str | None:
        """Returns what has changed, or None."""
        return _description.difference(self.parts, now.parts)

    @property
    def packages(self) -> set[str]:
        """The top-level modules of the packages that the code names."""
        return {top for top in self.description.packages if top not in STANDARD_LIBRARY}

    @property
    def parts(self) -> list[tuple[str, str]]:
        return [*self.description.parts, *(("`sys.argv`", repr(x)) for x in self.argv)]


@dataclasses.dataclass
class Key:
    """The key of a call.

    Attributes:
        digest: of all that is in it.
        dependencies: what the code is now.
        known: the types and the statics in the call that are no plain values, which results can
            refer to by their number. The digest has the same numbers.
        roots: what `describe` takes.
    """

    digest: bytes
    dependencies: Dependencies
    known: list[Any]
    roots: list[tuple[str, Any]]


def key_of(call: KeptCall, arrays: Sequence[Any]) -> Key:
    """Returns the key of a call. Raises Unknown."""
    variant, cache = call.variant(), call.cache()
    assert variant is not None and cache is not None
    if jax.process_count() > 1:
        raise Unknown("several processes run it together, and must all compile or all load")
    hooks: Any = cache.hooks
    if hooks.frozen != (0, 0):
        raise Unknown("its arrays are constants (`freeze`)")
    nodes, roots, known = _structures(variant)
    roots.append(("the options", _options(hooks.settings)))
    dependencies = describe(roots)
    try:
        facts = [
            _process(),
            _settings(),
            [f"{type(hooks).__module__}.{type(hooks).__qualname__}"],
            [call.flat.qualname, list(call.donated), list(cache.signature.names)],
            nodes,
            dependencies.description.roots,
            [list(part) for part in dependencies.parts],
            [_array(x) for x in arrays],
        ]
    except Unsupported as e:
        raise Unknown(str(e)) from None
    text = json.dumps(facts, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return Key(hashlib.sha256(text).digest(), dependencies, known, roots)


def describe(roots: Sequence[tuple[str, Any]], before: Dependencies | None = None) -> Dependencies:
    """Returns what the code of values is. Raises Unknown if that cannot be told.

    What is kept of the calls of a trace, such as by an ``lru_cache``, is left out of a description
    after the trace, which is given the one before it."""
    found = _of_process.describe(roots, None if before is None else before.description)
    if found.doubts:
        doubts = "; ".join(map(str, found.doubts[:_MOST_DOUBTS]))
        raise Unknown(f"what it does is not known: {doubts}")
    return Dependencies(found, list(sys.argv) if "argv" in found.names else [])


def older_than_rest(found: Dependencies, started: set[int]) -> str | None:
    """Returns why a trace may have used what JAX had kept of an earlier one: a jitted function whose
    code has not run, and which reads what can have changed since. None if it has not."""
    for jitted in found.description.jitted:
        *_, f = unwrap_chain(jitted, "__wrapped__", "func", "__func__")
        if type(f) is not types.FunctionType or id(f.__code__) in started:
            continue
        if _packages.is_library(f.__globals__.get("__name__")):
            continue
        data = _of_process.describe([("", jitted)]).data
        if data:
            return f"JAX had traced `{f.__qualname__}` before, and {data[0]} may have been another then"
    return None


# ---- the settings of packages ----


def state_of(modules: Iterable[str]) -> dict[str, str]:
    """Returns digests of the plain values of modules of installed packages: numbers, strings, dtypes,
    classes and functions."""
    found = {}
    for name in sorted(modules):
        module = sys.modules.get(name)
        if isinstance(module, types.ModuleType):
            values = object.__getattribute__(module, "__dict__")
            texts = [f"{k} {_text_of_state(x)}" for k, x in list(values.items()) if k[:2] != "__"]
            text = "\n".join(sorted(texts)).encode("utf-8", "backslashreplace")
            found[name] = hashlib.sha256(text).hexdigest()[:16]
    return found


def _text_of_state(x: Any) -> str:
    cls = type(x)
    if cls in ATOMS:
        return _atom(x)
    if isinstance(x, (np.dtype, enum.Enum)):
        return f"{cls.__qualname__} {x!r}"
    if isinstance(x, (type, types.FunctionType)):
        return f"{x.__module__}.{x.__qualname__}"
    return ""


# ---- the statics ----


def _structures(variant: _core.Variant) -> tuple[Json, list[tuple[str, Any]], list[Any]]:
    """Returns the nodes of a call's structures as JSON, the types and statics to be described with
    their names, and these themselves.

    Plain values have no number: which of them are one object is chance, and the key has them."""
    nodes: list[Json] = []
    numbers: dict[int, int] = {}
    roots: list[tuple[str, Any]] = []
    known: list[Any] = []
    for structure, prefix in ((variant.function, ["the function"]), (variant.structure, [])):
        for node, path in _nodes.walk(structure):
            own: list[Json] = [node.kind, len(node.children)]
            for x in _values(node):
                if type(x) in ATOMS:
                    own.append(_atom(x))
                    continue
                number = numbers.setdefault(id(x), len(known))
                if number == len(known):
                    known.append(x)
                    name = format_path([*prefix, *path]) or "the arguments"
                    roots.append((name, wrapped_in(x)))
                own.append(number)
            nodes.append(own)
    return nodes, roots, known


def _values(node: _nodes.Node) -> Iterator[Any]:
    """Yields the type of a node, and what is static in it."""
    if node.type is not None:
        yield node.type
    match node.kind:
        case "array" | "none" | "missing" | "tuple" | "list":
            pass
        case "static" | "custom":
            yield node.detail
        case "arguments" | "dict" | "ordered_dict" | "default_dict" | "module" | "object":
            yield from node.detail
        case "namedtuple":
            pass
        case _:
            yield node.detail


def _atom(x: Any) -> str:
    value = x.hex() if type(x) is float else repr(x) if type(x) is not int else hex(x)
    return f"{type(x).__name__} {value}"


# ---- the rest ----


def _options(settings: Settings) -> Settings:
    """Returns the options that a program depends on."""
    return dataclasses.replace(
        settings, program_cache=None, on_retrace=None, max_traces=None, maxsize=1
    )


def _settings() -> list[Json]:
    found = _jax_compat.settings_by_name()
    if found is None:
        raise Unknown("this version of JAX does not tell its settings")
    return [[name, _plain(name, value)] for name, value in found]


def _plain(name: str, x: Any) -> str:
    text = f"{type(x).__qualname__} {x._value_ if isinstance(x, enum.Enum) else x!r}"
    if _ADDRESS.search(text):
        raise Unknown(f"{name} is {text}, which cannot be compared with that of another process")
    return text


def _process() -> list[Json]:
    """Returns the versions, the machine, the devices and the environment."""
    variables = sorted((k, v) for k, v in os.environ.items() if _VARIABLES.match(k))
    return [_machine(tuple(jax.devices())), jax.local_devices()[0].id, variables]


@functools.lru_cache
def _machine(devices: tuple[jax.Device, ...]) -> list[Json]:
    own = [
        _FORMAT, __version__, sys.version, list(sys.flags), sys.byteorder,
        [_packages.stamp_of(top) for top in ("filterjit", "jax", "jaxlib", "numpy")],
    ]  # fmt: skip
    topology = [[d.id, d.platform, d.device_kind, d.process_index] for d in devices]
    return [own, _executable.machine(devices[0]), topology]


def _array(x: Any) -> list[Json]:
    encoded = _executable.encode_aval(_jax_compat.aval(x))
    placed = placement(x)
    if placed is None:
        return [encoded, type(x).__qualname__]
    sharding, committed = placed
    if not sharding.is_fully_addressable:
        raise Unknown("an array is partly on other machines")
    order = None
    if x.ndim > 1:
        is_spec = isinstance(x, jax.ShapeDtypeStruct)
        order = tuple(range(x.ndim)) if is_spec else _executable_compat.order_of_layout(x)
    return [encoded, _executable.encode_sharding(sharding), committed, order]
