"""The folder of a program cache: one file a program, shared by any number of processes.

A file is named after the digests of its key and of its contents, in a folder named after the first
byte of the key. It is written under another name and moved, so nobody sees half of one:

    8 bytes   the magic
    8 bytes   the length of the header, little-endian
    32 bytes  SHA-256 of the 16 bytes above, the key's digest, the header and the contents
    header    JSON: a label and the versions that wrote the file, for `python -m filterjit cache`
    contents  bytes that mean nothing here

Whatever else is found under such a name (damaged, cut, of another format, renamed) is skipped. A
file is machine code to its reader. So files and folders that other users own or can write are
refused, as ssh does with its keys.

The time at which a file was changed is the time of its last use. Where the files are larger than
`max_bytes`, those whose last use is longest ago are removed. A folder is measured before the first
write of a process, and again when this process has written a sixteenth of `max_bytes`.
"""

import contextlib
import dataclasses
import hashlib
import json
import logging
import operator
import os
import platform
import re
import stat
import struct
import time
from collections.abc import Iterator
from typing import Any

from .. import __version__
from .._base._checks import positive_int
from .._base._files import TEMPORARY, replacing
from .._base._versions import jax_version

logger = logging.getLogger("filterjit")

MAX_BYTES = 4 << 30
# How many files of one key are kept: the versions of the code that has been edited.
MAX_VERSIONS = 16

_MAGIC = b"\x89FJPC\r\n\x01"
_HEAD = struct.Struct("<8sQ")
_SUBFOLDER = re.compile(r"[0-9a-f]{2}")
_FILE = re.compile(r"[0-9a-f]{64}-[0-9a-f]{32}\.fjit")
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


