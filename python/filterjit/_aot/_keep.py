"""`keep_programs`: stores programs in a folder, to load them at the next start.

Each program has a file, named by a digest of its call (`_describe`) and the user's version. When
JAX is about to trace a function for a call, filterjit looks for that file. If it exists,
`KeptProgram` ends the call of ``jax.jit``, and the program becomes a direct entry of its variant
(csrc/call/direct.c). Otherwise the call proceeds, and writes its program after running it.

A loaded program is machine code. Files and folders writable by other users are refused.
"""

import contextlib
import functools
import hashlib
import logging
import os
import stat
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax

from .. import _core
from .._base._arrays import Aval
from .._base._checks import as_path, check_version
from .._base._files import replacing
from .._base._package import public
from .._base._versions import needs
from .._call import _direct, _events
from .._call._programs import programs_of
from .._compat import _jax_compat
from .._observe import _records
from . import _describe, _encode, _file, _program
from ._encode import Unsupported
from ._prepared import PreparedCall, is_spec, place_of

logger = logging.getLogger("filterjit")

_folders: list["Folder"] = []  # the active ones; the last one is used
# By variant and digest: the loaded ``jax.stages.Compiled``, or False if loading failed.
_loaded: weakref.WeakKeyDictionary[_core.Variant, dict[str, Any]] = weakref.WeakKeyDictionary()


def _forget() -> None:
    _loaded.clear()


_jax_compat.clears_with_jax(_forget)


@public
def keep_programs(folder: str | os.PathLike[str], *, version: str) -> contextlib.ExitStack:
    """Keeps compiled programs in a folder, to load them at the next start.

    `version` stands for everything outside a call: code, global variables, the environment, data
    files. **If one of these changes and the version doesn't, the next start runs the old program.**
    Good versions are a release number, a Git revision with the command line's arguments, or a
    digest of a configuration file.

    When a function of `filter_jit`, `filterjit.jit` or `nnx.jit` misses, filterjit looks for its
    program in the folder. If it's there, it is loaded, and nothing is traced. Otherwise it is
    compiled, and written after its first run. ``compile``, ``warm_up`` and ``warm_up_all`` use the
    folder too. `forbid_compile` allows loading.

    Calls are compared as exactly as for a hit: the function with its code, defaults and closure,
    the structure, statics, shapes, dtypes and shardings, JAX's settings, the versions of Python,
    JAX and filterjit, and the kind of device. Calls that can't be described aren't kept, for
    example with an object that equals only itself, or a function of a notebook. The logger
    ``"filterjit"`` says so once, at level INFO.

    Arguments:
        folder: the path of the folder, created with mode 700. Several processes can share it. A
            loaded program is machine code: folders writable by other users are refused.
        version: any text. Files of other versions stay; see ``python -m filterjit prune``.

    Returns:
        An ``ExitStack``. Use it as a context manager or ``close`` it to stop; otherwise programs
        are kept until the process ends.

    Raises:
        RuntimeError: if JAX is older than 0.7.2.
        TypeError: if `version` isn't a str.
        ValueError: if `folder` isn't a folder, or is writable by other users.
        OSError: if it can't be created.

    Examples:
        >>> with filterjit.keep_programs("programs", version="1.0"):
        ...     y = filter_jit(lambda x: x + 1)(jnp.ones(2))
    """
    path = as_path("keep_programs(folder)", folder)
    check_version("keep_programs(..., version=...)", version, or_none=False)
    os.makedirs(path, mode=0o700, exist_ok=True)
    _file.check_owner(os.stat(path), path, stat.S_ISDIR)
    if not _direct.are_supported():
        raise RuntimeError(needs("`keep_programs`", "0.7.2"))
    _describe.watch_modules()
    found, new = contextlib.ExitStack(), Folder(os.path.abspath(path), version)
    found.callback(lambda: _folders.remove(new) if new in _folders else None)
    _folders.append(new)
    return found


class Folder:
    def __init__(self, path: str, version: str) -> None:
        self.path, self.version = path, version
        self.logged: set[str] = set()


