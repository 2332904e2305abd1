"""The sources of the user's modules, which show whether a saved program still belongs to them.

A file has two digests for each of the user's modules that the process had imported when it was
written: one of the text, and one of its syntax tree without docstrings and positions. So comments,
docstrings and lines may change. A default, a constant, a method or a helper may not.

The version of Python stands for the modules of the standard library, and the versions of installed
packages that use JAX for their modules. A package that is installed to be edited counts as the
user's.

The script of a process is known by its own name, whether it runs as ``__main__`` or is imported.

If a file was changed after the process began, its text may not be the text that was imported. So
nothing is known of such a module.
"""

import ast
import contextlib
import functools
import hashlib
import itertools
import os
import sys
import sysconfig
import time
import types
from collections.abc import Iterator
from typing import Any

import jax

from .._functions._packages import FOLDERS, is_library
from ._encode import Json, Unsupported

MAIN = "__main__"
_MAINS = (MAIN, "__mp_main__")  # the latter in children of multiprocessing


def _began() -> float:
    """Returns when this process began; or when this module was imported, if that was earlier, as in
    a fork, or if the system does not tell."""
    now = time.time()
    with contextlib.suppress(OSError, AttributeError, ValueError, IndexError):
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        # The process may lose its core between the two clocks: the largest difference is right.
        booted = max(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) for _ in range(5))
        # Python needs more than two ticks before it imports one of the user's modules.
        now = min(now, booted + (ticks + 2) / os.sysconf("SC_CLK_TCK"))
    return now


_BEGAN = _began()


# ---- what a file has ----


def describe(*, strict: bool) -> Json:
    """Returns the description of the sources for a file. It has None for an unknown module.

    Raises Unsupported for such a module if `strict`.
    """
    found: dict[str, Json] = {}
    for name, module in _modules():
        try:
            text = _text_of(name, module)
        except Unsupported:
            if strict:
                raise
            text = None
        found[name] = None if text is None else [_digest(text), _digest_of_tree(text)]
    return {"python": _python(), "main": main_name(), "modules": found, "packages": _packages()}


def difference(described: Json, *, strict: bool, packages: bool) -> str | None:
    """Returns what has changed since a file was written; None if nothing has.

    Arguments:
        described: what `describe` returned then.
        strict: whether modules that are not imported are looked for too, and nothing may be
            unknown.
        packages: whether the versions of installed packages count.
    """
    changed, others = [], []
    main = main_name()
    for name, digests in described["modules"].items():
        module = sys.modules.get(MAIN if name == main else name)
        is_imported = issubclass(type(module), types.ModuleType)
        if not (is_imported or strict) or (name == MAIN and not strict):
            continue
        try:
            text = _text_of(name, module) if is_imported else _text_found(name)
        except Unsupported as e:
            others.append(str(e))
            continue
        if name == MAIN:
            others.append(NO_SOURCE)
        elif digests is None:
            others.append(f"`{name}` was changed while the process that wrote it ran")
        elif text is None:
            others.append(f"`{name}` was not found")
        elif digests[0] != _digest(text) and not (
            described["python"] == _python() and digests[1] == _digest_of_tree(text) != ""
        ):
            changed.append(f"`{name}`")
    if packages:
        others += [
            f"the version of `{top}` was {was}, and is {now}"
            for top, was in described["packages"].items()
            if (now := _version(top)) not in (None, was)
        ]
    if changed:
        others.insert(0, f"the source of {', '.join(changed)} has changed")
    return "; ".join(others) or None


NO_SOURCE = "`__main__` has no source file, so nothing tells whether it has changed"


def _python() -> str:
    return f"{sys.implementation.name}-{sys.version_info.major}.{sys.version_info.minor}"


def _packages() -> dict[str, str]:
    """Returns the versions of the installed packages that use JAX, as far as these have them."""
    names = {"jax": jax, "jnp": jax.numpy}.items()
    tops = {
        name.partition(".")[0]
        for name, module in list(sys.modules.items())
        if issubclass(type(module), types.ModuleType)
        and any(_variables(module).get(key) is x for key, x in names)
    }
    versions = {top: _version(top) for top in sorted(tops) if is_library(top)}
    return {top: version for top, version in versions.items() if version is not None}


