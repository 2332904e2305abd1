"""The option `same_on_all_processes`: a program that is about to run is the same everywhere.

A program over the devices of several processes is run by all of them, and hangs if one of them runs
another. So before the first call of each program the processes compare a digest of what it depends
on: the function with its defaults and closure, the structure and the static values of the
arguments, the avals, the specs and the mesh. A call in a trace or a transformation is part of
another program, and is not compared.

They meet in the key-value store of ``jax.distributed``, where a comparison is named by the digest:

- ``waiting/DIGEST/PROCESS`` is there while a process waits, with an id of the wait, whether another
  thread of the process traces, compiles or runs what was compared before, and the lines.
- ``agreed/DIGEST`` is there for good when all have waited for the same. The first process, the
  *leader*, writes it. Whoever comes again with this digest, after an eviction say, goes on at once.
- ``failed/ID`` ends one wait with a message. The leader writes it when all processes have waited,
  for different programs, for `GRACE` seconds in which none of them had such another thread. Until
  then, another thread may come with the program that the others wait for. All waits end then, as
  nothing tells which of them belong together. The process that waited deletes it.

Nothing is compared on a hit. A process that hits where others miss runs its program and waits there;
the others raise when they have waited for `TIMEOUT` seconds.
"""

import contextlib
import dataclasses
import enum
import functools
import hashlib
import os
import re
import sys
import threading
import time
import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence, Set
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import jax
import numpy as np

from .. import _core
from .._base import _errors
from .._base._errors import ProcessMismatchError
from .._compat import _jax_compat
from .._functions._describe import defaults_of
from .._functions._held import digest_of_function, is_held_value
from .._observe._records import Aval
from .._trees._nodes import walk

TIMEOUT = float(os.environ.get("FILTERJIT_PROCESSES_TIMEOUT", "300"))
GRACE = 3.0
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]+")
_BRACES = re.compile(r"\{([^{}]*)\}")
_MOST_LINES = 5

_agreed: set[tuple[str, str]] = set()  # (who takes part, a digest)
_locks: dict[tuple[str, str], threading.Lock] = {}  # one thread waits for each
_at_work: set[object] = set()  # calls that have agreed and are not over
_judging = threading.Lock()


# ---- descriptions that are the same on all processes ----


def describe_value(x: Any, depth: int = 8) -> str:
    """Returns a text that does not depend on addresses and hash seeds.

    Equal values have equal texts; so do values that only their identity tells apart.
    """
    name = f"{type(x).__module__}.{type(x).__qualname__}"
    if isinstance(x, enum.Enum):
        return f"{name}.{x.name or x.value}"  # a combination of flags may have no name
    if x is None or isinstance(x, (bool, int, float, complex, str, bytes)):
        return f"{name} {x!r}"
    if isinstance(x, (type, FunctionType, BuiltinFunctionType)):
        text = f"{x.__module__}.{x.__qualname__}"
        if isinstance(x, FunctionType):
            held = [(k, v) for k, v in _defaults_and_closure(x) if depth > 1 and is_held_value(v)]
            text += f"({_all(held, depth - 1)}) {digest_of_function(x)}"
        return text
    if depth == 0:
        return name
    if isinstance(x, MethodType):
        below = [("", x.__func__), ("", x.__self__)]
        return f"{name}({_all(below, depth)})"
    if isinstance(x, functools.partial):
        below = [("", x.func), *(("", y) for y in x.args), *x.keywords.items()]
        return f"{name}({_all(below, depth)})"
    if isinstance(x, np.ndarray):
        text = (
            f"({_all([('', y) for y in x.flat], depth)})" if x.dtype.hasobject
            else hashlib.sha256(x.tobytes()).hexdigest()
        )  # fmt: skip
        return f"{name} {x.dtype}{list(x.shape)} {text}"
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
    return f"{name} {_in_order(_ADDRESS.sub('0x', _errors.short(x, sys.maxsize)))}"


def _in_order(text: str) -> str:
    """Returns the repr of a value with what stands between braces in an order that does not depend
    on hash seeds, which decide how a set is shown."""
    count = 1
    while count:
        text, count = _BRACES.subn(
            lambda found: f"<{', '.join(sorted(found[1].split(', ')))}>", text
        )
    return text


