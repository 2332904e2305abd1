"""Proofs: whether a program that runs already is the one that a trace makes.

A program of a program cache that is *proven* runs before anything is traced. Meanwhile a `Proof` traces
and lowers the call in a thread, in a copy of its context. If the lowered program is another, it is
traced once more where the next call of the function is made, since what depends on a thread is no
false alarm: a thread-local, or a global that is set around calls. If it is another still, that call
raises `StaleProgramError`. What no call has raised is logged after some seconds, raised by
``ProgramCache.wait``, or written to stderr when the process ends, which waits for the proofs.

Traces of one process keep their order, since one may set what another reads: there is one thread, and
what is traced elsewhere waits for it (`settle`).
"""

import atexit
import collections
import contextlib
import contextvars
import dataclasses
import logging
import os
import sys
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import _core
from .._base._errors import StaleProgramError
from .._base._locks import RLock
from .._call import _deferred, _lowered
from .._call._kept import KeptCall
from .._compat import _jax_compat
from .._observe._recorder import recorder
from .._observe._records import Kept
from .._observe._wording import count
from . import _encode, _program_key
from ._encode import Json
from ._prepared import spec_of
from ._store import PROVEN, TRIAL, Entry, Store

logger = logging.getLogger("filterjit")

_A_MOMENT = 0.1  # seconds
_SHORT, _LONG = 2.0, 10.0  # seconds, for which a proof is waited for before a trace, and at the end
_SOME_SECONDS = 5.0  # in which a call may come, which sees more than a thread


class Worker:
    """Runs functions one after the other in a thread, which ends when there are none left.

    The thread begins a moment later, so that the first result of a program does not wait for it.

    Arguments:
        daemon: whether the interpreter exits without waiting for the thread.
    """

    def __init__(self, daemon: bool) -> None:
        self._daemon = daemon
        self._lock = RLock()
        self.reset()

    def reset(self) -> None:
        """Forgets what there is to do, and the thread, which a forked child does not have."""
        self._waited_for = threading.Event()
        self._todo: collections.deque[Callable[[], None]] = collections.deque()
        self._thread: threading.Thread | None = None
        self.since = 0.0  # when what the thread does has begun

    def do(self, function: Callable[[], None]) -> None:
        self._todo.append(function)
        self._begin()

    def _begin(self) -> threading.Thread | None:
        """Begins the thread if there is none and something to do. Returns it; it has begun."""
        with self._lock:
            if self._thread is not None or not self._todo:
                return self._thread
            thread = threading.Thread(
                target=self._run, name="filterjit program cache", daemon=self._daemon
            )
            if self._thread is None:  # else what has interrupted the line above has begun one
                self._thread, self.since = thread, time.monotonic()
                try:
                    thread.start()
                except RuntimeError:  # the interpreter exits
                    self._thread = None
            return self._thread

    def wait(self, seconds: float = threading.TIMEOUT_MAX) -> bool:
        """Returns whether all is done, of which one has taken so many seconds at most."""
        while (thread := self._begin()) is not None and thread is not threading.current_thread():
            self._waited_for.set()
            left = self.since + seconds - time.monotonic()
            if left <= 0:
                return False
            thread.join(left)
        self._waited_for.clear()
        return True

    def _run(self) -> None:
        while True:
            self._waited_for.wait(_A_MOMENT)
            with self._lock:
                if not self._todo:
                    self._thread = None
                    return
                function = self._todo.popleft()
            self.since = time.monotonic()
            try:
                function()
            except BaseException:  # also SystemExit: the thread goes on
                logger.debug("the program cache has failed", exc_info=True)


is_over = False
"""Whether the process ends, and nothing can be proven any more."""

writer = Worker(daemon=False)
_prover = Worker(daemon=True)
_open: list["Proof"] = []  # proofs that are not over, in the order in which they began


class Traced:
    """What a trace of a call has made.

    Attributes:
        lowered: the ``jax.stages.Lowered``.
        text: of the lowered program.
        result: the structure of the result, with the statics of the call by their numbers.
        digest: of all that decides what executable it is, and what it returns.
    """

    def __init__(
        self, call: KeptCall, variant: _core.Variant, lowered: Any, environment: str
    ) -> None:
        """Raises ValueError or UnknownProgramError if the program cannot be kept."""
        self.lowered = lowered
        self.text = _lowered.text_of(lowered)
        structure = variant.outputs[lowered.out_tree.node_data()[1]]
        known = _program_key.known_in(call)
        self.result: Json = _encode.encode_structure(call.registry, structure, "the result", known)
        self.digest = _lowered.digest_of(f"{environment}\n{self.result!r}\n{self.text}")


