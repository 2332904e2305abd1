"""Replacing ``equinox.filter_jit`` in a whole program.

`install` changes two things. ``equinox.filter_jit`` becomes `filterjit.filter_jit`. Functions that
Equinox's filter_jit has returned call a FilterJit of the same function: those that exist already,
and those that libraries make later with a reference to Equinox's filter_jit that they took before
(Diffrax does).

`install` does not import Equinox. If the program has not imported it yet, an import hook makes the
changes when it does. JAX is not imported either, so that the program can set JAX's options after
`install`.
"""

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

from ._base._package import public

_lock = threading.RLock()


def _forked() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class _ImportHook(importlib.abc.MetaPathFinder):
    """Replaces Equinox's filter_jit right after the program has imported Equinox."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if name != "equinox":
            return None
        _remove_hook()
        try:
            spec = importlib.util.find_spec(name)
        except BaseException:
            _add_hook()
            raise
        if spec is None or spec.loader is None:
            _add_hook()
            return None
        execute: Callable[[ModuleType], None] = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            try:
                execute(module)
            except BaseException:
                _add_hook()  # for the next attempt
                raise
            with _lock:
                if _wanted:
                    _replace()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


_hook = _ImportHook()
_wanted = False
_replacement: "_Replacement | None" = None


def _add_hook() -> None:
    with _lock:
        if _wanted and _hook not in sys.meta_path:
            sys.meta_path.insert(0, _hook)


def _remove_hook() -> None:
    with contextlib.suppress(ValueError):
        sys.meta_path.remove(_hook)


class _Counterparts:
    """Maps each function that Equinox's filter_jit returned to a FilterJit of the same function.

    An entry is removed when Equinox's function dies.
    """

    def __init__(self) -> None:
        self._by_id: dict[int, tuple[weakref.ref[Any], Any]] = {}

    def of(self, wrapper: Any) -> Any:
        """Returns the FilterJit for `wrapper`; None if its options cannot be read."""
        entry = self._by_id.get(id(wrapper))
        if entry is not None and entry[0]() is wrapper:
            return entry[1]
        counterpart = self._make(wrapper)
        key, by_id = id(wrapper), self._by_id

        def forget(ref: weakref.ref[Any]) -> None:
            entry = by_id.get(key)
            if entry is not None and entry[0] is ref:
                del by_id[key]

        by_id[key] = (weakref.ref(wrapper, forget), counterpart)
        return counterpart

    @staticmethod
    def _make(wrapper: Any) -> Any:
        from ._base import _jax_compat
        from ._jit._options import make_filter_jit

        parts = _jax_compat.equinox_wrapper_parts(wrapper)
        if parts is None:
            return None
        fun, signature, donate, jitkwargs = parts
        return make_filter_jit(fun, donate, jitkwargs, signature)


class _Replacement:
    """The changes to Equinox, which can be made and undone."""

    def __init__(self, equinox: ModuleType, wrapper_type: type) -> None:
        from ._jit._decorator import filter_jit

        counterparts = _Counterparts()
        of = counterparts.of
        original_call, original_lower = wrapper_type.__call__, wrapper_type.lower  # type: ignore[attr-defined]

        def __call__(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            f = of(self)
            return original_call(self, *args, **kwargs) if f is None else f(*args, **kwargs)

        def lower(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            f = of(self)
            return original_lower(self, *args, **kwargs) if f is None else f.lower(*args, **kwargs)

        changes = (
            (equinox, "filter_jit", filter_jit),
            (wrapper_type, "__call__", __call__),
            (wrapper_type, "lower", lower),
        )
        self._changes = changes
        self._before = tuple((owner, name, getattr(owner, name)) for owner, name, _ in changes)

    def apply(self) -> None:
        self._set(self._changes)

    def undo(self) -> None:
        self._set(self._before)

    @staticmethod
    def _set(changes: tuple[tuple[Any, str, Any], ...]) -> None:
        for owner, name, value in changes:
            setattr(owner, name, value)


def _replace() -> None:
    global _replacement
    if _replacement is not None:
        return
    from ._base import _jax_compat

    _jax_compat.hide_from_tracebacks(__file__)
    equinox = sys.modules["equinox"]
    wrapper_type = _jax_compat.equinox_wrapper_type()
    if wrapper_type is None:
        warnings.warn(
            "filterjit cannot replace filter_jit in Equinox "
            f"{getattr(equinox, '__version__', '(unknown version)')}, whose internals it does not "
            "support; the program runs on Equinox's own. `filterjit.filter_jit` itself works.",
            stacklevel=3,
        )
        return
    replacement = _Replacement(equinox, wrapper_type)
    try:
        replacement.apply()
        _replacement = replacement
    except BaseException:
        replacement.undo()
        raise


@public
def install() -> None:
    """Replaces ``equinox.filter_jit`` by `filterjit.filter_jit` in the whole program.

    Functions that Equinox's filter_jit has returned before run on filterjit too. If the
    program has not imported Equinox yet, the replacement happens when it does. A second call does
    nothing.

    With a version of Equinox that filterjit does not support, it issues a ``UserWarning`` and
    changes nothing.
    """
    global _wanted
    if "equinox" in sys.modules:
        # Waits if another thread is importing it, so it has to come before taking the lock.
        importlib.import_module("equinox")
    with _lock:
        _wanted = True
        if "equinox" in sys.modules:
            _replace()
        else:
            _add_hook()


@public
def uninstall() -> None:
    """Undoes `install`.

    Functions that `filterjit.filter_jit` has returned in the meantime remain as they are. Those
    that Equinox's filter_jit has returned run on Equinox again. A second call does nothing.
    """
    global _replacement, _wanted
    with _lock:
        _wanted = False
        _remove_hook()
        replacement = _replacement
        if replacement is None:
            return
        try:
            replacement.undo()
            _replacement = None
        except BaseException:
            replacement.undo()
            _replacement = None
            raise


@public
@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Returns a context manager that calls `install`, and at the end `uninstall`.

    If filterjit was installed before, it remains installed.
    """
    before = _wanted
    try:
        install()
        yield
        if not before:
            uninstall()
    except BaseException:
        if not before:
            uninstall()
        raise
