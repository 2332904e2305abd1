"""`Programs`: the ``jax.jit`` that a variant runs, or several of them; and dropping them."""

import weakref
from collections.abc import Sequence
from typing import Any

from .. import _core
from .._base._package import public
from .._compat import _equinox_compat, _jax_compat
from . import _direct, _events
from ._flat_function import FlatFunction


class Programs:
    """The one program of a variant. Where there may be several, as by shardings, a subclass
    chooses.

    Attributes:
        jit_id, qualname: as of the `FlatFunction`.

    Arguments:
        flat: the flat function of the variant.
        jitted: the ``jax.jit`` of it, if there is one already.
    """

    def __init__(self, flat: FlatFunction, jitted: Any = None) -> None:
        self.jit_id, self.qualname = flat.jit_id, flat.qualname
        self._calls: list[Any] = [] if jitted is None else [flat.callable_of(jitted)]

    @property
    def calls(self) -> list[Any]:
        """What a call of the variant calls, for each program."""
        return self._calls

    def find(self, arrays: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        """Returns the ``jax.jit`` that a call with these arrays runs, and the arrays as it gets
        them, some by specs in their place."""
        return _direct.jitted_of(self._calls[0]), arrays

    def specs_of_arrays(self, arrays: tuple[Any, ...]) -> Sequence[Any]:
        """Returns the spec that `in_shardings` gives to each array of a call; empty without."""
        return ()

    def is_of_other(self, exception: Exception, arrays: tuple[Any, ...]) -> bool:
        """Returns whether a call that has failed is to be made again, by another program."""
        return False

    def call_again(self, exception: Exception, arrays: tuple[Any, ...]) -> bool:
        """Returns `is_of_other`, having set the ``variant.call`` that makes the call."""
        return False


def programs_of(variant: _core.Variant) -> Programs:
    """Returns the programs of a variant of a jitted function."""
    assert variant.programs is not None
    return variant.programs


def calls_of(variant: _core.Variant) -> list[Any]:
    """Returns what a call of a variant calls, for each of its programs."""
    return [variant.call] if variant.programs is None else variant.programs.calls


def _drop(variant: _core.Variant) -> None:
    """Drops what JAX and direct calls hold for a variant."""
    for call in calls_of(variant):
        if isinstance(call, _core.Direct):
            call.clear()
        clear_jax = getattr(_direct.jitted_of(call), "clear_cache", None)
        if clear_jax is not None:
            clear_jax()


# ---- dropping compiled programs: of one function, or of all ----

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
        _drop(variant)


@public
def clear_caches() -> None:
    """Drops the compiled programs of all jitted functions.

    A `Compiled` keeps its program. ``jax.clear_caches`` and ``equinox.clear_caches`` do this too.
    """
    for cache in list(_caches):
        clear(cache)
