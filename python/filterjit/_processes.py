"""The option `same_on_all_processes`: processes compare a program before they run it.

A program on the devices of several processes hangs if one of them runs a different program. Before
the first call of each program, the processes therefore compare a digest of its lowered text.
Different Python values that give the same program agree. A call under a trace or a transformation
is part of an outer program, and isn't compared.

Processes meet in the key-value store of ``jax.distributed``:

- ``waiting/DIGEST/PROCESS`` exists while a process waits. Its value is the wait's id, the trace's
  error, if any, and whether a different thread of the process is tracing, compiling or running.
- ``agreed/DIGEST`` is permanent. The first process, the *leader*, writes it when all processes wait
  with this digest. A process that returns to this digest, for example after an eviction, doesn't
  wait.
- ``ended/ID`` ends one wait with a message. The leader writes it if all processes have waited for
  different programs for `GRACE` seconds, while none of them had a busy thread, which could still
  arrive at the right program. It ends all waits, because they can't be matched. The waiting process
  deletes the key.
- ``shown/ID`` describes a call and its program for messages, written after waiting for a second.

If a trace raises, its process waits too, until all processes raise the same error or its wait
ends. It then raises its own error. This digest never becomes agreed.

Hits compare nothing. If one process hits, or returns to an agreed program, while the others arrive
at a different program, it runs its own and blocks there. The others raise after `TIMEOUT` seconds.
"""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import re
import threading
import time
import traceback
import uuid
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from . import _core
from ._base import _errors
from ._base._arrays import Aval, is_tracing, placement
from ._base._errors import ProcessMismatchError
from ._base._locks import RLock
from ._call._programs import Programs, programs_of
from ._call._settings import Settings
from ._compat import _executable_compat, _jax_compat
from ._trees._nodes import walk

_jax_compat.hide_from_tracebacks(__file__)

TIMEOUT = float(os.environ.get("FILTERJIT_PROCESSES_TIMEOUT", "300"))
GRACE = 3.0
_MOST_LINES = 5
_MOST = 200  # characters per line
_MOST_SHOWN = 100_000  # characters per static value
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")

_agreed: set[tuple[str, str]] = set()  # (participants, digest)
_locks: dict[tuple[str, str], RLock] = {}  # one thread waits for each
_busy_calls: set[tuple[int, object]] = set()  # (thread, token) of calls that trace, compile or run
_waiting: list[int] = []  # threads with a waiting call
_judging = RLock()
_ended: set[str] = set()  # ids of waits that this process ended


def _participants(mesh: Any, specs: Sequence[Any]) -> tuple[int, ...]:
    """Returns the processes that run a program over `mesh` and `specs`; empty if unknown."""
    devices = set() if mesh is None else set(mesh.devices.flat)
    for spec in specs:
        if isinstance(spec, jax.sharding.Sharding):
            devices |= spec.device_set
    return tuple(sorted({device.process_index for device in devices}))


