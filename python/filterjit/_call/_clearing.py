"""Dropping compiled programs: of one function, or of all."""

import weakref

from .. import _core
from .._base._package import public
from .._compat import _equinox_compat, _jax_compat
from . import _events, _programs

_caches: "weakref.WeakSet[_core.Cache]" = weakref.WeakSet()


def add(cache: _core.Cache) -> None:
    """Adds a new cache, so that `clear_caches` clears it."""
    if not _caches:
        _jax_compat.clears_with_jax(clear_caches)
    _caches.add(cache)
    clears = _equinox_compat.cache_clears()  # which the program may import meanwhile
    if clears is not None and clear_caches not in clears:
        clears.append(clear_caches)


def clear(cache: _core.Cache) -> None:
    """Drops the compiled programs of one function.

    The programs that JAX holds for the variants are dropped too, because a call may hold its
    variant.
    """
    variants = cache.variants()
    cache.clear()
    _events.tell("cleared", cache)
    for variant in variants:
        _programs.clear(variant)


@public
def clear_caches() -> None:
    """Drops the compiled programs of all jitted functions.

    A `Compiled` keeps its program. ``jax.clear_caches`` and ``equinox.clear_caches`` do this too.
    """
    for cache in list(_caches):
        clear(cache)
