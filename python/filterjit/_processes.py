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
- ``text/ID`` is the program of a wait of more than a second, for messages.

If a trace raises, its process waits too, until all processes raise the same error or its wait
ends. It then raises its own error. This digest never becomes agreed.

- ``asked/ID`` is a question by a process that has waited for `TIMEOUT` seconds, and
  ``answers/ID/PROCESS`` describes the most similar call that a process has compiled.

Hits compare nothing. If one process hits, or returns to an agreed program, while the others arrive
at a different program, it runs its own and blocks there. After `TIMEOUT` seconds, the others ask
and raise. A thread of each process answers. If the process then waits for `GRACE` seconds for a
program of several processes, this thread ends the process, because JAX can't cancel a program.
"""

import atexit
import contextlib
import hashlib
import itertools
import json
import os
import re
import sys
import threading
import time
import traceback
import uuid
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax

from . import _core
from ._base._arrays import is_tracing, placement
from ._base._errors import ProcessMismatchError, array_paths, format_path, short_repr
from ._base._locks import RLock
from ._call._direct import restore
from ._call._programs import Programs, programs_of
from ._call._settings import Settings
from ._compat import _executable_compat, _jax_compat
from ._trees._nodes import walk
from ._trees._values import bytes_of

_jax_compat.hide_from_tracebacks(__file__)

TIMEOUT = float(os.environ.get("FILTERJIT_PROCESSES_TIMEOUT", "300"))
GRACE = 3.0
_MOST = 200  # characters per line
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")

_agreed: set[tuple[str, str]] = set()  # (participants, digest)
_locks: dict[tuple[str, str], RLock] = {}  # one thread waits for each
_busy: set[object] = set()  # calls that trace, compile or run
_judging = RLock()
_ended: set[str] = set()  # ids of waits that this process ended
_answered: set[str] = set()  # places with a thread that answers
_comparisons: "weakref.WeakSet[Comparison]" = weakref.WeakSet()


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
        self.name = name
        self._variant = weakref.ref(variant)
        self._mesh = None if settings.shardings is None else settings.shardings.mesh
        self._of_all = bool(settings.same_on_all_processes)
        self._compared: set[Any] = set()
        self.calls: list[dict[str, str]] = []  # the arguments of each program
        _comparisons.add(self)

    @contextlib.contextmanager
    def before_run(self, arrays: tuple[Any, ...], find: Callable[[], Any]) -> Iterator[None]:
        """Surrounds a call. Waits until all processes are about to run this program.

        `find` returns the ``jax.jit`` of the call. Comparing traces and lowers it, and the call
        finds both in JAX's caches. Raises the trace's exception, or a ProcessMismatchError on all
        processes if their programs differ.
        """
        call = object()
        try:
            self._compare(arrays, find, call)
            yield
        finally:
            _busy.discard(call)

    def _compare(self, arrays: tuple[Any, ...], find: Callable[[], Any], call: object) -> None:
        if jax.config.jax_disable_jit or is_tracing():
            return  # it won't run, or only as part of an outer program
        mesh = self._mesh or _jax_compat.concrete_mesh()
        try:
            kinds = tuple([(_jax_compat.typeof(x), placement(x)) for x in arrays])
        except TypeError:
            return  # not arrays; JAX raises the error
        key = kinds, mesh, _jax_compat.trace_context()
        if key in self._compared:
            return
        variant = self._variant()
        assert variant is not None
        programs = programs_of(variant)
        specs: Sequence[Any] = ()
        with contextlib.suppress(Exception):  # the trace raises it too
            specs = programs.specs_of_arrays(arrays)
        processes = _participants(mesh, specs)
        if self._of_all and not processes:
            processes = tuple(range(jax.process_count()))
        client = _jax_compat.coordination_client()
        if client is not None and len(processes) > 1 and jax.process_index() in processes:
            _busy.add(call)
            try:
                lowered = find().trace(*arrays).lower()
            except Exception as e:
                if _makes_call_fail(programs, e, arrays):
                    line = traceback.format_exception_only(e)[0].strip().splitlines()[0]
                    raised = f"raises {_cut(_ADDRESS.sub('', line))}"
                    with contextlib.suppress(Exception):  # this process raises `e` in any case
                        _Wait(client, processes, self.name, raised=raised).run(call)
                raise
            about = _arguments_in_words(variant, restore(arrays, programs.order))
            program = _text_of(lowered)
            _Wait(client, processes, self.name, program=program, about=about).run(call)
            self.calls.append(about)
        self._compared.add(key)


def _arguments_in_words(variant: _core.Variant, arrays: Sequence[Any]) -> dict[str, str]:
    """Describes the arrays and statics of a call by path, for messages."""
    paths = [*map(format_path, array_paths(variant.function, variant.structure))]
    found = {path: str(_jax_compat.typeof(x)) for path, x in zip(paths, arrays, strict=True)}
    for node, path in walk(variant.structure):
        if node.statics:
            shown = ", ".join(short_repr(x) for x in node.statics)
            found[format_path(path)] = _cut(_ADDRESS.sub("", shown))
    return found


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
    return f"{x.dtype}{list(x.shape)} {hashlib.sha256(bytes_of(x)).hexdigest()}"


class _Entry(NamedTuple):
    """A wait in the store."""

    process: int
    digest: str
    id: str
    busy: str
    raised: str


class _Wait:
    """Waits until all processes have arrived with the same digest. Each process has a `program`
    text or the error `raised` by its trace."""

    def __init__(
        self,
        client: Any,
        processes: tuple[int, ...],
        name: str,
        program: str = "",
        raised: str = "",
        about: dict[str, str] | None = None,
    ) -> None:
        self.client, self.about = client, about or {}
        self.processes, self.name, self.program, self.raised = processes, name, program, raised
        text = program or f"{name} {raised}"
        self.digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        self.id = uuid.uuid4().hex
        self.me = jax.process_index()
        self.place = f"filterjit/{hashlib.sha256(repr(processes).encode()).hexdigest()}"
        self.mine = f"{self.place}/waiting/{self.digest}/{self.me}"
        self.end = f"{self.place}/ended/{self.id}/message"
        self.agreed = f"{self.place}/agreed/{self.digest}"
        self.since: dict[str, float] = {}  # start of each idle process's wait, by id

    def run(self, call: object) -> None:
        """Returns when all processes are about to run the program. Raises ProcessMismatchError."""
        key = self.place, self.digest
        _start_to_answer(self.client, self.place, self.me)
        _busy.discard(call)
        try:
            with _locks.setdefault(key, RLock()):
                if key not in _agreed:
                    self._wait()
                    _agreed.add(key)
        finally:
            _busy.add(call)

    def _wait(self) -> None:
        is_leader, text, start = self.me == self.processes[0], "", time.monotonic()
        try:
            while True:
                value = f"{self.id}\n{'busy' * bool(_busy)}\n{self.raised}"
                data = value.encode("utf-8", "backslashreplace")
                self.client.key_value_set_bytes(self.mine, data, allow_overwrite=True)
                waited = time.monotonic() - start
                if self._lead(waited) if is_leader else self._follow(TIMEOUT - waited):
                    return
                for _, message in self.client.key_value_dir_get(self.end.removesuffix("/message")):
                    self.client.key_value_delete(self.end)
                    raise ProcessMismatchError(message)
                if waited > TIMEOUT:
                    error = ProcessMismatchError(
                        f"process {self.me} is about to run `{self.name}`, and other processes have "
                        f"not come to do the same in {TIMEOUT:g} seconds: they run another program, or "
                        "have failed, or are slow (FILTERJIT_PROCESSES_TIMEOUT)."
                    )
                    error.__notes__ = self._ask()
                    raise error
                if not (text or is_leader):
                    text = f"{self.place}/text/{self.id}"
                    sent = json.dumps([self.name, self.about, self.program])
                    data = zlib.compress(sent.encode("utf-8", "backslashreplace"))
                    self.client.key_value_set_bytes(f"{text}/text", data)
        finally:
            self.client.key_value_delete(self.mine)
            if text:
                self.client.key_value_delete(text)

    def _follow(self, seconds: float) -> bool:
        """Waits for the leader's answer, for at most a second. Returns True if all agree."""
        try:
            key = self.end if self.raised else self.agreed
            self.client.blocking_key_value_get(key, int(1000 * min(1.0, max(0.001, seconds))))
        except jax.errors.JaxRuntimeError as e:
            if "DEADLINE_EXCEEDED" not in str(e):
                raise
            return False
        return not self.raised

    def _lead(self, waited: float) -> bool:
        """Returns True if all processes have arrived with this digest. Ends all waits after too
        long with different programs, or with the same error."""
        time.sleep(min(0.05, waited / 10))
        with _judging:
            waits: dict[str, list[_Entry]] = {}  # by digest
            for key, value in self.client.key_value_dir_get_bytes(f"{self.place}/waiting/"):
                digest, process = key.split("/")[-2:]
                entry = _Entry(int(process), digest, *value.decode().split("\n", 2))
                if entry.id not in _ended:
                    waits.setdefault(digest, []).append(entry)
            mine, everyone = waits.get(self.digest, []), set(self.processes)
            if len(mine) == len(everyone):
                if self.raised:
                    self._end(mine, "")
                else:
                    self.client.key_value_set(self.agreed, "", allow_overwrite=True)
                    return True
            differ = [x for found in waits.values() if len(found) < len(everyone) for x in found]
            now = time.monotonic()
            self.since = {x.id: self.since.get(x.id, now) for x in differ if not x.busy}
            is_over = all(now - self.since.get(x.id, now) >= GRACE for x in differ)
            if is_over and self.id in self.since and {x.process for x in differ} == everyone:
                self._end(differ, self._message(sorted(differ)))
        return False

    def _end(self, entries: Iterable[_Entry], message: str) -> None:
        for x in entries:
            _ended.add(x.id)
            # First, because another thread can arrive with this digest as soon as the wait ends.
            self.client.key_value_delete(f"{self.place}/waiting/{x.digest}/{x.process}")
            self.client.key_value_set(f"{self.place}/ended/{x.id}/message", message)

    def _ask(self) -> list[str]:
        """Asks the other processes, and returns lines about arguments that differ."""
        asked, place = f"{self.place}/asked/{self.id}", f"{self.place}/answers/{self.id}/"
        self.client.key_value_set(asked, json.dumps([self.me, self.name, self.about]))
        answers: list[tuple[str, str]] = []
        end = time.monotonic() + 2 * GRACE
        while len(answers) < len(self.processes) - 1 and time.monotonic() < end:
            time.sleep(0.05)
            answers = self.client.key_value_dir_get(place)
        self.client.key_value_delete(asked)
        self.client.key_value_delete(place)
        return [
            f"({here} on process {self.me}, {there} on process {key.rpartition('/')[2]})"
            for key, call in sorted(answers)
            for here, there in _differences(self.about, json.loads(call))
        ]

    def _message(self, entries: Sequence[_Entry]) -> str:
        others = [x for x in entries if x.digest != self.digest and x.process != self.me]
        numbers = sorted({x.process for x in others})
        who = f"process{'es' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"
        lines = [
            f"{who} and process {self.me} are about to run different programs of `{self.name}`:"
        ]
        for x in entries:
            what = x.raised or f"runs the program {x.digest[:16]}"
            lines.append(f"process {x.process} {what}")
        for other in [x for x in others if not (x.raised or self.raised)][:1]:
            for _, value in self.client.key_value_dir_get_bytes(f"{self.place}/text/{other.id}/"):
                there = json.loads(zlib.decompress(value))
                for a, b in self._differences(*there):
                    lines.append(f"{a} on process {self.me}, {b} on process {other.process}")
        return f"{_lines(*lines)}\n{_ADVICE}"

    def _differences(self, name: str, about: dict[str, str], program: str) -> Iterator[Any]:
        """Yields pairs of texts: the function, its first arguments, and the line that differ."""
        if name != self.name:
            yield f"`{self.name}`", f"`{name}`"
        else:
            yield from _differences(self.about, about)
        yield _first_difference(self.program, program)


