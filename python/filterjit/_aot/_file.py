"""The format of files with programs.

A file is a head of fixed size, a JSON header, and binary blobs:

    8 bytes   the magic
    2 bytes   the version of this format, little-endian
    8 bytes   the length of the header, little-endian
    32 bytes  SHA-256 of the header and the 18 bytes above
    header    ``info`` about the file, structures and static values (`_codes`), the lengths,
              SHA-256 and unpacked lengths of the blobs
    blobs     packed by zlib: for each signature, the program, and its large constants, if JAX
              stores these outside the executable; then the arrays in the function itself

A file contains no pickle, and reading one imports nothing. The digests detect damage. They don't
authenticate the author: a loaded program does whatever its author wrote.
"""

import contextlib
import hashlib
import json
import os
import stat
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from .. import __version__
from .._observe._wording import count
from .._trees._codes import Json

_MAGIC = b"\x89FJIT\r\n\x1a"
_FORMAT = 9
_MOST_SMALLER = 1100  # times: zlib packs at most so well
_HEAD = struct.Struct("<8sHQ32s")


# ---- writing ----


def chunks(header: dict[str, Json], blobs: Sequence[bytes]) -> list[bytes]:
    found, sizes = [], []
    for blob in blobs:
        packed = zlib.compress(blob, 1)
        found.append(packed)
        sizes.append([len(packed), hashlib.sha256(packed).hexdigest(), len(blob)])
    text = json.dumps({**header, "blobs": sizes}, separators=(",", ":")).encode()
    start = _MAGIC + struct.pack("<HQ", _FORMAT, len(text))
    return [start, hashlib.sha256(start + text).digest(), text, *found]


# ---- reading ----


def damaged(path: str, what: str) -> ValueError:
    return ValueError(f"`{path}` is damaged: {what}.")


# Don't follow links, or wait for pipes.
_READ = os.O_RDONLY
for _name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):
    _READ |= getattr(os, _name, 0)


@contextlib.contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """Opens a regular file."""
    if os.path.islink(path):
        raise ValueError(f"`{path}` is a link; give the path of the file itself")
    with open(path, "rb", opener=lambda name, _: os.open(name, _READ)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError(f"`{path}` is not a regular file")
        yield file


def read(path: str) -> tuple[dict[str, Json], list[bytes]]:
    """Returns the header and the blobs of a file. Raises OSError if it can't be read, ValueError if
    it's damaged or has a different format."""
    with opened(path) as file:
        header = read_header(file, path)
        left = os.fstat(file.fileno()).st_size - file.tell()
        if sum(length for length, _, _ in header["blobs"]) != left:
            raise damaged(path, "it has another size than when it was written")
        packed = [file.read(length) for length, _, _ in header["blobs"]]
    blobs = []
    for blob, (_, digest, size) in zip(packed, header["blobs"], strict=True):
        if hashlib.sha256(blob).hexdigest() != digest:
            raise damaged(path, "a checksum is wrong")
        try:
            blobs.append(zlib.decompressobj().decompress(blob, size + 1))
        except zlib.error as e:
            raise malformed(path, e) from None
        if len(blobs[-1]) != size:
            raise malformed(path, ValueError("the size of a blob"))
    return header, blobs


def read_header(file: BinaryIO, path: str) -> dict[str, Json]:
    head = file.read(_HEAD.size)
    if head[:8] != _MAGIC:
        raise ValueError(f"`{path}` was not written by filterjit's `f.save`.")
    if len(head) < _HEAD.size:
        raise damaged(path, "it ends within its head")
    _, version, length, digest = _HEAD.unpack(head)
    if version != _FORMAT:
        raise ValueError(
            f"`{path}` is of format {version}; filterjit {__version__} reads format {_FORMAT}."
        )
    if length > os.fstat(file.fileno()).st_size:
        raise damaged(path, "it ends within its header")
    text = file.read(length)
    if hashlib.sha256(head[:18] + text).digest() != digest:
        raise damaged(path, "the checksum of its header is wrong")
    try:
        header = dict(json.loads(text))
        for length, digest, size in header["blobs"]:
            if not (type(length) is type(size) is int and min(length, size) >= 0):
                raise TypeError("blobs")
            if type(digest) is not str or size > length * _MOST_SMALLER + 64:
                raise TypeError("blobs")
    except Exception as e:
        raise malformed(path, e) from None
    return header


def malformed(path: str, error: Exception) -> ValueError:
    """Returns the error for a file with correct checksums and wrong contents."""
    return damaged(path, f"its contents are malformed ({type(error).__name__}: {error})")


# ---- what a file tells ----


def info_of(path: str) -> dict[str, Any]:
    """Returns the ``info`` in a file's header, its size as ``nbytes``, and a ``text`` about it.

    Verifies the header's checksum. Doesn't read the program, or look up any names. Raises OSError
    or ValueError, like `read`.
    """
    with opened(path) as file:
        header = read_header(file, path)
        size = os.fstat(file.fileno()).st_size
    try:
        info = {**header["info"], "nbytes": size}
        return {**info, "text": _text_of(info)}
    except Exception as e:
        raise malformed(path, e) from None


def _text_of(info: dict[str, Any]) -> str:
    process = info.get("process")
    lines = [
        f"{info['name']}: {info['kind']} for {', '.join(info['platforms'])}, "
        f"{count(info['devices'], 'device')}, {info['nbytes']:,} bytes",
        "" if process is None else "of process {} of {}".format(*process),
        f"written by filterjit {info['filterjit']} on Python {info['python']}",
        *(f"  {key}: {value}" for key, value in info["machine"].items()),
    ]
    for i, one in enumerate(info["signatures"], 1):
        lines += [
            f"signature {i}:",
            *(f"  {path}: {words}" for path, words in one["arguments"]),
            *(f"  {path or 'the result'} -> {words}" for path, words in one["results"]),
        ]
    return "\n".join(filter(None, lines))
