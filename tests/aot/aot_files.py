"""Reads, writes and damages files of ``compiled.save``, and compares what comes back."""

import hashlib
import json
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import jax
import numpy as np

from filterjit import _core
from filterjit._trees._registry import registry

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
    """With correct checksums; `header` is any JSON value, or bytes."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    start = b"\x89FJIT\r\n\x1a" + struct.pack("<HQ", 6, len(text))
    digest = hashlib.sha256(start + text).digest()
    path.write_bytes(start + digest + text + b"".join(blobs))


def damaged(data: bytes, other: bytes, random: Random) -> bytes:
    """Returns `data` damaged in one of the ways in which files get damaged."""
    at, end = sorted(random.randrange(len(data)) for _ in range(2))
    byte = random.randrange(8)
    near = random.randrange(min(60, len(data))) if random.random() < 0.3 else at  # often the head
    changes: list[Callable[[], bytes]] = [
        lambda: data[:near] + bytes([data[near] ^ 1 << byte]) + data[near + 1 :],
        lambda: data[:near],
        lambda: data + data[at : at + 1 + byte],
        lambda: data[:at] + data[end + 1 :],
        lambda: data[:at] + b"\0" * (end - at + 1) + data[end + 1 :],
        lambda: data[:at] + other[at:],
        lambda: data[:at] + random.randbytes(end - at + 1) + data[end + 1 :],
        lambda: random.randbytes(at),
        lambda: data[:8] + random.randbytes(at),
    ]
    return random.choice(changes)()


def equal(a: Any, b: Any) -> None:
    """Asserts that two trees have the same structure, classes, static values and arrays."""
    (xs, one), (ys, other) = (_core.flatten(registry, t) for t in (a, b))
    assert one == other, f"{one!r}\n{other!r}"
    for x, y in zip(xs, ys, strict=True):
        assert x.dtype == y.dtype
        if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))
