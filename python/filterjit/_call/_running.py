"""While a program runs: what JAX is not to say of it, and waiting for it."""

import contextlib
import logging
import os
import threading
import warnings
from collections.abc import Sequence
from typing import Any

import jax

from .. import _core


class _WhileAny:
    """Something that is in force while any call of several threads needs it.

    An interrupt may come between any two lines: `begin` and `end` do no harm when they are
    called once more, and what ends it is deferred before it begins.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: set[tuple[int, object]] = set()  # by thread
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def during(self, variant: _core.Variant) -> None:
        """From now on, until the call of `variant` that is under way is over."""
        call = threading.get_ident(), object()
        variant.defer(lambda: self._leave(call))
        with self._lock:
            self._calls.add(call)
            self.begin()

    def _leave(self, call: tuple[int, object]) -> None:
        with self._lock:
            self._calls.discard(call)
            if not self._calls:
                self.end()

    def _forked(self) -> None:
        """The other threads' calls are not in this process."""
        self._lock = threading.Lock()
        self._calls = {call for call in self._calls if call[0] == threading.get_ident()}
        if not self._calls:
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

    # The comment in it makes it another filter than the user's.
    _MESSAGE = "(?#filterjit)Some donated buffers were not usable"

    @classmethod
    def _ours(cls) -> list[Any]:
        return [x for x in list(warnings.filters) if getattr(x[1], "pattern", "") == cls._MESSAGE]

    def begin(self) -> None:
        if not self._ours():
            warnings.filterwarnings("ignore", message=self._MESSAGE)

    def end(self) -> None:
        for ours in self._ours():
            with contextlib.suppress(ValueError):
                warnings.filters.remove(ours)  # type: ignore[attr-defined]


_quiet_callbacks = _QuietCallbacks()
_quiet_donation = _QuietDonation()


def ignore_donation(variant: _core.Variant) -> None:
    """Drops the warning on donated buffers until the call under way is over."""
    _quiet_donation.during(variant)


class Running:
    """What the C core asks for while a program runs that can raise."""

    def before_raising_call(self, variant: _core.Variant) -> None:
        """Before a call of a program that can raise, and at each trace, which may be of one."""
        _quiet_callbacks.during(variant)

    def wait(self, outputs: Sequence[object]) -> None:
        """Until the device is done: then a program that raises has raised."""
        for x in outputs:
            if isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer):
                x.block_until_ready()
                break
