"""Writes files in one step: readers see the old file or the new one, never half of one."""

import contextlib
import errno
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from typing import BinaryIO


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Opens a new binary file that replaces `path` at the end of the block.

    If the block raises, `path` keeps its contents. A crash of the machine leaves the old or the new
    file. Deletes what dead processes left of such blocks. A symbolic link stays a link, and the file
    it points to is replaced. The new file gets the old one's permissions.

    Raises:
        IsADirectoryError: if `path` is a folder.
        ValueError: if it's a pipe or a device.
        OSError: if the file can't be written. It names `path`.
    """
    given, path = os.fspath(path), os.path.realpath(path)
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), given)
    if os.path.exists(path) and not os.path.isfile(path):
        raise ValueError(f"`{given}` is not a regular file")
    folder = os.path.dirname(path)
    name = hashlib.sha256(os.path.basename(path).encode(errors="surrogateescape")).hexdigest()[:16]
    _delete_abandoned(folder, name)
    temporary = os.path.join(folder, f".filterjit-{name}-{os.getpid()}-{secrets.token_hex(8)}")
    try:
        with open(temporary, "xb") as file:
            with contextlib.suppress(FileNotFoundError):
                os.chmod(temporary, stat.S_IMODE(os.stat(path).st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as e:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(e, OSError) and e.filename in (None, temporary) and e.errno is not None:
            raise OSError(e.errno, e.strerror, given) from None
        raise
    with contextlib.suppress(OSError):  # some systems can't open a folder
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _delete_abandoned(folder: str, name: str) -> None:
    """Deletes the temporary files of processes that died while they wrote the same file."""
    with contextlib.suppress(OSError):
        for entry in os.listdir(folder) if os.name == "posix" else ():
            found = re.fullmatch(rf"\.filterjit-{name}-(\d+)-[0-9a-f]+", entry)
            if found is None:
                continue
            try:
                os.kill(int(found[1]), 0)
            except ProcessLookupError:
                os.unlink(os.path.join(folder, entry))
            except (OSError, OverflowError):  # another user's process
                continue
