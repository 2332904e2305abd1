"""The program cache: the second start of a program compiles nothing that has not changed.

Programs are kept by what they are (`_proofs.Traced`). An index (`_store`) says which program a call had
the last time, by a key that guesses (`_program_key`). What a guess has to do to earn trust is in
csrc/README.md.
"""

import contextlib
import logging
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from .. import _core
from .._call._keepers import Keep, keep_nothing
from .._call._kept import KeptCall
from .._call._lowered import UnknownProgramError
from .._observe import _records
from .._observe._forbid import without_compiling
from .._observe._records import Kept
from . import _encode, _program, _program_key, _proofs
from ._encode import Json
from ._proofs import Loaded, Proof, Traced
from ._store import PROVEN, TRACED, TRIAL, Entry, Store

logger = logging.getLogger("filterjit")

_asked: dict[tuple[str, str], object] = {}  # folders and keys that calls of this process had


class Programs:
    """The programs in a folder: the keeper of the calls of `_kept`."""

    def __init__(self, store: Store, trust: str = "proven") -> None:
        self.store = store
        self.trust = trust

    def find(self, call: KeptCall, arrays: tuple[Any, ...]) -> tuple[Any, Keep]:
        variant, _, _ = call.alive()
        kept = Kept()
        _records.record_of(variant).kept.append(kept)
        if jax.process_count() > 1:
            kept.why = "several processes run it together, and must all compile or all load"
            return None, keep_nothing
        environment = _program_key.environment()
        key, entry, is_first = self._look_up(call, arrays, environment)
        load: _Load = lambda _: None
        if entry is not None and entry.state != TRACED:
            untried = self.trust == "always" and entry.alarm != entry.program
            runs = (entry.state == PROVEN or untried) and is_first and not _proofs.is_over
            load = self._loading(entry.program, in_thread=not runs)
            if runs and (loaded := load(lambda header: _tree_of(header, call))) is not None:
                try:
                    Proof(
                        self.store, call, arrays, str(key), entry, environment, loaded, kept
                    ).begin()
                except Exception:  # what cannot be proven is traced first
                    logger.debug("a program cannot be proven", exc_info=True)
                else:
                    kept.state = "loaded"
                    _records.record_loaded(variant, arrays, loaded.size, was_traced=False)
                    return loaded.stage, keep_nothing
        if not _proofs.settle():
            key = None
        begin = time.perf_counter()
        lowered = call.lower(arrays)
        try:
            traced = Traced(call, variant, lowered, environment)
        except Exception as e:
            kept.refuse(_text_of(e))
            return None, keep_nothing
        seconds = time.perf_counter() - begin
        if entry is None or entry.program != traced.digest:
            load = self._loading(traced.digest)
        loaded = load(lambda _: lowered.out_tree)
        now = _after_trace(entry, traced.digest, is_first)
        kept.state = now.state if key is not None else "found"
        if loaded is not None:
            _records.record_loaded(variant, arrays, loaded.size, was_traced=True)
            if key is not None and now != entry:
                _proofs.writer.do(lambda: self.store.set_entry(key, now))
            return loaded.stage, keep_nothing
        if now.state == TRIAL:
            kept.state = "compiled"
        return None, self._keeping(call, variant, arrays, traced, seconds, key, now, kept)

    def settle(self) -> bool:
        return _proofs.settle()

    def wait(self) -> None:
        """Returns when programs are written and proven. Raises StaleProgramError."""
        _proofs.writer.wait()
        _proofs.wait(self.store)

    def _look_up(
        self, call: KeptCall, arrays: tuple[Any, ...], environment: str
    ) -> tuple[str | None, Entry | None, bool]:
        """Returns the key of a call, what the index says of it, and whether it is the first call of this
        process with the key. Others get no guess, since the key may lack what tells them apart, and
        are no trial."""
        if self.trust == "never":
            return None, None, False
        try:
            key = _program_key.key_of(call, arrays, environment)
        except Exception:  # such as a sharding that cannot be written: its program may be found
            logger.debug("a call has no key in the program cache", exc_info=True)
            return None, None, False
        token = object()
        is_first = _asked.setdefault((self.store.path, key), token) is token
        return key, self.store.entry(key), is_first

    def _loading(self, digest: str, in_thread: bool = False) -> "_Load":
        """Begins to load a program."""
        found = self.store.program(digest)
        if found is None:
            return lambda _: None
        header, blobs = found

        def decode() -> Callable[[Any], Any]:
            devices = {device.id: device for device in jax.devices()}
            return _program.decode(header, blobs, [devices[id] for id in header["devices"]])

        decoded = _in_thread(decode) if in_thread else decode

        def load(tree_of: Callable[[dict[str, Json]], Any]) -> Loaded | None:
            try:
                make = decoded()
                return Loaded(make(tree_of(header)), float(header["seconds"]))
            except Exception:
                logger.debug("a program of the program cache cannot be used", exc_info=True)
                return None

        return load

    def _keeping(
        self,
        call: KeptCall,
        variant: _core.Variant,
        arrays: tuple[Any, ...],
        traced: Traced,
        seconds: float,
        key: str | None,
        entry: Entry,
        kept: Kept,
    ) -> Keep:
        """Returns what lets a thread write the program of a trace."""
        record, name = _records.record_of(variant), call.flat.qualname
        arguments: Json = []
        with contextlib.suppress(Exception):  # a static that cannot be described
            own = variant.function.num_leaves
            arguments = _program.described(variant.structure, arrays[own:])

        def keep(stage: Any) -> None:
            if record.cost.from_disk:
                kept.refuse(
                    "JAX has loaded its executable from `jax_compilation_cache_dir`, and XLA cannot "
                    "store such an executable again"
                )
                return
            if stage is None:
                try:
                    with without_compiling():
                        stage = traced.lowered.compile()
                except Exception as e:
                    kept.refuse(f"JAX keeps no executable ({_text_of(e)})")
                    return

            def write() -> None:
                try:
                    header, blobs = _program.encode(name, stage, traced.result)
                except Exception as e:
                    kept.refuse(_text_of(e))
                    return
                text = zlib.compress(traced.text.encode("utf-8", "surrogatepass"), 1)
                header["info"]["arguments"] = arguments
                header["seconds"] = seconds
                self.store.add_program(traced.digest, header, [*blobs, text])
                if key is not None:
                    self.store.set_entry(key, entry)

            _proofs.writer.do(write)

        return keep


