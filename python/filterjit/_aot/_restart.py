"""``f.compile(..., file=path)``: loads the program of a file that fits the call. Otherwise compiles
a new one and writes it to the file.

A file fits if such a call of the same function wrote it. These must be the same:

- the arguments: structure, statics, avals, shardings;
- the function: name, code, closures, frozen arguments;
- the options, the settings of JAX and the mesh;
- the versions and the sources (`_sources`).

If a call has a part that cannot be described, no file fits it. A loaded program is machine code
that the process runs, so files and folders that other users own or can write are neither read nor
written.
"""

import contextlib
import dis
import functools
import hashlib
import json
import logging
import os
import re
import stat
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

import jax

from .. import _core
from .._base._arrays import Aval
from .._base._checks import as_path
from .._base._generic import _P, _T
from .._compat import _executable_compat, _jax_compat
from .._trees import _nodes
from .._trees._registry import registry
from . import _encode, _file, _load, _machine, _program, _save
from ._encode import Coder, Json, Unsupported
from ._prepared import PreparedCall, place_of, prepare
from ._stages import Compiled, refusing, trace_prepared

logger = logging.getLogger("filterjit")

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
# Does not follow a link or wait for a pipe.
_READ = os.O_RDONLY
for _name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):
    _READ |= getattr(os, _name, 0)


class _Other(Exception):
    """A file does not fit; the message says why."""


