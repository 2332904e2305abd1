"""The option `same_on_all_processes`: a program that is about to be traced is the same everywhere.

A program over the devices of several processes is run by all of them, and hangs if one of them runs
another. So before each trace the processes compare a digest of what the program depends on: its name,
the structure and the static values of the arguments, the avals, the specs and the mesh.

They meet in the coordination service of ``jax.distributed``. The first process publishes its digest;
each of the others reads it, and publishes its own lines if they differ; all wait for each other, and
then read what was published. A process makes a few requests of some bytes, however many there are.

Nothing is compared on a hit. A process that hits where others miss runs its program and waits there;
the others raise when they have waited for `TIMEOUT` seconds.
"""

import dataclasses
import enum
import hashlib
import itertools
import os
import re
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence, Set
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any

import jax
import numpy as np

from .. import _core
from .._base import _errors, _jax_compat
from .._base._errors import ProcessMismatchError
from .._observe._records import Aval
from .._trees._nodes import walk

TIMEOUT = float(os.environ.get("FILTERJIT_PROCESSES_TIMEOUT", "300"))
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]+")
_MOST_LINES = 5

_lock = threading.Lock()
_numbers: dict[tuple[int, ...], Iterator[int]] = {}  # of comparisons, by who takes part


# ---- descriptions that are the same on all processes ----


def describe_value(x: Any, depth: int = 8) -> str:
    """Returns a text that does not depend on addresses and hash seeds.

    Equal values have equal texts; so do values that only their identity tells apart.
    """
    name = f"{type(x).__module__}.{type(x).__qualname__}"
    if isinstance(x, enum.Enum):
        return f"{name}.{x.name}"
    if x is None or isinstance(x, (bool, int, float, complex, str, bytes)):
        return f"{name} {x!r}"
    if isinstance(x, (type, FunctionType, BuiltinFunctionType)):
        code = getattr(x, "__code__", None)
        return f"{x.__module__}.{x.__qualname__}" + (f" {_of_code(code)}" if code else "")
    if depth == 0:
        return name
    if isinstance(x, MethodType):
        below = [("", x.__func__), ("", x.__self__)]
        return f"{name}({_all(below, depth)})"
    if isinstance(x, np.ndarray) and x.dtype != object:
        return f"{name} {x.dtype}{list(x.shape)} {hashlib.sha256(x.tobytes()).hexdigest()}"
    if isinstance(x, Mapping):
        texts = [
            f"{describe_value(k, depth - 1)}: {describe_value(v, depth - 1)}" for k, v in x.items()
        ]
        return f"{name}({', '.join(texts)})"
    if isinstance(x, Set):
        return f"{name}({', '.join(sorted(describe_value(y, depth - 1) for y in x))})"
    if isinstance(x, Sequence):
        return f"{name}({_all([('', y) for y in x], depth)})"
    if dataclasses.is_dataclass(x):
        fields = [(f.name, getattr(x, f.name, None)) for f in dataclasses.fields(x)]
        return f"{name}({_all(fields, depth)})"
    return f"{name} {_ADDRESS.sub('0x', _errors.short(x, 2000))}"


def _all(items: Sequence[tuple[str, Any]], depth: int) -> str:
    return ", ".join(f"{k}={describe_value(v, depth - 1)}" for k, v in items)


def _of_code(code: CodeType) -> str:
    constants = [
        _of_code(c) if isinstance(c, CodeType) else describe_value(c) for c in code.co_consts
    ]
    text = f"{code.co_names} {code.co_varnames} {constants}"
    return hashlib.sha256(code.co_code + text.encode()).hexdigest()[:16]


def _lines_of_structure(structure: _core.Structure, prefix: list[Any]) -> Iterator[str]:
    for node, path in walk(structure):
        if node.kind not in ("array", "arguments"):
            cls = "" if node.type is None else f" {node.type.__module__}.{node.type.__qualname__}"
            text = f"{node.kind}{cls} {len(node.children)} {describe_value(node.detail)}"
            yield f"{_errors.format_path([*prefix, *path])}\t{text}"


def lines_of(
    name: str, variant: _core.Variant, arrays: Sequence[Any], specs: Sequence[Any], mesh: Any
) -> list[str]:
    """Returns what a program depends on: lines of a path, a tab and a text."""
    lines = [f"the function\t{name}"]
    lines += _lines_of_structure(variant.function, ["the function"])
    lines += _lines_of_structure(variant.structure, [])
    paths = _errors.array_paths(variant.function, variant.structure)
    for i, (path, x) in enumerate(zip(paths, arrays, strict=True)):
        spec = f" {specs[i]}" if i < len(specs) and specs[i] is not None else ""
        aval = Aval.of(x)
        lines.append(f"{_errors.format_path(path)}\t{aval}{aval.sharding or ''}{spec}")
    if mesh is not None:
        ids = [device.id for device in mesh.devices.flat]
        lines.append(f"the mesh\t{dict(mesh.shape)} of the devices {ids}")
    return lines