class Kept:
    """A call's program in a folder, whether or not it exists yet. Specs can replace the arrays.
    Raises Unsupported if the call can't be described."""

    def __init__(
        self,
        folder: Folder,
        cache: _core.Cache,
        variant: _core.Variant,
        arrays: Sequence[Any],
    ) -> None:
        self.kinds = _kinds(arrays)
        of_call = _describe.describe_call(cache, variant, arrays)
        text = folder.version.encode("utf-8", "surrogatepass")
        self.digest = hashlib.sha256(_describe.tagged("call", *of_call, text)).hexdigest()
        self.path = os.path.join(folder.path, f"{self.digest}.jit")
        self.folder, self.name = folder, _events.name_of(cache)
        # Weakly, because JAX's caches can hold this for long.
        self._cache, self._variant = weakref.ref(cache), weakref.ref(variant)

    @property
    def cache(self) -> _core.Cache:
        cache = self._cache()
        assert cache is not None
        return cache

    @property
    def variant(self) -> _core.Variant:
        variant = self._variant()
        assert variant is not None
        return variant

    def is_there(self) -> bool:
        of_variant = _loaded.get(self.variant, {})
        return of_variant.get(self.digest, os.path.exists(self.path)) is not False

    def load(self, arrays: Sequence[Any]) -> Any:
        of_variant = _loaded.setdefault(self.variant, {})
        if self.digest not in of_variant:
            of_variant[self.digest] = False
            try:
                header, blobs = _file.read(self.path, private=True)
                if header["call"] != [self.digest, self.folder.version]:
                    raise ValueError("it is a file of another call")
                of_variant[self.digest] = self._decode(header, blobs)
            except FileNotFoundError:  # never existed, or was pruned meanwhile
                pass
            except Exception as e:  # a malformed file can raise anything
                why = _text(e)
                if self.path not in why:
                    why = f"`{self.path}` cannot be loaded: {why}"
                logger.warning("filterjit compiles `%s`: %s", self.name, why)
            else:
                self.cache.insert_traced(self.variant)  # in case no call inserts it
                logger.info("filterjit has loaded `%s` from %s", self.name, self.path)
                _events.notify("loaded", self.cache, self.variant, arrays)
        return of_variant[self.digest] or None

    def refuse(self) -> None:
        """Ignores the file from now on: the variant's calls trace."""
        _loaded.setdefault(self.variant, {})[self.digest] = False

    def _decode(self, header: Any, blobs: Any) -> Any:
        ids = {device.id: device for device in jax.devices()}
        devices = [ids[id] for id in header["devices"]]
        with _jax_compat.enable_x64(True), _jax_compat.no_mesh():
            result = _encode.decode_tree(header["result"], _functions(self.variant))
            output = _core.flatten(self.cache.hooks.registry, result)[1]
            make = _program.decode(header, blobs, devices)
        leaves = (0,) * max(1, output.num_leaves)
        tree = _core.output_unflatten(self.variant._add_output(output), leaves)
        return make(jax.tree_util.tree_structure(tree))

    def write(self, find: Callable[[], Any], arrays: Sequence[Any]) -> None:
        """Writes the ``jax.stages.Compiled`` from `find`. Logs a warning on failure."""
        variant, registry = self.variant, self.cache.hooks.registry
        try:
            compiled = find()
            if _records.record_of(variant).cost.from_disk:
                raise Unsupported("JAX loaded it from its cache, and XLA cannot serialize it again")
            is_placed = all(not is_spec(x) or x.sharding is not None for x in arrays)
            plan = _direct.plan_of_kept(compiled, arrays) if is_placed else ""
            if plan and isinstance(plan, str):
                raise Unsupported(plan)
            result = variant.outputs[compiled.out_tree.node_data()[1]]
            functions, what = _functions(variant), "the result"
            nodes = _encode.encode_structure(registry, result, what, functions)
            header, blobs = _program.encode(self.name, compiled, nodes)
            described = _program.described(variant.structure, arrays[variant.function.num_leaves :])
            header["info"] |= {"version": self.folder.version, "arguments": described}
            header["call"] = [self.digest, self.folder.version]
            if os.path.lexists(self.path) and not _file.is_regular(self.path):
                os.unlink(self.path)
            with replacing(self.path) as file:
                os.chmod(file.name, 0o600)
                file.writelines(_file.chunks(header, blobs))
        except OSError as e:
            logger.warning("filterjit cannot keep `%s` in %s: %s", self.name, self.path, _text(e))
        except Exception as e:  # from user code
            _tell_not_kept(self.folder, self.cache, variant, e)
        else:
            _loaded.get(variant, {}).pop(self.digest, None)


