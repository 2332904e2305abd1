"""`Programs`: the ``jax.jit`` functions that a variant runs, and dropping them."""

import weakref
from collections.abc import Sequence
from typing import Any

from .. import _core
from .._base._package import public
from .._compat import _equinox_compat, _jax_compat
from . import _direct, _events
from ._trace import FlatFunction


class Programs:
    """A variant's only program: the flat function and its ``jax.jit``. Subclasses choose among
    several programs, for example by shardings."""

    def __init__(self, flat: FlatFunction, jitted: Any = None) -> None:
        self.jit_id, self.qualname, self.order = flat.jit_id, flat.qualname, flat.order
        self._calls: list[Any] = [] if jitted is None else [flat.callable_of(jitted)]

    @property
    def calls(self) -> list[Any]:
        """A callable of each program. It takes arrays in the program's `order`."""
        return self._calls

    def find(self, arrays: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        """Returns the ``jax.jit`` for these arrays, and the arrays after placement, in its order."""
        return _direct.jitted_of(self._calls[0]), _direct.arrange(arrays, self.order)

    def specs_of_arrays(self, arrays: tuple[Any, ...]) -> Sequence[Any]:
        """Returns the `in_shardings` spec of each array; empty without shardings."""
        return ()

    def needs_other_program(self, exception: Exception, arrays: tuple[Any, ...]) -> bool:
        """True if another program must repeat the failed call."""
        return False

    def switch_program(self, exception: Exception, arrays: tuple[Any, ...]) -> bool:
        """Returns `needs_other_program`, and switches ``variant._call`` to that program."""
        return False


def programs_of(variant: _core.Variant) -> Programs:
    assert variant._programs is not None
    return variant._programs


def calls_of(variant: _core.Variant) -> list[Any]:
    if variant._programs is not None:
        return variant._programs.calls
    call = variant._call
    return [call.call if isinstance(call, _direct.Reordered) else call]


def has_programs(variant: _core.Variant) -> bool:
    """True if calls have compiled a program of the variant."""
    return any(_jax_compat.count_programs(_direct.jitted_of(call)) for call in calls_of(variant))


def count(cache: _core.Cache) -> int:
    """Returns the number of a function's programs, as ``_cache_size`` of ``jax.jit`` does. Traces
    ahead of time count too."""
    found = _jax_compat.count_programs(getattr(cache.hooks, "upstream", None))
    for variant in cache.variants():
        jitted = map(_direct.jitted_of, calls_of(variant))
        found += max(variant.num_traces, sum(map(_jax_compat.count_programs, jitted)))
    return found


def _drop(variant: _core.Variant) -> None:
    """Drops a variant's programs from JAX and from direct calls."""
    for call in calls_of(variant):
        if isinstance(call, _core.Direct):
            call.clear()
        _jax_compat.drop_programs(_direct.jitted_of(call))


# ---- dropping programs ----

_caches: "weakref.WeakSet[_core.Cache]" = weakref.WeakSet()


def add(cache: _core.Cache) -> None:
    """Registers a cache for `clear_caches`."""
    if not _caches:
        _jax_compat.clears_with_jax(clear_caches)
    _caches.add(cache)
    clears = _equinox_compat.cache_clears()  # each time, because Equinox can be imported later
    if clears is not None and clear_caches not in clears:
        clears.append(clear_caches)


def clear(cache: _core.Cache) -> None:
    """Drops a function's programs, even from variants that running calls hold."""
    variants = cache.variants()
    cache.clear()
    _events.notify("cleared", cache)
    for variant in variants:
        _drop(variant)


@public
def clear_caches() -> None:
    """Drops the compiled programs of all jitted functions, except those that a `Compiled` holds.

    ``jax.clear_caches`` and ``equinox.clear_caches`` call this too.
    """
    for cache in list(_caches):
        clear(cache)
