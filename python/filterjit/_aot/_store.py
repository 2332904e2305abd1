"""The folder of a program cache: programs by what they are, and an index by the calls that had them.

Any number of processes may read and write it at once, and may be killed while they do. A file is
written under another name and moved, so nobody sees half of one:

    ab/DIGEST.fjit    a program, under the digest of its lowered text
    cd/KEY.entry      an `Entry`: which program a call with this key had

Both have the format of `_file`, and hold their own name. Whatever else is found under such a name
(damaged, cut, of another format, renamed) is skipped. A program is machine code to its reader. So
files and folders that other users own or can write are refused, as ssh does with its keys.

The time at which a file was changed is the time of its last use. Where the files are larger than
`max_bytes`, those whose last use is longest ago are removed. A folder is measured before the first
write of a process, and again when this process has written a sixteenth of `max_bytes`.
"""

import contextlib
import dataclasses
import logging
import os
import re
import stat
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

from .._base._checks import positive_int
from .._base._files import TEMPORARY, replacing
from . import _file
from ._encode import Json

logger = logging.getLogger("filterjit")

MAX_BYTES = 4 << 30

_PROGRAM, _ENTRY = ".fjit", ".entry"
_DIGEST = re.compile(r"[0-9a-f]{64}")
# The names of files, and those of files that are not complete.
_NAME = re.compile(rf"(?P<digest>{_DIGEST.pattern})\.(fjit|entry)|{TEMPORARY.pattern}")
# Temporary files that are older were left by processes that were killed.
_ABANDONED = 3600.0
# A link or a pipe is not followed or waited for.
_READ = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)

TRIAL, PROVEN, TRACED = "on trial", "proven", "traced first"
STATES = (TRIAL, PROVEN, TRACED)


