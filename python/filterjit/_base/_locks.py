"""The locks of the package, which a forked child gets anew."""

import operator
import os
import threading
import weakref

_all: weakref.WeakSet["_ForkedLock"] = weakref.WeakSet()


class _ForkedLock:
    """A lock for ``with``. In a forked child, where threads that hold it are no more, it is free; a
    ``with`` that forks releases the lock of the parent.

    The methods are those of the lock in C, which no interrupt leaves halfway.
    """

    __slots__ = ("__weakref__", "now")
    now: "threading.Lock | threading.RLock"

    def __init__(self) -> None:
        self.renew()
        _all.add(self)

    def renew(self) -> None:
        raise NotImplementedError

    acquire = property(operator.attrgetter("now.acquire"))
    release = property(operator.attrgetter("now.release"))
    __enter__ = property(operator.attrgetter("now.__enter__"))
    __exit__ = property(operator.attrgetter("now.__exit__"))


class Lock(_ForkedLock):
    """A ``threading.Lock`` that is free in a forked child."""

    __slots__ = ()

    def renew(self) -> None:
        self.now = threading.Lock()


class RLock(_ForkedLock):
    """A ``threading.RLock`` that is free in a forked child.

    A lock that is held while Python code may run is one: the garbage collector may run there, and a
    finalizer may call a jitted function.
    """

    __slots__ = ()

    def renew(self) -> None:
        self.now = threading.RLock()


def _after_fork() -> None:
    for lock in list(_all):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
