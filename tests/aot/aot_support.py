"""Reads and writes files, and compares what comes back."""

import contextlib
import hashlib
import json
import resource
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from filterjit import _core, filter_jit
from filterjit._trees._registry import registry

HERE = Path(__file__).parent
HEAD = struct.Struct("<8sHQ32s")


@contextlib.contextmanager
def full_disk(size: int = 1000) -> Iterator[None]:
    """A limit on the size of files stands for it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def read(path: Path) -> tuple[dict[str, Any], list[bytes]]:
    data = path.read_bytes()
    _, _, length, _ = HEAD.unpack(data[: HEAD.size])
    header = json.loads(data[HEAD.size : HEAD.size + length])
    at, blobs = HEAD.size + length, []
    for size, _, _ in header["blobs"]:
        blobs.append(data[at : at + size])
        at += size
    return header, blobs


def saved(path: Path, kind: str, function: Any, *args: Any, **kwargs: Any) -> Path:
    """Compiles a function for arguments, and saves it to a file of this kind."""
    f = function if hasattr(function, "warm_up") else filter_jit(function)
    if kind == "portable":
        f.lower(*args, **kwargs).save(path)
    else:
        f.warm_up(*args, **kwargs)
        f.save(path)
    return path


def sizes(blobs: Sequence[bytes]) -> list[list[Any]]:
    """Returns the entry ``blobs`` of a header, for blobs that are packed."""
    return [[len(b), hashlib.sha256(b).hexdigest(), _unpacked(b)] for b in blobs]


def _unpacked(blob: bytes) -> int:
    with contextlib.suppress(zlib.error):
        return len(zlib.decompress(blob))
    return len(blob)


def write(path: Path, header: Any, blobs: Sequence[bytes]) -> None:
    """With correct checksums; `header` is any JSON value, or bytes."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    start = b"\x89FJIT\r\n\x1a" + struct.pack("<HQ", 9, len(text))
    digest = hashlib.sha256(start + text).digest()
    path.write_bytes(start + digest + text + b"".join(blobs))


def equal(a: Any, b: Any) -> None:
    """Asserts that two trees have the same structure, classes, static values and arrays."""
    (xs, one), (ys, other) = (_core.flatten(registry, t) for t in (a, b))
    assert one == other, f"{one!r}\n{other!r}"
    for x, y in zip(xs, ys, strict=True):
        assert x.dtype == y.dtype
        if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))