class Refused(ValueError):
    """A folder or a file that others own or can write."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """What the index says of a call.

    Attributes:
        program: the digest of the program that the call had the last time.
        state: one of `STATES`: whether the next start runs the program before it traces.
        alarm: a program that a proof has found stale; "" if none has.
    """

    program: str
    state: str = TRIAL
    alarm: str = ""


class Listed(NamedTuple):
    """A program of the folder, for lists: the function, who wrote it, its arguments in words by their
    paths, the states of the calls that have it, its size and the time of its last use."""

    name: str
    versions: str
    arguments: Mapping[str, str]
    states: Sequence[str]
    nbytes: int
    used: float


class _Found(NamedTuple):
    used: float
    nbytes: int
    path: str
    digest: str  # "" of a file that is not complete


class Store:
    """The programs and the index in a folder.

    The folder is made by the first write. No method raises for what the system refuses: reading
    finds nothing, and the first failure of writing is a warning of the logger ``"filterjit"``.

    Arguments:
        path: of the folder, which need not exist.
        max_bytes: how large the files may become altogether.

    Raises:
        TypeError: `path` is no path.
        ValueError: `path` is empty, or `max_bytes` is no positive int.
    """

    def __init__(self, path: str | os.PathLike[str], max_bytes: int = MAX_BYTES) -> None:
        given: Any = path
        if isinstance(path, os.PathLike):
            given = os.fspath(path)
        if not isinstance(given, str):
            raise TypeError(f"the folder of a program cache must be a str or a Path, not {path!r}.")
        if not given or "\0" in given:
            raise ValueError(f"the folder of a program cache cannot be {given!r}.")
        positive_int("program_cache(..., max_bytes=...)", max_bytes)
        self.path = os.path.abspath(os.path.expanduser(given))
        self.max_bytes = max_bytes
        self._trusted = False
        self._warned = False
        self._cannot_write = False
        self._skipped: set[str] = set()
        self._until_measured = 0  # how many bytes may be written until the folder is measured

    def __repr__(self) -> str:
        return f"<Store {self.path!r}>"

    # ---- reading ----

    def entry(self, key: str) -> Entry | None:
        """Returns what the index says of a call."""
        found = self._read(key, _ENTRY)
        with contextlib.suppress(KeyError, TypeError):  # as it is None
            return Entry(**found[0]["entry"])  # type: ignore[index]
        return None

    def program(self, digest: str) -> tuple[dict[str, Json], list[bytes]] | None:
        """Returns the header and the blobs of a program, and notes that it is used."""
        return self._read(digest, _PROGRAM)

    def _read(self, digest: str, suffix: str) -> tuple[dict[str, Json], list[bytes]] | None:
        """Returns what is in a file, and notes that it is used. One that is damaged is logged once."""
        path = self._path_of(digest, suffix)
        if not self._is_trusted():
            return None
        try:
            with _opened(path) as file:
                header, blobs = _file.read(file, path)
            if header.get("digest") != digest:
                raise ValueError("it has another name")
        except Exception as e:
            if path not in self._skipped and not isinstance(e, FileNotFoundError):
                self._skipped.add(path)
                logger.debug("the program cache skips %s: %s", path, e)
            return None
        with contextlib.suppress(OSError):  # a folder that can only be read
            os.utime(path)
        return header, blobs

    def _path_of(self, digest: str, suffix: str) -> str:
        if not _DIGEST.fullmatch(digest):
            raise ValueError(f"not a digest: {digest!r}")
        return os.path.join(self.path, digest[:2], digest + suffix)

    def _is_trusted(self) -> bool:
        """Whether the folder exists and only its owner can write it. Warns if others can."""
        if not self._trusted:
            try:
                self.check()
                self._trusted = True
            except FileNotFoundError:
                pass
            except (OSError, Refused) as e:
                self._warn(e)
        return self._trusted

    def _warn(self, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            reason = error.strerror if isinstance(error, OSError) else error
            logger.warning("filterjit's program cache %s: %s", self.path, reason or error)

    # ---- writing ----

    def set_entry(self, key: str, entry: Entry) -> None:
        """Makes the index say this of a call."""
        self._write(key, _ENTRY, {"entry": dataclasses.asdict(entry)}, [])

    def add_program(self, digest: str, header: dict[str, Json], blobs: Sequence[bytes]) -> None:
        """Writes a program. One that is larger than `max_bytes` is not written."""
        self._write(digest, _PROGRAM, header, blobs)

    def _write(
        self, digest: str, suffix: str, header: dict[str, Json], blobs: Sequence[bytes]
    ) -> None:
        """Writes a file. Where the system refuses, a warning says so, and nothing is written from then
        on."""
        path = self._path_of(digest, suffix)
        chunks = _file.chunks({**header, "digest": digest}, blobs)
        nbytes = sum(map(len, chunks))
        if nbytes > self.max_bytes:
            logger.debug("%s, of %d bytes, is larger than a program cache may be", path, nbytes)
            return
        if self._cannot_write:
            return
        try:
            os.makedirs(self.path, mode=0o700, exist_ok=True)
            if not self._is_trusted():
                return
            self._make_room(nbytes)
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            with replacing(path) as file:
                if hasattr(os, "fchmod"):
                    os.fchmod(file.fileno(), 0o600)
                file.writelines(chunks)
        except OSError as e:
            self._cannot_write = True
            self._warn(e)

    def _make_room(self, nbytes: int) -> None:
        if nbytes > self._until_measured:
            share = self.max_bytes // 16
            left = self.prune(max(self.max_bytes - max(share, nbytes), 0))
            self._until_measured = min(share, self.max_bytes - left)
        self._until_measured -= nbytes

    # ---- the whole folder ----

    def check(self) -> None:
        """Raises OSError if there is no such folder, and Refused if others own or can write it."""
        _check(os.stat(self.path), self.path, folder=True)

    def listed(self) -> list[Listed]:
        """Returns the programs in the folder, the one that was used last first."""
        files = sorted(filter(lambda file: file.digest, self._files()), reverse=True)
        states: dict[str, list[str]] = {}
        for file in files:
            if file.path.endswith(_ENTRY) and (entry := self.entry(file.digest)) is not None:
                states.setdefault(entry.program, []).append(entry.state)
        return [
            Listed(*_described(file.path), states.get(file.digest, []), file.nbytes, file.used)
            for file in files
            if file.path.endswith(_PROGRAM)
        ]

    def prune(self, max_bytes: int) -> int:
        """Removes the files whose last use is longest ago until the others have at most `max_bytes`,
        and what processes left behind that were killed. Returns the bytes that are left."""
        files = sorted(self._files())
        size = sum(file.nbytes for file in files if file.digest)
        for file in files:
            if not file.digest:
                is_over = file.used < time.time() - _ABANDONED
            elif is_over := size > max_bytes:
                size -= file.nbytes
            if is_over:
                with contextlib.suppress(OSError):
                    os.unlink(file.path)
        return size

    def _files(self) -> Iterator[_Found]:
        with contextlib.suppress(OSError), os.scandir(self.path) as folders:
            for folder in folders:
                if not re.fullmatch(r"[0-9a-f]{2}", folder.name):
                    continue
                with contextlib.suppress(OSError), os.scandir(folder.path) as files:
                    for file in files:
                        if (name := _NAME.fullmatch(file.name)) is not None:
                            with contextlib.suppress(OSError):  # another process has removed it
                                at = file.stat(follow_symlinks=False)
                                yield _Found(
                                    at.st_mtime, at.st_size, file.path, name["digest"] or ""
                                )


def _described(path: str) -> tuple[str, str, dict[str, str]]:
    """Returns the function of a program, who wrote it, and its arguments."""
    try:
        with _opened(path) as file:
            info = _file.read_header(file, path)["info"]
        versions = (info["filterjit"], info["machine"]["jax"], info["python"])
        arguments = {str(path): str(words) for path, words in info["arguments"]}
        return str(info["name"]), "filterjit {}, jax {}, python {}".format(*versions), arguments
    except Exception:
        return "(damaged)", "", {}


# ---- one file ----


def _check(at: os.stat_result, path: str, *, folder: bool = False) -> None:
    """Raises Refused for a file or folder that others own or can write, and for other kinds."""
    if not (stat.S_ISDIR if folder else stat.S_ISREG)(at.st_mode):
        raise Refused(f"{path} is no {'folder' if folder else 'regular file'}")
    if not hasattr(os, "geteuid"):
        raise Refused(
            f"{path} is not used: {sys.platform} does not tell which users can write it, and a program in "
            "it is machine code. Program caches are for POSIX systems; `save` and `load` work here too"
        )
    me = os.geteuid()
    if at.st_uid not in (me, 0):
        raise Refused(
            f"{path} belongs to the user {at.st_uid}, and this process runs as {me}: it is not used, "
            "because a program in it is machine code. Name a folder of your own"
        )
    if at.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Refused(
            f"{path} can be written by other users (mode {stat.S_IMODE(at.st_mode):04o}): it is not "
            f"used, because a program in it is machine code. Run `chmod go-w {path}`"
        )


@contextlib.contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    """Opens a file, and raises Refused if others own or can write it."""
    with open(path, "rb", opener=lambda name, _: os.open(name, _READ)) as file:
        _check(os.fstat(file.fileno()), path)
        yield file
