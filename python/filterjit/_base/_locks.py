"""The locks of the package, and taking what threads have left for each other.

A forked child gets new locks. A thread may take its lock again, because a signal handler or a
finalizer may run between any two lines, and call a jitted function.
"""

import operator
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Any, Protocol

_all: "weakref.WeakSet[RLock]" = weakref.WeakSet()


class RLock:
    """A ``threading.RLock`` for ``with``.

    In a forked child, it is free, because the threads that hold it do not exist there. A ``with``
    that forks releases the lock of the parent.

    The package has only RLocks: with another lock, a handler or a finalizer would wait for its own
    thread. The methods are those of the lock in C, which no interrupt leaves halfway.
    """

    __slots__ = ("__weakref__", "now")

    def __init__(self) -> None:
        self.now = threading.RLock()
        _all.add(self)

    acquire = property(operator.attrgetter("now.acquire"))
    release = property(operator.attrgetter("now.release"))
    __enter__ = property(operator.attrgetter("now.__enter__"))
    __exit__ = property(operator.attrgetter("now.__exit__"))


class _Pops(Protocol):
    def pop(self) -> Any: ...


def taken(items: _Pops) -> Iterator[Any]:
    """Removes and yields the items of a list or deque, until none is left. Another thread may do
    the same at the same time: each item is yielded once."""
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
