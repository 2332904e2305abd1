"""While a program runs: what JAX is not to say of it, and waiting for it."""

import contextlib
import logging
import threading
import warnings
from collections.abc import Iterator, Sequence

import jax

from . import _core


class _WhileAny:
    """Something that is in force while any call of several threads needs it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls = 0

    def enter(self) -> None:
        with self._lock:
            self._calls += 1
            if self._calls == 1:
                self.begin()

    def leave(self) -> None:
        with self._lock:
            self._calls -= 1
            if self._calls == 0:
                self.end()

    def begin(self) -> None:
        raise NotImplementedError

    def end(self) -> None:
        raise NotImplementedError


class _QuietCallbacks(_WhileAny):
    """Keeps JAX from logging the failure of a callback whose error we raise, as Equinox does."""

    def begin(self) -> None:
        logging.getLogger("jax._src.callback").addFilter(_is_news)

    def end(self) -> None:
        logging.getLogger("jax._src.callback").removeFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    return record.getMessage() != "jax.pure_callback failed"


class _QuietDonation(_WhileAny):
    """Keeps JAX from warning that a donated buffer was of no use.

    Not by ``warnings.catch_warnings``, which puts back all filters as they were: of two threads
    that use it at once, one leaves behind the filters of the other.
    """

    def begin(self) -> None:
        before = len(warnings.filters)
        warnings.filterwarnings("ignore", message="Some donated buffers were not usable*")
        self._filter = warnings.filters[0] if len(warnings.filters) > before else None

    def end(self) -> None:
        if self._filter in warnings.filters:
            warnings.filters.remove(self._filter)  # type: ignore[attr-defined]


_quiet_callbacks = _QuietCallbacks()
_quiet_donation = _QuietDonation()


@contextlib.contextmanager
def ignoring_donation() -> Iterator[None]:
    """Drops the warning on donated buffers."""
    _quiet_donation.enter()
    try:
        yield
    finally:
        _quiet_donation.leave()


def ignore_donation(variant: _core.Variant) -> None:
    """Drops the warning on donated buffers until the call under way is over."""
    _quiet_donation.enter()
    variant.defer(_quiet_donation.leave)


class Running:
    """What the C core asks for while a program runs that can raise."""

    def guard(self, variant: _core.Variant) -> None:
        """Before a call of a program that can raise, and at each trace, which may be of one."""
        _quiet_callbacks.enter()
        variant.defer(_quiet_callbacks.leave)

    def wait(self, outputs: Sequence[object]) -> None:
        """Until the device is done: then a program that raises has raised."""
        for x in outputs:
            if isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer):
                x.block_until_ready()
                break
