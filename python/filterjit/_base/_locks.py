"""Reentrant locks that survive forks, and draining containers shared by threads."""

import collections
import operator
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Any

_all: "weakref.WeakSet[RLock]" = weakref.WeakSet()


class RLock:
    """A ``threading.RLock`` for ``with`` that is free in a forked child, where the threads that
    held it don't exist. A ``with`` that forks releases the parent's lock.

    The package uses only reentrant locks: a signal handler or finalizer can run between any two
    lines and call a jitted function. With an ordinary lock, it would wait for its own thread. The
    methods are the C lock's own, so an interrupt can't leave them halfway.
    """

    __slots__ = ("__weakref__", "now")

    def __init__(self) -> None:
        self.now = threading.RLock()
        _all.add(self)

    acquire = property(operator.attrgetter("now.acquire"))
    release = property(operator.attrgetter("now.release"))
    __enter__ = property(operator.attrgetter("now.__enter__"))
    __exit__ = property(operator.attrgetter("now.__exit__"))


def drain(items: "collections.deque[Any]") -> Iterator[Any]:
    """Pops and yields items until none is left. Threads can share this."""
    while True:
        try:
            item = items.pop()
        except IndexError:
            return
        yield item


def _after_fork() -> None:
    for lock in list(_all):
        lock.now = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
