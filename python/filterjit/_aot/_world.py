"""What a process has beside a call, as far as it is cheap to tell: the machine, the sources of the user's
modules, what is installed, and how warnings and the log are filtered.

The index of a program cache has all in its keys. They need not be complete, since a proof traces. Files
have the machine, on which an executable depends.
"""

import contextlib
import functools
import hashlib
import itertools
import logging
import os
import platform
import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any

import jax

from .._compat import _executable_compat
from .._functions._packages import is_library
from .._functions._texts import text_of_code
from .._trees._static_keys import STANDARD_LIBRARY
from ._encode import Json

_digests: dict[str, tuple[Any, str]] = {}  # by the name of a module: the module, and its source's
_tops: dict[str, bool] = {}  # whether a top-level module is not the user's


def machine(device: jax.Device) -> dict[str, Json]:
    """Returns what an executable depends on; the processor counts for its instruction set."""
    found = {
        "jax": jax.__version__,
        "jaxlib": _executable_compat.jaxlib_version(),
        "platform": device.platform,
        "platform version": str(getattr(device.client, "platform_version", "")),
        "device": device.device_kind,
        "machine": f"{platform.system()}-{platform.machine()}",
    }
    if device.platform == "cpu":
        found["processor"] = _processor()
    return found


@functools.cache
def _processor() -> str:
    """Returns a digest of the processor's features, as far as the system lists them."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
            first = itertools.takewhile(str.strip, f)  # the system takes long to list all
            lines = {line.partition(":")[0].strip(): line.strip() for line in first}
        text = "".join(lines.get(key, "") for key in ("model name", "flags", "Features"))
    except OSError:
        text = platform.processor()
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def sources() -> Iterator[tuple[str, str]]:
    """Yields the names of the imported modules that are the user's, and digests of their sources as
    they were when a call asked for them first."""
    for name, module in list(sys.modules.items()):
        top = name.partition(".")[0]
        if (known := _tops.get(top)) is None:
            known = _tops[top] = is_library(top)
        if known or is_library(name) or not issubclass(type(module), types.ModuleType):
            continue
        found = _digests.get(name)
        if found is None or found[0] is not module:
            variables = object.__getattribute__(module, "__dict__")
            digest = _digest_of_file(variables.get("__file__"))
            if digest is None:  # such as a notebook's, which grows: not remembered
                yield name, _digest_of_functions(name, variables)
                continue
            found = _digests[name] = module, digest
        yield name, found[1]


def _digest_of_file(path: Any) -> str | None:
    try:
        if not path.endswith(".py"):
            at = os.stat(path)
            return f"{at.st_size} {at.st_mtime_ns}"
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except (OSError, ValueError, AttributeError, TypeError):
        return None


def _digest_of_functions(name: str, variables: dict[str, Any]) -> str:
    """Returns a digest of the functions and the methods of a module that has no file."""
    found = hashlib.sha256()
    for x in list(variables.values()):
        inner = list(vars(x).values()) if type(x) is type and x.__module__ == name else [x]
        for f in inner:
            if type(f) is types.FunctionType and f.__module__ == name:
                found.update(text_of_code(f.__code__).encode("utf-8", "backslashreplace"))
    return found.hexdigest()


def installed() -> str:
    """Returns a digest of what is installed beside the modules that are imported: the names of the
    packages with their versions, and when they were installed."""
    folders = set()
    for top, is_known in list(_tops.items()):
        file = getattr(sys.modules.get(top), "__file__", None)
        if is_known and top not in STANDARD_LIBRARY and type(file) is str:
            folder = os.path.dirname(file)
            is_package = os.path.basename(file).startswith("__init__.")
            folders.add(os.path.dirname(folder) if is_package else folder)
    return _stamp_of(tuple(sorted(folders)))


@functools.cache
def _stamp_of(folders: tuple[str, ...]) -> str:
    stamps = []
    for folder in folders:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            stamps += sorted(
                (entry.name, entry.stat().st_mtime_ns)
                for entry in entries
                if entry.name.endswith((".dist-info", ".egg-link"))
            )
    return hashlib.sha256(repr(stamps).encode("utf-8", "backslashreplace")).hexdigest()


def filters() -> list[Any]:
    """Returns the filters of warnings and the levels of loggers, which are often set around a call: a
    proof would see those of later."""
    found = [text for text in map(str, list(warnings.filters)) if "(?#filterjit)" not in text]
    loggers = list(logging.root.manager.loggerDict.items())
    levels = sorted((name, level) for name, x in loggers if (level := getattr(x, "level", 0)))
    return [found, logging.root.manager.disable, logging.root.level, levels]