def _tell_not_kept(
    folder: Folder, cache: _core.Cache, variant: _core.Variant, why: Exception
) -> None:
    text = " ".join(_text(why).split())
    _events.notify("not_kept", variant, text)
    line = f"`{_events.name_of(cache)}` is not kept: {text}"
    if line not in folder.logged:
        folder.logged.add(line)
        logger.info("%s", line)


def find_kept(prepared: PreparedCall) -> Kept | None:
    """Returns the `Kept` of a call made ahead of time, or None if nothing keeps it."""
    return _seek(prepared.cache, prepared.variant, prepared.arrays) if _folders else None


def _seek(cache: _core.Cache, variant: _core.Variant, arrays: Sequence[Any]) -> Kept | None:
    folder = _folders[-1]
    try:
        return Kept(folder, cache, variant, arrays)
    except Exception as e:  # from user code
        _tell_not_kept(folder, cache, variant, e)
        return None


def _text(error: Exception) -> str:
    strerror = error.strerror if isinstance(error, OSError) else None
    return strerror or str(error) or type(error).__name__


def _functions(variant: _core.Variant) -> list[Any]:
    """Returns the functions among a call's statics, in order. A result can refer to them."""
    nodes = [*variant.function._nodes(), *variant.structure._nodes()]
    return [x for kind, _, _, x, _ in nodes if kind == "static" and callable(x)]


class _Thread(threading.local):
    """The thread's calls that trace because there is no file yet."""

    def __init__(self) -> None:
        self.sought: weakref.WeakKeyDictionary[_core.Variant, Any] = weakref.WeakKeyDictionary()


class _KeepListener(_events.Listener):
    """Looks for programs before JAX traces, and writes new ones after they ran."""

    def __init__(self) -> None:
        self._thread = _Thread()

    def before_trace(
        self, observed: Callable[[], tuple[Any, Any]], arrays: Sequence[Any] | None
    ) -> None:
        cache, variant = observed()
        if not _folders or variant is None:
            return
        if arrays is None:
            fun, arrays = _jax_compat.jit_call_under_way() or (None, ())
            if getattr(fun, "observed", None) != observed:
                return
        self._thread.sought.pop(variant, None)
        if jax.config.jax_disable_jit or not all(map(_is_there, arrays)):
            return
        kept = _seek(cache, variant, arrays)
        if kept is not None and kept.is_there():
            load = functools.partial(kept.load, arrays)
            raise _direct.KeptProgram(load, kept.refuse, arrays)
        if kept is not None:
            self._thread.sought[variant] = kept

    def inspected(self, variant: _core.Variant, arrays: Sequence[Any], contents: Any) -> None:
        kept = self._thread.sought.pop(variant, None)
        if kept is not None and kept.kinds == _kinds(arrays):
            jitted = programs_of(variant).find(tuple(arrays))[0]
            kept.write(lambda: jitted.trace(*arrays).lower().compile(), arrays)  # cached by JAX


def _kinds(arrays: Sequence[Any]) -> list[Any]:
    return [(Aval.of(x), place_of(x)) for x in arrays]


def _is_there(x: Any) -> bool:
    """True for a live array, but not for a tracer."""
    if isinstance(x, jax.core.Tracer):
        return False
    return not (isinstance(x, jax.Array) and x.is_deleted())


listener = _KeepListener()