_ADVICE = "All processes must run the same program."


def _lines(*lines: str) -> str:
    return "\n  ".join(lines)


def _differences(here: dict[str, str], there: dict[str, str]) -> list[tuple[str, str]]:
    """Returns pairs of texts for the first arguments that differ."""
    paths = [x for x in here | there if here.get(x) != there.get(x)]
    return [(f"`{x}` is {here.get(x, 'nothing')}", there.get(x, "nothing")) for x in paths[:3]]


def _start_to_answer(client: Any, place: str, me: int) -> None:
    if place in _answered:
        return
    _answered.add(place)
    has_ended = threading.Event()

    def answer() -> None:
        answered = set()
        while not has_ended.wait(GRACE):
            for key, question in client.key_value_dir_get(f"{place}/asked/"):
                if key not in answered:
                    answered.add(key)
                    _answer(client, f"{place}/answers/{key.rpartition('/')[2]}/{me}", question)

    def answer_until_the_service_ends() -> None:
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            answer()

    thread = threading.Thread(target=answer_until_the_service_ends, name="filterjit", daemon=True)
    thread.start()

    @atexit.register
    def end() -> None:  # while the interpreter ends, a call of C++ in a thread would crash
        has_ended.set()
        thread.join()


def _answer(client: Any, key: str, question: str) -> None:
    """Answers the question of a process, and ends this one if it waits in vain."""
    me, (asker, name, about) = jax.process_index(), json.loads(question)
    if asker == me:
        return
    calls = [call for one in list(_comparisons) if one.name == name for call in one.calls]
    call = min(calls, key=lambda call: len(call.items() ^ about.items()), default=about)
    client.key_value_set(key, json.dumps(call))
    before = _unfinished()
    time.sleep(GRACE)
    if any(x is y for x in before for y in _unfinished()):
        lines = _lines(
            f"ProcessMismatchError: process {me} waits for a program of several processes. Process "
            f"{asker} has waited {TIMEOUT:g} seconds to run another program, of `{name}`:",
            *(
                f"{here} on process {me}, {there} on process {asker}"
                for here, there in _differences(call, about)
            ),
        )
        print(f"{lines}\n{_ADVICE}", file=sys.stderr, flush=True)
        # When other processes end, they wait for this one to leave.
        leaving = threading.Thread(target=client.shutdown, daemon=True)
        leaving.start()
        leaving.join(GRACE)
        os._exit(1)


def _unfinished() -> list[jax.Array]:
    """Returns the results of programs of several processes that haven't ended."""
    found = []
    for x in jax.live_arrays():
        with contextlib.suppress(RuntimeError):  # it is deleted
            if not (x.is_fully_addressable or x.is_ready()):
                found.append(x)
    return found


def _first_difference(here: str, there: str) -> tuple[str, str]:
    """Returns the first lines that differ, cut around the difference."""
    heads, bodies = zip(*(text.split("\n", 1) for text in (here, there)), strict=True)
    lines = [[*b.splitlines(), *h.split(', "')] for h, b in zip(heads, bodies, strict=True)]
    pairs = itertools.zip_longest(*lines, fillvalue="nothing")
    a, b = next((pair for pair in pairs if pair[0] != pair[1]), ("", ""))
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))
    start = sum(1 for _ in same) - _MOST // 2
    return _cut(a, start), _cut(b, start)


def _cut(text: str, start: int = 0) -> str:
    text = f"...{text[start:]}" if start > 0 else text.strip()
    return text if len(text) <= _MOST else f"{text[: _MOST - 3]}..."