def _version(top: str) -> str | None:
    module = sys.modules.get(top)
    if not issubclass(type(module), types.ModuleType):
        return None
    version = _variables(module).get("__version__")
    return version if type(version) is str else None


# ---- modules ----


def _variables(module: Any) -> dict[str, Any]:
    found: dict[str, Any] = object.__getattribute__(module, "__dict__")
    return found


def _modules() -> Iterator[tuple[str, types.ModuleType]]:
    """Yields the user's modules that are imported. What has no file was made by a module that has
    one, but for functions and classes of a notebook or a prompt."""
    libraries: dict[str, bool] = {}  # by top-level name: most modules have one of a few
    for name, module in list(sys.modules.items()):
        top = name.partition(".")[0]
        if (known := libraries.get(top)) is None:
            known = libraries[top] = is_library(top)
        if known or not issubclass(type(module), types.ModuleType) or name == _MAINS[1]:
            continue
        if name == MAIN:
            name = main_name()
        elif is_library(name):
            continue
        variables = _variables(module)
        if name == MAIN:
            has_code = any(
                isinstance(x, (types.FunctionType, type)) and x.__module__ == MAIN
                for x in list(variables.values())
            )
        else:
            has_code = name != "" and variables.get("__file__") is not None
        if has_code:
            yield name, module


def main_name() -> str:
    """Returns the name under which other programs import the script of this process; ``"__main__"``
    if it has no file, and an empty text if it is a program of an installed package."""
    variables = _variables(sys.modules[MAIN])
    name, file = getattr(variables.get("__spec__"), "name", None), variables.get("__file__")
    if type(name) is str and name not in _MAINS:
        name = name.removesuffix("." + MAIN)
        return "" if is_library(name) else name
    if type(file) is not str or not os.path.exists(
        file
    ):  # for a program on standard input, "<stdin>"
        return MAIN
    folder, base = os.path.split(os.path.realpath(file))
    is_installed = folder == os.path.realpath(sysconfig.get_path("scripts"))
    if is_installed or not set(FOLDERS).isdisjoint(folder.split(os.sep)):
        return ""
    return os.path.splitext(base)[0]


def _text_of(name: str, module: Any) -> bytes | None:
    """Returns the source of a module, or the bytes of a compiled one; None if it is in no file.

    Raises Unsupported if it may be another one than that which was imported."""
    file = _variables(module).get("__file__")
    if file is None:
        return None
    try:
        text, changed = _read(file)
    except (OSError, TypeError, ValueError):
        return _text_of_loader(name, _variables(module).get("__loader__"))
    if changed > _BEGAN:
        raise Unsupported(
            f"`{name}` was changed after this process began, which may have imported an earlier text"
        )
    return text


def _read(file: str) -> tuple[bytes, float]:
    """Returns the contents of a file, and when it was changed."""
    with open(file, "rb") as opened:
        at = os.fstat(opened.fileno())
        # The system sets the time of the folder entry. A program may set the other time.
        return opened.read(), max(at.st_mtime, at.st_ctime)


def _text_of_loader(name: str, loader: Any) -> bytes:
    """Returns the source of a module that is in no file of its own, as in a zip file."""
    try:
        text: str = loader.get_source(name)
        return text.encode("utf-8", "surrogatepass")
    except Exception:
        raise Unsupported(f"the source of `{name}` cannot be read") from None


def _text_found(name: str) -> bytes | None:
    """Returns the source of a module that is not imported, which it does not import; None if it is
    not found."""
    path: Any = None
    spec: Any = None
    for prefix in itertools.accumulate(name.split("."), "{}.{}".format):
        found = (finder.find_spec(prefix, path) for finder in sys.meta_path)
        try:
            spec = next((one for one in found if one is not None), None)
            path = spec.submodule_search_locations
        except Exception:  # another finder than the standard library's, or no such module
            return None
    if not spec.has_location:
        return None
    try:
        return _read(spec.origin)[0]
    except OSError:
        return _text_of_loader(name, spec.loader)


# ---- digests ----


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@functools.lru_cache(4096)
def _digest_of_tree(text: bytes) -> str:
    """Returns a digest of a syntax tree without docstrings and positions; "" if the text is not
    source."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    return _digest(ast.dump(tree).encode("utf-8", "surrogatepass"))
