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
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from ._base._after_import import AfterImport
from ._base._package import public

_lock = threading.RLock()


def _forked() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class _EquinoxHook(AfterImport):
    """Replaces Equinox's filter_jit right after the program has imported Equinox."""

    def __init__(self) -> None:
        super().__init__("equinox", _equinox_imported)

    def add(self) -> None:
        with _lock:
            if _wanted:
                super().add()


def _equinox_imported() -> None:
    with _lock:
        if _wanted:
            _replace()


_hook = _EquinoxHook()
_wanted = False
_replacement: "_Replacement | None" = None


_COUNTERPART = "__filterjit_counterpart__"
_get = object.__getattribute__  # that of Modules is in Python


class _Counterpart:
    """The FilterJit of the function that a wrapper of Equinox wraps, in the wrapper's ``__dict__``.

    So it dies with the wrapper, even if the function refers to the wrapper: that is one cycle,
    which the garbage collector sees. A copy of a wrapper may have the `_Counterpart` of another
    wrapper, which `owner` tells. Equinox flattens fields alone, so it does not see it. A pickle
    does not hold it.
    """

    __slots__ = ("function", "owner")

    def __init__(self, owner: Any, function: Any) -> None:
        self.owner = weakref.ref(owner)
        self.function = function

    def __reduce__(self) -> tuple[Any, ...]:
        return bool, ()


def _counterpart_of(wrapper: Any) -> Any:
    """Returns the FilterJit for `wrapper`; None if its options cannot be read."""
    try:
        found = _get(wrapper, _COUNTERPART)
    except AttributeError:
        found = None
    if type(found) is _Counterpart and found.owner() is wrapper:
        return found.function
    function = _make_counterpart(wrapper)
    object.__setattr__(wrapper, _COUNTERPART, _Counterpart(wrapper, function))
    return function


def _make_counterpart(wrapper: Any) -> Any:
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

        of = _counterpart_of
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


def is_installed() -> bool:
    """Whether `install` was called, and `uninstall` not since."""
    return _wanted


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
            _hook.add()


@public
def uninstall() -> None:
    """Undoes `install`.

    Functions that `filterjit.filter_jit` has returned in the meantime remain as they are. Those
    that Equinox's filter_jit has returned run on Equinox again. A second call does nothing.
    """
    global _replacement, _wanted
    with _lock:
        _wanted = False
        _hook.remove()
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
