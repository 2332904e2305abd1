"""Which program cache a call has: the option `program_cache` of its function, that of the process, or
none.

What a program cache does (`_program_cache`) takes milliseconds to import, so it is imported where one is
used: by `program_cache`, by the environment, or by a call of a function with the option.
"""

import os
from typing import TYPE_CHECKING, Any, Literal

from .._base._checks import one_of
from .._base._package import public, public_type
from .._call import _keepers
from .._call._keepers import Keeper

if TYPE_CHECKING:
    from ._program_cache import Programs

VARIABLE = "FILTERJIT_PROGRAM_CACHE"
Path = str | os.PathLike[str] | Literal[False] | None
Trust = Literal["proven", "always", "never"]
TRUSTS = ("proven", "always", "never")
_MAX_BYTES = 4 << 30
_TRUST = f"{VARIABLE}_TRUST"

current: Keeper | None = None
"""The cache of the process."""

_of_functions: dict[str, "Programs"] = {}  # by folder


def _programs(
    path: str | os.PathLike[str], trust: str = "proven", max_bytes: int = _MAX_BYTES
) -> "Programs":
    from ._program_cache import Programs
    from ._store import Store

    return Programs(Store(path, max_bytes), trust)


def folder_of(path: Path) -> str | bool | None:
    """Returns the option `program_cache` of one function as `Settings` has it.

    Raises TypeError or ValueError if it is none of None, False and a path."""
    if path is None or path is False:
        return path
    from ._store import Store

    return Store(path).path


def _keeper_for(path: str | bool | None) -> Keeper | None:
    """Returns the cache for the option `program_cache` of `Settings`."""
    if not isinstance(path, str):
        return current if path is None else None
    if path not in _of_functions:
        _of_functions.setdefault(path, _programs(path))
    return _of_functions[path]


@public_type
class ProgramCache:
    """The program cache that a call of `program_cache` has turned on.

    As a context manager, it ends with its block: then the cache is again what it was before.
    """

    def __init__(self, programs: "Programs | None", before: Keeper | None) -> None:
        self._programs = programs
        self._before = before

    @property
    def path(self) -> str | None:
        """The folder; None if no programs are kept."""
        return None if self._programs is None else self._programs.store.path

    def wait(self) -> None:
        """Returns when the programs that were compiled so far are written, and those that run are
        proven.

        Raises:
            StaleProgramError: if a program that has run is not what a trace makes.
        """
        if self._programs is not None:
            self._programs.wait()

    def close(self) -> None:
        """Makes the program cache what it was before. Functions that were called keep theirs."""
        global current
        if current is self._programs:
            current = self._before

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
    path: str | os.PathLike[str] | None, *, trust: Trust = "proven", max_bytes: int = _MAX_BYTES
) -> ProgramCache:
    """Keeps the programs of jitted functions in a folder, so that the next start of the program compiles
    nothing that has not changed, and the start after that has its first result before it traces.

    A program is kept under what it is: the lowered program and what it is compiled with. Which one a
    call will have is a guess, by the arguments, the options, JAX's configuration, the sources of your
    modules and what is installed. The second start traces each call before its first result; the same
    program is not compiled again, and is *proven*. From then on it runs at once, and a thread traces it
    meanwhile. If the traced program is another one, the next call of the function raises a
    StaleProgramError, and so does ``wait()``; at the end of the process, which waits for the thread, it
    is written to stderr. A program that differed in its trial, such as one that reads the time, is
    always traced first.

    The environment variables ``FILTERJIT_PROGRAM_CACHE`` and ``FILTERJIT_PROGRAM_CACHE_TRUST`` are the
    folder and `trust` from the start, and ``filter_jit(f, program_cache=path)`` is for one function.

    Arguments:
        path: of the folder, which is made if it does not exist. Only its owner may be able to
            write it: a file in it is machine code. None keeps no programs.
        trust: which programs run before they are traced: those that are ``"proven"``; ``"always"``
            each that the call had the last time, without a trial; ``"never"`` none, so that results are
            those of a trace in each start, and only compiling is saved.
        max_bytes: the size of all files together; those that were used least recently are removed.

    Returns:
        A `ProgramCache`, which is also a context manager.

    Raises:
        TypeError: if `path` is no path.
        ValueError: if `path` is empty, `trust` is none of these words, or `max_bytes` is no positive
            int.

    Examples:
        >>> import tempfile
        >>> with filterjit.program_cache(tempfile.mkdtemp()):
        ...     y = filter_jit(lambda x: x + 1)(jnp.ones(2))
    """
    global current
    one_of("program_cache(..., trust=...)", trust, TRUSTS)
    programs = None if path is None else _programs(path, trust, max_bytes)
    made = ProgramCache(programs, current)
    current = programs
    return made


_keepers.keeper_for = _keeper_for
if os.environ.get(VARIABLE):
    one_of(_TRUST, _trust := os.environ.get(_TRUST, "proven"), TRUSTS)
    current = _programs(os.environ[VARIABLE], _trust)