# ---- comparing ----


def participants(mesh: Any, specs: Sequence[Any]) -> tuple[int, ...]:
    """Returns the processes that run a program over `mesh` and `specs`; empty if neither tells."""
    devices = set() if mesh is None else set(mesh.devices.flat)
    for spec in specs:
        if isinstance(spec, jax.sharding.Sharding):
            devices |= spec.device_set
    return tuple(sorted({device.process_index for device in devices}))


def compare(name: str, lines: Sequence[str], processes: tuple[int, ...]) -> None:
    """Returns when all `processes` are about to trace the program of these lines.

    Raises:
        ProcessMismatchError: on all of them if they are not; it names the processes and the paths.
    """
    client = _jax_compat.coordination_client()
    me = jax.process_index()
    if client is None or len(processes) < 2 or me not in processes:
        return
    with _lock:
        number = next(_numbers.setdefault(processes, itertools.count()))
    key = f"filterjit/{'-'.join(map(str, _ranges(processes)))}/{number}"
    text = "\n".join(lines)
    digest = hashlib.sha256(text.encode()).hexdigest()
    milliseconds = int(TIMEOUT * 1000)
    try:
        if me == processes[0]:
            client.key_value_set_bytes(f"{key}/lines", zlib.compress(text.encode()))
            client.key_value_set(f"{key}/digest", digest)
        elif client.blocking_key_value_get(f"{key}/digest", milliseconds) != digest:
            client.key_value_set_bytes(f"{key}/differ/{me}", zlib.compress(text.encode()))
        client.wait_at_barrier(f"{key}/all", milliseconds, list(processes))
    except _jax_compat.JaxRuntimeError as e:
        raise ProcessMismatchError(
            f"process {me} is about to trace `{name}`, and other processes have not come to do the "
            f"same in {TIMEOUT:g} seconds: they run another program, or have failed, or are slow "
            f"(FILTERJIT_PROCESSES_TIMEOUT): {str(e).splitlines()[0]}"
        ) from None
    differ = client.key_value_dir_get_bytes(f"{key}/differ/")
    if differ:
        first = zlib.decompress(client.blocking_key_value_get_bytes(f"{key}/lines", milliseconds))
        others = {int(k.rpartition("/")[2]): zlib.decompress(v).decode() for k, v in differ}
        raise ProcessMismatchError(_message(processes[0], first.decode(), others))
    if me == processes[0] and number > 0:
        # All have read what they need of the comparison before this one.
        client.key_value_delete(f"{key.rpartition('/')[0]}/{number - 1}/")


def _ranges(processes: tuple[int, ...]) -> tuple[int, ...]:
    """Returns a short name of some processes."""
    consecutive = processes == tuple(range(processes[0], processes[-1] + 1))
    return (processes[0], processes[-1]) if consecutive else processes


def _message(leader: int, text: str, others: Mapping[int, str]) -> str:
    number, other = min(others.items())
    here = [line.partition("\t")[::2] for line in text.splitlines()]
    there = [line.partition("\t")[::2] for line in other.splitlines()]
    differences = [
        f"  `{path}`: {_short(a)} on process {leader}, {_short(b)} on process {number}"
        for path, a, b in _differences(here, there)
    ]
    count = len(differences) - _MOST_LINES
    lines = differences[:_MOST_LINES] + [f"  and {count} more differences"] * (count > 0)
    who = ", ".join(map(str, sorted(others)))
    plural = "processes" if len(others) > 1 else "process"
    head = f"{plural} {who} and process {leader} are about to trace different programs:"
    return "\n".join([head, *lines, "All processes must call it with the same arguments."])


def _differences(
    here: Sequence[tuple[str, str]], there: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, str | None, str | None]]:
    """Yields ``(path, text, text)`` of lines that differ; None where one side has no such path."""
    rest: dict[str, list[str]] = {}
    for path, text in there:
        rest.setdefault(path, []).append(text)
    for path, text in here:
        same_path = rest.get(path)
        other = same_path.pop(0) if same_path else None
        if other != text:
            yield path, text, other
    for path, texts in rest.items():
        for text in texts:
            yield path, None, text


def _short(text: str | None) -> str:
    return "absent" if text is None else (text if len(text) <= 200 else text[:197] + "...")
