"""The program cache: the second run of a program traces nothing that has not changed.

A call that would trace looks in the folder first (`_call._kept`). Three modules know the rest: what
a program depends on (`_program_key`), what the trace has run (`_trace_watch`), and what a file holds
(`_program_contents`). What is not found is traced and compiled as always, and a thread writes it.

A program is kept if all that it depends on is known, and was the same before and after its trace.
"""

import collections
import contextlib
import contextvars
import hashlib
import logging
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

from .. import _core
from .._base._checks import check_bool
from .._base._package import public
from .._call._kept import Keep, Keeper, KeptCall, keep_nothing
from .._compat import _jax_compat
from .._observe import _records
from .._observe._recorder import recorder
from . import _program_contents, _program_key, _program_option, _trace_watch
from ._encode import Unsupported
from ._prepared import spec_of
from ._program_folder import MAX_BYTES, ProgramFolder
from ._program_key import Key, Unknown

logger = logging.getLogger("filterjit")

_A_MOMENT = 0.1  # seconds
_VERIFY = "FILTERJIT_PROGRAM_CACHE_VERIFY"


@public
class StaleProgramError(RuntimeError):
    """A program of a program cache is not what a trace makes, which `verify=True` has found."""


class _Worker:
    """Runs functions one after the other in a thread, which ends when there are none left.

    The thread is no daemon, so the interpreter waits for it when it exits. It begins a moment later,
    so that the first result of a program does not wait for the thread.
    """

    def __init__(self) -> None:
        self._after_fork()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()
        self._waited_for = threading.Event()
        self._todo: collections.deque[Callable[[], None]] = collections.deque()
        self._thread: threading.Thread | None = None

    def do(self, function: Callable[[], None]) -> None:
        with self._lock:
            self._todo.append(function)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="filterjit program cache")
                try:
                    self._thread.start()
                except RuntimeError:  # the interpreter exits
                    self._thread = None

    def wait(self) -> None:
        while (thread := self._thread) is not None and thread is not threading.current_thread():
            self._waited_for.set()
            thread.join()
        self._waited_for.clear()

    def _run(self) -> None:
        while True:
            self._waited_for.wait(_A_MOMENT)
            with self._lock:
                if not self._todo:
                    self._thread = None
                    return
                function = self._todo.popleft()
            try:
                function()
            except Exception:
                logger.debug("the program cache has failed", exc_info=True)


_worker = _Worker()