class Comparison:
    """Compares each program of a variant with other processes, once, before it runs."""

    def __init__(self, name: str, variant: _core.Variant, settings: Settings) -> None:
        self._name = name
        self._variant = weakref.ref(variant)
        self._mesh = None if settings.shardings is None else settings.shardings.mesh
        self._of_all = bool(settings.same_on_all_processes)
        self._compared: set[Any] = set()

    @contextlib.contextmanager
    def before_run(self, arrays: tuple[Any, ...], find: Callable[[], Any]) -> Iterator[None]:
        """Surrounds a call. Waits until all processes are about to run this program.

        `find` returns the ``jax.jit`` of the call. Comparing traces and lowers it, and the call
        finds both in JAX's caches. Raises the trace's exception, or a ProcessMismatchError on all
        processes if their programs differ.
        """
        token = threading.get_ident(), object()
        try:
            self._check(arrays, find, token)
            yield
        finally:
            _busy_calls.discard(token)

    def _check(
        self, arrays: tuple[Any, ...], find: Callable[[], Any], token: tuple[int, object]
    ) -> None:
        variant = self._variant()
        assert variant is not None
        if jax.config.jax_disable_jit or is_tracing():
            return  # it won't run, or only as part of an outer program
        mesh = self._mesh or _jax_compat.concrete_mesh()
        try:
            kinds = tuple([(_jax_compat.typeof(x), placement(x)) for x in arrays])
        except TypeError:
            return  # not arrays; JAX raises the error
        key = kinds, mesh, _jax_compat.trace_context()
        if key not in self._compared:
            self._compare(variant, arrays, mesh, lambda: find().trace(*arrays).lower(), token)
            self._compared.add(key)

    def _compare(
        self,
        variant: _core.Variant,
        arrays: tuple[Any, ...],
        mesh: Any,
        lower: Callable[[], Any],
        token: tuple[int, object],
    ) -> None:
        programs = programs_of(variant)
        specs: Sequence[Any] = ()
        with contextlib.suppress(Exception):  # `lower` raises it too
            specs = programs.specs_of_arrays(arrays)
        processes = _participants(mesh, specs)
        if self._of_all and not processes:
            processes = tuple(range(jax.process_count()))
        client = _jax_compat.coordination_client()
        if client is None or len(processes) < 2 or jax.process_index() not in processes:
            return

        def describe() -> Iterable[tuple[str, str]]:
            return _texts_of(variant, arrays, specs, mesh)

        _busy_calls.add(token)
        try:
            lowered = lower()
        except Exception as e:
            if _makes_call_fail(programs, e, arrays):
                line = traceback.format_exception_only(e)[0].strip().splitlines()[0]
                error = f"raises {_cut(_ADDRESS.sub('', line))}"
                with contextlib.suppress(Exception):  # this process raises `e` in any case
                    _Wait(client, processes, self._name, describe, raised=error).run()
            raise
        _Wait(client, processes, self._name, describe, program=_text_of(lowered)).run()


def _makes_call_fail(programs: Programs, exception: Exception, arrays: tuple[Any, ...]) -> bool:
    """True if a trace's exception fails the call, without a second attempt."""
    try:
        return not programs.needs_other_program(exception, arrays)
    except Exception:  # from the user's rules
        return True


def _text_of(lowered: Any) -> str:
    """Returns the text to compare, without devices if each process uses its own."""
    is_shared = _executable_compat.processes_of(lowered) != {jax.process_index()}
    if is_shared and (found := _executable_compat.lowered_facts(lowered)) is not None:
        facts, constants = found
        facts["constants"] = list(map(_digest_of_array, constants))
        return f"{json.dumps(facts)}\n{lowered.as_text()}"
    return f"{lowered.args_info}\n{lowered.as_text()}"


def _digest_of_array(x: Any) -> str:
    if isinstance(x, jax.Array) and jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    values = np.asarray(x)
    return f"{values.dtype}{list(values.shape)} {hashlib.sha256(values.tobytes()).hexdigest()}"


class _Entry(NamedTuple):
    """A wait in the store."""

    process: int
    digest: str
    id: str
    busy: str
    raised: str


