"""The locks of the package: a forked child gets them anew, and a thread may take one again."""

import operator
import os
import threading
import weakref

_all: "weakref.WeakSet[RLock]" = weakref.WeakSet()


class RLock:
    """A ``threading.RLock`` for ``with``. In a forked child, where threads that hold it are no more, it is
    free; a ``with`` that forks releases the lock of the parent.

    There is no other lock in the package: the handler of a signal or a finalizer, which may run between
    any two lines that a lock protects, may call a jitted function.

    The methods are those of the lock in C, which no interrupt leaves halfway.
    """

    __slots__ = ("__weakref__", "now")

    def __init__(self) -> None:
        self.now = threading.RLock()
        _all.add(self)

    acquire = property(operator.attrgetter("now.acquire"))
    release = property(operator.attrgetter("now.release"))
    __enter__ = property(operator.attrgetter("now.__enter__"))
    __exit__ = property(operator.attrgetter("now.__exit__"))


def _after_fork() -> None:
    for lock in list(_all):
        lock.now = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
