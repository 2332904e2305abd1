"""Replaces ``equinox.filter_jit``, ``flax.nnx.jit`` and ``jax.jit`` in a whole process.

Functions that Equinox's filter_jit returns call a FilterJit of the same function: existing ones, and
those that a library makes later with its own reference to Equinox's filter_jit, as Diffrax does.

`install` imports none of these libraries. If the program imports one later, an import hook makes
the changes then. Programs can therefore set JAX's options after `install`.
"""

import contextlib
import functools
import importlib
import sys
import warnings
from collections.abc import Callable
from typing import Any

from ._base._after_import import AfterImport
from ._base._checks import check_bool
from ._base._locks import RLock
from ._base._package import advising, public

_lock = RLock()

_Changes = list[tuple[Any, str, Any]]
"""(owner, attribute, new value)."""


class _Peer:
    """A library to change, now or right after the program imports it. `wanted` is True between
    `install` and `uninstall`."""

    def __init__(self, module: str, changes: Callable[[], _Changes | None]) -> None:
        self.wanted = False
        self._module = module
        self._changes = changes
        self._hook = AfterImport(module, self._imported)
        self._before: _Changes | None = None  # the original values; None if nothing is replaced

    def _imported(self) -> None:
        with _lock:
            if self.wanted:
                self._replace()

    def _replace(self) -> None:
        if self._before is not None:
            return
        changes = self._changes()
        if changes is not None:
            before = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
            self._apply(changes, before, before)

    def _apply(self, changes: _Changes, before: _Changes, then: _Changes | None) -> None:
        """Makes changes and sets `_before` to `then`. If interrupted, restores `before`."""
        try:
            _set(changes)
            self._before = then
        except BaseException:
            _set(before)
            self._before = None
            raise

    def install(self) -> None:
        if self._module in sys.modules:
            # Before taking the lock, because this waits for an import in another thread.
            importlib.import_module(self._module)
        with _lock:
            self.wanted = True
            if self._module in sys.modules:
                self._replace()
            else:
                self._hook.add()

    def uninstall(self) -> None:
        with _lock:
            self.wanted = False
            self._hook.remove()
            if self._before is not None:
                self._apply(self._before, self._before, None)


def _set(changes: _Changes) -> None:
    for owner, name, value in changes:
        setattr(owner, name, value)


_COUNTERPART = "__filterjit_counterpart__"
_get = object.__getattribute__  # faster than that of Modules, which is in Python


def _counterpart_of(wrapper: Any) -> Any:
    """Returns the FilterJit for a wrapper of Equinox, or None if its options can't be read. It's
    stored in the wrapper's ``__dict__``. Equinox ignores it, because it flattens only fields."""
    try:
        found = _get(wrapper, _COUNTERPART)
        if found.owner() is wrapper:
            return found.value
    except AttributeError:  # absent, or None in a pickle
        pass
    from ._call._caches import Owned

    function = _make_counterpart(wrapper)
    object.__setattr__(wrapper, _COUNTERPART, Owned(wrapper, function))
    return function


def _make_counterpart(wrapper: Any) -> Any:
    from ._call._donation import Donation
    from ._call._settings import Settings
    from ._compat import _equinox_compat
    from ._jit._filter_jit import make_filter_jit

    parts = _equinox_compat.wrapper_parts(wrapper)
    if parts is None:
        return None
    fun, signature, donate, jitkwargs = parts
    return make_filter_jit(
        fun, Settings(Donation(donate), jitkwargs=tuple(jitkwargs.items())), signature
    )