class Refused(Exception):
    """A folder or a file that others own or can write."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """A file of the folder, for lists: what its header says, its size and the time of its last use."""

    path: str
    label: str
    versions: str
    nbytes: int
    used: float


@dataclasses.dataclass(frozen=True)
class _File:
    path: str
    nbytes: int
    used: float


class ProgramFolder:
    """Programs in the files of a folder, by key.

    The folder is made by the first `write`. No method raises for what the system refuses: reading
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
        return f"<ProgramFolder {self.path!r}>"

    # ---- reading ----

    def find(self, key: bytes) -> Iterator[bytes]:
        """Yields the contents of the files of a key, the one that was used last first."""
        if not self._is_trusted():
            return
        digest = _digest(key)
        for file in sorted(self._of_key(digest), key=_last_use, reverse=True):
            try:
                contents = _read(file.path, digest)
            except (OSError, Refused, ValueError) as e:
                self._skip(file.path, e)
            else:
                yield contents

    def used(self, key: bytes, contents: bytes) -> None:
        """Notes that a program that `find` yielded has been used."""
        with contextlib.suppress(OSError):  # a folder that can only be read
            os.utime(self._path_of(_digest(key), contents))

    def remove(self, key: bytes, contents: bytes) -> None:
        """Removes a program that `find` yielded."""
        _remove(self._path_of(_digest(key), contents))

    def _of_key(self, digest: bytes) -> Iterator[_File]:
        name = digest.hex()
        return _files(os.path.join(self.path, name[:2]), name)

    def _path_of(self, digest: bytes, contents: bytes) -> str:
        name = digest.hex()
        file = f"{name}-{hashlib.sha256(contents).hexdigest()[:32]}.fjit"
        return os.path.join(self.path, name[:2], file)

    def _is_trusted(self) -> bool:
        """Whether the folder exists and only its owner can write it. Warns if others can."""
        if not self._trusted:
            try:
                _check(os.stat(self.path), self.path, folder=True)
                self._trusted = True
            except FileNotFoundError:
                pass
            except (OSError, Refused) as e:
                self._warn(e)
        return self._trusted

    def _skip(self, path: str, error: Exception) -> None:
        if path not in self._skipped and not isinstance(error, FileNotFoundError):
            self._skipped.add(path)
            logger.debug("the program cache skips %s: %s", path, error)

    def _warn(self, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            reason = error.strerror if isinstance(error, OSError) else error
            logger.warning("filterjit's program cache %s: %s", self.path, reason or error)

    # ---- writing ----

    def write(self, key: bytes, contents: bytes, label: str) -> None:
        """Writes a file; `label` says in lists what it is.

        A program that is larger than `max_bytes` is not written. Where the system refuses to
        write, a warning says so, and nothing is written from then on.
        """
        if self._cannot_write:
            return
        try:
            os.makedirs(self.path, mode=0o700, exist_ok=True)
            if self._is_trusted():
                self._write(_digest(key), contents, label)
        except OSError as e:
            self._cannot_write = True
            self._warn(e)

    def _write(self, digest: bytes, contents: bytes, label: str) -> None:
        path = self._path_of(digest, contents)
        text = _header(label)
        head = _HEAD.pack(_MAGIC, len(text))
        head += _checksum(head, digest, text, contents)
        nbytes = len(head) + len(text) + len(contents)
        if nbytes > self.max_bytes:
            logger.debug("%s, of %d bytes, is larger than a program cache may be", label, nbytes)
            return
        self._make_room(nbytes)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with replacing(path) as file:
            if hasattr(os, "fchmod"):
                os.fchmod(file.fileno(), 0o600)
            file.write(head)
            file.write(text)
            file.write(contents)
        files = sorted(self._of_key(digest), key=_last_use, reverse=True)
        for old in files[MAX_VERSIONS:]:
            _remove(old.path)

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

    def entries(self) -> list[Entry]:
        """Returns what is in the folder, the program that was used last first."""
        return [_entry(file) for file in sorted(self._files(), key=_last_use, reverse=True)]

    def prune(self, max_bytes: int) -> int:
        """Removes the files whose last use is longest ago until the others have at most `max_bytes`,
        and what processes left behind that were killed. Returns the bytes that are left."""
        files = sorted(self._files(), key=_last_use)
        size = sum(file.nbytes for file in files)
        for file in files:
            if size <= max_bytes:
                break
            _remove(file.path)
            size -= file.nbytes
        for folder in self._subfolders():
            _remove_abandoned(folder)
        return size

    def _subfolders(self) -> list[str]:
        try:
            names = os.listdir(self.path)
        except OSError:
            return []
        return [os.path.join(self.path, name) for name in names if _SUBFOLDER.fullmatch(name)]

    def _files(self) -> Iterator[_File]:
        for folder in self._subfolders():
            yield from _files(folder)


_last_use = operator.attrgetter("used")


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _checksum(*parts: bytes) -> bytes:
    found = hashlib.sha256()
    for part in parts:
        found.update(part)
    return found.digest()


def _header(label: str) -> bytes:
    versions = {
        "filterjit": __version__,
        "jax": jax_version(),
        "python": platform.python_version(),
    }
    return json.dumps({"label": label, "versions": versions}).encode()


def _files(folder: str, prefix: str = "") -> Iterator[_File]:
    """Yields the files of programs in a subfolder whose names begin with `prefix`."""
    try:
        with os.scandir(folder) as found:
            for one in found:
                if one.name.startswith(prefix) and _FILE.fullmatch(one.name):
                    with contextlib.suppress(OSError):  # another process has removed it
                        at = one.stat(follow_symlinks=False)
                        yield _File(one.path, at.st_size, at.st_mtime)
    except OSError:
        return


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _remove_abandoned(folder: str) -> None:
    """Removes temporary files of processes that were killed."""
    try:
        with os.scandir(folder) as found:
            for one in found:
                with contextlib.suppress(OSError):
                    old = one.stat(follow_symlinks=False).st_mtime < time.time() - _ABANDONED
                    if old and TEMPORARY.fullmatch(one.name):
                        os.unlink(one.path)
    except OSError:
        pass


# ---- one file ----


def _check(at: os.stat_result, path: str, *, folder: bool = False) -> None:
    """Raises Refused for a file or folder that others own or can write, and for other kinds."""
    if not (stat.S_ISDIR if folder else stat.S_ISREG)(at.st_mode):
        raise Refused(f"{path} is no {'folder' if folder else 'regular file'}")
    if not hasattr(os, "geteuid"):
        return
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
def _opened(path: str) -> Iterator[tuple[Any, bytes, bytes]]:
    """Opens a file, checks who can write it, and yields it with its head and its header read."""
    with open(path, "rb", opener=lambda name, _: os.open(name, _READ)) as file:
        at = os.fstat(file.fileno())
        _check(at, path)
        head = file.read(_HEAD.size + 32)
        if len(head) < _HEAD.size + 32:
            raise ValueError("it is too short")
        magic, length = _HEAD.unpack_from(head)
        if magic != _MAGIC or length > at.st_size:
            raise ValueError("it is not a file of filterjit's program cache")
        yield file, head, file.read(length)


def _read(path: str, digest: bytes) -> bytes:
    """Returns the contents of a file.

    Raises OSError, Refused, or ValueError if it is not as it was written for the key of `digest`.
    """
    with _opened(path) as (file, head, header):
        contents: bytes = file.read()
    start, checksum = head[: _HEAD.size], head[_HEAD.size :]
    if _checksum(start, digest, header, contents) != checksum:
        raise ValueError("its checksum is wrong")
    return contents


def _entry(file: _File) -> Entry:
    try:
        with _opened(file.path) as (_, _, header):
            found = json.loads(header)
        label = str(found["label"])
        versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    except (OSError, Refused, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        label, versions = "(damaged)", ""
    return Entry(file.path, label, versions, file.nbytes, file.used)
