"""Replacing ``equinox.filter_jit``, ``flax.nnx.jit`` and ``jax.jit`` in a whole program.

Equinox: ``equinox.filter_jit`` becomes `filterjit.filter_jit`. A function that Equinox's filter_jit
has returned calls a FilterJit of the same function. That holds for functions that exist already,
and for those that a library makes later with its own reference to Equinox's filter_jit (Diffrax
does).

Flax: ``flax.nnx.jit`` and ``flax.nnx.compat.jit`` become `filterjit.nnx.jit`, and both
``cached_partial`` become `filterjit.nnx.cached_partial`. Functions that they returned before stay
as they are.

JAX: with ``install(jax=True)``, ``jax.jit`` becomes `filterjit.jit`. It returns a function of JAX's
own when JAX's, Equinox's, Flax's or filterjit's modules call it (`_jit._plain`).

`install` imports none of these libraries. If the program has not imported one yet, an import hook
makes the changes when it does. So the program can still set JAX's options after `install`.
"""

import contextlib
import functools
import importlib
import sys
import warnings
from collections.abc import Callable
from typing import Any

from ._base._after_import import AfterImport
from ._base._checks import Undo, check_bool
from ._base._locks import RLock
from ._base._package import public

_lock = RLock()

_Changes = list[tuple[Any, str, Any]]
"""Triples (owner, name of an attribute, its new value)."""


class _Peer:
    """A library whose functions are replaced, now or right after the program has imported it.

    Attributes:
        wanted: whether `install` was called, and `uninstall` was not called since.
    """

    def __init__(self, module: str, changes: Callable[[], _Changes | None]) -> None:
        self.wanted = False
        self._module = module
        self._changes = changes
        self._hook = AfterImport(module, self._imported)
        self._before: _Changes | None = None  # the original values, if something is replaced

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
        """Makes changes; `then` are the original values from then on. If it is interrupted, it
        restores the values of `before`."""
        try:
            _set(changes)
            self._before = then
        except BaseException:
            _set(before)
            self._before = None
            raise

    def install(self) -> None:
        if self._module in sys.modules:
            # Before the lock: this waits if another thread is importing it.
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
_get = object.__getattribute__  # faster: that of Modules is in Python


def _counterpart_of(wrapper: Any) -> Any:
    """Returns the FilterJit for a wrapper of Equinox; None if its options cannot be read.

    It is stored in the ``__dict__`` of the wrapper. Equinox flattens fields only, so it does not
    see it.
    """
    try:
        found = _get(wrapper, _COUNTERPART)
        if found.owner() is wrapper:
            return found.value
    except AttributeError:  # there is none yet, or a pickle has another object there
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
            "filterjit cannot replace filter_jit in Equinox "
            f"{getattr(equinox, '__version__', '(unknown version)')}, whose internals it does not "
            "support; the program runs on Equinox's own. `filterjit.filter_jit` itself works.",
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
    # Not from `filterjit.nnx`, which may be what imports Flax.
    from ._nnx._cached_partial import cached_partial
    from ._nnx._nnx_jit import jit

    nnx = sys.modules["flax.nnx"]
    compat = getattr(nnx, "compat", None)
    changes: _Changes = []
    for ours in (jit, cached_partial):
        name = ours.__name__
        in_graphs = functools.partial(ours, graph=True, graph_updates=True)
        for owner, function in ((nnx, ours), (compat, in_graphs)):
            if hasattr(owner, name):  # an older version lacks some
                changes.append((owner, name, function))
    return changes


def _changes_of_jax() -> _Changes:
    import jax

    from ._jit._plain import jit as ours

    return [(jax, "jit", ours)]


_equinox = _Peer("equinox", _changes_of_equinox)
_flax = _Peer("flax.nnx", _changes_of_flax)
_jax = _Peer("jax", _changes_of_jax)


def is_installed(jax: bool = False) -> bool:
    """Whether `install` was called (with ``jax=True`` if `jax` is true), and `uninstall` was not
    called since."""
    return _jax.wanted if jax else _equinox.wanted


@public
def install(*, flax: bool = True, jax: bool = False) -> contextlib.ExitStack:
    """Replaces ``equinox.filter_jit`` by `filterjit.filter_jit`, and ``flax.nnx.jit`` and
    ``flax.nnx.cached_partial`` by those of `filterjit.nnx`, in the whole program.

    Functions that Equinox's filter_jit has returned before run on filterjit too. Functions that
    ``flax.nnx.jit`` has returned before stay as they are. If the program has not imported Equinox
    or Flax NNX yet, the replacement happens when it does. A second call does nothing.

    With a version of Equinox that filterjit does not support, `install` issues a ``UserWarning``
    and changes nothing in Equinox. With such a version of Flax, ``flax.nnx.jit`` makes all calls.

    Arguments:
        flax: whether to replace the functions of ``flax.nnx`` and ``flax.nnx.compat``.
        jax: whether to replace ``jax.jit`` by `filterjit.jit` for functions that are jitted from
            then on, also in libraries. A module that has run ``from jax import jit`` before keeps
            what it has. JAX's own modules keep ``jax.jit``.

    Returns:
        An ``ExitStack``. Leaving it as a context manager, or its ``close``, undoes this call. What
        was installed before stays. Otherwise the replacement lasts until `uninstall`.

    Raises:
        ValueError: if `flax` or `jax` is not a bool.

    Examples:
        >>> with install():
        ...     eqx.filter_jit is filter_jit
        True
    """
    check_bool("install(flax=...)", flax)
    check_bool("install(jax=...)", jax)
    undo = Undo("filterjit.install")
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

    Functions that Equinox's filter_jit has returned run on Equinox again. Functions that
    `filterjit.filter_jit`, `filterjit.nnx.jit` and `filterjit.jit` have returned in the meantime
    stay as they are. So do names that modules have imported from JAX. A second call does nothing.
    """
    _equinox.uninstall()
    _flax.uninstall()
    _jax.uninstall()