class Loaded(NamedTuple):
    """A program that was found: the ``jax.stages.Compiled``, and the seconds of the trace that it was
    compiled from."""

    stage: Any
    seconds: float

    @property
    def size(self) -> int | None:
        """The bytes of its code, if JAX tells."""
        try:
            return int(self.stage.runtime_executable().size_of_generated_code_in_bytes()) or None
        except Exception:
            return None


class _Another(Exception):
    """A trace makes another program than the one that runs, or none."""

    def __init__(self, program: str, how: str) -> None:
        super().__init__(how)
        self.program = program


@dataclasses.dataclass(eq=False)
class Proof:
    """The proof of a program that a call runs.

    Attributes:
        store: where the program is from.
        call: of the variant.
        arrays: of the call.
        key, entry: of the call in the index.
        environment: see `_program_key.environment`.
        loaded: what runs.
        kept: what reports say of the program.
    """

    store: Store
    call: KeptCall
    arrays: dataclasses.InitVar[Sequence[Any]]
    key: str
    entry: Entry
    environment: str
    loaded: Loaded
    kept: Kept

    def __post_init__(self, arrays: Sequence[Any]) -> None:
        # They may die meanwhile, and what the function refers to weakly.
        self._variant, self._cache, hooks = self.call.alive()
        self._needed = hooks.needed_by(self._arguments()[0])
        self._specs = tuple(map(spec_of, arrays))
        # The calls before the one that has begun it, if that is no `warm_up`.
        self._earlier = self._variant.hits - (not recorder.is_on_purpose())
        self._statics = self._statics_now()
        self._hash = hash(self._statics)  # which takes a copy of what can change in place
        self._settings = _jax_compat.settings()
        self._context = contextvars.copy_context()

    def begin(self) -> None:
        _open.append(self)
        _prover.do(self._run)
        _finish_in_child()

    def _run(self) -> None:
        if self not in _open:
            return
        try:
            self._context.run(self._prove)
            return
        except BaseException as e:  # also SystemExit, of a trace
            how = str(e) if type(e) is _Another else f"a trace raises {type(e).__name__}"
        self.call.doubt(self.check)
        timer = threading.Timer(_SOME_SECONDS, self._remind, [how])
        timer.daemon = True
        timer.start()

    def _remind(self, how: str) -> None:
        if self in _open:
            logger.warning(
                "filterjit: %s A thread has seen it; the next call looks.", self._told(how)
            )

    def check(self) -> None:
        """Traces once more, in the thread that has called this. Raises StaleProgramError."""
        if self not in _open:
            return
        try:
            self._prove()
        except _Another as e:
            self.call.drop(self.loaded.stage)
            alarm = self.entry.program
            self._end("stale", f"stale: {e}", program=e.program, state=TRIAL, alarm=alarm)
            raise StaleProgramError(
                f"{self._told(str(e))} What the function does depends on something that does not count "
                "for the program cache, such as a file, a setting or the time. From now on, its "
                "program is the one of a trace, and the next start traces it first. To trace first in "
                'each start, use `program_cache(..., trust="never")`.'
            ) from e.__cause__

    def _told(self, how: str) -> str:
        runs, name = self._variant.hits - self._earlier, f"`{self.call.flat.qualname}`"
        calls = f"{count(runs, 'call')} of {name} ran" if runs else f"{name} has loaded"
        return (
            f"{calls} a program of the program cache {self.store.path} that is not the one that a "
            f"trace makes now: {how}."
        )

    def _prove(self) -> None:
        """Traces. Raises _Another if that makes another program."""
        now = self._statics_now()
        if now != self._statics or hash(now) != self._hash:
            raise _Another(self.entry.program, "a static value was changed in place meanwhile")
        try:
            traced = self._trace()
        except Exception as e:
            how = f"a trace raises {type(e).__name__}: {e}"
            raise _Another(self.entry.program, how) from e
        if traced.digest != self.entry.program:
            raise _Another(traced.digest, self._difference(traced.text))
        self._end(PROVEN, state=PROVEN)

    def abandon(self, why: str) -> None:
        """Ends the proof without a result, which it tells."""
        self._end(TRIAL, "its proof did not end", state=TRIAL)
        _say(f"the proof of `{self.call.flat.qualname}` {why}. The next start traces it first.")

    def _end(self, told: str, why: str = "", **changes: str) -> None:
        if self not in _open:
            return
        _open.remove(self)
        self.kept.state, self.kept.why = told, why
        entry = dataclasses.replace(self.entry, **changes)
        if entry != self.entry:
            self.store.set_entry(self.key, entry)

    def _trace(self) -> Traced:
        variant = self._variant
        before = variant.deferrals
        try:
            with self._settings(), recorder.proving(self._cache.record):
                lowered = self.call.lower(self._specs, anew=True)
                return Traced(self.call, variant, lowered, self.environment)
        finally:
            _deferred.run_outside(variant, before)

    def _statics_now(self) -> _core.Structure:
        return _core.flatten(self.call.registry, self._arguments())[1]

    def _arguments(self) -> tuple[Any, list[Any]]:
        """Returns the function and the arguments, with a NumPy array in the place of each array."""
        variant = self._variant
        count = variant.function.num_leaves + variant.structure.num_leaves
        return variant.arguments((np.zeros(()),) * count)

    def _difference(self, text: str) -> str:
        """Returns the first lines in which the two programs differ, if the old one is still there."""
        found = self.store.program(self.entry.program)
        if found is None:
            return "the program differs"
        before = zlib.decompress(found[1][-1]).decode("utf-8", "surrogatepass").splitlines()
        return _lowered.difference(before, text.splitlines()) or "the result differs"