def _defaults_and_closure(f: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yields the names and the values of a function's defaults and of its closure."""
    yield from defaults_of(f)
    for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # the cell is empty
            yield name, cell.cell_contents


def _all(items: Sequence[tuple[str, Any]], depth: int) -> str:
    return ", ".join(f"{k}={describe_value(v, depth - 1)}" for k, v in items)


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


def compare(
    name: str, lines: Sequence[str], processes: tuple[int, ...], variant: _core.Variant
) -> None:
    """Returns when all `processes` have come to run the program of these lines, a call of `variant`.

    Raises:
        ProcessMismatchError: on all of them if they have come to run different programs; it names
            the processes and the paths.
    """
    client = _jax_compat.coordination_client()
    if client is None or len(processes) < 2 or jax.process_index() not in processes:
        return
    place = f"filterjit/{'-'.join(map(str, _ranges(processes)))}"
    text = "\n".join(lines)
    digest = hashlib.sha256(text.encode()).hexdigest()
    with _locks.setdefault((place, digest), threading.Lock()):
        if (place, digest) not in _agreed:
            _Wait(client, place, processes, digest, text).run(name)
            _agreed.add((place, digest))
    call = object()
    variant.defer(lambda: _at_work.discard(call))
    _at_work.add(call)


class _Wait:
    """One process waits until all have come with the same digest."""

    def __init__(
        self, client: Any, place: str, processes: tuple[int, ...], digest: str, text: str
    ) -> None:
        self.client = client
        self.place = place
        self.processes = processes
        self.digest = digest
        self.text = text
        self.me = jax.process_index()
        self.missing = list(processes[1:])  # which the leader has not seen yet
        self.id = uuid.uuid4().hex
        self.announced = ""
        self.since: dict[str, float] = {}  # waits of processes that do nothing else, by their ids

    def run(self, name: str) -> None:
        mine = f"{self.place}/waiting/{self.digest}/{self.me}"
        end = time.monotonic() + TIMEOUT
        try:
            self._announce(mine)
            while not self._has_agreed(min(1.0, max(0.001, end - time.monotonic()))):
                self._raise_failure()
                self._announce(mine)
                if self.me == self.processes[0]:
                    self._judge()
                if time.monotonic() > end:
                    raise ProcessMismatchError(
                        f"process {self.me} is about to run `{name}`, and other processes have not "
                        f"come to do the same in {TIMEOUT:g} seconds: they run another program, or "
                        "have failed, or are slow (FILTERJIT_PROCESSES_TIMEOUT)."
                    )
        finally:
            self.client.key_value_delete(mine)

    def _announce(self, key: str) -> None:
        head = f"{self.id}\n{'busy' if _at_work else ''}\n"
        if head != self.announced:
            value = zlib.compress((head + self.text).encode())
            self.client.key_value_set_bytes(key, value, allow_overwrite=True)
            self.announced = head

    def _has_agreed(self, seconds: float) -> bool:
        """Waits for up to `seconds`, and returns whether all have come with this digest."""
        milliseconds = max(1, int(seconds * 1000))
        agreed = f"{self.place}/agreed/{self.digest}"
        try:
            if self.me == self.processes[0]:
                while self.missing:
                    key = f"{self.place}/waiting/{self.digest}/{self.missing[-1]}"
                    self.client.blocking_key_value_get_bytes(key, milliseconds)
                    self.missing.pop()
                self.client.key_value_set(agreed, "", allow_overwrite=True)
            else:
                self.client.blocking_key_value_get(agreed, milliseconds)
        except _jax_compat.JaxRuntimeError as e:
            if "DEADLINE_EXCEEDED" not in str(e):
                raise
            return False
        return True

    def _raise_failure(self) -> None:
        """Raises what the leader found, if it has ended this wait."""
        for key, message in self.client.key_value_dir_get(f"{self.place}/failed/{self.id}/"):
            self.client.key_value_delete(key)
            raise ProcessMismatchError(message)

    def _judge(self) -> None:
        """Ends the waits of all processes if they wait for different programs for too long."""
        with _judging:
            now = time.monotonic()
            waits: dict[str, dict[int, tuple[str, str, str]]] = {}  # by digest and process
            for key, value in self.client.key_value_dir_get_bytes(f"{self.place}/waiting/"):
                digest, i = key.split("/")[-2:]
                id, busy, text = zlib.decompress(value).decode().split("\n", 2)
                waits.setdefault(digest, {})[int(i)] = id, busy, text
            ended = [
                (i, digest, id, busy, text)
                for digest, by_process in waits.items()
                if len(by_process) < len(self.processes)  # else they have agreed
                for i, (id, busy, text) in by_process.items()
            ]
            self.since = {id: self.since.get(id, now) for _, _, id, busy, _ in ended if not busy}
            if {i for i, *_ in ended} != set(self.processes) or not all(
                now - self.since.get(id, now) >= GRACE for _, _, id, _, _ in ended
            ):
                return
            differ = {i: text for i, *_, text in sorted(ended) if text != self.text}
            message = _message(self.me, self.text, differ)
            for i, digest, id, *_ in ended:
                self.client.key_value_set(f"{self.place}/failed/{id}/message", message)
                self.client.key_value_delete(f"{self.place}/waiting/{digest}/{i}")
        self._raise_failure()


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
    head = f"{plural} {who} and process {leader} are about to run different programs:"
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