class _Cache:
    """The programs in a folder: the keeper of the calls of `_kept`.

    Attributes:
        stale: the errors of programs that were verified and are not what a trace makes.
    """

    def __init__(self, folder: ProgramFolder, verify: bool = False) -> None:
        self.folder = folder
        self.verify = verify
        self.stale: list[StaleProgramError] = []

    # ---- looking up ----

    def find(self, call: KeptCall, arrays: tuple[Any, ...]) -> tuple[Any, Key | None]:
        variant = call.variant()
        assert variant is not None
        record = _records.record_of(variant)
        record.not_kept = ""
        try:
            key = _program_key.key_of(call, arrays)
        except Unknown as e:
            record.not_kept = str(e)
            return None, None
        except Exception as e:
            logger.debug("a call has no key in the program cache", exc_info=True)
            record.not_kept = f"it has no key ({type(e).__name__}: {e})"
            return None, None
        stage = self._load(call, variant, key, arrays)
        if stage is not None:
            _records.record_loaded(variant, arrays, _size_of(stage))
        return stage, key

    def _load(
        self, call: KeptCall, variant: _core.Variant, key: Key, arrays: tuple[Any, ...]
    ) -> Any:
        for contents in self.folder.find(key.digest):
            try:
                header = _program_contents.header_of(contents)
                if (changed := _program_contents.changed(header, key)) is not None:
                    logger.debug("%s compiles again: %s", call.flat.qualname, changed)
                    continue
                stage = _program_contents.decode(contents, header, key, call.registry, variant)
            except Exception:
                logger.debug("a file of the program cache cannot be used", exc_info=True)
                continue
            self.folder.used(key.digest, contents)
            if self.verify:
                self._verify_later(call, arrays, key, contents, header["text"])
            return stage
        return None

    # ---- keeping ----

    def trace(
        self, call: KeptCall, arrays: tuple[Any, ...], key: Key | None, run: Callable[[], Any]
    ) -> tuple[Any, Keep]:
        variant = call.variant()
        if key is None or variant is None:
            return run(), keep_nothing
        before = variant.num_traces
        with _trace_watch.watching(key.dependencies.codes) as watch:
            output = run()
        record = _records.record_of(variant)
        keep: Keep = keep_nothing
        with _telling(record):
            keep = self._checked(call, variant, key, watch, arrays, before)

        def keep_and_tell(stages: tuple[Any, Any] | None) -> None:
            with _telling(record):
                keep(stages)

        return output, keep_and_tell

    def _checked(
        self, call: KeptCall, variant: _core.Variant, key: Key, watch: _trace_watch.Watch,
        arrays: tuple[Any, ...], before: int,
    ) -> Keep:  # fmt: skip
        """Checks what a trace has seen, which is over. Returns what lets a thread write its program.
        Both raise Unknown or Unsupported."""
        with recorder.without_compiling():
            traced = call.trace(*arrays)
        trace = traced.out_tree.node_data()[1]
        if variant.num_traces == before and trace in call.traces:
            # JAX compiles a trace again for other placements.
            watch, dependencies = call.traces[trace]
        elif variant.num_traces == before + 1 == trace + 1:
            dependencies = key.dependencies
        else:
            raise Unknown("it was traced before this call, or by two threads at once")
        if watch.surprises:
            raise Unknown("; ".join(watch.surprises))
        now = _program_key.describe(key.roots, dependencies)
        changed = dependencies.difference(now) or key.dependencies.difference(dependencies)
        if changed is not None:
            raise Unknown(f"its trace changes what it depends on: {changed}")
        older = _program_key.older_than_rest(dependencies, watch.started)
        if older is not None:
            raise Unknown(older)
        call.traces[trace] = watch, dependencies
        state = _program_key.state_of(watch.modules)
        record = _records.record_of(variant)
        result, registry = variant.outputs[trace], call.registry
        label, folder = call.flat.qualname, self.folder

        def keep(stages: tuple[Any, Any] | None) -> None:
            if stages is None:
                with recorder.without_compiling():
                    lowered = traced.lower()
                    stage = lowered.compile()
            else:
                lowered, stage = stages
            if record.cost.from_disk:
                raise Unknown(
                    "JAX has loaded its executable from `jax_compilation_cache_dir`, and XLA cannot "
                    "store such an executable again"
                )

            def write() -> None:
                try:
                    contents = _program_contents.encode(
                        key, watch.packages, state, registry, result, stage, _digest_of(lowered)
                    )
                except ValueError as e:  # Unsupported is one
                    record.not_kept = str(e)
                else:
                    folder.write(key.digest, contents, label)

            _worker.do(write)

        return keep

    # ---- verifying ----

    def _verify_later(
        self, call: KeptCall, arrays: tuple[Any, ...], key: Key, contents: bytes, text: str
    ) -> None:
        specs = tuple(map(spec_of, arrays))
        settings = _jax_compat.settings()
        name = call.flat.qualname
        context = contextvars.copy_context()  # which the trace may read

        def verify() -> None:
            variant, cache = call.variant(), call.cache()
            if variant is None or cache is None:
                return
            before = variant.num_deferred
            try:
                with settings():
                    recorder.work(cache.record, variant, on_purpose=True)
                    found = _digest_of(call.trace(*specs).lower())
            finally:
                variant.run_deferred(before)
            if found == text:
                return
            self.folder.remove(key.digest, contents)
            error = StaleProgramError(
                f"the program of `{name}` in the program cache {self.folder.path} is not the one that "
                "a trace makes now. It was removed. What the function does depends on something "
                "that filterjit does not see; jit it with program_cache=False."
            )
            self.stale.append(error)
            logger.error("%s", error)
            call.fail(error)

        _worker.do(lambda: context.run(verify))


@contextlib.contextmanager
def _telling(record: Any) -> Iterator[None]:
    """Records why a program is not kept."""
    try:
        yield
    except (Unknown, Unsupported) as e:
        record.not_kept = str(e)
    except Exception as e:
        logger.debug("a program is not kept", exc_info=True)
        record.not_kept = f"it cannot be read ({type(e).__name__}: {e})"