@dataclasses.dataclass(eq=False)
class _Wait:
    """Waits until all processes have arrived with the same digest. Each process has a `program`
    text or the error `raised` by its trace. `describe` describes the call for messages."""

    client: Any
    processes: tuple[int, ...]
    name: str
    describe: Callable[[], Iterable[tuple[str, str]]]
    raised: str = ""
    program: str = ""

    def __post_init__(self) -> None:
        first, last = self.processes[0], self.processes[-1]
        consecutive = self.processes == tuple(range(first, last + 1))
        numbers = (first, last) if consecutive else self.processes
        self.place = f"filterjit/{'-'.join(map(str, numbers))}"
        text = self.program or f"{self.name} {self.raised}"
        self.digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        self.me = jax.process_index()
        self.is_leader = self.me == first
        self.missing = list(self.processes[1:])  # not yet seen by the leader
        self.id = uuid.uuid4().hex
        self.since: dict[str, float] = {}  # start of each idle process's wait, by id

    def run(self) -> None:
        """Returns when all processes are about to run the program. Raises ProcessMismatchError."""
        key, thread = (self.place, self.digest), threading.get_ident()
        _waiting.append(thread)
        try:
            with _locks.setdefault(key, RLock()):
                if key not in _agreed:
                    self._wait()
                    _agreed.add(key)
        finally:
            _waiting.remove(thread)

    def _wait(self) -> None:
        mine, shown = f"{self.place}/waiting/{self.digest}/{self.me}", ""
        end = time.monotonic() + TIMEOUT
        try:
            self._announce(mine)
            while not self._has_agreed(min(1.0, max(0.001, end - time.monotonic()))):
                if not (shown or self.raised or self.is_leader):
                    shown = f"{self.place}/shown/{self.id}"
                    value = zlib.compress(json.dumps(self._show()).encode())
                    self.client.key_value_set_bytes(f"{shown}/text", value, allow_overwrite=True)
                self._raise_end()
                self._announce(mine)
                if self.is_leader:
                    self._end_mismatched_waits()
                if time.monotonic() > end:
                    raise ProcessMismatchError(
                        f"process {self.me} is about to run `{self.name}`, and other processes have "
                        f"not come to do the same in {TIMEOUT:g} seconds: they run another program, or "
                        "have failed, or are slow (FILTERJIT_PROCESSES_TIMEOUT)."
                    )
        finally:
            self.client.key_value_delete(mine)
            if shown:
                self.client.key_value_delete(shown)

    def _announce(self, key: str) -> None:
        busy = any(thread not in _waiting for thread, _ in list(_busy_calls))
        text = f"{self.id}\n{'busy' if busy else ''}\n{self.raised}"
        value = text.encode("utf-8", "backslashreplace")
        self.client.key_value_set_bytes(key, value, allow_overwrite=True)

    def _show(self) -> tuple[list[tuple[str, str]], list[str]]:
        """Returns the descriptions of the call, and the lines of the program."""
        head, _, body = self.program.partition("\n")
        return list(self.describe()), [*body.splitlines(), *head.split(', "')]

    def _has_agreed(self, seconds: float) -> bool:
        """Waits for up to `seconds`. Returns True if all processes have arrived."""
        milliseconds = max(1, int(seconds * 1000))
        agreed = f"{self.place}/agreed/{self.digest}"
        try:
            if not self.is_leader:
                key = f"{self.place}/ended/{self.id}/message" if self.raised else agreed
                self.client.blocking_key_value_get(key, milliseconds)
            elif self.raised:
                time.sleep(min(seconds, 0.05))
            else:
                while self.missing:
                    key = f"{self.place}/waiting/{self.digest}/{self.missing[-1]}"
                    self.client.blocking_key_value_get_bytes(key, milliseconds)
                    self.missing.pop()
                self.client.key_value_set(agreed, "", allow_overwrite=True)
        except jax.errors.JaxRuntimeError as e:
            if "DEADLINE_EXCEEDED" not in str(e):
                raise
            return False
        return not self.raised

    def _raise_end(self) -> None:
        """Raises the leader's message if the leader has ended this wait."""
        for key, message in self.client.key_value_dir_get(f"{self.place}/ended/{self.id}/"):
            self.client.key_value_delete(key)
            raise ProcessMismatchError(message)

    def _end_mismatched_waits(self) -> None:
        """Ends all waits after too long with different programs, or with the same error."""
        with _judging:
            now = time.monotonic()
            waits: dict[str, list[_Entry]] = {}  # by digest
            for key, value in self.client.key_value_dir_get_bytes(f"{self.place}/waiting/"):
                digest, process = key.split("/")[-2:]
                entry = _Entry(int(process), digest, *value.decode().split("\n", 2))
                if entry.id not in _ended:
                    waits.setdefault(digest, []).append(entry)
            differ: list[_Entry] = []
            for entries in waits.values():
                if len(entries) < len(self.processes):
                    differ += entries
                elif entries[0].raised:  # otherwise they agree
                    self._end(entries, "")
            self.since = {x.id: self.since.get(x.id, now) for x in differ if not x.busy}
            is_over = all(now - self.since.get(x.id, now) >= GRACE for x in differ)
            is_mine = self.id in self.since
            if is_mine and is_over and {x.process for x in differ} == set(self.processes):
                self._end(differ, self._message(sorted(differ)))
        self._raise_end()

    def _end(self, entries: Iterable[_Entry], message: str) -> None:
        for x in entries:
            _ended.add(x.id)
            # First, because another thread can arrive with this digest as soon as the wait ends.
            self.client.key_value_delete(f"{self.place}/waiting/{x.digest}/{x.process}")
            self.client.key_value_set(f"{self.place}/ended/{x.id}/message", message)

    def _message(self, entries: Sequence[_Entry]) -> str:
        others = [x for x in entries if x.digest != self.digest and x.process != self.me]
        numbers = sorted({x.process for x in others})
        who = f"process{'es' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"
        lines = [f"process {x.process} {x.raised}" for x in entries if x.raised]
        for other in [x for x in others if not (x.raised or self.raised)][:1]:
            shown = f"{self.place}/shown/{other.id}/"
            for _, value in self.client.key_value_dir_get_bytes(shown):
                there = json.loads(zlib.decompress(value))
                lines += _differences(self._show(), there, self.me, other.process)
        count = len(lines) - _MOST_LINES
        lines[_MOST_LINES:] = [f"and {count} more differences"] * (count > 0)
        head = f"{who} and process {self.me} are about to run different programs:"
        return "\n  ".join([head, *lines]) + "\nAll processes must run the same program."