def _wait(seconds: float) -> bool:
    """Returns whether all is traced that is to be proven, and does not wait for a proof that takes far
    longer than its trace has taken."""
    return _prover.wait(seconds * (1 + 2 * max((one.loaded.seconds for one in _open), default=0)))


def settle() -> bool:
    """Is called before a trace: what the traces of earlier calls set, it may read. Returns whether their
    proofs have been traced, and warns if not: one may wait for a lock which the caller holds."""
    done = not _open or _wait(_SHORT)
    if not done:
        logger.warning(
            "filterjit traces a function before the proof of an earlier call in the program cache "
            "has ended, which takes very long: what the trace of that one sets is not seen"
        )
    return done


def wait(store: Store) -> None:
    """Returns when all proofs of programs of a store are over. Raises StaleProgramError."""
    _prover.wait()
    for proof in list(_open):
        if proof.store is store:
            proof.check()


def _finish() -> None:
    """Is called when the process ends: finishes all proofs, and tells what they find."""
    global is_over
    is_over = True
    try:
        _prover.since = time.monotonic()
        done = _wait(_LONG)
        for proof in list(_open):
            _tell(proof) if done else proof.abandon("takes very long, and has not ended")
    except KeyboardInterrupt:
        for proof in list(_open):
            proof.abandon("was interrupted")


def _tell(proof: Proof) -> None:
    try:
        proof.check()
    except StaleProgramError as e:
        _say(f"StaleProgramError: {e}")
    except KeyboardInterrupt:
        raise
    except BaseException as e:  # such as SystemExit, of a trace: the others are told too
        proof.abandon(f"has raised {type(e).__name__}")


def _say(text: str) -> None:
    """Writes to stderr, and to the log if there is one: either may be closed, or not be read."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        print(f"filterjit: {text}", file=sys.stderr, flush=True)
    if logger.hasHandlers():
        logger.error(text)


def _finish_in_child() -> None:
    """Lets a child of multiprocessing end as other processes do: there, `atexit` knows nothing."""
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        from multiprocessing import util

        util.Finalize(None, _finish, exitpriority=0)


def _after_fork() -> None:
    """Doubts what the parent was proving: its calls have run in this process, too. The thread begins
    when somebody waits for it."""
    writer.reset()
    _prover.reset()
    for proof in _open:
        proof.call.doubt(proof.check)
        _prover._todo.append(proof._run)


atexit.register(_finish)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
