"""``show FOLDER`` and ``prune FOLDER``, for folders of `keep_programs`."""

import os
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any

from .._aot._file import info_of
from .._observe._wording import count, show_bytes


def _files(folder: str) -> Iterator[tuple[str, dict[str, Any] | ValueError]]:
    """Yields the programs in a folder, newest first."""
    names = filter(re.compile(r"[0-9a-f]{64}\.jit").fullmatch, os.listdir(folder))
    paths = [os.path.join(folder, name) for name in names]
    for path in sorted(paths, key=os.path.getmtime, reverse=True):
        try:
            yield path, info_of(path)
        except ValueError as e:
            yield path, e


def lines_of(folder: str) -> list[str]:
    """Describes each program in a line: function, call, version, size and age."""
    lines = []
    for path, info in _files(folder):
        if isinstance(info, ValueError):
            lines.append(str(info))
            continue
        top = [f"{x}={what}" for x, what in info["arguments"] if not set(x) & {".", "["}]
        more = len(info["arguments"]) - len(top)
        call = ", ".join([*top, *[f"{more} in containers"] * bool(more)])
        size, age = show_bytes(info["nbytes"]), _age(time.time() - os.path.getmtime(path))
        lines.append(f"{info['name']}: {call}; version {info['version']!r}, {size}, {age}")
    return lines


def _age(seconds: float) -> str:
    for unit, length in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            return f"{count(int(seconds // length), unit)} old"
    return "new"


def prune(folder: str, versions: Sequence[str]) -> str:
    """Deletes damaged files, and programs of other versions and formats. Returns a summary."""
    found = list(_files(folder))
    old = [
        path
        for path, info in found
        if isinstance(info, ValueError) or info["version"] not in versions
    ]
    for path in old:
        os.unlink(path)
    return f"deleted {count(len(old), 'program')}, kept {len(found) - len(old)}"