_Load = Callable[[Callable[[dict[str, Json]], Any]], Loaded | None]
"""Returns a program, or None if there is none. It takes what returns the treedef of its result, of the
header of its file."""


def _tree_of(header: dict[str, Json], call: KeptCall) -> Any:
    """Returns the treedef of a result that the file of a program describes; the variant gets its
    structure."""
    variant, _, _ = call.alive()
    tree = _encode.decode_tree(header["result"], _program_key.known_in(call))
    return jax.tree_util.tree_structure(variant.finish(tree, lambda: np.zeros(())))


def _in_thread(function: Callable[[], Any]) -> Callable[[], Any]:
    """Begins to call a function. Returns what waits for it, and returns or raises what it does."""
    try:
        return ThreadPoolExecutor(1).submit(function).result
    except RuntimeError:  # the interpreter exits
        return function


def _text_of(error: Exception) -> str:
    is_ours = isinstance(error, (ValueError, UnknownProgramError))
    return str(error) if is_ours else f"{type(error).__name__}: {error}"


def _after_trace(entry: Entry | None, program: str, is_first: bool) -> Entry:
    """Returns what the index says from now on of a call that was traced before its program ran."""
    if entry is None:
        return Entry(program)
    if entry.state == TRACED or not is_first:
        return entry if entry.program == program else Entry(program, TRACED)
    if entry.program != program:
        return Entry(program, TRACED if entry.state == TRIAL else TRIAL)
    # A program that a proof has found stale, and that a trace makes again, was no stale one.
    return Entry(program, TRACED if entry.alarm == program else PROVEN)