# ---- messages ----


def _texts_of(
    variant: _core.Variant, arrays: Sequence[Any], specs: Sequence[Any], mesh: Any
) -> Iterator[tuple[str, str]]:
    """Yields (path, text) to describe a call in messages."""
    for structure, prefix in ((variant.function, ["the function"]), (variant.structure, [])):
        for node, path in walk(structure):
            if node.kind not in ("array", "arguments"):
                name = getattr(node.type, "__qualname__", node.kind)
                text = _ADDRESS.sub("", _errors.short_repr(node.detail, _MOST_SHOWN))
                text = text if node.kind == "static" else f"{name} {text}"
                yield _errors.format_path([*prefix, *path]), text
    paths = _errors.array_paths(variant.function, variant.structure)
    for path, x, spec in itertools.zip_longest(paths, arrays, specs):
        aval, spec = Aval.of(x), "" if spec is None else f" {spec}"
        yield _errors.format_path(path), f"{aval}{aval.sharding or ''}{spec}"
    if mesh is not None:
        ids = [device.id for device in mesh.devices.flat]
        yield "the mesh", f"{dict(mesh.shape)} of the devices {ids}"


def _differences(here: Any, there: Any, me: int, other: int) -> Iterator[str]:
    """Yields lines about the differences between two processes."""
    (call, program), (other_call, other_program) = here, there
    of_here = {path: text for path, text in call if [path, text] not in other_call}
    of_there = {path: text for path, text in other_call if (path, text) not in call}
    if not (of_here or of_there):
        yield f"the arguments are the same: the function does something else on process {other}"
    differ = [(f"`{x}`", of_here.get(x), of_there.get(x)) for x in of_here | of_there]
    lines = itertools.zip_longest(program, other_program)
    differ += [("the program", a, b) for a, b in lines if a != b][:1]
    for what, *texts in differ:
        characters = enumerate(zip(*map(str, texts), strict=False))
        start = next((i for i, (x, y) in characters if x != y), 0)
        a, b = ("absent" if x is None else _cut(x, max(0, start - _MOST // 2)) for x in texts)
        yield f"{what}: {a} on process {me}, {b} on process {other}"


def _cut(text: str, start: int = 0) -> str:
    text = f"...{text[start:]}" if start else text.strip()
    return text if len(text) <= _MOST else f"{text[: _MOST - 3]}..."