def _changes_of_equinox() -> _Changes | None:
    from ._compat import _equinox_compat, _jax_compat
    from ._jit._decorator import filter_jit

    _jax_compat.hide_from_tracebacks(__file__)
    equinox = sys.modules["equinox"]
    wrapper_type = _equinox_compat.wrapper_type()
    if wrapper_type is None:
        warnings.warn(
            "filterjit doesn't support the internals of Equinox "
            f"{getattr(equinox, '__version__', '(unknown version)')}, so `eqx.filter_jit` is unchanged. "
            "`filterjit.filter_jit` itself works.",
            stacklevel=4,
        )
        return None
    of = _counterpart_of
    original_call, original_lower = wrapper_type.__call__, wrapper_type.lower  # type: ignore[attr-defined]

    def __call__(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        f = of(self)
        return original_call(self, *args, **kwargs) if f is None else f(*args, **kwargs)

    def lower(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        f = of(self)
        return original_lower(self, *args, **kwargs) if f is None else f.lower(*args, **kwargs)

    return [
        (equinox, "filter_jit", filter_jit),
        (wrapper_type, "__call__", __call__),
        (wrapper_type, "lower", lower),
    ]


def _changes_of_flax() -> _Changes:
    # Not from `filterjit.nnx`, which might be importing Flax right now.
    from ._nnx._cached_partial import cached_partial
    from ._nnx._nnx_jit import jit

    nnx = sys.modules["flax.nnx"]
    compat = getattr(nnx, "compat", None)
    changes: _Changes = []
    for ours in (jit, cached_partial):
        name = ours.__name__
        in_graphs = functools.partial(ours, graph=True, graph_updates=True)
        for owner, function in ((nnx, ours), (compat, in_graphs)):
            if hasattr(owner, name):  # older versions lack some
                changes.append((owner, name, function))
    return changes


def _changes_of_jax() -> _Changes:
    import jax

    from ._jit._plain import jit as ours

    return [(jax, "jit", ours)]


_equinox = _Peer("equinox", _changes_of_equinox)
_flax = _Peer("flax.nnx", _changes_of_flax)
_jax = _Peer("jax", _changes_of_jax)


_OTHERS = dict.fromkeys(("nnx", "flax_nnx"), "Pass `flax`, which is True by default.")
_OTHERS["equinox"] = "It always replaces `equinox.filter_jit`."


@public
@functools.partial(advising, others=_OTHERS)
def install(*, flax: bool = True, jax: bool = False) -> contextlib.ExitStack:
    """Replaces ``equinox.filter_jit``, ``flax.nnx.jit`` and ``flax.nnx.cached_partial`` with their
    counterparts in filterjit, everywhere in the process.

    Existing functions of Equinox's filter_jit run on filterjit too. Existing functions of
    ``flax.nnx.jit`` don't change. If nothing has imported Equinox or Flax NNX yet, the
    replacement happens at the import. A second call does nothing.

    If filterjit doesn't support the version of Equinox, `install` issues a ``UserWarning`` and
    leaves Equinox unchanged. With an unsupported version of Flax, all calls fall back to Flax.

    Arguments:
        flax: whether to replace the functions of ``flax.nnx`` and ``flax.nnx.compat``.
        jax: whether to replace ``jax.jit`` with `filterjit.jit` for functions jitted from then on,
            including in libraries. A module that has already run ``from jax import jit`` keeps the
            original. JAX's own modules keep ``jax.jit``.

    Returns:
        An ``ExitStack``. Use it as a context manager or ``close`` it to undo this call, but not
        earlier ones. Otherwise the replacement lasts until `uninstall`.

    Raises:
        ValueError: if `flax` or `jax` isn't a bool.

    Examples:
        >>> with install():
        ...     eqx.filter_jit is filter_jit
        True
    """
    check_bool("install(flax=...)", flax)
    check_bool("install(jax=...)", jax)
    undo = contextlib.ExitStack()
    for peer in (_equinox, _flax, _jax):
        if not peer.wanted:
            undo.callback(peer.uninstall)
    try:
        _equinox.install()
        if flax:
            _flax.install()
        if jax:
            _jax.install()
    except BaseException:
        undo.close()
        raise
    return undo


@public
def uninstall() -> None:
    """Undoes `install`.

    Functions of Equinox's filter_jit run on Equinox again. Functions made meanwhile by
    `filterjit.filter_jit`, `filterjit.nnx.jit` and `filterjit.jit` don't change, and neither do
    names that modules have imported from JAX. A second call does nothing.
    """
    _equinox.uninstall()
    _flax.uninstall()
    _jax.uninstall()