def _size_of(stage: Any) -> int | None:
    try:
        return int(stage.runtime_executable().size_of_generated_code_in_bytes()) or None
    except Exception:  # JAX does not tell
        return None


def _digest_of(lowered: Any) -> str:
    return hashlib.sha256(lowered.as_text().encode()).hexdigest()


# ---- which cache it is ----

_caches: dict[str, _Cache] = {}  # of single functions
_lock = threading.Lock()


def _of_environment() -> _Cache | None:
    path = os.environ.get(_program_option.VARIABLE)
    if not path:
        return None
    return _Cache(ProgramFolder(path), os.environ.get(_VERIFY, "0") not in ("", "0"))


def cache_of(path: str | os.PathLike[str]) -> _Cache:
    """Returns the cache for the option of a function. Raises TypeError or ValueError for what is no
    path."""
    folder = ProgramFolder(path)
    with _lock:
        return _caches.setdefault(folder.path, _Cache(folder))


@public
class ProgramCache:
    """The program cache that a call of `program_cache` has turned on.

    As a context manager, it ends with its block: then the cache is again what it was before.
    """

    def __init__(self, cache: _Cache | None, before: Keeper | None) -> None:
        self._cache = cache
        self._before = before

    @property
    def path(self) -> str | None:
        """The folder; None if no programs are kept."""
        return None if self._cache is None else self._cache.folder.path

    def wait(self) -> None:
        """Returns when the programs that were compiled so far are written, and those that were loaded
        are verified, if they are to be.

        Raises:
            StaleProgramError: if a program that was loaded is not what a trace makes.
        """
        _worker.wait()
        if self._cache is not None and self._cache.stale:
            raise self._cache.stale[0]

    def close(self) -> None:
        """Makes the program cache what it was before. Functions that were called keep theirs."""
        if _program_option.current is self._cache:
            _program_option.current = self._before

    def __enter__(self) -> "ProgramCache":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self.close()
        if kind is None:
            self.wait()

    def __repr__(self) -> str:
        return f"<program cache {self.path!r}>"


@public
def program_cache(
    path: str | os.PathLike[str] | None, *, max_bytes: int = MAX_BYTES, verify: bool = False
) -> ProgramCache:
    """Keeps the programs of jitted functions in a folder, so that the next run of the program
    traces and compiles nothing that has not changed.

    A call that would trace looks in the folder first. What it finds there is loaded and called as
    any program; what it does not find is traced and compiled as always, and written by a thread.
    A program is found if all is the same that it depends on: the structure, the statics and the
    avals of the arguments, the options, JAX's configuration, the machine, the versions, and the
    code: of the function, of the classes of its arguments, and of what they name, with the values
    of globals, defaults and closures. Code of the user's is compared by its contents, that of
    installed packages by what was installed. Where that is not known, such as for code that reads
    files or the time while it is traced, the program is not kept; `report` tells why.

    The environment variable ``FILTERJIT_PROGRAM_CACHE`` names a folder from the start, and
    ``filter_jit(f, program_cache=path)`` is for one function.

    Arguments:
        path: of the folder, which is made if it does not exist. Only its owner may be able to
            write it: a file in it is machine code. None keeps no programs.
        max_bytes: the size of all files together; those that were used least recently are removed.
        verify: whether each program that is loaded is also traced, in a thread, and compared. A
            difference is logged, and raises a StaleProgramError: in the next call of the function,
            in ``wait()`` and at the end of a ``with`` block. For tests.

    Returns:
        A `ProgramCache`, which is also a context manager.

    Raises:
        TypeError: if `path` is no path.
        ValueError: if `path` is empty, or `max_bytes` is no positive int, or `verify` no bool.

    Examples:
        >>> import tempfile
        >>> with filterjit.program_cache(tempfile.mkdtemp()):
        ...     y = filter_jit(lambda x: x + 1)(jnp.ones(2))
    """
    check_bool("program_cache(..., verify=...)", verify)
    cache = None if path is None else _Cache(ProgramFolder(path, max_bytes), verify)
    made = ProgramCache(cache, _program_option.current)
    _program_option.current = cache
    return made


_program_option.current = _of_environment()
