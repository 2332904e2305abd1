"""Taking the place of ``equinox.filter_jit`` in a whole program.

Two doors are entered. ``equinox.filter_jit`` becomes ours. And calls of the wrappers that
Equinox's own has made, before or through a reference kept elsewhere (Diffrax's module bodies),
are led to a FilterJit of the same function. Neither imports Equinox: where the program has not
done so yet, we enter when it does.

JAX is not imported here either, so that installing comes before any option is set.
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

_lock = threading.RLock()


def _forked() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class _ImportHook(importlib.abc.MetaPathFinder):
    """Enters Equinox right after the program has imported it."""

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
            _put_hook()
            raise
        if spec is None or spec.loader is None:
            _put_hook()
            return None
        execute: Callable[[ModuleType], None] = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            try:
                execute(module)
            except BaseException:
                _put_hook()  # for the next attempt
                raise
            with _lock:
                if _wanted:
                    _enter()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


_hook = _ImportHook()
_wanted = False
_entered: "_Entered | None" = None


def _put_hook() -> None:
    with _lock:
        if _wanted and _hook not in sys.meta_path:
            sys.meta_path.insert(0, _hook)


def _remove_hook() -> None:
    with contextlib.suppress(ValueError):
        sys.meta_path.remove(_hook)


class _Counterparts:
    """For each of Equinox's wrappers the FilterJit that runs in its place, while it lives."""

    def __init__(self) -> None:
        self._by_id: dict[int, tuple[weakref.ref[Any], Any]] = {}

    def of(self, wrapper: Any) -> Any:
        """The counterpart; None where there can be none."""
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


class _Entered:
    """What was changed in Equinox, and how to change it back."""

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

    def enter(self) -> None:
        self._set(self._changes)

    def leave(self) -> None:
        self._set(self._before)

    @staticmethod
    def _set(changes: tuple[tuple[Any, str, Any], ...]) -> None:
        for owner, name, value in changes:
            setattr(owner, name, value)


def _enter() -> None:
    global _entered
    if _entered is not None:
        return
    from ._base import _jax_compat

    _jax_compat.hide_from_tracebacks(__file__)
    equinox = sys.modules["equinox"]
    wrapper_type = _jax_compat.equinox_wrapper_type()
    if wrapper_type is None:
        warnings.warn(
            f"filterjit does not know how to take the place of filter_jit in Equinox "
            f"{getattr(equinox, '__version__', '(unknown version)')}; the program runs without "
            "it. `filterjit.filter_jit` itself works.",
            stacklevel=3,
        )
        return
    entered = _Entered(equinox, wrapper_type)
    try:
        entered.enter()
        _entered = entered
    except BaseException:
        entered.leave()
        raise


def install() -> None:
    """Puts `filterjit.filter_jit` in the place of ``equinox.filter_jit``.

    Functions that Equinox has wrapped already gain as well. Before Equinox is imported, it takes
    effect when it is. Doing it twice is harmless. With a version of Equinox that is not known,
    it warns and changes nothing.
    """
    global _wanted
    if "equinox" in sys.modules:
        importlib.import_module("equinox")  # another thread may be at it: not with the lock
    with _lock:
        _wanted = True
        if "equinox" in sys.modules:
            _enter()
        else:
            _put_hook()


def uninstall() -> None:
    """Takes back what `install` did. Functions jitted meanwhile go on as they are; those that
    Equinox wrapped run on Equinox again. Doing it twice is harmless."""
    global _entered, _wanted
    with _lock:
        _wanted = False
        _remove_hook()
        entered = _entered
        if entered is None:
            return
        try:
            entered.leave()
            _entered = None
        except BaseException:
            entered.leave()
            _entered = None
            raise


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """A context in which `install` is in force; outside it is as it was before."""
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
