"""Reads and writes files of ``compiled.save``, with correct checksums, without filterjit."""

import hashlib
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HEAD = struct.Struct("<8sHQ32s")


def read(path: Path) -> tuple[dict[str, Any], list[bytes]]:
    data = path.read_bytes()
    _, _, length, _ = HEAD.unpack(data[: HEAD.size])
    header = json.loads(data[HEAD.size : HEAD.size + length])
    at, blobs = HEAD.size + length, []
    for size, _ in header["blobs"]:
        blobs.append(data[at : at + size])
        at += size
    return header, blobs


def write(path: Path, header: Any, blobs: Sequence[bytes]) -> None:
    """`header` is any JSON value, or bytes."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    start = b"\x89FJIT\r\n\x1a" + struct.pack("<HQ", 3, len(text))
    digest = hashlib.sha256(start + text).digest()
    path.write_bytes(start + digest + text + b"".join(blobs))