def compile_with_file(
    f: _core.FilterJit[_P, _T], path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Compiled[_P, _T]:
    """Returns the compiled function of a call; it is that of the file if that fits."""
    path = as_path("compile(..., file=...)", path)
    with refusing(f):
        found: Compiled[_P, _T] = _compile(prepare(f, args, kwargs), path)
        return found


def _compile(prepared: PreparedCall, path: str) -> Any:
    name, call, why = prepared.name, None, ""
    try:
        _check_folder(path)
        if jax.process_count() > 1:
            raise _Other("processes that run a program together must all load it: use `load`")
        call = json.loads(json.dumps(_describe(prepared)))  # as it is in a file
        compiled = _load_file(prepared, path, call)
    except FileNotFoundError:
        why = "the file does not exist"
    except (_Other, Unsupported) as e:
        why = str(e)
    except (OSError, ValueError) as e:  # a file that is refused or damaged
        why = _text(e)
        logger.warning("filterjit does not load %s: %s", path, why)
    else:
        logger.info("filterjit has loaded `%s` from %s", name, path)
        return compiled
    stage = trace_prepared(prepared).lower()
    compiled = stage.compile()
    logger.info("filterjit has compiled `%s` instead of loading %s: %s", name, path, why)
    try:
        if call is None:
            raise ValueError(why)
        _check_folder(path)
        _save.save(stage.prepared, compiled.compiled, path, call=call)
    except (OSError, ValueError) as e:
        logger.warning("filterjit does not write %s: %s", path, _text(e))
    return compiled


def _text(error: Exception) -> str:
    strerror = error.strerror if isinstance(error, OSError) else None
    return strerror or str(error)


def _load_file(prepared: PreparedCall, path: str, call: Json) -> Compiled:
    with _opened(path) as file:
        header, blobs = _file.read(file, path)
    was = header.get("call")
    if was is None:
        raise _Other("`save` wrote it, or nothing tells which call it is of")
    if header["info"]["kind"] != "executable":
        raise _Other("it is a portable file")
    differ = [what for what in call if call[what] != was.get(what)]
    if differ:
        raise _Other(f"it is of another call, by the {', the '.join(differ)}")
    return _load.load_for(prepared, path, header, blobs)


# ---- which call a file is of ----


def _describe(prepared: PreparedCall) -> dict[str, Json]:
    """Returns what a file has of the call that it was written by.

    Raises Unsupported or ValueError for what cannot be told."""
    variant, settings = prepared.variant, prepared.settings
    by_name = _jax_compat.settings_by_name()
    if by_name is None:
        raise Unsupported("this version of JAX does not tell its settings")
    try:
        structures, frozen = prepared.hooks.held
        function = _Description()
        of_function = [function.structure(x) for x in structures or [variant.function]]
        return {
            "versions and devices": [_machine.machine(d) for d in jax.local_devices()[:1]]
            + [[d.id, d.platform, d.device_kind] for d in jax.devices()],
            "function": [prepared.name, of_function, list(map(_digest, frozen))],
            "options": {k: _plain(x) for k, x in vars(settings).items() if k not in _NO_MATTER},
            "settings of JAX": [[k, _plain(x)] for k, x in by_name],
            "structure and static values": _encode.encode_structure(
                prepared.registry, variant.structure, "the arguments"
            ),
            "shapes, dtypes and shardings": _arrays(prepared.arrays),
        }
    except Unsupported:
        raise
    except Exception as e:  # of a value of the user's
        raise Unsupported(f"nothing tells which call it is ({type(e).__name__}: {e})") from e


_NO_MATTER = ("maxsize", "on_retrace")


def _plain(x: Any) -> str:
    return f"{type(x).__qualname__} {_ADDRESS.sub('', repr(x))}"


def _arrays(arrays: Sequence[Any]) -> list[Json]:
    """Returns what a program depends on of its arrays: their avals, placements and layouts."""
    coder, found = Coder(jax.devices()), {}
    kinds = list(map(_kind, arrays))
    for kind in kinds:  # most are alike
        if kind not in found:
            found[kind] = coder.encode(kind)
    return [found[kind] for kind in kinds]


def _kind(x: Any) -> tuple[Any, ...]:
    aval, (sharding, is_committed) = Aval.of(x), place_of(x)
    dtype = _encode.encode_dtype(aval.dtype)
    order = _executable_compat.order_of_layout(x) if isinstance(x, jax.Array) else None
    natural = order in (None, tuple(range(len(aval.shape))))
    layout = None if natural else order
    return aval.shape, dtype, aval.weak_type, sharding, is_committed, layout


def _digest(array: Any) -> Json:
    header, data = _program.encode_array(array)
    return [header, hashlib.sha256(data).hexdigest()]


class _Description:
    """What tells a function from another one that is at the same place of the same source: its
    code, and the values that it holds."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, Any]] = {}  # by address; the objects stay alive here

    def structure(self, structure: _core.Structure) -> list[Json]:
        return [
            [node.kind, len(node.children), *map(self.static, node.statics)]
            for node, _ in _nodes.walk(structure)
        ]

    def tree(self, x: Any) -> Json:
        arrays, structure = _core.flatten(registry, x)
        return [self.structure(structure), list(map(_digest, arrays))]

    def static(self, x: Any) -> Json:
        if type(x) is types.ModuleType:  # as in a global variable: its source is compared
            return x.__name__
        if type(x) not in _HOLDING:
            coder = Coder()
            return [coder.encode(x), coder.names]
        number, _ = self._seen.setdefault(id(x), (len(self._seen), x))
        if number < len(self._seen) - 1:
            return number
        if type(x) is _core.Cache:  # of a jitted function
            return self.structure(x.function)
        if type(x) is types.MethodType:
            return [self.static(x.__func__), self.tree(x.__self__)]
        if type(x) is functools.partial:
            return [self.static(x.func), self.tree((x.args, x.keywords))]
        held = (x.__defaults__, x.__kwdefaults__, *map(_contents, x.__closure__ or ()))
        return [x.__module__, x.__qualname__, _code(x.__code__), *map(self.tree, held)]


_HOLDING = (types.FunctionType, types.MethodType, functools.partial, _core.Cache)


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return None


def _code(code: types.CodeType) -> str:
    """Returns a digest of code that neither its lines nor its docstring change."""
    parts: list[Any] = []
    argument = 0
    for op, low in zip(code.co_code[::2], code.co_code[1::2], strict=True):
        argument = argument << 8 | low
        if op == dis.EXTENDED_ARG:
            continue
        parts.append((op, _constant(code.co_consts[argument]) if op in dis.hasconst else argument))
        argument = 0
    parts += [code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars]
    parts += [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount]
    return hashlib.sha256(repr(parts).encode("utf-8", "backslashreplace")).hexdigest()


def _constant(x: Any) -> str:
    if type(x) is types.CodeType:
        return _code(x)
    if type(x) is tuple:
        return repr(list(map(_constant, x)))
    if type(x) is frozenset:
        return repr(sorted(map(_constant, x)))
    return f"{type(x).__name__} {x!r}"


# ---- what others can write ----


def _check_folder(path: str) -> None:
    folder = os.path.dirname(os.path.abspath(path))
    try:
        at = os.stat(folder)
    except FileNotFoundError:
        raise ValueError(f"there is no folder {folder}") from None
    _check(at, folder, stat.S_ISDIR)


def _check(at: os.stat_result, path: str, is_kind: Callable[[int], bool]) -> None:
    """Raises ValueError for a file or folder that others own or can write, and for other kinds."""
    if not is_kind(at.st_mode):
        raise ValueError(f"{path} is not a {'folder' if is_kind is stat.S_ISDIR else 'file'}")
    if not hasattr(os, "geteuid"):
        raise ValueError(
            f"{sys.platform} does not tell which users can write {path}, and a program in it is "
            "machine code. `save` and `load` work here too"
        )
    me = os.geteuid()
    if at.st_uid not in (me, 0):
        raise ValueError(
            f"{path} belongs to the user {at.st_uid}, and this process runs as {me}; a program in it "
            "is machine code"
        )
    if at.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ValueError(
            f"{path} can be written by other users (mode {stat.S_IMODE(at.st_mode):04o}), and a "
            f"program in it is machine code. Run `chmod go-w {path}`"
        )


@contextlib.contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    """Opens a file, and raises ValueError if others own or can write it."""
    with open(path, "rb", opener=lambda name, _: os.open(name, _READ)) as file:
        _check(os.fstat(file.fileno()), path, stat.S_ISREG)
        yield file
